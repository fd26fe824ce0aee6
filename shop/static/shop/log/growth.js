// That a longer log has grown from a shorter one (RFC 9162, 2.1.4), from the tiles of its tree. Believes no tile: what it
// reads from them leads to both roots, or the log has not grown.
import { fromBase64 } from "./note.js";
import { isSame, nodeHash } from "./path.js";

export const WIDTH = 256;
const HASH_BYTES = 32;

// Whether the tree of `size` leaves with `root` begins with that of `before` leaves with `rootBefore`.
export async function hasGrown({ before, rootBefore, size, root, path }) {
  if (before === size) return isSame(root, rootBefore) && !path.length;
  if (!(before > 0 && before < size) || !path.length) return before === 0;
  const hashes = Number.isInteger(Math.log2(before)) ? [rootBefore, ...path] : [...path];
  let [at, last] = [before - 1, size - 1];
  while (at & 1) [at, last] = [at >> 1, last >> 1];
  let first = hashes.shift();
  let second = first;
  for (const each of hashes) {
    if (last === 0) return false;
    if (at & 1 || at === last) {
      [first, second] = await Promise.all([nodeHash(each, first), nodeHash(each, second)]);
      while (!(at & 1) && at) [at, last] = [at >> 1, last >> 1];
    } else {
      second = await nodeHash(second, each);
    }
    [at, last] = [at >> 1, last >> 1];
  }
  return last === 0 && isSame(first, rootBefore) && isSame(second, root);
}

// Whether the log of a checkpoint has grown from the one that was kept (./kept.js). get: a tile's path → its bytes.
export async function hasGrownSince(kept, note, get) {
  const tile = (level, number, width) => get(`${level}/${tilePath(number, width)}`);
  const path = kept.size < note.size ? await new TileTree(tile, note.size).growth(kept.size) : [];
  return hasGrown({ before: kept.size, rootBefore: fromBase64(kept.root), size: note.size, root: note.root, path });
}

// A tile's number as an address has it (tlog-tiles of C2SP): 1234067 is x001/x234/067.
export function tilePath(number, width) {
  const groups = [];
  for (let rest = number, at = 0; at === 0 || rest; rest = Math.floor(rest / 1000), at += 1) {
    groups.unshift((at ? "x" : "") + String(rest % 1000).padStart(3, "0"));
  }
  return groups.join("/") + (width < WIDTH ? `.p/${width}` : "");
}

// The tree of `size` leaves over the tiles of a log. get: (level, number, width) → the bytes of a tile.
export class TileTree {
  #get;
  #size;
  #tiles = new Map();

  constructor(get, size) {
    this.#get = get;
    this.#size = size;
  }

  async #node(height, index) {
    const level = Math.floor(height / 8);
    const count = 2 ** (height % 8);
    const first = index * count;
    const number = Math.floor(first / WIDTH);
    const width = Math.min(WIDTH, Math.floor(this.#size / WIDTH ** level) - number * WIDTH);
    const name = `${level}/${number}`;
    if (!this.#tiles.has(name)) this.#tiles.set(name, this.#get(level, number, width));
    const bytes = await this.#tiles.get(name);
    const at = (i) => (first - number * WIDTH + i) * HASH_BYTES;
    let row = Array.from({ length: count }, (_, i) => bytes.subarray(at(i), at(i + 1)));
    const above = (hash, i) => (i % 2 ? [] : [nodeHash(hash, row[i + 1])]);
    while (row.length > 1) row = await Promise.all(row.flatMap(above));
    return row[0];
  }

  async range(begin, end) {
    const count = end - begin;
    const height = Math.ceil(Math.log2(count));
    if (2 ** height === count) return this.#node(height, begin / count);
    const middle = begin + 2 ** (height - 1);
    const left = await this.range(begin, middle);
    return nodeHash(left, await this.range(middle, end));
  }

  // The path by which hasGrown judges, from the first `before` leaves (at least 1) to all of them.
  async growth(before) {
    const path = [];
    let [begin, end, isWhole] = [0, this.#size, true];
    while (before < end) {
      const middle = begin + 2 ** (Math.ceil(Math.log2(end - begin)) - 1);
      if (before <= middle) {
        path.unshift(await this.range(middle, end));
        end = middle;
      } else {
        path.unshift(await this.range(begin, middle));
        [begin, isWhole] = [middle, false];
      }
    }
    return isWhole ? path : [await this.range(begin, end), ...path];
  }
}
