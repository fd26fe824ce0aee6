// Keeps the list of sales true after a countdown has opened one of them, and when the tab is looked at again. Never takes
// a link away from somebody who is at it with the keyboard: then it looks as soon as they have left. Loaded by the list
// before the countdown, which may open a sale at once.

import { forget, fresh } from "./fresh.js";

const REST_MS = 5_000; // who changes tabs all the time asks no more often than this
const [SOONEST_MS, LATEST_MS] = [1_000, 5_000]; // all who watch an opening must not ask in the same instant
const REST_AFTER_FAILURES_MS = 60_000;
const list = document.querySelector("[data-list]");
let timer = 0;
let lookedAt = -Infinity;
let failures = 0;
let isDue = false; // a look that could not be made, or whose answer could not be shown

const isUsed = () => Boolean(list.querySelector(":focus-visible"));

function again(ms) {
  clearTimeout(timer);
  timer = setTimeout(look, ms);
}

async function look() {
  isDue = document.hidden || isUsed();
  if (isDue) return;
  lookedAt = performance.now();
  try {
    const found = await fresh("[data-list]");
    failures = 0;
    if (!found) return;
    isDue = isUsed();
    if (isDue) return forget();
    list.replaceChildren(...found.childNodes);
    list.dataset.clockUrl = found.dataset.clockUrl ?? "";
    document.dispatchEvent(new Event("parts-replaced"));
  } catch {
    isDue = true; // what is shown stays
    failures += 1;
    again(Math.min(LATEST_MS * 2 ** failures, REST_AFTER_FAILURES_MS) * (0.5 + Math.random()));
  }
}

document.addEventListener("opened-by-the-clock", () => {
  forget();
  again(SOONEST_MS + Math.random() * (LATEST_MS - SOONEST_MS));
});
document.addEventListener("visibilitychange", () => {
  const rest = Math.max(0, lookedAt + REST_MS - performance.now());
  if (!document.hidden && (isDue || !rest)) again(rest);
});
list.addEventListener("focusout", () => { if (isDue) again(SOONEST_MS); });
addEventListener("online", () => { if (isDue) again(SOONEST_MS); });
