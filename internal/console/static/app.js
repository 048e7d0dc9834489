// What the pages do beside htmx: say when the daemon is gone, and draw.
"use strict";
(function () {
  const gone = document.getElementById("gone");
  const moving = document.getElementById("moving");
  const stream = document.getElementById("stream");
  if (!stream) return;
  let last = new Date();
  const ended = function (yes) {
    document.getElementById("away").hidden = yes;
    document.getElementById("ended").hidden = !yes;
  };
  document.body.addEventListener("htmx:sseOpen", function () {
    gone.hidden = true;
    if (moving) moving.hidden = false;
  });
  document.body.addEventListener("htmx:sseMessage", function () { last = new Date(); });
  document.body.addEventListener("htmx:sseError", function () {
    document.getElementById("gone-at").textContent = last.toTimeString().slice(0, 8);
    gone.hidden = false;
    if (moving) moving.hidden = true;
    // A stream does not say why it was refused. A page leads to the login if that is why.
    fetch(location.href, { method: "HEAD", redirect: "manual" }).then(function (r) { ended(r.type === "opaqueredirect"); }, function () { ended(false); });
  });
})();

// The chart of a connection: what the page has drawn itself is drawn again, to be pointed
// at. Without this the drawing and the table of the page stay.
(function () {
  const plot = document.getElementById("plot");
  if (!plot || typeof uPlot === "undefined") return;
  const section = document.getElementById("chart");
  let series = null, chart = null, known = false;
  const colour = function (name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); };
  const rate = function (v) {
    if (v == null) return "unknown";
    if (v >= 60) return +(v / 60).toPrecision(3) + "/s";
    return v >= 1 || v === 0 ? +v.toPrecision(3) + "/min" : +(v * 60).toPrecision(3) + "/h";
  };
  // The ticks of an axis are in one unit, that of the largest; without a rate there are none.
  const ticks = function (u, all) {
    const top = all[all.length - 1], unit = top >= 60 ? [60, "/s"] : top >= 1 ? [1, "/min"] : [1 / 60, "/h"];
    return all.map(function (v) { return known ? +(v / unit[0]).toPrecision(3) + unit[1] : ""; });
  };
  const two = function (n) { return String(n).padStart(2, "0"); };
  const clock = function (s) { const t = new Date(s * 1000); return two(t.getHours()) + ":" + two(t.getMinutes()); };
  const read = function () {
    const text = document.getElementById("drawing").dataset.series;
    if (!text) return null;
    const s = JSON.parse(text), from = Date.parse(s.start) / 1000;
    const some = s.rate_per_min.some(function (v) { return v != null; }) || s.refused.some(function (v) { return v != null; });
    if (!some) return null;
    series = s;
    const top = Math.max.apply(null, s.rate_per_min.concat(0));
    known = top > 0;
    return [
      s.rate_per_min.map(function (_, i) { return from + i * s.step_s; }),
      s.rate_per_min,
      s.ceiling_per_min.map(function (v) { return v > 0 && (top === 0 || v <= 3 * top) ? v : null; }),
      s.refused.map(function (v) { return v > 0 ? v : null; }),
      s.waiting,
    ];
  };
  const at = function (name) {
    return function (u, v, _, i) {
      if (i == null) return "--";
      v = series[name][i];
      return v == null ? "unknown" : String(v);
    };
  };
  const make = function (data) {
    const ink = colour("--dim"), grid = { stroke: colour("--line"), width: 1 };
    const range = function (u, low, high) { return [0, high > 0 ? high * 1.1 : 1]; };
    return new uPlot({
      width: plot.clientWidth - 18, height: 260,
      scales: { rate: { range: range }, count: { range: range } },
      axes: [
        { stroke: ink, grid: grid, ticks: grid, values: function (u, all) { return all.map(clock); } },
        { scale: "rate", stroke: ink, grid: grid, ticks: grid, size: 64, values: ticks },
        { scale: "count", side: 1, stroke: ink, grid: { show: false }, ticks: grid, size: 44, values: function (u, all) { return all.map(function (v) { return !Number.isInteger(v) ? "" : v < 10000 ? v : v < 1e6 ? +(v / 1e3).toPrecision(3) + "k" : +(v / 1e6).toPrecision(3) + "M"; }); } },
      ],
      series: [
        { label: "At", value: function (u, v) { return v == null ? "--" : clock(v); } },
        { label: "Rate", scale: "rate", stroke: colour("--fill"), width: 2, value: function (u, v, _, i) { return i == null ? "--" : rate(series.rate_per_min[i]); } },
        { label: "Ceiling", scale: "rate", stroke: ink, dash: [4, 4], points: { show: false }, value: function (u, v, _, i) { return i == null ? "--" : series.ceiling_per_min[i] === 0 ? "none set" : rate(series.ceiling_per_min[i]); } },
        { label: "Refused", scale: "count", stroke: colour("--bad"), fill: colour("--bad"), paths: uPlot.paths.bars({ size: [0.9, 12, 2] }), points: { show: false }, value: at("refused") },
        { label: "Waiting", scale: "count", stroke: colour("--warn"), points: { show: false }, value: at("waiting") },
      ],
    }, data, plot);
  };
  const draw = function () {
    const data = read();
    section.classList.toggle("plotted", data !== null);
    if (data === null) { if (chart) chart.destroy(); chart = null; return; }
    if (chart) chart.setData(data); else chart = make(data);
  };
  const again = function () { if (chart) { chart.destroy(); chart = null; } draw(); };
  draw();
  new MutationObserver(draw).observe(section, { childList: true });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  new ResizeObserver(function () { if (chart) chart.setSize({ width: plot.clientWidth - 18, height: 260 }); }).observe(section);
})();
