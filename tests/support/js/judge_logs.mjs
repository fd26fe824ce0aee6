// Judges logs by the page's own modules, for a test: reads cases from stdin, one JSON a line, and writes for each what
// was found, rule by rule, and how many orders were voided for each reason. A case: {leaves, checkpoint, keys, kept, now_us, off}; leaves are base64. Opens no connection.
import { createInterface } from "node:readline";

const { Reading } = await import(`${process.argv[2]}/reading.js`);
const { Story } = await import(`${process.argv[2]}/story.js`);
const { WIDTH } = await import(`${process.argv[2]}/growth.js`);

function serve({ leaves, checkpoint, keys }) {
  const texts = leaves.map((leaf) => Buffer.from(leaf, "base64"));
  return async (path) => {
    if (path.endsWith("/fairdrop-keys")) return Buffer.from(JSON.stringify(keys));
    if (path.endsWith("/checkpoint")) return Buffer.from(checkpoint);
    const number = Number(path.split("/entries/")[1].split(".p/")[0].replaceAll("/", "").replaceAll("x", ""));
    const tile = texts.slice(number * WIDTH, (number + 1) * WIDTH);
    return Buffer.concat(tile.flatMap((text) => [Buffer.from([text.length >> 8, text.length & 255]), text]));
  };
}

for await (const line of createInterface({ input: process.stdin })) {
  const each = JSON.parse(line);
  const reading = new Reading(serve(each), each.slug, { kept: each.kept, off: each.off });
  await reading.begin();
  const story = new Story(reading.replay);
  for await (const leaves of reading.leaves()) leaves.forEach((leaf) => story.add(leaf));
  reading.finish(each.now_us ?? reading.replay.at + 3_600_000_000);
  console.log(JSON.stringify({ canVerify: reading.canVerify, kept: reading.checkpoint.keys, faults: Object.fromEntries(reading.replay.faults), voided: Object.fromEntries(story.voided) }));
}
