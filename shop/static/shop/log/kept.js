// The last checkpoint of each sale's log that this browser has found good, and the keys it knew then. A log must have
// grown from it. A log's name here is the data-keep-as of its page.

const place = (name) => `fairdrop:log:${name}`;

// {origin, keys, size, root in base64}, or null.
export function keptOf(name) {
  try {
    const kept = JSON.parse(localStorage.getItem(place(name)));
    return kept && kept.size > 0 ? kept : null;
  } catch {
    return null;
  }
}

// Keeps it, unless another tab has kept a longer one meanwhile.
export function keep(name, checkpoint) {
  try {
    if ((keptOf(name)?.size ?? 0) <= checkpoint.size) localStorage.setItem(place(name), JSON.stringify(checkpoint));
  } catch { /* nothing is kept */ }
}
