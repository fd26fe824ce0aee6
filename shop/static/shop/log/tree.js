// The Merkle tree of a log (RFC 6962): its root as leaves come, and the way from a leaf to a root (RFC 9162, 2.1.3).
// Logs have fewer than 2^31 leaves. Knows nothing of leaves.
import { leafHash, nodeHash, sha256 } from "./sha256.js";

export const isSame = (one, other) => one.length === other.length && one.every((byte, at) => byte === other[at]);

// The root of a growing tree, by the roots of its perfect parts.
export class Tree {
  size = 0;
  parts = [];

  add(leaf) {
    this.parts.push(leafHash(leaf));
    this.size += 1;
    for (let rest = this.size; rest % 2 === 0; rest /= 2) {
      const right = this.parts.pop();
      this.parts.push(nodeHash(this.parts.pop(), right));
    }
  }

  root() {
    if (!this.parts.length) return sha256(new Uint8Array());
    return this.parts.reduceRight((right, part) => nodeHash(part, right));
  }
}

// The root that a path leads to from the hash of leaf `index` of `size`; null when it does not end there.
export function rootByPath(hash, { index, size, path }) {
  if (!(index >= 0 && index < size)) return null;
  let [at, last, root] = [index, size - 1, hash];
  for (const each of path) {
    if (last === 0) return null;
    if (at & 1 || at === last) {
      root = nodeHash(each, root);
      while (!(at & 1) && at) [at, last] = [at >> 1, last >> 1];
    } else {
      root = nodeHash(root, each);
    }
    [at, last] = [at >> 1, last >> 1];
  }
  return last === 0 ? root : null;
}
