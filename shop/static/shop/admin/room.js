// Keeps a control room up to date: its parts, and four charts of what was recorded. Draws steps, and a gap where nobody
// looked: nothing is drawn that was not seen.
import { place, watch, write } from "./live.js";

const page = document.getElementById("live");
const WHOLE = "whole" in page.dataset;
const SHOWN_SECONDS = 600;
const MAX_POINTS = WHOLE ? 5000 : 1000;
const points = []; // each: time, free, held, sold, in line, decisions a second, p50, p99
const PLOTS = {
  "plot-units": { columns: [1, 2, 3], colours: ["--free", "--held", "--sold"] },
  "plot-line": { columns: [4], colours: ["--line"] },
  "plot-rate": { columns: [5], colours: ["--sold"] },
  "plot-latency": { columns: [6, 7], colours: ["--free", "--held"] },
};
const plots = [];

// A canvas takes no light-dark(): only what it comes to.
const probe = page.appendChild(document.createElement("span"));
const colour = (name) => {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
};
const columns = (numbers) => [0, ...numbers].map((number) => points.map((point) => point[number]));
const clock = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19); // UTC, as everywhere in the admin
const width = (element) => Math.max(240, Math.floor(element.getBoundingClientRect().width));

function draw() {
  if (!window.uPlot) return;
  document.getElementById("room-plots").hidden = false;
  for (const [id, { columns: numbers, colours }] of Object.entries(PLOTS)) {
    const element = document.getElementById(id);
    const names = element.dataset.names.split(", ");
    const axis = { stroke: () => colour("--body-fg"), grid: { stroke: () => colour("--hairline-color") }, ticks: { stroke: () => colour("--hairline-color") } };
    const plot = new window.uPlot(
      {
        width: width(element),
        height: 178,
        cursor: { sync: { key: "room" } },
        legend: { live: false },
        scales: { y: { range: (_, low, high) => [0, Math.max(1, (high ?? 1) * 1.05)] } },
        axes: [{ ...axis, size: 32, space: 76, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 56 }],
        series: [
          {},
          ...names.map((label, at) => ({ label, width: 2, dash: at === 1 ? [6, 4] : at === 2 ? [2, 3] : undefined, stroke: () => colour(colours[at]), spanGaps: false, paths: window.uPlot.paths.stepped({ align: 1 }), points: { show: false } })),
        ],
      },
      columns(numbers),
      element,
    );
    element.setAttribute("role", "img");
    element.setAttribute("aria-label", page.dataset.chart.replace("{names}", element.dataset.names));
    plots.push({ plot, numbers, element });
  }
}

function add(fresh) {
  points.push(...fresh);
  const since = WHOLE ? 0 : points[points.length - 1][0] - SHOWN_SECONDS;
  const old = points.findIndex((point) => point[0] >= since);
  points.splice(0, Math.max(old, points.length - MAX_POINTS));
  if (!plots.length) draw();
  else for (const { plot, numbers } of plots) plot.setData(columns(numbers));
}

function redraw() {
  plots.splice(0).forEach(({ plot }) => plot.destroy()); // its legend keeps the colours that it was made with
  if (points.length) draw();
}
const resize = () => plots.forEach(({ plot, element }) => plot.setSize({ width: width(element), height: 178 }));
new ResizeObserver(resize).observe(page);
new MutationObserver(redraw).observe(document.documentElement, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

watch({
  address: () => `${page.dataset.url}?${WHOLE ? "span=sale&" : ""}after=${points.length ? points[points.length - 1][0] : 0}`,
  show(answer) {
    place(answer.parts);
    write("room-summary", answer.summary);
    document.getElementById("room-summary").classList.toggle("live-alarm", !answer.ok);
    if (answer.points.length) add(answer.points);
  },
  say: (text) => write("live-state", text),
});
