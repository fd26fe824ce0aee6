// The path from a leaf of a log to a root (RFC 9162, 2.1.3), with the SHA-256 of the browser. ./sha256.js, for a whole
// log, is many times as fast.

export const isSame = (one, other) => one.length === other.length && one.every((byte, at) => byte === other[at]);

export async function sha256(bytes) {
  return new Uint8Array(await crypto.subtle.digest("SHA-256", Uint8Array.from(bytes)));
}

export const leafHash = (leaf) => sha256([0, ...leaf]);
export const nodeHash = (left, right) => sha256([1, ...left, ...right]);

// The root that a path leads to from the hash of leaf `index` of `size`; null when it does not end there.
export async function rootByPath(hash, { index, size, path }) {
  if (!(index >= 0 && index < size)) return null;
  let [at, last, root] = [index, size - 1, hash];
  for (const each of path) {
    if (last === 0) return null;
    if (at & 1 || at === last) {
      root = await nodeHash(each, root);
      while (!(at & 1) && at) [at, last] = [at >> 1, last >> 1];
    } else {
      root = await nodeHash(root, each);
    }
    [at, last] = [at >> 1, last >> 1];
  }
  return last === 0 ? root : null;
}
