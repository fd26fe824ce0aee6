// Keeps the sale page true while it is open: looks again now and then and puts in what changed.
// Never touches a form that somebody is using, never looks while the tab is hidden. Loaded by the sale page.

import { forget, fresh } from "./fresh.js";

const OPEN_MS = 5_000;
const SCHEDULED_MS = 15_000;
const NEAR_MS = 600_000; // so long before it opens, a sale is looked at as often as one that is open
const SOON_MS = 600;
const SLOWEST_MS = 60_000;
let sale = document.querySelector("[data-sale]");
let shown = new Map(parts(document).map((part) => [part.dataset.live, part.innerHTML]));
let timer = 0;
let failures = 0;
let chosen; // how many units, kept here because a paused sale has no form

function parts(root) {
  return [...root.querySelectorAll("[data-live]")];
}

const selectIn = (part) => part.querySelector("select[name=quantity]");

// What was chosen stays chosen, also when there was no form meanwhile, and focus stays on it.
function replace(here, part) {
  const before = selectIn(here);
  const isFocused = before && before === document.activeElement;
  chosen = before?.value ?? chosen;
  here.replaceChildren(...part.childNodes);
  const select = selectIn(here);
  for (const option of select?.options ?? []) if (option.value === chosen) option.selected = true;
  if (isFocused) select?.focus({ preventScroll: true });
}

function again(ms) {
  clearTimeout(timer);
  timer = setTimeout(look, ms * (0.8 + Math.random() * 0.4));
}

function put(found) {
  const before = sale.dataset.state;
  const state = found.dataset.state;
  // What the countdown says when it opens the sale itself.
  const opens = before === "scheduled" && state === "open" && sale.querySelector("[data-announced]").textContent.trim();
  for (const part of parts(found)) {
    const name = part.dataset.live;
    const here = sale.querySelector(`[data-live="${name}"]`);
    if (!here || (shown.get(name) === part.innerHTML && state === before)) continue;
    // A form whose button is not open yet, and a link, are in nobody's use.
    const busy = here.querySelector("form.buy button:not([disabled])")
      && (here.contains(document.activeElement) || here.querySelector("[aria-disabled]"));
    // A sale that was postponed takes its button back from anybody.
    if (name === "buy" && (state === before || (busy && state !== "scheduled"))) continue;
    shown.set(name, part.innerHTML);
    replace(here, part);
  }
  if (state !== before) {
    sale.dataset.state = state;
    const chip = sale.querySelector("[data-live=chip]").innerText.trim();
    document.querySelector("[data-announce]").textContent = opens || chip;
  }
  document.dispatchEvent(new Event("parts-replaced"));
}

async function look() {
  if (document.hidden) return;
  try {
    const found = await fresh("[data-sale]");
    failures = 0;
    if (found) put(found);
  } catch {
    failures += 1;
  }
  if (sale.dataset.state === "closed") return;
  again(Math.min(SLOWEST_MS, pause() * 2 ** Math.min(failures, 4)));
}

function pause() {
  if (sale.dataset.state !== "scheduled") return OPEN_MS;
  // By the server's clock when the page was loaded: whether it is near needs no more.
  const now = Number(document.documentElement.dataset.serverMs) + performance.now();
  return sale.querySelector("[data-until]")?.dataset.until - now < NEAR_MS ? OPEN_MS : SCHEDULED_MS;
}

document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : again(SOON_MS)));
// The countdown opened it; whether the shop did too, the next look says, even if its page is the one seen before.
document.addEventListener("opened-by-the-clock", () => {
  forget();
  again(OPEN_MS);
});
// A refused press brought a page of its own.
document.addEventListener("parts-replaced", () => {
  if (sale.isConnected) return;
  chosen = selectIn(sale)?.value ?? chosen;
  sale = document.querySelector("[data-sale]");
  shown = new Map(parts(sale).map((part) => [part.dataset.live, part.innerHTML]));
  forget();
});
// Another language: the form that it goes along with may be gone by now.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[form]");
  if (button && !button.form) button.removeAttribute("form");
});
addEventListener("online", () => again(SOON_MS));
addEventListener("pageshow", (event) => { if (event.persisted) again(0); });
again(OPEN_MS);
