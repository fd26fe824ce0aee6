// Checks this ticket's place in the public log of its sale, and says ✓ only after all of it: its leaf, the way to the
// root, the shop's signature, and that the log has grown from the one seen before.
import { keep, keptOf } from "./kept.js";
import { areKept, canVerify, fromBase64, isSigned, readKeys, readNote, toBase64, usedKeys } from "./note.js";
import { isSame, leafHash, rootByPath } from "./path.js";

const NOT_PUBLISHED = "404";
const FIRST_MS = 700; // the notary publishes about twice a second
const LATE_MS = 60_000;
const MAX_PAUSE_MS = 30_000;
const LANGUAGE = document.documentElement.lang;
const begun = performance.now();
let shown = { part: "waits" };
let tries = 0;

class Later extends Error {}
class Wrong extends Error {}

const line = () => document.querySelector("[data-log]");
const check = (isTrue, why) => { if (!isTrue) throw new Wrong(why); };

// A page that was put in again shows it too.
function show(what = shown) {
  shown = what;
  const here = line();
  if (!here) return;
  for (const part of here.querySelectorAll("[data-part]")) part.hidden = part.dataset.part !== shown.part;
  for (const why of here.querySelectorAll("[data-why]")) why.hidden = why.dataset.why !== shown.why;
  if (shown.ordinal) {
    // What was lost, and how many, is the shop's word.
    const lost = JSON.parse(here.dataset.gaps).filter(([, last]) => last < shown.ordinal);
    const place = lost.reduce((rest, [first, last]) => rest - (last - first + 1), shown.ordinal);
    here.querySelector("[data-log-place]").textContent = place.toLocaleString(LANGUAGE);
    here.querySelector("[data-log-all]").textContent = Math.max(place, here.dataset.all).toLocaleString(LANGUAGE);
  }
}

// What comes from a network on the way is no word of the shop: it is asked again.
async function get(path) {
  try {
    const response = await fetch(path, { cache: "no-cache", signal: AbortSignal.timeout?.(8000) });
    const { ok, status } = response;
    const type = response.headers.get("Content-Type");
    const isOwn = ok ? !type.includes("html") : type === "application/problem+json";
    const bytes = new Uint8Array(await response.arrayBuffer());
    if (isOwn && status < 500 && status !== 429) return { status, bytes };
  } catch { /* as below */ }
  throw new Later();
}

const parsed = ({ bytes }) => JSON.parse(new TextDecoder().decode(bytes));

async function checkGrowth(kept, note, slug) {
  const { hasGrownSince } = await import("./growth.js").catch(() => { throw new Later(); });
  const tile = async (path) => {
    const { status, bytes } = await get(`/api/v1/sales/${slug}/log/tile/${path}`);
    check(status === 200, "kept");
    return bytes;
  };
  check(await hasGrownSince(kept, note, tile), "kept");
}

async function checkProof(proof, list, kept, { id, slug, keepAs = slug, seq, quantity }) {
  const leaf = JSON.parse(proof.leaf);
  const isOwn = leaf.kind === "admitted" && leaf.request === id;
  check(isOwn && leaf.seq === Number(seq) && leaf.quantity === Number(quantity), "leaf");
  const note = readNote(proof.checkpoint);
  const keys = readKeys(list);
  check(await isSigned(note, keys, slug), "signed");
  const hash = await leafHash(new TextEncoder().encode(proof.leaf));
  const root = await rootByPath(hash, { index: proof.index, size: note.size, path: proof.path.map(fromBase64) });
  check(leaf.n === proof.index && root && isSame(root, note.root), "tree");
  if (kept) {
    check(kept.origin === note.origin && areKept(kept.keys, keys) && kept.size <= note.size, "kept");
    await checkGrowth(kept, note, slug);
  }
  keep(keepAs, { origin: note.origin, keys: usedKeys(list), size: note.size, root: toBase64(note.root) });
  return { part: "good", ordinal: leaf.ordinal };
}

async function look() {
  const { dataset } = line();
  // Before the proof: another tab may keep a longer one meanwhile.
  const kept = keptOf(dataset.keepAs ?? dataset.slug);
  const proof = await get(`/api/v1/requests/${dataset.id}/proof`);
  if (proof.status === 404) throw new Later(NOT_PUBLISHED);
  if (proof.status !== 200) return { part: "cannot" };
  const keys = await get("/.well-known/fairdrop-keys");
  check(keys.status === 200, "signed");
  return checkProof(parsed(proof), parsed(keys), kept, dataset);
}

async function run() {
  if (!line()) return;
  if (document.hidden) return document.addEventListener("visibilitychange", run, { once: true });
  try {
    show(await look());
  } catch (error) {
    if (!(error instanceof Later)) return show({ part: "wrong", why: error instanceof Wrong ? error.message : "read" });
    tries += 1;
    const isLate = error.message === NOT_PUBLISHED && performance.now() - begun > LATE_MS;
    show({ part: isLate ? "late" : "waits" });
    setTimeout(run, Math.min(MAX_PAUSE_MS, 500 * 1.5 ** tries) * (0.75 + Math.random() / 2));
  }
}

document.addEventListener("parts-replaced", () => show());
show();
if (line()) canVerify().then((can) => {
  if (can) setTimeout(run, FIRST_MS * (1 + Math.random()));
  else show({ part: "cannot" });
});
