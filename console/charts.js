/** Drawings of figures over time: a line as small as a word, and a chart with axes. */

import { h, replace, setText, svg } from "./dom.js";
import { clock } from "./format.js";

const SPARK = { width: 88, height: 20 };
const CHART = { width: 600, narrowest: 240, height: 150, left: 62, right: 10, top: 10, bottom: 22 };
const GAP_MS = 15000;

/** A small line of the newest values. */
export function sparkline(label) {
  const area = svg("path.spark-area");
  const line = svg("path.spark-line");
  const element = svg(
    "svg.spark",
    { viewBox: `0 0 ${SPARK.width} ${SPARK.height}`, role: "img", "aria-label": label, preserveAspectRatio: "none" },
    area,
    line,
  );
  return {
    element,
    draw(values, largest) {
      if (values.length < 2) return;
      const step = SPARK.width / (values.length - 1);
      const top = largest || 1;
      const y = (value) => (SPARK.height - 1 - (Math.min(value, top) / top) * (SPARK.height - 3)).toFixed(1);
      const path = values.map((value, at) => `${at === 0 ? "M" : "L"}${(at * step).toFixed(1)} ${y(value)}`).join("");
      line.setAttribute("d", path);
      area.setAttribute("d", `${path}L${SPARK.width} ${SPARK.height}L0 ${SPARK.height}Z`);
    },
  };
}

/**
 * A chart of one or more series on one axis of time. `series` are `{ name, value(sample, before) }`; `format`
 * writes a figure; `ceiling` gives what the axis reaches at least.
 */
export function chart({ title, series, format, ceiling = () => 0 }) {
  const drawing = svg("svg.chart-drawing", {
    viewBox: `0 0 ${CHART.width} ${CHART.height}`,
    role: "img",
    "aria-label": title,
  });
  const now = h("span.chart-now");
  const legend = h("span.legend", series.length > 1 && series.map((one, at) => h(`span.key-${at}`, one.name)));
  const element = h("figure.chart.card", h("figcaption", h("h3", title), legend, now), drawing);
  let drawn = { samples: [], from: 0, to: 1, width: CHART.width };
  const cursor = svg("line.chart-cursor", { y1: CHART.top, y2: CHART.height - CHART.bottom });

  const values = (samples) => series.map((one) => samples.map((sample, at) => one.value(sample, samples[at - 1])));
  const say = (points, at, when) => {
    const parts = points.map((line) => format(line[at]));
    setText(now, (when ? `${clock(when)}  ` : "") + parts.join(" · "));
  };
  const x = (at) =>
    CHART.left + ((at - drawn.from) / (drawn.to - drawn.from)) * (drawn.width - CHART.left - CHART.right);

  drawing.addEventListener("pointermove", (event) => {
    const { samples, points } = drawn;
    if (samples.length === 0) return;
    const box = drawing.getBoundingClientRect();
    const wanted = ((event.clientX - box.left) / box.width) * drawn.width;
    let nearest = 0;
    samples.forEach((sample, at) => {
      if (Math.abs(x(sample.at_ms) - wanted) < Math.abs(x(samples[nearest].at_ms) - wanted)) nearest = at;
    });
    const place = x(samples[nearest].at_ms);
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    drawing.append(cursor);
    say(points, nearest, samples[nearest].at_ms);
  });
  drawing.addEventListener("pointerleave", () => {
    cursor.remove();
    if (drawn.samples.length > 0) say(drawn.points, drawn.samples.length - 1);
  });

  return {
    element,
    draw(all, windowMs) {
      const last = all.at(-1);
      const to = last ? last.at_ms : Date.now();
      const from = to - windowMs;
      const samples = all.filter((sample) => sample.at_ms >= from);
      const points = values(samples);
      // One unit is one pixel, so that letters are of one size everywhere.
      const width = Math.max(CHART.narrowest, drawing.clientWidth || CHART.width);
      drawing.setAttribute("viewBox", `0 0 ${width} ${CHART.height}`);
      drawn = { samples, points, from, to, width };
      // A machine may not know some figures at all.
      element.hidden = samples.length > 1 && points.flat().every((value) => value === undefined);
      const largest = Math.max(ceiling(last), 1e-9, ...points.flat().filter((value) => value !== undefined));
      const top = roundUp(largest);
      const height = CHART.height - CHART.top - CHART.bottom;
      const y = (value) => CHART.top + height - (value / top) * height;
      const parts = [];
      for (const share of [0, 0.5, 1]) {
        const level = y(top * share);
        parts.push(svg("line.chart-grid", { x1: CHART.left, x2: width - CHART.right, y1: level, y2: level }));
        parts.push(svg("text.chart-label.end", { x: CHART.left - 8, y: level + 4 }, format(top * share)));
      }
      for (const share of [0, 0.5, 1]) {
        const at = from + windowMs * share;
        const anchor = ["start", "middle", "end"][share * 2];
        parts.push(svg(`text.chart-label.${anchor}`, { x: x(at), y: CHART.height - 6 }, clock(at)));
      }
      points.forEach((line, index) => {
        const path = trace(samples, line, x, y);
        if (index === 0 && path !== "") parts.push(svg("path.chart-area", { d: filled(samples, line, x, y) }));
        parts.push(svg(`path.chart-line.line-${index}`, { d: path }));
      });
      replace(drawing, parts);
      if (samples.length > 0 && !element.matches(":hover")) say(points, samples.length - 1);
    },
  };
}

/** A line that is interrupted where there are no samples. */
function trace(samples, line, x, y) {
  let path = "";
  let before;
  samples.forEach((sample, at) => {
    if (line[at] === undefined) return;
    const isNext = before !== undefined && sample.at_ms - before < GAP_MS;
    path += `${isNext ? "L" : "M"}${x(sample.at_ms).toFixed(1)} ${y(line[at]).toFixed(1)}`;
    before = sample.at_ms;
  });
  return path;
}

function filled(samples, line, x, y) {
  const known = samples.filter((_, at) => line[at] !== undefined);
  if (known.length < 2) return "";
  const path = trace(samples, line, x, y).replaceAll("M", "L").replace("L", "M");
  return `${path}L${x(known.at(-1).at_ms).toFixed(1)} ${y(0)}L${x(known[0].at_ms).toFixed(1)} ${y(0)}Z`;
}

/** The next figure that is good to read. */
function roundUp(value) {
  const size = 2 ** Math.floor(Math.log2(value));
  return [1, 1.25, 1.5, 2].map((by) => by * size).find((one) => one >= value) ?? size * 2;
}
