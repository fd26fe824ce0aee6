// Asks a live page's address every two seconds while somebody looks, and puts what changed into its place.
// Never asks twice at once, never asks while the page is hidden. Used by stock.js and room.js.
const EVERY_MS = 2000;
const GIVE_UP_MS = 10000;
// The words of the page, in the language of its reader.
const words = document.getElementById("live-words").dataset;

// watch({address: () => URL, show: answer => void, say: text => void})
export function watch({ address, show, say }) {
  let timer = 0;
  let asking = false;

  async function ask() {
    if (asking) return;
    asking = true;
    try {
      const answer = await fetch(address(), {
        headers: { Accept: "application/json" },
        signal: AbortSignal.timeout?.(GIVE_UP_MS),
      });
      if (answer.redirected || answer.status === 403) {
        say(words.signedOut);
        return; // and never again
      }
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      show(await answer.json());
      say(document.hidden ? words.rests : words.live); // it was under way when nobody looked any more
    } catch {
      say(document.hidden ? words.rests : words.retrying);
    } finally {
      asking = false;
    }
    if (!document.hidden) timer = setTimeout(ask, EVERY_MS);
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) say(words.rests);
    else ask();
  });
  ask();
}

// Puts each named piece of HTML into its place. Anyone who stands on a link in it stays on that link.
export function place(parts) {
  for (const [name, html] of Object.entries(parts)) {
    const here = document.querySelector(`[data-part="${name}"]`);
    if (!here || here.placed === html) continue;
    const link = here.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    here.innerHTML = html;
    here.placed = html;
    if (link) here.querySelector(`a[href="${CSS.escape(link)}"]`)?.focus();
  }
}

// Writes a text only when it is another one, so that a screen reader speaks only of what is new.
export function write(id, text) {
  const here = document.getElementById(id);
  if (here && here.textContent !== text) here.textContent = text;
}
