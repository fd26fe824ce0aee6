// Follows this ticket live: server-sent events, and polling when they do not come. Keeps the signed ticket in the
// browser and shows it when the server has lost the place. What is typed and not sent stays.

const MAX_PAUSE_MS = 30_000;
const QUIET_MS = 25_000; // a stream may be dead without a word: then we ask
const HIDDEN_MS = 4_000; // a hidden tab asks no more often than this
const KEPT = "fairdrop:ticket:";
const BEGAN = "fairdrop:began:";
const ALERT = "fairdrop:alert:"; // kept while it is on
const LANGUAGE = document.documentElement.lang;
const announcement = document.querySelector("[data-announce]");
const icon = document.querySelector("link[rel=icon]");
const PLAIN_ICON = icon.href;
let ticket = document.querySelector("[data-ticket]");
const url = ticket.dataset.statusUrl;
let stream = null;
let refusals = 0; // of streams, one after another
let reopenAt = 0;
let timer = 0;
let askedAt = -Infinity;
let failures = 0;
let restoring = false;
let announcedAt = Number(ticket.dataset.position) || Infinity;
const touched = new Map(); // by form and name: the fields that were or are typed in

const find = (name) => ticket.querySelector(`[data-${name}]`);
const LOST = find("lost").textContent;
const say = (text) => { announcement.textContent = text; };
const waits = (state) => ["queued", "waitlisted", "standby"].includes(state);
const hide = (element, hidden) => { if (element) element.hidden = hidden; };
const get = (address, more) => fetch(address, { cache: "no-store", signal: AbortSignal.timeout?.(8000), ...more });
const refused = (response) => fail(response.headers.get("Retry-After"));
const wake = () => { if (ticket.dataset.pollAfterMs > 0) again(0); };
const markTab = () => { if (document.hidden) icon.href = ticket.dataset.icon; }; // until its reader looks at it

function keep() {
  const { id, proof } = ticket.dataset;
  try {
    if (proof) localStorage.setItem(KEPT + id, proof);
    else for (const each of [KEPT, BEGAN, ALERT]) localStorage.removeItem(each + id);
    if (find("alert") && localStorage.getItem(ALERT + id)) import("./alert.js").catch(() => {});
  } catch { /* a browser that keeps nothing still has its cookie */ }
}

async function restore() {
  if (restoring) return;
  restoring = true;
  try {
    const kept = ticket.dataset.proof || localStorage.getItem(KEPT + ticket.dataset.id);
    const response = await get("/api/v1/tickets/restore", {
      method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ ticket: kept }),
    });
    if (!response.ok) return response.status < 429 ? load() : refused(response);
    show(await response.json());
  } catch {
    fail();
  } finally {
    restoring = false;
  }
}

function rough(seconds, words) {
  return seconds < 90 ? words.s.replace("{n}", seconds) : words.min.replace("{n}", Math.ceil(seconds / 60));
}

// The bar begins where this ticket began; at the front it is full.
function showWay(position) {
  let start = position;
  try {
    start = Math.max(position, Number(localStorage.getItem(BEGAN + ticket.dataset.id)));
    localStorage.setItem(BEGAN + ticket.dataset.id, start);
  } catch { /* then it begins again */ }
  const way = find("way");
  way.max = Math.max(start - 1, 1);
  way.value = position === 1 ? way.max : start - position;
}

const title = () => `${ticket.querySelector("h2").textContent} · Fairdrop`;

function showPlace(answer) {
  const place = find("place");
  hide(find("placed"), !answer.position);
  hide(find("unplaced"), answer.position);
  if (!answer.position) return;
  place.textContent = answer.position.toLocaleString(LANGUAGE);
  document.title = `${place.textContent} · ${title()}`;
  showWay(answer.position);
  // Spoken only when the place has halved.
  if (answer.position <= announcedAt / 2) {
    announcedAt = answer.position;
    say(`${ticket.dataset.placeLabel} ${place.textContent}`);
  }
}

function showHopes(answer) {
  const [eta, reason] = [find("eta"), find("reason")];
  const why = answer.pause_reason;
  const range = why === null && answer.eta_range_seconds;
  eta.textContent = range
    ? eta.dataset.range.replace("{low}", rough(range[0], eta.dataset)).replace("{high}", rough(range[1], eta.dataset))
    : eta.dataset.unknown;
  hide(find("beyond"), !answer.out_of_reach);
  hide(find("paused"), why === null);
  if (why) reason.textContent = why === reason.dataset.known ? reason.dataset.said : why;
  for (const name of ["holds", "standby-holds"]) find(name).textContent = answer.holds_ahead ?? "";
  hide(find("some-held"), !answer.holds_ahead);
  hide(find("none-held"), answer.holds_ahead !== 0);
  hide(find("lapse-line"), !answer.next_lapse_at);
  if (answer.next_lapse_at) {
    const form = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "short" };
    find("lapse").textContent = new Date(answer.next_lapse_at).toLocaleTimeString(LANGUAGE, form);
  }
}

function showState(state) {
  for (const part of ticket.querySelectorAll("[data-for]")) part.hidden = !part.dataset.for.split(" ").includes(state);
  ticket.dataset.state = state;
  markTab();
  const chip = [...ticket.querySelectorAll(".chip")].find((one) => one.offsetParent);
  if (chip) say(chip.textContent.trim());
}

function show(answer) {
  failures = 0;
  hide(find("lost"), true);
  const before = ticket.dataset.state;
  if (answer.state !== before) ticket.dataset.shown = "";
  if (waits(answer.state) && waits(before)) {
    if (answer.state !== before) showState(answer.state);
    showPlace(answer);
    showHopes(answer);
  } else if (answer.state === "sold_out" && waits(before) && before !== "standby") {
    // A crowd is told this in the same instant: each loads the page, which says why, a little later.
    showState("sold_out");
    document.title = title();
    close();
    return void setTimeout(load, 2000 + Math.random() * 10_000);
  } else if (answer.state !== before) {
    return void load();
  }
  follow();
  again(stream ? QUIET_MS : answer.poll_after_ms);
}

const FIELDS = "input, textarea, select";
const nameOf = (field) => `${field.form?.action} ${field.name}`;

// A form that a state has no use for gets its texts back with the state that has.
function putBack() {
  for (const field of ticket.querySelectorAll(FIELDS)) {
    const before = touched.get(nameOf(field));
    if (!before || before === field) continue;
    if (before.value !== before.defaultValue) field.value = before.value;
    touched.set(nameOf(field), field);
    for (let part = field.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  }
}

// Focus moves only when it is yours, and not from a field that is typed in.
function put(fresh) {
  const before = ticket.dataset.state;
  document.title = fresh.ownerDocument.title;
  if (waits(before) && fresh.dataset.state === before) { // only texts change: what is open stays open
    const parts = ticket.querySelectorAll(".part");
    ticket.querySelector("h2 a").textContent = fresh.querySelector("h2 a").textContent;
    fresh.querySelectorAll(".part").forEach((part, at) => parts[at].replaceWith(part));
    Object.assign(ticket.dataset, fresh.dataset);
    return void document.dispatchEvent(new Event("parts-replaced"));
  }
  const focused = document.activeElement;
  const active = ticket.contains(focused) && focused.matches(FIELDS) && focused;
  const { selectionStart, selectionEnd } = active || {};
  ticket.replaceWith(fresh);
  ticket = fresh;
  document.dispatchEvent(new Event("parts-replaced"));
  const field = active && touched.get(nameOf(active));
  const isThere = field?.isConnected;
  if (isThere) field.focus({ preventScroll: true });
  // An e-mail address has no such places.
  if (isThere && Number.isInteger(selectionStart)) field.setSelectionRange(selectionStart, selectionEnd);
  if (ticket.dataset.state === before && before !== "sold_out") return;
  markTab();
  say(ticket.querySelector("h1").textContent.trim());
  if (ticket.dataset.state === "held" && !isThere) find("yours").focus();
}

// Puts the page's ticket in as it is now; one that is the same stays.
async function load() {
  try {
    const response = await get(location.pathname);
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    const elsewhere = page.querySelector("[data-elsewhere]");
    if (elsewhere) return fail(60, elsewhere.textContent);
    if (!response.ok) return refused(response);
    const fresh = page.querySelector("[data-ticket]");
    if (!fresh) return void location.reload();
    failures = 0;
    hide(find("lost"), true);
    if (fresh.dataset.shown === ticket.dataset.shown) ticket.dataset.pollAfterMs = fresh.dataset.pollAfterMs;
    else put(fresh);
    begin();
  } catch {
    fail();
  }
}

function fail(retryAfterSeconds, text = LOST) {
  close();
  const lost = find("lost");
  if (lost.textContent !== text) lost.textContent = text; // not spoken again
  lost.hidden = false;
  const pause = Math.min(MAX_PAUSE_MS, 500 * 2 ** ++failures) * (0.75 + Math.random() / 2);
  again(Math.max(pause, 1000 * retryAfterSeconds || 0));
}

async function ask() {
  askedAt = performance.now();
  if (!url) return void load(); // opened by a secret link: only the page knows this browser
  try {
    const response = await get(url);
    if (response.ok) {
      const answer = await response.json();
      // A ticket that shows a payment under way learns of its end from the page.
      if (answer.state === ticket.dataset.state && !waits(answer.state)) return void load();
      return show(answer);
    }
    if (response.status > 404) return refused(response);
    if ((await response.json()).restore) restore();
    else load(); // the page says whose it is
  } catch {
    fail();
  }
}

function again(ms) {
  clearTimeout(timer);
  // Counted from the last ask: a stream that breaks again and again must not put the next one off.
  timer = setTimeout(ask, document.hidden ? Math.max(ms, askedAt + HIDDEN_MS - performance.now()) : ms);
}

function close() {
  stream?.close();
  stream = null;
}

function follow() {
  if (!url || stream || !waits(ticket.dataset.state) || performance.now() < reopenAt) return;
  stream = new EventSource(`${url}/events`);
  stream.onopen = () => { refusals = 0; };
  stream.onmessage = (event) => show(JSON.parse(event.data));
  // It comes back by itself when the connection broke; when it was refused, we poll.
  stream.onerror = () => {
    if (stream?.readyState === EventSource.CLOSED) {
      stream = null;
      reopenAt = performance.now() + Math.min(MAX_PAUSE_MS, 1000 * 2 ** ++refusals) * (0.75 + Math.random() / 2);
    }
    again(300 + Math.random() * 700);
  };
}

function begin() {
  close();
  clearTimeout(timer);
  keep();
  hide(find("alert"), false);
  const { state, position, pollAfterMs } = ticket.dataset;
  if (waits(state) && position > 0) showWay(Number(position));
  if (!(pollAfterMs > 0)) return; // nothing can change any more
  follow();
  again(stream ? Math.min(pollAfterMs, QUIET_MS) : pollAfterMs);
}

document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  icon.href = PLAIN_ICON;
  wake();
});
addEventListener("offline", () => { if (ticket.dataset.pollAfterMs > 0) fail(); });
addEventListener("online", wake);
addEventListener("pageshow", (event) => { if (event.persisted) load(); });
for (const event of ["focusin", "input"]) addEventListener(event, ({ target }) => {
  if (target.matches(FIELDS) && ticket.contains(target)) touched.set(nameOf(target), target);
});
document.addEventListener("parts-replaced", () => {
  if (!ticket.isConnected) { // a refused press brought a page of its own
    ticket = document.querySelector("[data-ticket]");
    begin();
  }
  putBack();
});
addEventListener("click", ({ target }) => {
  if (target.closest("[data-alert]")) import("./alert.js").then(({ press }) => press()).catch(() => {});
});
addEventListener("moment-to-look", () => setTimeout(load, 300 + Math.random() * 700));
begin();
