/** Drawings of figures over time: a line as small as a word, and a chart with axes. */

import { h, replace, setText, svg } from "./dom.js";
import { moment } from "./format.js";

const SPARK = { width: 88, height: 20 };
const CHART = { width: 600, narrowest: 240, height: 150, left: 62, right: 10, top: 10, bottom: 22 };
/** A drag that is shorter is a click. */
const DRAG_PIXELS_MIN = 8;

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
 * A chart of one or more series on one axis of time. `series` are `{ name, of }`: samples have their figures in
 * `figures` and, where a sample is of some time, the least and the greatest in `ranges`. `format` writes a figure;
 * `ceiling` gives what the axis reaches at least. `zoom` is given the part of the time that was chosen by dragging.
 */
export function chart({ title, series, format, ceiling = () => 0, zoom = () => {} }) {
  const drawing = svg("svg.chart-drawing", {
    viewBox: `0 0 ${CHART.width} ${CHART.height}`,
    role: "img",
    "aria-label": title,
  });
  const now = h("span.chart-now");
  const legend = h("span.legend", series.length > 1 && series.map((one, at) => h(`span.key-${at}`, one.name)));
  const element = h("figure.chart.card", h("figcaption", h("h3", title), legend, now), drawing);
  let drawn = { samples: [], lines: [], from: 0, to: 1, width: CHART.width };
  const cursor = svg("line.chart-cursor", { y1: CHART.top, y2: CHART.height - CHART.bottom });
  const chosen = svg("rect.chart-chosen", { y: CHART.top, height: CHART.height - CHART.bottom - CHART.top });
  let begun;

  const say = (at, isPast) => {
    const { samples, lines, from, to } = drawn;
    const when = isPast ? `${moment(samples[at].at_ms, to - from)}  ` : "";
    setText(now, when + lines.map((line) => format(line[at])).join(" · "));
  };
  const inner = () => drawn.width - CHART.left - CHART.right;
  const x = (at) => CHART.left + ((at - drawn.from) / (drawn.to - drawn.from)) * inner();
  /** The place of a pointer, inside of the axes. */
  const pointed = (event) => {
    const box = drawing.getBoundingClientRect();
    const wanted = ((event.clientX - box.left) / box.width) * drawn.width;
    return Math.min(Math.max(wanted, CHART.left), CHART.left + inner());
  };
  const time = (place) => drawn.from + ((place - CHART.left) / inner()) * (drawn.to - drawn.from);

  drawing.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || drawn.samples.length === 0) return;
    event.preventDefault();
    begun = pointed(event);
    drawing.setPointerCapture(event.pointerId);
  });
  drawing.addEventListener("pointermove", (event) => {
    const { samples } = drawn;
    if (samples.length === 0) return;
    const wanted = pointed(event);
    if (begun !== undefined) {
      chosen.setAttribute("x", Math.min(begun, wanted));
      chosen.setAttribute("width", Math.abs(wanted - begun));
      drawing.append(chosen);
    }
    let nearest = 0;
    samples.forEach((sample, at) => {
      if (Math.abs(x(sample.at_ms) - wanted) < Math.abs(x(samples[nearest].at_ms) - wanted)) nearest = at;
    });
    const place = x(samples[nearest].at_ms);
    cursor.setAttribute("x1", place);
    cursor.setAttribute("x2", place);
    drawing.append(cursor);
    say(nearest, true);
  });
  const leave = () => {
    begun = undefined;
    chosen.remove();
    cursor.remove();
    if (drawn.samples.length > 0) say(drawn.samples.length - 1, false);
  };
  drawing.addEventListener("pointerup", (event) => {
    const [from, to] = [begun, pointed(event)].sort((one, other) => one - other);
    const isChoice = begun !== undefined && to - from >= DRAG_PIXELS_MIN;
    if (isChoice) zoom(time(from), time(to));
    leave();
  });
  drawing.addEventListener("pointercancel", leave);
  drawing.addEventListener("pointerleave", () => begun === undefined && leave());

  return {
    element,
    /** Draws the samples between two points in time; where two are further apart than `gapMs`, nothing is known. */
    draw(all, { from, to, gapMs }) {
      const samples = all.filter((sample) => sample.at_ms >= from && sample.at_ms <= to);
      const last = samples.at(-1);
      const lines = series.map((one) => samples.map((sample) => sample.figures[one.of]));
      // A machine may not know some figures at all. What is hidden has no width.
      element.hidden = samples.length > 1 && lines.flat().every((value) => value === undefined);
      // One unit is one pixel, so that letters are of one size everywhere.
      const width = Math.max(CHART.narrowest, drawing.clientWidth || CHART.width);
      drawing.setAttribute("viewBox", `0 0 ${width} ${CHART.height}`);
      drawn = { samples, lines, from, to, width };
      const band = samples.map((sample) => sample.ranges?.[series[0].of]);
      const known = [...lines.flat(), ...band.map((range) => range?.[1])].filter((value) => value !== undefined);
      const top = roundUp(known.reduce((most, value) => Math.max(most, value), Math.max(ceiling(last), 1e-9)));
      const height = CHART.height - CHART.top - CHART.bottom;
      const y = (value) => CHART.top + height - (value / top) * height;
      const parts = [];
      for (const share of [0, 0.5, 1]) {
        const level = y(top * share);
        parts.push(svg("line.chart-grid", { x1: CHART.left, x2: width - CHART.right, y1: level, y2: level }));
        parts.push(svg("text.chart-label.end", { x: CHART.left - 8, y: level + 4 }, format(top * share)));
      }
      for (const share of [0, 0.5, 1]) {
        const at = from + (to - from) * share;
        const anchor = ["start", "middle", "end"][share * 2];
        parts.push(svg(`text.chart-label.${anchor}`, { x: x(at), y: CHART.height - 6 }, moment(at, to - from)));
      }
      lines.forEach((line, index) => {
        for (const [begin, end] of index === 0 ? stretches(samples, line, gapMs) : []) {
          const part = samples.slice(begin, end).map((sample, at) => [x(sample.at_ms), line[begin + at]]);
          const ranges = band.slice(begin, end);
          const below = part.map(([place], at) => [place, ranges[at]?.[0] ?? 0]).reverse();
          const above = part.map(([place, value], at) => [place, ranges[at]?.[1] ?? value]);
          if (part.length > 1) parts.push(svg("path.chart-area", { d: `${path([...above, ...below], y)}Z` }));
        }
        const d = stretches(samples, line, gapMs)
          .map(([begin, end]) => path(samples.slice(begin, end).map((one, at) => [x(one.at_ms), line[begin + at]]), y))
          .join("");
        parts.push(svg(`path.chart-line.line-${index}`, { d }));
      });
      replace(drawing, parts);
      if (samples.length > 0 && !element.matches(":hover")) say(samples.length - 1, false);
      if (samples.length === 0) setText(now, "no data");
    },
  };
}

/** Where a line goes on without a gap: the first sample of each part, and the one behind its last. */
function stretches(samples, line, gapMs) {
  const found = [];
  let before;
  samples.forEach((sample, at) => {
    if (line[at] === undefined) return;
    const isNext = before === at - 1 && sample.at_ms - samples[before].at_ms < gapMs;
    if (isNext) found.at(-1)[1] = at + 1;
    else found.push([at, at + 1]);
    before = at;
  });
  return found;
}

function path(points, y) {
  return points.map(([x, value], at) => `${at === 0 ? "M" : "L"}${x.toFixed(1)} ${y(value).toFixed(1)}`).join("");
}

/** The next figure that is good to read. */
function roundUp(value) {
  const size = 2 ** Math.floor(Math.log2(value));
  return [1, 1.25, 1.5, 2].map((by) => by * size).find((one) => one >= value) ?? size * 2;
}
