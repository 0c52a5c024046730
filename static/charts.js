// Draws the charts of a page: Chart.js for bars and lines, uPlot for live series. Their data stand in the page as JSON.
"use strict";

const css = (name) => {
  // light-dark() is resolved by the browser only where the variable is used.
  const probe = document.createElement("i");
  probe.className = `colour-${name}`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
};
const colours = () => ["bar", "gold", "info", "bad", "ok", "muted"].map(css);
const drawn = new Map();

function chartJs(area, data) {
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", area.closest("figure").querySelector("figcaption").textContent);
  area.replaceChildren(canvas);
  const palette = colours();
  const [muted, line] = [css("muted"), css("line")];
  const axis = { ticks: { color: muted }, grid: { color: line } };
  return new Chart(canvas, {
    type: data.kind,
    data: { labels: data.labels, datasets: data.series.map((series, index) => ({ label: series.name, data: series.values, backgroundColor: palette[index % 6], borderColor: palette[index % 6], borderWidth: data.kind === "line" ? 2 : 0, pointRadius: data.points ? 4 : 0, spanGaps: data.points })) },
    options: { animation: false, responsive: true, maintainAspectRatio: false, interaction: { mode: "index", intersect: false }, scales: { x: axis, y: { ...axis, beginAtZero: !data.points, grace: data.points ? "10%" : 0, title: { display: Boolean(data.unit), text: data.unit, color: muted } } }, plugins: { legend: { display: data.series.length > 1, labels: { color: muted } } } },
  });
}

function live(area, data) {
  const palette = colours();
  const [muted, line] = [css("muted"), css("line")];
  area.replaceChildren();
  const axis = { stroke: muted, grid: { stroke: line }, ticks: { stroke: line } };
  const options = { width: area.clientWidth, height: 200, axes: [axis, { ...axis, label: data.unit }], series: [{}, ...data.series.map((series, index) => ({ label: series.name, stroke: palette[index % 6], width: 2 }))] };
  const plot = new uPlot(options, [data.labels, ...data.series.map((series) => series.values)], area);
  // Unlike Chart.js, uPlot keeps the width that it began with.
  const fit = new ResizeObserver(() => plot.setSize({ width: area.clientWidth, height: options.height }));
  fit.observe(area);
  return { destroy: () => { fit.disconnect(); plot.destroy(); } };
}

function drawAll() {
  for (const [area, chart] of drawn) {
    chart.destroy();
    drawn.delete(area);
  }
  document.querySelectorAll("[data-chart]").forEach((figure) => {
    const data = JSON.parse(document.getElementById(figure.dataset.chart).textContent);
    const area = figure.querySelector(".chart-area");
    drawn.set(area, (data.kind === "live" ? live : chartJs)(area, data));
  });
}

document.addEventListener("DOMContentLoaded", () => {
  drawAll();
  document.body.addEventListener("htmx:afterSettle", drawAll);
  new MutationObserver(drawAll).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
});
