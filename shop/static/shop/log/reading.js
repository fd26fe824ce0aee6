// Reads a log as a shop serves it, and checks it as a whole: signature, tree, growth from what was kept before, and by
// Replay every rule. `get` fetches: a path → bytes; it throws when there is nothing. Runs in a worker, and without a page.
import { tilePath, WIDTH } from "./growth.js";
import { areKept, canVerify, fromBase64, isSigned, readKeys, readNote, toBase64, usedKeys } from "./note.js";
import { isSame } from "./path.js";
import { Replay } from "./replay.js";
import { Tree } from "./tree.js";

const AHEAD = 4; // tiles that are fetched at a time

// The first `width` leaves of an entries tile, each after its length in two bytes.
export function leavesOf(bundle, width) {
  const leaves = [];
  for (let at = 0; leaves.length < width;) {
    const first = at + 2;
    at = first + ((bundle[first - 2] ?? 0) << 8) + (bundle[first - 1] ?? 0);
    leaves.push(bundle.subarray(first, at));
  }
  return leaves;
}

export class Reading {
  keys = {};
  tree = new Tree();

  // kept: what ./kept.js has of an earlier reading, or null.
  constructor(get, slug, { kept = null, off = [] } = {}) {
    this.get = get;
    this.log = `/api/v1/sales/${slug}/log`;
    this.slug = slug;
    this.kept = kept;
    this.replay = new Replay(off);
  }

  // Fetches keys and checkpoint, and checks them. canVerify: false where this browser cannot check a signature.
  async begin() {
    const [keys, note] = await Promise.all([this.get("/.well-known/fairdrop-keys"), this.get(`${this.log}/checkpoint`)]);
    const decode = (bytes) => new TextDecoder().decode(bytes);
    const list = JSON.parse(decode(keys));
    this.keys = readKeys(list);
    this.usedKeys = usedKeys(list);
    this.note = readNote(decode(note));
    this.canVerify = await canVerify();
    const isOwn = this.note.origin.endsWith(`/sales/${this.slug}`);
    const isRight = this.canVerify ? await isSigned(this.note, this.keys, this.slug) : isOwn;
    this.replay.expect("signed", isRight, () => `no key of the shop signed this, as ${this.note.origin}`);
    if (!this.kept) return;
    const { origin, size } = this.note;
    this.replay.expect("kept", areKept(this.kept.keys, this.keys), () => "the shop's keys are not what they were");
    this.replay.expect("kept", this.kept.origin === origin, () => `the log is that of ${origin}, not of ${this.kept.origin}`);
    this.replay.expect("kept", size >= this.kept.size, () => `the log has ${size} leaves, and had ${this.kept.size}`);
  }

  // The leaves of one tile, as many as the checkpoint has.
  async tile(number) {
    const width = Math.min(this.note.size - number * WIDTH, WIDTH);
    return leavesOf(await this.get(`${this.log}/tile/entries/${tilePath(number, width)}`), width);
  }

  // Yields the leaves of one tile after the other, replayed; null for one that cannot be read.
  async* leaves() {
    const tiles = Math.ceil(this.note.size / WIDTH);
    const asked = [];
    const ask = (number) => {
      if (number >= tiles) return;
      asked.push(this.tile(number));
      asked.at(-1).catch(() => {}); // it is thrown when its turn comes
    };
    for (let number = 0; number < AHEAD; number += 1) ask(number);
    for (let number = 0; number < tiles; number += 1) {
      const found = await asked.shift();
      ask(number + AHEAD);
      yield found.map((raw) => this.#take(raw));
    }
  }

  #take(raw) {
    this.tree.add(raw);
    const leaf = this.replay.add(raw);
    if (this.tree.size === this.kept?.size) {
      const isSameRoot = isSame(this.tree.root(), fromBase64(this.kept.root));
      this.replay.expect("kept", isSameRoot, () => `the first ${this.tree.size} leaves are not those that were kept`);
    }
    return leaf;
  }

  // Judges what only the end shows. nowUs: µs since 1970.
  finish(nowUs) {
    const isWhole = this.tree.size === this.note.size && isSame(this.tree.root(), this.note.root);
    this.replay.expect("tree", isWhole, () => "the leaves have another root than the checkpoint");
    this.replay.finish(nowUs);
  }

  // What ./kept.js keeps of a log in which nothing was found wrong.
  get checkpoint() {
    return { origin: this.note.origin, keys: this.usedKeys, size: this.note.size, root: toBase64(this.note.root) };
  }
}
