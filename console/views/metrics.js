/** What a sandbox uses, live and for the last quarter of an hour. */

import { follow, sandboxPath } from "../api.js";
import { chart } from "../charts.js";
import { h, replace, setText } from "../dom.js";
import { bytes, count, percent } from "../format.js";
import { button } from "../parts.js";

const WINDOWS = [
  ["1 min", 60000],
  ["5 min", 300000],
  ["15 min", 900000],
];
const KEPT_MS = 960000;

export function metricsTab(place, { which, sandbox, signal }) {
  let samples = [];
  let windowMs = WINDOWS[1][1];
  const state = h("span.dim", { role: "status" });
  const rate = (name) => (sample, before) => {
    if (before === undefined || sample[name] === undefined || before[name] === undefined) return undefined;
    return ((sample[name] - before[name]) / Math.max(1, sample.at_ms - before.at_ms)) * 1000;
  };
  const memoryMax = (last) => last?.memory_bytes_max ?? (sandbox.memory_mib ?? 0) * 1024 * 1024;
  const charts = [
    chart({
      title: "CPU",
      series: [{ name: "CPU", value: (one) => one.cpu_percent }],
      format: percent,
      ceiling: () => 10,
    }),
    chart({
      title: "Memory",
      series: [
        { name: "memory", value: (one) => one.memory_bytes },
        { name: "cache", value: (one) => one.cache_bytes },
        { name: "swap", value: (one) => one.swap_bytes },
      ],
      format: bytes,
      // The limit is the top where it is near.
      ceiling: (last) => (last && last.memory_bytes * 4 > memoryMax(last) ? memoryMax(last) : 1024 * 1024),
    }),
    chart({
      title: "Processes",
      series: [{ name: "Processes", value: (one) => one.processes }],
      format: (value) => count(Math.round(value * 10) / 10),
      ceiling: () => 4,
    }),
    chart({
      title: "Writable layer",
      series: [{ name: "Disk", value: (one) => one.disk_bytes }],
      format: bytes,
      ceiling: () => 1024 * 1024,
    }),
    chart({
      title: "Block devices, per second",
      series: [
        { name: "read", value: rate("read_bytes") },
        { name: "written", value: rate("written_bytes") },
      ],
      format: bytes,
      ceiling: () => 64 * 1024,
    }),
    chart({
      title: "Pressure",
      series: [
        { name: "CPU", value: (one) => one.cpu_pressure_percent },
        { name: "memory", value: (one) => one.memory_pressure_percent },
        { name: "I/O", value: (one) => one.io_pressure_percent },
      ],
      format: percent,
      ceiling: () => 10,
    }),
  ];
  const choices = WINDOWS.map(([name, ms]) => {
    const one = button(name, () => choose(ms), "quiet");
    one.dataset.ms = ms;
    return one;
  });
  replace(
    place,
    h("div.chart-bar", state, h("div.segments", { role: "group", "aria-label": "Time" }, choices)),
    h(
      "div.charts",
      charts.map((one) => one.element),
    ),
  );

  function choose(ms) {
    windowMs = ms;
    for (const one of choices) one.setAttribute("aria-pressed", String(Number(one.dataset.ms) === ms));
    draw();
  }

  function draw() {
    for (const one of charts) one.draw(samples, windowMs);
  }

  let frame;
  const take = (event) => {
    if (event.type === "problem") {
      setText(state, event.message);
      return true;
    }
    if (event.type !== "sample") return false;
    samples.push(event);
    samples = samples.filter((one) => one.at_ms > event.at_ms - KEPT_MS);
    frame ??= requestAnimationFrame(() => {
      frame = undefined;
      draw();
    });
    return false;
  };
  choose(windowMs);
  const query = () => ({ since: samples.at(-1)?.number ?? 0 });
  follow(sandboxPath(which, "metrics", "stream"), query, take, signal, (now) => {
    if (now === "live") setText(state, "a sample each second, fewer at rest");
    else if (now === "cut") setText(state, "disconnected, trying again");
  });
}
