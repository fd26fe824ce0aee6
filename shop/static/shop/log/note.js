// Checkpoints as a shop signs them (tlog-checkpoint and signed-note of C2SP), and its keys. Verifies with the browser's
// Ed25519. Never calls anybody.
import { sha256 } from "./path.js";

const ED25519 = 1;
const MAX_SIZE = 2 ** 31 - 1;

export function fromBase64(text) {
  const plain = text.replaceAll("-", "+").replaceAll("_", "/");
  return Uint8Array.from(atob(plain), (letter) => letter.charCodeAt(0));
}

export const toBase64 = (bytes) => btoa(String.fromCharCode(...bytes));

// One without TLS has no crypto, an old one no Ed25519.
export async function canVerify() {
  try {
    await crypto.subtle.importKey("raw", fromBase64("hBN0ByC6o8vIS0wqAnhvDfhjIRu_ofgMssIcvmkjuCQ"), "Ed25519", false, ["verify"]);
    return true;
  } catch {
    return false;
  }
}

// The shop's keys: id → public key, in base64url. Throws for anything else.
export function readKeys(list) {
  const keys = list.map(({ key, public: text }) => [key, text]);
  if (!keys.every(([key, text]) => typeof key === "string" && fromBase64(text).length === 32)) throw new Error("keys");
  return Object.fromEntries(keys);
}

// Those that sign or have signed: the first signs, one newer does not yet, and not every process lists it.
export const usedKeys = (list) => readKeys(list.filter(({ from }) => !(from > list[0].from)));

// Whether each of the keys `before` is among `now`, unchanged.
export const areKept = (before, now) => Object.entries(before).every(([key, text]) => now[key] === text);

// What a checkpoint says: origin, size, root; signed: what of it is signed; lines: the signatures. Throws for anything else.
export function readNote(note) {
  const [text, ...rest] = note.split("\n\n");
  const [origin, size, root, ...more] = text.split("\n");
  const found = { origin, size: Number(size), root: fromBase64(root ?? ""), signed: `${text}\n`, lines: rest.join("\n\n").split("\n") };
  if (!rest.length || more.length || !/^\d+$/.test(size) || found.size > MAX_SIZE || found.root.length !== 32) {
    throw new Error("checkpoint");
  }
  return found;
}

async function isBy(publicText, note, line) {
  const [dash, name, signature] = line.split(" ");
  if (dash !== "—" || name !== note.origin || !signature) return false;
  const [raw, key] = [fromBase64(signature), fromBase64(publicText)];
  const named = new TextEncoder().encode(`${name}\n`);
  const id = await sha256([...named, ED25519, ...key]);
  if (!raw.subarray(0, 4).every((byte, at) => byte === id[at])) return false;
  const known = await crypto.subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
  return crypto.subtle.verify("Ed25519", known, raw.subarray(4), new TextEncoder().encode(note.signed));
}

// Whether one of `keys` has signed a note that readNote gave, and it is the log of the sale `slug`.
export async function isSigned(note, keys, slug) {
  if (!note.origin.endsWith(`/sales/${slug}`)) return false;
  for (const line of note.lines) {
    for (const each of Object.values(keys)) if (await isBy(each, note, line)) return true;
  }
  return false;
}
