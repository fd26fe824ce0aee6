// The last checkpoint of each sale's log that this browser has found good, and the keys it knew then. A log must have
// grown from it.

import * as browser from "../keeping.js";

const name = (slug) => `fairdrop:log:${slug}`;

// {origin, keys, size, root in base64}, or null.
export function keptOf(slug) {
  const found = browser.kept(name(slug));
  return found?.size > 0 ? found : null;
}

// Keeps it, unless another tab has kept a longer one meanwhile.
export function keep(slug, checkpoint) {
  if ((keptOf(slug)?.size ?? 0) <= checkpoint.size) browser.keep(name(slug), checkpoint);
}
