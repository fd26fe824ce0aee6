// Counts on the server's clock, never on the device's: ticks every [data-until], and says when its moment has come.

const LANGUAGE = document.documentElement.lang;
const SAMPLES = 5;
const MAX_WAIT_MS = 1500;
// A kept page has an old moment in it: nothing is counted from it before the server has told the time.
let offset = Number(document.documentElement.dataset.serverMs) - performance.now();
let bestRoundTrip = Infinity;

const now = () => offset + performance.now();
const two = (n) => String(n).padStart(2, "0");
const say = (text) => { document.querySelector("[data-announce]").textContent = text; };

function clock(ms) {
  const s = Math.max(0, Math.floor(ms / 1000));
  const [d, h, m] = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60];
  if (d) return `${d}${LANGUAGE === "en" ? "d" : "天"} ${two(h)}:${two(m)}:${two(s % 60)}`;
  return h ? `${h}:${two(m)}:${two(s % 60)}` : `${m}:${two(s % 60)}`;
}

// Of several samples the one with the shortest round trip is the truest.
async function sample(url) {
  const asked = performance.now();
  const answer = await (await fetch(url, { cache: "no-store" })).json();
  const roundTrip = performance.now() - asked;
  const at = Date.parse(answer.server_time);
  if (!(at > 0) || roundTrip >= bestRoundTrip) return;
  bestRoundTrip = roundTrip;
  offset = at - (asked + roundTrip / 2);
}

let url; // of the server's clock
async function synchronise() {
  url = document.querySelector("[data-clock-url]")?.dataset.clockUrl;
  if (!url) return;
  bestRoundTrip = Infinity;
  for (let i = 0; i < SAMPLES; i += 1) {
    await sample(url).catch(() => {});
    if (i === 0) begin();
  }
}

// Spoken only here.
const MILESTONES = [600, 300, 60, 30, 10];
function announce(timer, left) {
  const seconds = Math.ceil(left / 1000);
  const passed = MILESTONES.filter((m) => seconds <= m).pop();
  if (passed && timer.passed && passed < timer.passed) say(`${timer.dataset.label} ${clock(passed * 1000)}`);
  timer.passed = passed ?? Infinity;
}

function reached(timer) {
  timer.done = true;
  timer.dispatchEvent(new Event(`moment-to-${timer.dataset.then ?? "open"}`, { bubbles: true }));
}

function show() {
  const moment = now();
  let next = 1000 - (moment % 1000);
  for (const timer of document.querySelectorAll("[data-until]")) {
    const left = Number(timer.dataset.until) - moment;
    const text = clock(left + 999);
    if (timer.textContent !== text) {
      if ("inTitle" in timer.dataset && left > 0) document.title = document.title.replace(timer.textContent, text);
      timer.textContent = text;
    }
    if (!timer.dataset.when || (!timer.done && left > 0)) timer.hidden = false;
    if (timer.getAttribute("role") === "timer") announce(timer, left);
    if (left <= 0 && !timer.done) reached(timer);
    // The opening is seldom at a whole second: look again exactly then.
    if (left > 0) next = Math.min(next, left);
  }
  return [moment, next];
}

function tick() {
  const [moment, next] = show();
  const face = document.querySelector("[data-clock]");
  face.textContent = new Date(moment).toLocaleTimeString(LANGUAGE, { hourCycle: "h23" });
  face.parentElement.hidden = false;
  setTimeout(tick, next + 5);
}

let begun = false;
function begin() {
  if (begun) return;
  begun = true;
  tick();
}

// Times are rendered in UTC; here the reader gets them in their own zone, named.
const LOCAL = { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23", timeZoneName: "short" };
function localise() {
  for (const time of document.querySelectorAll("time[data-local]:not([title])")) {
    const form = time.dataset.local ? { ...LOCAL, second: "2-digit" } : LOCAL;
    time.title = time.textContent.trim();
    time.textContent = new Date(time.dateTime).toLocaleString(LANGUAGE, form);
  }
}

// A timer that was put in empty is filled in at once: it would be hidden until the next tick.
document.addEventListener("parts-replaced", () => {
  localise();
  if (!url) synchronise();
  if (begun && document.querySelector("[data-until]:empty")) show();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden) synchronise(); });
addEventListener("pageshow", (event) => { if (event.persisted) synchronise(); });
addEventListener("online", synchronise);
localise();
synchronise();
if (url) setTimeout(begin, MAX_WAIT_MS);
else begin();
