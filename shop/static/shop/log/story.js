// Tells what happened in a log: how many stood where in each second, where each unit that came back went, and what staff
// did. Counts what Replay has read, and judges nothing.

const MAX_LISTED = 500;

export class Story {
  // One row a second in which something was published: the last leaf of it tells how things stood.
  seconds = { at: [], first: [], came: [], waiting: [], free: [], held: [], paid: [] };
  acts = [];
  came = 0;
  got = 0;
  back = 0; // units that came back
  voided = new Map(); // reason → orders voided before shipping
  #replay;
  #waiting = 0;
  #paid = 0;
  #pool = []; // free units in the order in which they came free: [leaf that freed them, units]
  #taken = new Map(); // leaf by which units came back → the requests that got them
  #from = new Map(); // leaf that gave a unit → the leaf by which it had come back
  #returns = new Set();

  constructor(replay) {
    this.#replay = replay;
  }

  add(leaf) {
    if (!leaf) return;
    this.#count(leaf);
    this.#note(Math.floor(leaf.at / 1e6), leaf.n);
  }

  #count(leaf) {
    const quantity = this.#replay.places.get(leaf.request)?.quantity ?? 0;
    if (leaf.kind === "opened") this.#free(leaf.n, leaf.units);
    if (leaf.kind === "stock") this.#free(leaf.n, leaf.change);
    if (leaf.kind === "admitted") {
      this.came += 1;
      this.#waiting += 1;
    }
    if (leaf.kind === "decided") {
      this.#waiting -= 1;
      if (leaf.outcome === "held") {
        this.got += 1;
        this.#give(leaf, quantity);
      }
    }
    if (leaf.kind === "ended") this.#end(leaf, quantity);
    if (leaf.act === "void_order") this.voided.set(leaf.reason, (this.voided.get(leaf.reason) ?? 0) + 1);
    if (leaf.kind === "act" && this.acts.length < MAX_LISTED) this.acts.push(leaf);
  }

  #end(leaf, quantity) {
    if (leaf.outcome === "left") this.#waiting -= 1;
    if (leaf.outcome === "paid" || leaf.outcome === "retaken") this.#paid += quantity;
    if (leaf.outcome === "refunded" && leaf.units > 0) this.#paid -= quantity;
    if (leaf.outcome === "retaken") return this.#give(leaf, quantity);
    if (leaf.units > 0) {
      this.back += leaf.units;
      this.#returns.add(leaf.n);
      this.#free(leaf.n, leaf.units);
    }
    return undefined;
  }

  #free(number, units) {
    if (units > 0) this.#pool.push([number, units]);
    for (let rest = -units; rest > 0 && this.#pool.length;) {
      const last = this.#pool.at(-1);
      const taken = Math.min(rest, last[1]);
      rest -= taken;
      last[1] -= taken;
      if (!last[1]) this.#pool.pop();
    }
  }

  // The unit that came free first is given first.
  #give(leaf, quantity) {
    for (let rest = quantity; rest > 0 && this.#pool.length;) {
      const [first] = this.#pool;
      const taken = Math.min(rest, first[1]);
      rest -= taken;
      first[1] -= taken;
      if (this.#returns.has(first[0])) {
        this.#taken.set(first[0], [...(this.#taken.get(first[0]) ?? []), leaf.request]);
        this.#from.set(leaf.n, first[0]);
      }
      if (!first[1]) this.#pool.shift();
    }
  }

  #note(second, number) {
    const { at, first, came, waiting, free, held, paid } = this.seconds;
    if (at.at(-1) !== second) {
      at.push(second);
      first.push(number);
    }
    const end = at.length - 1;
    came[end] = this.came;
    waiting[end] = this.#waiting;
    free[end] = this.#replay.free;
    held[end] = this.#replay.held;
    paid[end] = this.#paid;
  }

  // What a reader is shown of a leaf: with the pseudonym, and where units went to or came from.
  tell(leaf) {
    const place = this.#replay.places.get(leaf.request);
    const came = this.#from.get(leaf.n);
    return { ...leaf, holder: place?.holder ?? "", quantity: place?.quantity ?? 0, went: this.#taken.get(leaf.n) ?? [], came: came ?? null };
  }

  // The numbers of the last leaves by which units came back.
  lastReturns(most) {
    return [...this.#returns].slice(-most).reverse();
  }
}
