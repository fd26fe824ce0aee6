// Replays a sale from its log by the rules of docs/checkable-line.md, leaf by leaf, and names each rule that is broken:
// the same rules as verify_sale.py, in the same order. Fetches nothing, shows nothing.

// Outcome → the states that it may follow; after it the request has that state, or is paid when it was retaken.
const DECIDED = { held: ["waits"], sold_out: ["waits"], refused: ["waits"] };
const ENDED = {
  left: ["waits"], paid: ["held"], expired: ["held"], cancelled: ["held"], retaken: ["expired"],
  refunded: ["paid", "expired", "cancelled"],
};
const ANSWER_US = 120_000_000;
const SKEW_US = 300_000_000; // clocks may differ by it
const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

// JSON with its keys sorted and no spaces, as leaves are written.
export function written(value) {
  if (Array.isArray(value)) return `[${value.map(written).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((key) => `${JSON.stringify(key)}:${written(value[key])}`).join(",")}}`;
}

// Almost every leaf has no object in it, and comes with its keys sorted: then it is written as the browser writes it.
function isWritten(leaf, said) {
  let before = "";
  for (const key in leaf) {
    if (key <= before || typeof leaf[key] === "object") return written(leaf) === said;
    before = key;
  }
  return JSON.stringify(leaf) === said;
}

// Reason of a refusal → whether it may come out of turn.
const REASONS = { limit_reached: false, refused: false, dead_letter: true, discarded_by_staff: true };
// Kind → what its fields are like: a text, an object, a list, or a whole number that is not below this one.
const ANY = Number.MIN_SAFE_INTEGER;
const TERMS = { version: 0, price: "", currency: "", limit: 1, hold_seconds: 0 };
const FIELDS = {
  opened: { units: 0, mode: "", terms: TERMS },
  admitted: { ordinal: 0, seq: 0, request: "", holder: "", quantity: 1, terms: 0 },
  decided: { request: "", outcome: "" },
  ended: { request: "", outcome: "", units: ANY },
  stock: { change: ANY, reason: "" },
  act: { act: "", role: "", reason: "" },
  requeued: { request: "", seq: 0 },
  recovered: { lost: [[0, 0]], restored: [""] },
  closed: {},
};

// Says whether a value is like this one.
function fits(value, shape) {
  if (Array.isArray(shape)) {
    return Array.isArray(value) && [1, value.length].includes(shape.length) && value.every((each, at) => fits(each, shape[at % shape.length]));
  }
  if (typeof value !== typeof shape || value === null || Array.isArray(value)) return false;
  if (typeof shape === "number") return Number.isSafeInteger(value) && value >= shape;
  if (typeof shape === "object") for (const key in shape) if (!Object.hasOwn(value, key) || !fits(value[key], shape[key])) return false;
  return true;
}

// Says whether a leaf has the fields of its kind.
function isLeaf(leaf) {
  if (typeof leaf.kind !== "string" || !Object.hasOwn(FIELDS, leaf.kind)) throw new TypeError(`no kind ${leaf.kind}`);
  if (leaf.outcome === "refused" && !(typeof leaf.reason === "string" && Object.hasOwn(REASONS, leaf.reason))) return false;
  if (leaf.kind === "admitted" && "standby" in leaf && leaf.standby !== true) return false;
  if (leaf.kind === "act" && "terms" in leaf && !fits(leaf.terms, TERMS)) return false;
  return fits(leaf.n, 0) && fits(leaf.at, 0) && fits(leaf, FIELDS[leaf.kind]);
}

export class Replay {
  faults = new Map(); // rule → what was found
  counts = new Map(); // kind → leaves
  places = new Map(); // request → place
  terms = new Map();
  lost = [];
  restored = new Set();
  size = 0;
  at = 0;
  free = 0;
  held = 0;
  closedAt = 0;
  isOpen = false;
  isPaused = false;
  isJudged = false; // whether "answered" was, at the end
  #off;
  #standing = new Map(); // those on standby: request → place
  #turns = 0; // how many were given
  #furthest = 0; // up to which turn the line was decided
  #given = new Map(); // ordinal, or the request of one from before places were counted → who has it
  #tooLate = ""; // the first whose place is from after the end
  #isChanged = false;
  #live = new Map(); // holder → units held or paid
  #ordinal = 0;
  #seq = 0;

  // off: rules that are not applied.
  constructor(off = []) {
    this.#off = new Set(off);
  }

  expect(rule, isTrue, say) {
    if (isTrue || this.#off.has(rule)) return;
    const found = this.faults.get(rule) ?? [];
    if (!found.length) this.faults.set(rule, found);
    found.push(`leaf ${this.size}: ${say()}`);
  }

  // Takes the bytes of a leaf; returns the leaf, or null when it cannot be read.
  add(raw) {
    let leaf = null;
    try {
      const said = UTF8.decode(raw);
      leaf = JSON.parse(said);
      if (!(isLeaf(leaf) && isWritten(leaf, said)) && !this.#off.has("format")) throw new TypeError("not written as agreed");
      const isNext = leaf.n === this.size && leaf.at >= this.at;
      this.expect("format", isNext, () => "out of its order, or back-dated");
      this.at = leaf.at;
      this.expect("life", this.isOpen || leaf.kind === "opened", () => "before the sale was opened");
      this.counts.set(leaf.kind, (this.counts.get(leaf.kind) ?? 0) + 1);
      this.#take(leaf);
    } catch (error) {
      this.expect("format", false, () => `cannot be read: ${error.message}`);
      leaf = null;
    }
    this.size += 1;
    return leaf;
  }

  #take(leaf) {
    switch (leaf.kind) {
      case "opened": return this.#opened(leaf);
      case "admitted": return this.#admitted(leaf);
      case "decided": return this.#decided(leaf);
      case "ended": return this.#decided(leaf);
      case "stock": return this.#move("", leaf.change);
      case "act": return this.#act(leaf);
      case "requeued": return this.#comeLate([leaf.request]);
      case "recovered": return this.#recovered(leaf);
      case "closed":
        this.expect("life", !this.closedAt, () => "closed twice");
        this.closedAt = leaf.at;
        return undefined;
      default: throw new TypeError(`no kind ${leaf.kind}`);
    }
  }

  #opened(leaf) {
    this.expect("life", !this.isOpen, () => "opened twice");
    this.free = leaf.units;
    this.isOpen = true;
    this.#act({ ...leaf, act: "open" });
  }

  #admitted(leaf) {
    const [name, ordinal, cameBack] = [leaf.request, leaf.ordinal, this.restored.has(leaf.request)];
    let due = this.#ordinal + 1;
    for (const [first, last] of this.lost) if (first <= due && due <= last) due = last + 1;
    const key = ordinal || name;
    const wasLost = ordinal === 0 || this.lost.some(([first, last]) => first <= ordinal && ordinal <= last);
    if (!(cameBack && wasLost)) {
      this.expect("admitted", ordinal === due, () => `place ${ordinal} follows place ${this.#ordinal}`);
      this.#ordinal = Math.max(this.#ordinal, ordinal);
    }
    this.expect("admitted", cameBack || leaf.seq > this.#seq, () => `seq ${leaf.seq} is not above ${this.#seq}`);
    this.#seq = Math.max(this.#seq, leaf.seq);
    this.expect("admitted", leaf.seq <= leaf.at + SKEW_US, () => `seq ${leaf.seq} is of a time to come`);
    if (this.closedAt && leaf.seq > this.closedAt + SKEW_US) this.#tooLate ||= name;
    if (!this.#given.has(key)) this.#given.set(key, name);
    const first = this.#given.get(key);
    this.expect("admitted", first === name, () => `place ${ordinal} is given to ${name}, and was to ${first}`);
    this.expect("terms", this.terms.has(leaf.terms), () => `under version ${leaf.terms}, which was not published`);
    const known = this.places.get(name); // after a loss the same request may ask again
    this.expect("admitted", !known || this.lost.length > 0, () => `${name} is admitted twice`);
    if (known && known.state !== "waits") return;
    this.#turns += 1;
    // turn: the number in the line, 0 on standby. isPassed: one behind it on standby was held before it.
    const place = {
      holder: leaf.holder, quantity: leaf.quantity, limit: this.terms.get(leaf.terms)?.limit ?? 0,
      mayBeLate: cameBack, mayBeLost: false, state: "waits", ordinal, turn: "standby" in leaf ? 0 : this.#turns, isPassed: false,
    };
    this.places.set(name, place);
    this.#standing.delete(name); // who asks again after a loss stands by after all others
    if (!place.turn) this.#standing.set(name, place);
  }

  #recovered(leaf) {
    for (const [first, last] of leaf.lost) {
      this.expect("admitted", this.#ordinal < first && first <= last, () => `${first} to ${last} are declared lost`);
      this.lost.push([first, last]);
    }
    for (const name of leaf.restored) this.restored.add(name);
    // After a loss all who wait may be lost, and may come back late, or never.
    this.#comeLate(leaf.restored);
    if (!leaf.lost.length) return;
    this.#comeLate(this.places.keys());
    for (const place of this.places.values()) place.mayBeLost = true;
  }

  #comeLate(names) {
    for (const name of names) {
      const place = this.places.get(name);
      if (place) place.mayBeLate = true;
    }
  }

  // A decision, or what ended a hold or an order.
  #decided(leaf) {
    const [name, outcome, reason] = [leaf.request, leaf.outcome, leaf.reason ?? ""];
    const [isDecided, place] = [leaf.kind === "decided", this.places.get(name)];
    const before = isDecided ? DECIDED : ENDED;
    if (!Object.hasOwn(before, outcome)) throw new TypeError(`no outcome ${outcome}`);
    if (!before[outcome].includes(place?.state)) {
      return this.expect("life", false, () => `${name} is ${leaf.kind} as ${outcome}, and was ${place?.state}`);
    }
    const isExcused = outcome === "refused" && REASONS[reason];
    if (isDecided && !place.mayBeLate && !isExcused) this.#checkTurn(name, place, outcome);
    this.#standing.delete(name);
    const takes = outcome === "held" || outcome === "retaken";
    const gives = outcome === "expired" || outcome === "cancelled" || place.state === "paid";
    const { quantity, holder, limit } = place;
    const back = quantity * (gives - takes);
    const told = isDecided ? back : leaf.units;
    this.expect("units", told === back, () => `${name} gave back ${told} and not ${back} units`);
    const mayCome = this.closedAt ? 0 : this.held;
    this.expect("sold_out", outcome !== "sold_out" || quantity > this.free + mayCome, () => `${this.free} were free`);
    const isAbove = (this.#live.get(holder) ?? 0) + quantity > limit;
    this.expect("limit", !(takes && isAbove), () => `${holder} gets more than ${limit}`);
    this.expect("limit", isAbove || reason !== "limit_reached", () => `${name} was refused below ${limit}`);
    this.held += quantity * ((outcome === "held") - (place.state === "held"));
    this.#move(holder, back);
    place.state = outcome === "retaken" ? "paid" : outcome;
    return undefined;
  }

  #isPassed({ isPassed, turn }) {
    return isPassed || (turn > 0 && turn <= this.#furthest);
  }

  // Notes who is passed over by a decision: why, the log may say later, or that they have left.
  #checkTurn(name, place, outcome) {
    this.expect("order", !this.#isPassed(place), () => `${name} was passed over before`);
    this.#furthest = Math.max(this.#furthest, place.turn || this.#turns); // those on standby come after all in line
    for (const each of this.#standing.values()) {
      if (each.ordinal >= place.ordinal) break;
      if (outcome === "held" && each.quantity <= place.quantity) each.isPassed = true;
    }
    this.expect("pause", !this.isPaused || this.closedAt > 0, () => `${name} was decided`);
  }

  // Changes the free units by those that a holder gives back (or takes, when negative).
  #move(holder, units) {
    this.free += units;
    this.#live.set(holder, (this.#live.get(holder) ?? 0) - units);
    this.expect("units", this.free >= 0, () => `${-this.free} units were not free`);
  }

  #act(leaf) {
    if ("terms" in leaf) {
      const { version } = leaf.terms;
      if (!this.terms.has(version)) this.terms.set(version, leaf.terms);
      const isKnown = written(this.terms.get(version)) === written(leaf.terms);
      this.expect("terms", isKnown, () => `version ${version} of the terms has changed`);
    }
    if (leaf.act === "change" && this.closedAt) this.#isChanged = true; // perhaps its end: the sale may go on
    if (leaf.act === "pause") this.isPaused = true;
    if (leaf.act === "resume") this.isPaused = false;
  }

  // Judges what only the end shows. nowUs: µs since 1970.
  finish(nowUs) {
    this.expect("life", this.isOpen, () => "the log is empty");
    const passed = [...this.places].filter(([, each]) => each.state === "waits" && !each.mayBeLate && this.#isPassed(each));
    this.expect("order", !passed.length, () => `${passed.length} were passed over, the first ${passed[0][0]}`);
    this.expect("format", this.at <= nowUs + SKEW_US, () => "the last leaf is of a time to come");
    this.expect("admitted", !this.#tooLate || this.#isChanged, () => `${this.#tooLate} came after the end of the sale`);
    this.isJudged = this.closedAt > 0 && nowUs - this.closedAt > ANSWER_US;
    const waits = [...this.places].filter(([, each]) => each.state === "waits" && !each.mayBeLost);
    this.expect("answered", !(this.isJudged && waits.length), () => `${waits.length} had no answer, the first ${waits[0][0]}`);
  }
}
