/** What a sandbox uses: live for the last quarter of an hour, and what the bridge has kept of the last 30 days. */

import { follow, get, sandboxPath } from "../api.js";
import { chart } from "../charts.js";
import { h, replace, setText } from "../dom.js";
import { bytes, count, duration, percent } from "../format.js";
import { button } from "../parts.js";
import { every } from "../poll.js";

const WINDOWS = [
  ["1 min", 60000],
  ["5 min", 300000],
  ["15 min", 900000],
  ["1 hour", 3600000],
  ["1 day", 86400000],
  ["30 days", 2592000000],
];
/** The longest that is drawn of samples as they come, and how much of them is held. */
const LIVE_MS_MAX = 900000;
const HELD_MS = 960000;
const WINDOW_MS_MIN = 10000;
const WINDOW_MS_MAX = WINDOWS.at(-1)[1];
/** Idle sandboxes are sampled each twelve seconds. */
const GAP_MS = 20000;
const REFRESH_MS = 5000;
/** Figures that are amounts at one moment, under the names that samples and points of the history share. */
const AMOUNTS = [
  "cpu_percent",
  "memory_bytes",
  "cache_bytes",
  "swap_bytes",
  "processes",
  "disk_bytes",
  "cpu_pressure_percent",
  "memory_pressure_percent",
  "io_pressure_percent",
];
const FLOWS = ["read_bytes", "written_bytes"];

export function metricsTab(place, { which, sandbox, signal }) {
  let samples = [];
  let kept;
  // Without an end it goes on until now.
  let view = { length: WINDOWS[1][1], end: undefined };
  let newest;
  const state = h("span.dim", { role: "status" });
  let stream = "";
  const isLive = () => view.end === undefined && view.length <= LIVE_MS_MAX && samples.length > 0;
  const memoryMax = (last) => last?.memory_bytes_max ?? (sandbox.memory_mib ?? 0) * 1024 * 1024;
  const zoom = (from, to) => choose(to - from, to);
  const perSecond = (value) => `${bytes(value)}/s`;
  const charts = [
    { title: "CPU", series: [{ name: "CPU", of: "cpu_percent" }], format: percent, ceiling: () => 10 },
    {
      title: "Memory",
      series: [
        { name: "memory", of: "memory_bytes" },
        { name: "cache", of: "cache_bytes" },
        { name: "swap", of: "swap_bytes" },
      ],
      format: bytes,
      // The limit is the top where it is near.
      ceiling: (last) => (last && last.figures.memory_bytes * 4 > memoryMax(last) ? memoryMax(last) : 1024 * 1024),
    },
    {
      title: "Processes",
      series: [{ name: "Processes", of: "processes" }],
      format: (value) => count(value === undefined ? value : Math.round(value * 10) / 10),
      ceiling: () => 4,
    },
    {
      title: "Writable layer",
      series: [{ name: "Disk", of: "disk_bytes" }],
      format: bytes,
      ceiling: () => 1024 * 1024,
    },
    {
      title: "Block devices",
      series: [
        { name: "read", of: "read_bytes" },
        { name: "written", of: "written_bytes" },
      ],
      format: perSecond,
      ceiling: () => 64 * 1024,
    },
    {
      title: "Network access",
      series: [
        { name: "sent", of: "egress_sent_bytes" },
        { name: "received", of: "egress_received_bytes" },
      ],
      format: perSecond,
      ceiling: () => 1024,
    },
    {
      title: "Pressure",
      series: [
        { name: "CPU", of: "cpu_pressure_percent" },
        { name: "memory", of: "memory_pressure_percent" },
        { name: "I/O", of: "io_pressure_percent" },
      ],
      format: percent,
      ceiling: () => 10,
    },
  ].map((one) => chart({ ...one, zoom }));
  const choices = WINDOWS.map(([name, ms]) => {
    const one = button(name, () => choose(ms), "quiet");
    one.dataset.ms = ms;
    return one;
  });
  const end = () => view.end ?? Date.now();
  const later = button("Later", () => choose(view.length, end() + view.length / 2), "quiet");
  const moves = [
    button("Zoom in", () => choose(view.length / 2, end() - view.length / 4), "quiet"),
    button("Zoom out", () => choose(view.length * 2, end() + view.length / 2), "quiet"),
    button("Earlier", () => choose(view.length, end() - view.length / 2), "quiet"),
    later,
  ];
  replace(
    place,
    h(
      "div.chart-bar",
      state,
      h("div.segments", { role: "group", "aria-label": "Part of the time" }, moves),
      h("div.segments", { role: "group", "aria-label": "Time" }, choices),
    ),
    h(
      "div.charts",
      charts.map((one) => one.element),
    ),
  );

  /** Shows so much of the time, up to a point in it or to now. */
  function choose(length, until) {
    const whole = Math.round(Math.min(Math.max(length, WINDOW_MS_MIN), WINDOW_MS_MAX));
    const isPast = until !== undefined && until < Date.now() - 1000;
    view = { length: whole, end: isPast ? Math.round(until) : undefined };
    for (const one of choices) {
      one.setAttribute("aria-pressed", String(!isPast && Number(one.dataset.ms) === whole));
    }
    later.disabled = !isPast;
    if (isLive()) draw();
    else load();
  }

  function draw() {
    if (isLive()) {
      const to = samples.at(-1).at_ms;
      setText(state, stream);
      for (const one of charts) one.draw(samples, { from: to - view.length, to, gapMs: GAP_MS });
    } else if (kept !== undefined) {
      setText(state, `${duration(view.length)}, a point for each ${duration(kept.step_ms)}`);
      const gapMs = Math.max(GAP_MS, kept.step_ms * 2.5);
      for (const one of charts) one.draw(kept.samples, { from: kept.from_ms, to: kept.to_ms, gapMs });
    }
  }

  async function load() {
    const asked = view;
    const to = end();
    try {
      const query = { from: Math.max(0, to - asked.length), to };
      const history = await get(sandboxPath(which, "metrics"), query, signal);
      if (asked !== view) return;
      kept = { ...history, samples: history.points.map((point) => sampleOf(point, history.step_ms)) };
      draw();
    } catch (error) {
      if (error.name === "AbortError") return;
      if (asked === view) setText(state, error.message);
    }
  }

  let frame;
  const take = (event) => {
    if (event.type === "problem") {
      stream = event.message;
      if (isLive()) setText(state, stream);
      return true;
    }
    if (event.type !== "sample") return false;
    const isFirst = samples.length === 0;
    samples.push(liveSample(event, newest));
    newest = event;
    samples = samples.filter((one) => one.at_ms > event.at_ms - HELD_MS);
    if (isFirst && isLive()) kept = undefined;
    frame ??= requestAnimationFrame(() => {
      frame = undefined;
      if (isLive()) draw();
    });
    return false;
  };
  choose(view.length);
  every(signal, REFRESH_MS, () => (view.end === undefined && !isLive() ? load() : undefined));
  const query = () => ({ since: newest?.number ?? 0 });
  follow(sandboxPath(which, "metrics", "stream"), query, take, signal, (now) => {
    if (now === "live") stream = "a sample each second, fewer at rest";
    else if (now === "cut") stream = "disconnected, trying again";
    if (isLive()) setText(state, stream);
  });
}

/** A sample as charts draw it, with what flowed since the one before. */
function liveSample(sample, before) {
  const figures = Object.fromEntries(AMOUNTS.map((name) => [name, sample[name]]));
  for (const name of FLOWS) {
    if (sample[name] === undefined || before?.[name] === undefined) continue;
    figures[name] = ((sample[name] - before[name]) / Math.max(1, sample.at_ms - before.at_ms)) * 1000;
  }
  return { at_ms: sample.at_ms, memory_bytes_max: sample.memory_bytes_max, figures };
}

/** A point of the history as charts draw it, in the middle of its time. */
function sampleOf(point, stepMs) {
  const ranges = {};
  const figures = {};
  for (const name of AMOUNTS.filter((name) => point[name] !== undefined)) {
    figures[name] = point[name].mean;
    ranges[name] = [point[name].min, point[name].max];
  }
  const covered = Math.max(1, point.covered_ms);
  for (const name of FLOWS) figures[name] = (point[name] / covered) * 1000;
  for (const name of ["egress_sent_bytes", "egress_received_bytes"]) figures[name] = (point[name] / stepMs) * 1000;
  return { at_ms: point.at_ms + stepMs / 2, memory_bytes_max: point.memory_bytes_max, figures, ranges };
}
