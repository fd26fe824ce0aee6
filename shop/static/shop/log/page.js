// Shows what a worker finds in this sale's log: first the checkpoint and the last leaves, then every rule as it is read,
// the sale on a chart second by second, and what came back. Keeps the checkpoint of a log in which nothing is wrong.
// Loaded by the page of a log.
import { keep, keptOf } from "./kept.js";

const CHART_HEIGHT = 170;
const PLAY_MS = 250;
const WHOLE_SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400, 604800];
const DAY_SECONDS = 86_400;
const DAY = { day: "numeric", month: "short" };
const TIME = { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" };
const LANGUAGE = document.documentElement.lang;
const page = document.querySelector("[data-log-page]");
const find = (name) => page.querySelector(`[data-${name}]`);
const texts = document.querySelector("[data-words]").content;
const words = Object.fromEntries([...texts.querySelectorAll("[data-word]")].map((each) => [each.dataset.word, each.textContent]));
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const count = (number) => number.toLocaleString(LANGUAGE);
const fill = (text, values) => Object.entries(values).reduce((said, [name, value]) => said.replace(`{${name}}`, value), text);
const rules = [...page.querySelectorAll("[data-rule]")];
const PLOTS = {
  line: { rows: ["waiting"], names: ["waiting"], colours: ["--act"] },
  units: { rows: ["free", "held", "paid"], names: ["free", "taken", "sold"], colours: ["--act", "--warn", "--good"] },
};
const { slug, keepAs } = page.dataset;
const kept = keptOf(keepAs);
const worker = new Worker(page.dataset.worker, { type: "module" });
let canVerify = true;
let seconds = null;
let playing = 0;
let plots = [];

const isOfDays = () => seconds.at.at(-1) - seconds.at[0] >= DAY_SECONDS;

// day: how it is named, if it is.
function clock(second, day = isOfDays() ? DAY : {}) {
  return new Date(second * 1000).toLocaleString(LANGUAGE, { ...day, ...TIME });
}

// --- verdict and rules

// isJudged: whether the sale was over long enough for everybody to be answered.
function showRule(element, { found, isDone, isJudged }) {
  const rule = element.dataset.rule;
  const isLeft = (rule === "signed" && !canVerify) || (rule === "kept" && !kept) || (rule === "answered" && isDone && !isJudged);
  const mark = found ? "✗" : isLeft ? "–" : isDone ? "✓" : "…";
  element.className = found ? "bad" : isDone && !isLeft ? "good" : "";
  element.querySelector("[data-mark]").textContent = mark;
  element.querySelector("[data-said]").textContent = mark === "…" ? "" : `${mark} `;
  const note = element.querySelector("[data-found]");
  const said = found ? found[1].join("\n") : rule === "kept" && !kept ? words.fresh : "";
  note.hidden = !said;
  note.textContent = said;
}

function showVerdict({ read, size, faults, isDone, isJudged, declared, ...facts }) {
  if (facts.canVerify !== undefined) canVerify = facts.canVerify;
  const found = new Map(faults.map(([rule, ...rest]) => [rule, rest]));
  const settled = isDone ? rules.map((each) => each.dataset.rule) : ["signed"];
  for (const each of rules) {
    const rule = each.dataset.rule;
    showRule(each, { found: found.has(rule) ? [rule, found.get(rule)[0]] : null, isDone: settled.includes(rule), isJudged });
  }
  const verdict = find("verdict");
  const text = found.size ? "bad" : !isDone ? "reading" : canVerify ? "good" : "unsigned";
  verdict.className = `verdict ${text === "reading" || text === "unsigned" ? "" : text}`;
  const values = { read: count(read), size: count(size), broken: found.size, all: rules.length };
  const said = fill(words[text], values);
  if (verdict.textContent !== said) verdict.textContent = said;
  find("progress").max = Math.max(size, 1);
  find("progress").value = read;
  if (!read) return;
  for (const name of ["came", "got", "back"]) page.querySelector(`[data-fact=${name}]`).textContent = count(facts[name]);
  page.querySelector("[data-fact=size]").textContent = count(size);
  const voided = [...facts.voided].map(([reason, orders]) => `${words["void_" + reason] ?? reason}: ${count(orders)}`);
  page.querySelector("[data-fact=voided]").textContent = voided.join("\n") || count(0);
  const hasDeclared = declared.lost + declared.restored + declared.requeued > 0;
  find("declared").hidden = !hasDeclared;
  for (const name of Object.keys(declared)) declared[name] = count(declared[name]);
  find("declared").textContent = fill(words.declared, declared);
}

// --- tables

function cell(text, tag = "") {
  const td = document.createElement("td");
  const inner = tag ? document.createElement(tag) : td;
  inner.textContent = text ?? "";
  if (tag && text) td.append(inner);
  return td;
}

function wordOf(leaf) {
  if (leaf.kind === "decided" || leaf.kind === "ended") return leaf.outcome;
  if (leaf.kind === "act") return leaf.role === "staff" ? "act_staff" : "act_shop";
  return leaf.standby ? "on_standby" : leaf.kind;
}

function row(leaf) {
  const tr = document.createElement("tr");
  const what = cell(words[wordOf(leaf)] ?? leaf.kind);
  for (const code of [leaf.act, leaf.reason]) {
    if (!code) continue;
    const named = document.createElement("code");
    named.textContent = code;
    what.append(" ", named);
  }
  const notes = leaf.went?.map((request) => fill(words.to, { request })) ?? [];
  if (leaf.came !== null && leaf.came !== undefined) notes.push(fill(words.from, { n: leaf.came }));
  if (leaf.kind === "ended" && leaf.units > 0 && leaf.went && !notes.length && "came" in leaf) notes.push(words.nobody);
  for (const note of notes) {
    const small = document.createElement("div");
    small.classList.add("small", "soft");
    small.textContent = note;
    what.append(small);
  }
  tr.append(cell(count(leaf.n)), what, cell(leaf.request, "code"), cell(leaf.holder, "code"), cell(leaf.quantity || leaf.units || leaf.change));
  return tr;
}

const rowsOf = (name) => page.querySelector(`[data-rows=${name}]`);

function showActs(acts) {
  page.querySelector("[data-section=acts]").hidden = !acts.length;
  rowsOf("acts").replaceChildren(...acts.map((leaf) => {
    const tr = document.createElement("tr");
    tr.append(cell(count(leaf.n)), cell(clock(leaf.at / 1e6, { ...DAY, year: "numeric" })), cell(leaf.role, "code"), cell(leaf.act, "code"), cell(leaf.reason, "code"));
    return tr;
  }));
}

function showReturns(returns) {
  page.querySelector("[data-section=returns]").hidden = !returns.length;
  rowsOf("returns").replaceChildren(...returns.map(row));
}

// --- the chart

const width = (element) => Math.max(200, Math.floor(element.getBoundingClientRect().width));
const upTo = () => Number(find("second").value) + 1;
const data = (rows) => [seconds.at, ...rows.map((name) => seconds[name])].map((all) => all.slice(0, upTo()));

function plotOf(name, { rows, names, colours }) {
  const element = page.querySelector(`[data-plot=${name}]`);
  const axis = { stroke: () => colour("--soft"), grid: { stroke: () => colour("--line") }, ticks: { stroke: () => colour("--line") } };
  const step = window.uPlot.paths.stepped({ align: 1 });
  const series = names.map((each, at) => ({
    label: words[each], stroke: () => colour(colours[at]), width: 2, dash: [undefined, [6, 4], [2, 3]][at], paths: step, points: { show: false },
  }));
  element.setAttribute("role", "img");
  element.setAttribute("aria-label", element.parentElement.querySelector("figcaption").textContent);
  const options = {
    width: width(element), height: CHART_HEIGHT, legend: { live: false }, cursor: { show: false },
    scales: { x: { range: () => [seconds.at[0], Math.max(seconds.at.at(-1), seconds.at[0] + 1)] }, y: { range: (_, __, high) => [0, Math.max(1, (high ?? 1) * 1.05)] } },
    axes: [{ ...axis, size: 32, space: () => (isOfDays() ? 132 : 76), incrs: WHOLE_SECONDS, values: (_, ticks) => ticks.map((each) => clock(each)) }, { ...axis, size: 52 }],
    series: [{}, ...series],
  };
  return { plot: new window.uPlot(options, data(rows), element), rows, element };
}

function draw() {
  if (!window.uPlot || !seconds?.at.length) return;
  if (plots.length) for (const { plot, rows } of plots) plot.setData(data(rows));
  else plots = Object.entries(PLOTS).map(([name, terms]) => plotOf(name, terms));
}

function redraw() {
  plots.splice(0).forEach(({ plot }) => plot.destroy());
  draw();
}

function showSeconds(fresh) {
  const slider = find("second");
  const wasLast = Number(slider.value) === Number(slider.max);
  seconds = fresh;
  slider.max = Math.max(0, seconds.at.length - 1);
  if (wasLast) slider.value = slider.max;
  find("moment").textContent = clock(seconds.at[slider.value]);
  draw();
}

function choose(index) {
  find("second").value = index;
  find("moment").textContent = clock(seconds.at[index]);
  draw();
  worker.postMessage({ second: Number(index) });
}

function showSecond({ index, leaves, more }) {
  if (index !== Number(find("second").value)) return;
  rowsOf("second").replaceChildren(...leaves.map(row));
  find("more").hidden = !more;
  find("more").textContent = fill(words.more, { n: count(more) });
}

function play() {
  const slider = find("second");
  clearInterval(playing);
  playing = playing ? 0 : setInterval(() => {
    if (Number(slider.value) === Number(slider.max)) return play();
    return choose(Number(slider.value) + 1);
  }, PLAY_MS);
  find("play").textContent = playing ? words.stop : words.play;
  if (playing && Number(slider.value) === Number(slider.max)) choose(0);
}

// --- what the worker says

function finish({ checkpoint, faults }) {
  if (!faults.length && canVerify) keep(keepAs, checkpoint);
  find("play").disabled = false;
  find("second").disabled = false;
  if (seconds.at.length) choose(Number(find("second").value));
}

function giveFile(file) {
  const link = find("file");
  link.href = URL.createObjectURL(file);
  link.textContent = words.ready;
  link.hidden = false;
  find("lines").disabled = false;
  link.focus();
}

worker.onmessage = ({ data: told }) => {
  if (told.failed) find("verdict").textContent = fill(words.failed, { why: told.failed });
  if (told.latest) rowsOf("latest").replaceChildren(...told.latest.reverse().map(row));
  if (told.shown) showSecond(told.shown);
  if (told.file) giveFile(told.file);
  if (told.faults) showVerdict(told);
  if (told.seconds) {
    showActs(told.acts);
    showSeconds(told.seconds);
  }
  if (told.returns) showReturns(told.returns);
  if (told.isDone) finish(told);
};
worker.onerror = () => { find("verdict").textContent = fill(words.failed, { why: "worker" }); };
find("unchecked").hidden = true;
for (const part of page.querySelectorAll("[data-live-check]")) part.hidden = false;
find("second").addEventListener("input", (event) => choose(Number(event.target.value)));
find("play").addEventListener("click", play);
find("lines").addEventListener("click", () => {
  find("lines").disabled = true;
  worker.postMessage({ lines: true });
});
new ResizeObserver(() => plots.forEach(({ plot, element }) => plot.setSize({ width: width(element), height: CHART_HEIGHT }))).observe(page);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
worker.postMessage({ slug, kept, nowUs: Number(document.documentElement.dataset.serverMs) * 1000 });
