// Solves one challenge: tries numbers until scrypt (RFC 7914) of one has the wanted beginning. Says how far it is.
// Never talks to the shop. PBKDF2 is the browser's own, which it has on https and on this machine.

const TOLD_EACH = 8;

const bytesOf = (hex) => Uint8Array.from(hex.match(/../g), (pair) => parseInt(pair, 16));
const hexOf = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

async function pbkdf2(password, salt, length) {
  const key = await crypto.subtle.importKey("raw", password, "PBKDF2", false, ["deriveBits"]);
  const bits = await crypto.subtle.deriveBits({ name: "PBKDF2", hash: "SHA-256", salt, iterations: 1 }, key, 8 * length);
  return new Uint8Array(bits);
}

const x = new Uint32Array(16), s = new Int32Array(16);

// x = salsa20/8(x xor the 16 words of `from` at `at`)
function mix(from, at) {
  for (let i = 0; i < 16; i += 1) s[i] = x[i] ^= from[at + i];
  let [a, b, c, d, e, f, g, h, j, k, l, m, n, o, p, q] = s;
  let t;
  for (let round = 0; round < 8; round += 2) {
    t = a + n | 0; e ^= t << 7 | t >>> 25; t = e + a | 0; j ^= t << 9 | t >>> 23;
    t = j + e | 0; n ^= t << 13 | t >>> 19; t = n + j | 0; a ^= t << 18 | t >>> 14;
    t = f + b | 0; k ^= t << 7 | t >>> 25; t = k + f | 0; o ^= t << 9 | t >>> 23;
    t = o + k | 0; b ^= t << 13 | t >>> 19; t = b + o | 0; f ^= t << 18 | t >>> 14;
    t = l + g | 0; p ^= t << 7 | t >>> 25; t = p + l | 0; c ^= t << 9 | t >>> 23;
    t = c + p | 0; g ^= t << 13 | t >>> 19; t = g + c | 0; l ^= t << 18 | t >>> 14;
    t = q + m | 0; d ^= t << 7 | t >>> 25; t = d + q | 0; h ^= t << 9 | t >>> 23;
    t = h + d | 0; m ^= t << 13 | t >>> 19; t = m + h | 0; q ^= t << 18 | t >>> 14;
    t = a + d | 0; b ^= t << 7 | t >>> 25; t = b + a | 0; c ^= t << 9 | t >>> 23;
    t = c + b | 0; d ^= t << 13 | t >>> 19; t = d + c | 0; a ^= t << 18 | t >>> 14;
    t = f + e | 0; g ^= t << 7 | t >>> 25; t = g + f | 0; h ^= t << 9 | t >>> 23;
    t = h + g | 0; e ^= t << 13 | t >>> 19; t = e + h | 0; f ^= t << 18 | t >>> 14;
    t = l + k | 0; m ^= t << 7 | t >>> 25; t = m + l | 0; j ^= t << 9 | t >>> 23;
    t = j + m | 0; k ^= t << 13 | t >>> 19; t = k + j | 0; l ^= t << 18 | t >>> 14;
    t = q + p | 0; n ^= t << 7 | t >>> 25; t = n + q | 0; o ^= t << 9 | t >>> 23;
    t = o + n | 0; p ^= t << 13 | t >>> 19; t = p + o | 0; q ^= t << 18 | t >>> 14;
  }
  x[0] += a; x[1] += b; x[2] += c; x[3] += d; x[4] += e; x[5] += f; x[6] += g; x[7] += h;
  x[8] += j; x[9] += k; x[10] += l; x[11] += m; x[12] += n; x[13] += o; x[14] += p; x[15] += q;
}

// The even blocks of the answer come first, then the odd ones.
function blockMix(from, at, to, place, r) {
  for (let i = 0; i < 16; i += 1) x[i] = from[at + 32 * r - 16 + i];
  for (let i = 0; i < 2 * r; i += 1) {
    mix(from, at + 16 * i);
    to.set(x, place + 16 * (i >> 1) + (i & 1 ? 16 * r : 0));
  }
}

function roMix(block, n, r, memory, other) {
  const words = 32 * r;
  memory.set(block);
  for (let i = 1; i < n; i += 1) blockMix(memory, (i - 1) * words, memory, i * words, r);
  blockMix(memory, (n - 1) * words, block, 0, r);
  for (let i = 0; i < n; i += 1) {
    const from = (block[words - 16] & (n - 1)) * words;
    for (let k = 0; k < words; k += 1) other[k] = block[k] ^ memory[from + k];
    blockMix(other, 0, block, 0, r);
  }
}

async function solve({ nonce, salt, cost, memoryCost, keyLength, keyPrefix, data }) {
  const memory = new Uint32Array(cost * 32 * memoryCost), other = new Uint32Array(32 * memoryCost);
  const password = new Uint8Array(20), salted = bytesOf(salt), began = performance.now();
  password.set(bytesOf(nonce));
  for (let counter = 0; counter < data.most; counter += 1) {
    new DataView(password.buffer).setUint32(16, counter);
    const block = await pbkdf2(password, salted, 128 * memoryCost);
    roMix(new Uint32Array(block.buffer), cost, memoryCost, memory, other);
    const derivedKey = hexOf(await pbkdf2(password, block, keyLength));
    if (derivedKey.startsWith(keyPrefix)) return { counter, derivedKey, time: Math.round(performance.now() - began) };
    if (counter % TOLD_EACH === 0) postMessage({ done: counter / data.most });
  }
  throw new Error("no answer");
}

addEventListener("message", ({ data }) => {
  solve(data).then((solution) => postMessage({ solution }), () => postMessage({ failed: true }));
});
