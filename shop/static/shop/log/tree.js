// The Merkle tree of a log (RFC 6962): its root as leaves come. Logs have fewer than 2^31 leaves. Knows nothing of leaves.
import { leafHash, nodeHash, sha256 } from "./sha256.js";

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
