// What the page's tree, growth and notes make of the published vectors, for a test, as one JSON object. Arguments: the
// folder of the modules, the file of the vectors. Opens no connection.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

const [folder, file] = process.argv.slice(2);
const { Tree } = await import(`${folder}/tree.js`);
const { leafHash: leafHashByBrowser, rootByPath } = await import(`${folder}/path.js`);
const { hasGrown, TileTree, tilePath } = await import(`${folder}/growth.js`);
const { leafHash, nodeHash, sha256 } = await import(`${folder}/sha256.js`);
const { fromBase64, isSigned, readNote } = await import(`${folder}/note.js`);
const { rfc6962, log, key, tile_paths } = JSON.parse(readFileSync(file));
const hex = (bytes) => Buffer.from(bytes).toString("hex");
const bytes = (text) => Buffer.from(text, "hex");
const said = { roots: [], paths: [], digests: 0, grown: 0, forged: 0 };
const tree = new Tree();
said.empty = hex(tree.root());
for (const leaf of rfc6962.leaves) { tree.add(bytes(leaf)); said.roots.push(hex(tree.root())); }
for (const { leaf, size, path } of rfc6962.paths) {
  const hash = await leafHashByBrowser(bytes(rfc6962.leaves[leaf]));
  said.paths.push(hex(await rootByPath(hash, { index: leaf, size, path: path.map(bytes) })) === rfc6962.roots[size - 1]);
}
const hashes = rfc6962.leaves.map((leaf) => leafHash(bytes(leaf)));
said.growth = await Promise.all(rfc6962.growth.map(async ({ before, size, path }) => {
  const made = await new TileTree(async (level, number, width) => Buffer.concat(hashes.slice(0, width)), size).growth(before);
  const [rootBefore, root] = [before, size].map((count) => bytes(rfc6962.roots[count - 1]));
  const isGrown = (hexes) => hasGrown({ before, rootBefore, size, root, path: hexes.map(bytes) });
  const wrong = [[...path, rfc6962.roots[7]], [rfc6962.roots[7], ...path.slice(1)], ...(path.length ? [path.slice(1), path.slice(0, -1)] : [])];
  return [made.map(hex).join() === path.join(), await isGrown(path), (await Promise.all(wrong.map(isGrown))).includes(true)];
}));
said.tiles = Object.entries(tile_paths.paths).every(([number, path]) => tilePath(Number(number), 256) === path);
for (let length = 0; length < 300; length += 1) {
  const text = Buffer.alloc(length, length);
  said.digests += hex(sha256(text)) === createHash("sha256").update(text).digest("hex");
}
const note = readNote(log.checkpoint);
const keys = { [key.key]: key.public };
const proof = async (index) => rootByPath(await leafHashByBrowser(Buffer.from(log.leaves[index])), { index: log.proof.index, size: log.leaves.length, path: log.proof.path.map(fromBase64) });
said.signed = [await isSigned(note, keys, "lantern-drop"), await isSigned(note, keys, "drop"), await isSigned({ ...note, signed: note.signed.replace("9", "8") }, keys, "lantern-drop")];
said.proof = [hex(await proof(log.proof.index)) === hex(note.root), hex(await proof(2)) === hex(note.root)];
const leaves = Array.from({ length: 70000 }, (_, i) => leafHash(Buffer.from(String(i))));
const levels = [leaves];
const fold = (row) => row.length === 1 ? row[0] : fold(row.flatMap((hash, i) => i % 2 ? [] : [nodeHash(hash, row[i + 1])]));
for (let row = leaves; row.length >= 256; levels.push(row)) {
  row = Array.from({ length: Math.floor(row.length / 256) }, (_, i) => fold(row.slice(256 * i, 256 * i + 256)));
}
const treeOf = (size) => new TileTree(async (level, number, width) => {
  if (width !== Math.min(256, Math.floor(size / 256 ** level) - 256 * number)) throw new Error("width");
  return Buffer.concat(levels[level].slice(256 * number, 256 * number + width));
}, size);
const sizes = [1, 2, 3, 6, 7, 8, 255, 256, 257, 511, 513, 65535, 65536, 65537, 70000];
for (const size of sizes) {
  for (const before of sizes.filter((each) => each < size)) {
    const [root, rootBefore, path] = [await treeOf(size).range(0, size), await treeOf(before).range(0, before), await treeOf(size).growth(before)];
    said.grown += await hasGrown({ before, rootBefore, size, root, path });
    const other = leafHash(root);
    for (const wrong of [{ root: other }, { rootBefore: other }, { path: [...path.slice(1), other] }, { path: path.slice(1) }, { path: [...path, other] }]) {
      said.forged += await hasGrown({ before, rootBefore, size, root, path, ...wrong });
    }
  }
}
said.pairs = sizes.length * (sizes.length - 1) / 2;
console.log(JSON.stringify(said));
