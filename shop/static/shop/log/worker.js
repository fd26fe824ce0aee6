// Reads and replays a log alongside its page, and tells the page how far it is: at once what the checkpoint and the last
// leaves say, then more as it reads. Begins with {slug, kept, nowUs}; answers {second: i} with the leaves of that second,
// {lines: true} with all leaves as one file.
import { WIDTH } from "./growth.js";
import { Reading } from "./reading.js";
import { Story } from "./story.js";

const TELL_MS = 400;
const CHART_MS = 1500;
const MAX_SHOWN = 100;
const MAX_RETURNS = 50;
const MAX_FAULTS = 5;
const TRIES = 6;
let reading = null;
let story = null;

const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

// A shop that is busy, or a network that is gone for a moment, is asked again.
async function get(path) {
  for (let tries = 1; ; tries += 1) {
    try {
      const response = await fetch(path);
      const isOwn = !response.headers.get("Content-Type")?.includes("html"); // else it is a network's login
      if (response.ok && isOwn) return new Uint8Array(await response.arrayBuffer());
      if (response.status < 500 && response.status !== 429) tries = TRIES;
      throw new Error(`${path}: ${response.status}`);
    } catch (error) {
      if (tries >= TRIES) throw error;
      await pause(250 * 2 ** tries);
    }
  }
}

const read = (raw) => JSON.parse(new TextDecoder().decode(raw));

function tell(more = {}) {
  const { replay } = reading;
  const faults = [...replay.faults].map(([rule, found]) => [rule, found.slice(0, MAX_FAULTS), found.length]);
  const { came, got, back, voided } = story;
  const lost = replay.lost.reduce((sum, [first, last]) => sum + last - first + 1, 0);
  const declared = { lost, restored: replay.restored.size, requeued: replay.counts.get("requeued") ?? 0 };
  postMessage({ read: replay.size, size: reading.note.size, faults, came, got, back, voided, declared, ...more });
}

async function leavesFrom(begin, end) {
  const found = [];
  for (let number = Math.floor(begin / WIDTH); number * WIDTH < end; number += 1) found.push(...(await reading.tile(number)));
  const skipped = Math.floor(begin / WIDTH) * WIDTH;
  return found.slice(begin - skipped, end - skipped).map(read);
}

const charts = () => ({ seconds: story.seconds, acts: story.acts });

async function lastReturns() {
  const told = [];
  for (const number of story.lastReturns(MAX_RETURNS)) told.push(...(await leavesFrom(number, number + 1)).map((leaf) => story.tell(leaf)));
  return told;
}

async function begin({ slug, kept, nowUs }) {
  reading = new Reading(get, slug, { kept });
  story = new Story(reading.replay);
  await reading.begin();
  const { size } = reading.note;
  tell({ canVerify: reading.canVerify });
  const last = await leavesFrom(Math.max(0, Math.floor((size - 1) / WIDTH) * WIDTH), size);
  postMessage({ latest: last.slice(-MAX_SHOWN).map((leaf) => ({ ...leaf, went: [] })) });
  let [told, drawn] = [performance.now(), performance.now()];
  for await (const leaves of reading.leaves()) {
    leaves.forEach((leaf) => story.add(leaf));
    const now = performance.now();
    if (now - told < TELL_MS) continue;
    told = now;
    const draws = now - drawn > CHART_MS;
    if (draws) drawn = now;
    tell(draws ? charts() : {});
  }
  reading.finish(nowUs);
  tell({ ...charts(), returns: await lastReturns(), isDone: true, isJudged: reading.replay.isJudged, checkpoint: reading.checkpoint });
}

async function showSecond(index) {
  const { first } = story.seconds;
  const end = Math.min(first[index + 1] ?? reading.replay.size, first[index] + MAX_SHOWN);
  const leaves = (await leavesFrom(first[index], end)).map((leaf) => story.tell(leaf));
  postMessage({ shown: { index, leaves, more: (first[index + 1] ?? reading.replay.size) - end } });
}

async function giveLines() {
  const parts = [];
  for (let number = 0; number * WIDTH < reading.note.size; number += 1) {
    for (const raw of await reading.tile(number)) parts.push(raw, "\n");
  }
  postMessage({ file: new Blob(parts, { type: "application/jsonl" }) });
}

onmessage = async ({ data }) => {
  try {
    if (data.slug) await begin(data);
    else if (data.lines) await giveLines();
    else await showSecond(data.second);
  } catch (error) {
    postMessage({ failed: String(error.message ?? error) });
  }
};
