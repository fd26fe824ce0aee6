// SHA-256 of bytes, at once: the browser's own answers later, which makes a log of a million leaves take minutes, and
// is missing where a page has no TLS. Knows the three hashes of a log (RFC 6962): of a leaf, of a node, of anything.

const ROUNDS = 64;
const K = new Int32Array(ROUNDS);
const BEGIN = new Int32Array(8);
// The first 32 bits of the fractions of the cube and square roots of the first primes (FIPS 180-4).
for (let prime = 2, count = 0; count < ROUNDS; prime += 1) {
  let divisor = 2;
  while (divisor * divisor <= prime && prime % divisor) divisor += 1;
  if (divisor * divisor <= prime) continue;
  if (count < 8) BEGIN[count] = (Math.sqrt(prime) % 1) * 2 ** 32;
  K[count] = (Math.cbrt(prime) % 1) * 2 ** 32;
  count += 1;
}
const words = new Int32Array(ROUNDS);
const state = new Int32Array(8);
let message = new Uint8Array(1024);

function room(length) {
  if (message.length < length + 128) message = new Uint8Array(2 * length + 128);
}

function mix(at) {
  for (let i = 0; i < 16; i += 1, at += 4) {
    words[i] = (message[at] << 24) | (message[at + 1] << 16) | (message[at + 2] << 8) | message[at + 3];
  }
  for (let i = 16; i < ROUNDS; i += 1) {
    const x = words[i - 15];
    const y = words[i - 2];
    const s0 = ((x >>> 7) | (x << 25)) ^ ((x >>> 18) | (x << 14)) ^ (x >>> 3);
    const s1 = ((y >>> 17) | (y << 15)) ^ ((y >>> 19) | (y << 13)) ^ (y >>> 10);
    words[i] = words[i - 16] + s0 + words[i - 7] + s1;
  }
  let a = state[0];
  let b = state[1];
  let c = state[2];
  let d = state[3];
  let e = state[4];
  let f = state[5];
  let g = state[6];
  let h = state[7];
  for (let i = 0; i < ROUNDS; i += 1) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i] + words[i]) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
  }
  state[0] += a; state[1] += b; state[2] += c; state[3] += d;
  state[4] += e; state[5] += f; state[6] += g; state[7] += h;
}

// Hashes the first `length` bytes of the message.
function digest(length) {
  const end = (Math.floor((length + 8) / 64) + 1) * 64;
  message.fill(0, length, end);
  message[length] = 0x80;
  for (let at = end - 1, bits = 8 * length; bits; at -= 1, bits = Math.floor(bits / 256)) message[at] = bits % 256;
  state.set(BEGIN);
  for (let at = 0; at < end; at += 64) mix(at);
  const hash = new Uint8Array(32);
  for (let i = 0; i < 32; i += 1) hash[i] = state[i >> 2] >>> (24 - 8 * (i & 3));
  return hash;
}

export function sha256(bytes) {
  room(bytes.length);
  message.set(bytes);
  return digest(bytes.length);
}

export function leafHash(leaf) {
  room(leaf.length + 1);
  message[0] = 0;
  message.set(leaf, 1);
  return digest(leaf.length + 1);
}

export function nodeHash(left, right) {
  message[0] = 1;
  message.set(left, 1);
  message.set(right, 33);
  return digest(65);
}
