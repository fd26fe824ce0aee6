// Gets a pass for the sale while the countdown runs, so that it is there before the opening, and gives it to the form.
// A press that comes before it waits for it, unless the sale asks for passes only in a rush. Loaded by the sale page.

const LEAD_MS = 600_000;
const RENEW_MS = 60_000;
const MAX_PAUSE_MS = 30_000;
const ANSWER_MS = 15_000;
const KEPT = `fairdrop:pass:${location.pathname}`;
const offset = Number(document.documentElement.dataset.serverMs) - performance.now();
// A kept page has an old moment in it: too early costs nothing, too late does.
const now = () => Math.max(Date.now(), offset + performance.now());
let given = null, isMaking = false, hasFailed = false, isHeld = false, timer = 0, share = 0, said = "";
let madeAt = -Infinity;

const box = () => document.querySelector("[data-pass]");
const pause = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

function keep() {
  try {
    if (given) localStorage.setItem(KEPT, JSON.stringify(given));
    else localStorage.removeItem(KEPT);
  } catch { /* then it lasts as long as the page */ }
}

function kept() {
  try {
    return JSON.parse(localStorage.getItem(KEPT));
  } catch {
    return null;
  }
}

function show(what = said) {
  said = what;
  if (!box()) return;
  const [text, bar] = [box().querySelector("[data-says]"), box().querySelector("progress")];
  text.hidden = !said;
  if (said && text.textContent !== text.dataset[said]) text.textContent = text.dataset[said];
  bar.hidden = !isMaking;
  bar.value = share;
  box().querySelector("[data-wait]").hidden = !hasFailed;
  box().querySelector("input").value = given?.pass ?? "";
}

// The shop's answer as JSON, however often it has to be asked; null when it will never be one.
async function call(path, body) {
  for (let tries = 0; box(); tries += 1) {
    let response = null;
    try {
      const post = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
      response = await fetch(box().dataset.pass + path, { ...(body ? post : {}), signal: AbortSignal.timeout?.(ANSWER_MS) });
      if (response.ok) return await response.json();
    } catch { /* no answer: once more */ }
    // 401: the page's next look may bring a token; if not, a press does.
    const isSoon = response?.status === 401 && !isHeld && tries < 4;
    if (response && !isSoon && response.status !== 429 && response.status < 500) return null;
    const seconds = Number(response?.headers.get("Retry-After")) || 0;
    await pause(Math.max(1000 * seconds, Math.min(MAX_PAUSE_MS, 500 * 2 ** tries) * (0.5 + Math.random())));
  }
  return null;
}

function solve(challenge) {
  return new Promise((resolve) => {
    const worker = new Worker(box().dataset.worker, { type: "module" });
    const end = (solution) => { worker.terminate(); resolve(solution); };
    worker.addEventListener("error", () => end(null));
    worker.addEventListener("message", ({ data }) => {
      if (data.failed || data.solution) return end(data.solution);
      share = data.done;
      return show();
    });
    worker.postMessage(challenge.parameters);
  });
}

// A challenge ends while a phone sleeps: then another one is solved.
async function make(isFirst = true) {
  const challenge = await call("/challenge");
  const solution = challenge && await solve(challenge);
  const made = solution && await call("/passes", { payload: btoa(JSON.stringify({ challenge, solution })) });
  return made || (solution && isFirst ? make(false) : null);
}

async function get() {
  if (isMaking) return;
  [isMaking, share] = [true, 0];
  show(isHeld ? "held" : "making");
  // Without it (a page that came over plain http) no browser has scrypt's parts.
  const made = globalThis.crypto?.subtle && globalThis.Worker ? await make().catch(() => null) : null;
  [isMaking, given, hasFailed] = [false, made, !made];
  keep();
  show(made ? "ready" : "failed");
  madeAt = performance.now();
  look();
  if (made && isHeld) document.querySelector("form.buy button")?.click(); // Safari 15 has no requestSubmit
  isHeld = false;
}

function look() {
  clearTimeout(timer);
  if (!box() || hasFailed || isMaking) return;
  // To a clock that is fast each pass is over, and the next one too: none is made right after another.
  const rest = madeAt + RENEW_MS - performance.now();
  const left = given ? Math.max(Date.parse(given.expires_at) - RENEW_MS - now(), rest) : 0;
  const early = Number(box().dataset.opens) - LEAD_MS - now();
  if (left > 0) show("ready");
  else if (early > 0) show("soon");
  else return void get();
  timer = setTimeout(look, Math.min(Math.max(left, early), RENEW_MS) + 100);
}

document.addEventListener("submit", (event) => {
  const form = event.target;
  if (!box() || !form.matches("form.buy") || event.submitter?.hasAttribute("formaction")) return;
  if (given) {
    given.isUsed = true; // the next page begins with another one; the same press again needs this one
    keep();
  } else if (event.submitter && box().dataset.mode === "always" && !hasFailed) {
    event.preventDefault();
    event.stopImmediatePropagation();
    isHeld = true;
    show("held");
    if (!isMaking) get();
  }
}, { capture: true });

document.addEventListener("parts-replaced", () => {
  if (box() && "refused" in box().dataset) {
    delete box().dataset.refused;
    [given, hasFailed] = [null, false];
    keep();
  }
  show();
  look();
});

given = kept();
if (given?.isUsed || (box() && "refused" in box().dataset)) given = null;
show();
look();
