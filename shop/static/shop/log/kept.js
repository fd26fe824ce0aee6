// The last checkpoint of each sale's log that this browser has found good, and the keys it knew then. A log must have
// grown from it.

const name = (slug) => `fairdrop:log:${slug}`;

// {origin, keys, size, root in base64}, or null.
export function keptOf(slug) {
  try {
    const kept = JSON.parse(localStorage.getItem(name(slug)));
    return kept && kept.size > 0 ? kept : null;
  } catch {
    return null;
  }
}

// Keeps it, unless another tab has kept a longer one meanwhile.
export function keep(slug, checkpoint) {
  try {
    if ((keptOf(slug)?.size ?? 0) <= checkpoint.size) localStorage.setItem(name(slug), JSON.stringify(checkpoint));
  } catch { /* nothing is kept */ }
}
