// Asks for the state of this ticket when the server said to ask again; a new state loads the page again.
// Never moves the place in line and never gives it up: the server keeps it. Loaded by the ticket page.

const ticket = document.querySelector("[data-ticket]");
const place = document.querySelector("[data-place]");
const lost = document.querySelector("[data-lost]");
const announcement = document.querySelector("[data-announce]");
const LONGEST_PAUSE_MS = 30_000;
let timer = 0;
let failures = 0;
let announcedAt = Number(ticket.dataset.position) || Infinity;

function again(ms) {
  clearTimeout(timer);
  timer = setTimeout(ask, ms);
}

function show(answer) {
  failures = 0;
  lost.hidden = true;
  if (answer.state !== ticket.dataset.state) return location.reload();
  if (place && answer.position) {
    place.textContent = answer.position.toLocaleString(document.documentElement.lang);
    document.title = `${place.textContent} · ${ticket.dataset.title}`;
    // Spoken only when the place has halved: a voice that never stops helps nobody.
    if (answer.position <= announcedAt / 2) {
      announcedAt = answer.position;
      announcement.textContent = `${ticket.dataset.placeLabel} ${place.textContent}`;
    }
  }
  if (answer.poll_after_ms > 0) again(answer.poll_after_ms);
}

function fail(retryAfterSeconds) {
  failures += 1;
  lost.hidden = false;
  const pause = Math.min(LONGEST_PAUSE_MS, 1000 * 2 ** failures) * (0.75 + Math.random() / 2);
  again(Math.max(pause, 1000 * (retryAfterSeconds || 0)));
}

async function ask() {
  if (document.hidden) return;
  try {
    const response = await fetch(ticket.dataset.statusUrl, { cache: "no-store", signal: AbortSignal.timeout(8000) });
    if (response.ok) return show(await response.json());
    fail(Number(response.headers.get("Retry-After")));
  } catch {
    fail(0);
  }
}

addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
// 0 means that nothing can change any more: a final ticket never asks.
if (Number(ticket.dataset.pollAfterMs) > 0) {
  document.addEventListener("visibilitychange", () => (document.hidden ? clearTimeout(timer) : again(0)));
  addEventListener("online", () => again(0));
  again(Number(ticket.dataset.pollAfterMs));
}
