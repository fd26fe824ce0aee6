// Sends what a button was pressed for and leads where the shop says; a refusal is shown in place. A press without an
// answer is sent again, after a reload too. Never makes two requests of one press. Copies a ticket's link.

const MAX_TRIES = 12;
const ANSWER_MS = 10_000;
const MAX_PAUSE_MS = 15_000;
const LEAVING_MS = 8_000;
const RESUME_MS = 600_000; // later only the next press sends it again
const KEPT = `fairdrop:press:${location.pathname}`;
let press = null; // the latest one, until it is answered

function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEPT));
  } catch {
    return null;
  }
}

function keep(unanswered) {
  try {
    if (unanswered) localStorage.setItem(KEPT, JSON.stringify(unanswered));
    else localStorage.removeItem(KEPT);
  } catch { /* a browser that keeps nothing still sends again while the page is open */ }
}

function release(button) {
  if (button?.ariaDisabled !== "true") return;
  button.ariaDisabled = null;
  button.textContent = button.dataset.label;
}

function tell(what) {
  const note = document.querySelector("[data-unanswered]");
  if (!note) return;
  note.hidden = false;
  if (note.textContent === note.dataset[what]) return;
  document.querySelector("[data-announce]").textContent = note.textContent = note.dataset[what];
  if (press.button?.isConnected) press.button.form.prepend(note);
}

function begin(action, body, button) {
  clearTimeout(press?.timer);
  if (press?.button !== button) release(press?.button);
  press = { action, body, button, tries: 0 };
  if (button && button.ariaDisabled !== "true") {
    button.ariaDisabled = "true";
    button.dataset.label = button.textContent;
    button.textContent = button.dataset.sending;
  }
  send();
}

async function send() {
  const mine = press;
  let response, text;
  mine.isSent = true;
  mine.tries += 1;
  try {
    response = await fetch(mine.action, {
      method: "POST", body: new URLSearchParams(mine.body), headers: { Accept: "application/json" },
      signal: AbortSignal.timeout?.(ANSWER_MS),
    });
    text = await response.text();
  } catch { /* then there is no answer */ }
  if (mine !== press) return;
  mine.isSent = false;
  // 429 of a proxy has no page of the shop.
  const isBusy = response?.status >= 500 || (response?.status === 429 && !pageIn(text));
  if (text === undefined || isBusy) again(Number(response?.headers.get("Retry-After")) || 0);
  else answered(response, text);
}

function pageIn(text) {
  const page = new DOMParser().parseFromString(text, "text/html");
  return page.querySelector("[data-sale], [data-ticket]") && page;
}

function again(retryAfterSeconds) {
  const pause = Math.min(MAX_PAUSE_MS, 250 * 2 ** press.tries) * (0.75 + Math.random() / 2);
  const isOver = press.tries >= MAX_TRIES;
  if (isOver) release(press.button);
  else press.timer = setTimeout(send, Math.max(pause, 1000 * retryAfterSeconds));
  tell(isOver ? "stopped" : "trying");
}

function answered(response, text) {
  const { button } = press;
  const unanswered = kept();
  press = null;
  keep(null);
  const isTold = response.ok && response.headers.get("Content-Type") === "application/json";
  if (isTold || response.redirected) {
    setTimeout(release, LEAVING_MS, button);
    return void location.assign(isTold ? JSON.parse(text).location : response.url);
  }
  const page = pageIn(text);
  if (page) return put(page);
  // Not a page that belongs here, perhaps a network's login: the browser shows it.
  if (unanswered) keep({ ...unanswered, at: 0 });
  if (button?.isConnected) button.form.submit();
  else location.reload();
}

function put(page) {
  document.querySelector("main").replaceWith(page.querySelector("main"));
  const pass = page.querySelector("script[src*='/pass.']"); // wanted since this page was loaded
  if (pass && !document.querySelector("script[src*='/pass.']")) import(pass.src).catch(() => {});
  document.title = page.title;
  document.dispatchEvent(new Event("parts-replaced"));
  document.querySelector("main [role=alert]")?.scrollIntoView({ block: "center" });
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  // Another language, or a browser that does not say: it sends the form itself.
  if (!event.submitter || event.submitter.hasAttribute("formaction")) return;
  const button = form.matches("form.buy") && form.querySelector("button");
  if (!button) return;
  event.preventDefault();
  const waits = press && !press.isSent;
  if (button.ariaDisabled === "true" && !waits) return;
  const before = kept();
  const key = form.elements.idempotency_key;
  if (key && before) key.value = new URLSearchParams(before.body).get("idempotency_key") ?? key.value;
  const body = new URLSearchParams(new FormData(form)).toString();
  keep("resume" in form.dataset ? { action: form.action, body, at: Date.now() } : null);
  begin(form.action, body, button);
});
addEventListener("online", () => {
  if (!press || press.isSent) return;
  begin(press.action, press.body, press.button);
});
addEventListener("pageshow", (event) => {
  if (event.persisted && !press) document.querySelectorAll("form.buy button").forEach(release);
});

const unanswered = kept();
if (unanswered && Date.now() - unanswered.at < RESUME_MS) {
  const form = [...document.querySelectorAll("form.buy")].find((one) => one.action === unanswered.action);
  for (const [name, value] of new URLSearchParams(unanswered.body)) if (form?.elements[name]) form.elements[name].value = value;
  begin(unanswered.action, unanswered.body, form?.querySelector("button"));
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  const link = button.closest(".keep").querySelector("code");
  try {
    await navigator.clipboard.writeText(link.textContent);
    document.querySelector("[data-announce]").textContent = button.textContent = button.dataset.copied;
  } catch {
    getSelection().selectAllChildren(link); // a browser without a clipboard: one press of its own keys is left
  }
});
