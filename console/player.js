/**
 * Plays what sessions wrote, with its times, on a terminal each: play and pause, a place on a scale, a speed. Marks on
 * the same axis say what happened meanwhile, and lead from one error to the next. It only shows, and what is typed goes
 * nowhere. A step is `{ at, bytes }` or `{ at, columns, rows }`, a mark `{ at, kind, text, failed }`, and a sample
 * `{ at, cpu, memory }`, with milliseconds since the beginning.
 */

import { h, replace, setText, svg } from "./dom.js";
import { Screen } from "./terminal/screen.js";
import { Terminal } from "./terminal/view.js";

const SPEEDS = [0.5, 1, 2, 4, 8, 16];
/** A pause that is longer is one in which nothing happens. */
const IDLE_MS = 1500;
const STEP_MS = 5000;
/** Marks that are drawn and listed; a page has room for no more. */
const MARKS_MAX = 2000;
/** The drawing of the axis, in its own units: it is as wide as the page. */
const AXIS = { width: 1000, height: 26 };
const FIGURES_HEIGHT = 24;

/** A terminal of the size that the recording has, whatever room there is. */
class Replayed extends Terminal {
  fit() {
    const box = this.probe.getBoundingClientRect();
    if (box.width > 0) this.cell = { width: box.width / 50, height: box.height };
    this.draw();
  }

  begin(columns, rows) {
    replace(this.above);
    replace(this.rows);
    this.shown = [];
    this.screen = new Screen(columns, rows);
  }
}

/** One session: its terminal, and how far it is. */
class Track {
  constructor({ title, columns, rows, steps }, hasTitle) {
    this.size = { columns, rows };
    this.steps = steps;
    this.terminal = new Replayed({ label: title, type: () => {}, isReadOnly: true });
    this.element = h("div.player-track", hasTitle && h("h3.player-title", title), this.terminal.element);
    this.rewind();
  }

  get lasts() {
    return this.steps.at(-1)?.at ?? 0;
  }

  get nextAt() {
    return this.steps[this.next]?.at ?? Infinity;
  }

  rewind() {
    this.next = 0;
    this.terminal.begin(this.size.columns, this.size.rows);
  }

  advance(at) {
    while (this.nextAt <= at) {
      const step = this.steps[this.next++];
      if (step.bytes !== undefined) this.terminal.screen.write(step.bytes);
      else this.terminal.screen.resize(step.columns, step.rows);
    }
  }
}

export class Player {
  /** `lasts` is how long the axis is at least. */
  constructor({ title, tracks, marks = [], samples = [], lasts = 0 }) {
    this.tracks = tracks.map((track) => new Track(track, tracks.length > 1));
    this.marks = marks.slice(0, MARKS_MAX);
    this.lasts = Math.max(lasts, ...this.tracks.map((track) => track.lasts), this.marks.at(-1)?.at ?? 0);
    this.isPlaying = false;
    this.speed = 1;
    this.control = h("button", { type: "button", onclick: () => this.toggle() }, "Play");
    this.scale = h("input.player-scale", {
      type: "range",
      min: 0,
      max: Math.max(this.lasts, 1),
      step: 1,
      value: 0,
      "aria-label": "Position",
      oninput: () => this.seek(Number(this.scale.value)),
    });
    this.clock = h("span.player-clock");
    this.note = h("span.player-note", { role: "status" });
    this.skips = h("input", { type: "checkbox" });
    const speed = h(
      "select",
      { "aria-label": "Speed", onchange: () => (this.speed = Number(speed.value)) },
      SPEEDS.map((one) => h("option", { value: one, selected: one === 1 }, `${one}×`)),
    );
    this.before = h("button", { type: "button", onclick: () => this.toError(-1) }, "Previous error");
    this.after = h("button", { type: "button", onclick: () => this.toError(1) }, "Next error");
    const hasErrors = this.marks.some(({ failed }) => failed);
    const errors = hasErrors && [this.before, this.after];
    const axis = h("div.player-axis", this.scale, this.drawn(), figures(samples, this.lasts));
    const bar = h("div.player-bar", this.control, axis, this.clock, speed, h("label", this.skips, " skip pauses"), errors, this.note);
    const views = h("div.player-tracks", this.tracks.map((track) => track.element));
    this.element = h("section.player", { "aria-label": `Replay of ${title}` }, bar, views, this.listed());
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.at = 0;
    this.show();
  }

  /** The marks on the axis. */
  drawn() {
    if (this.marks.length === 0) return null;
    const x = (at) => ((at / Math.max(this.lasts, 1)) * AXIS.width).toFixed(1);
    const lines = this.marks.map((mark) => {
      const place = { x1: x(mark.at), x2: x(mark.at), y1: mark.failed ? 0 : 8, y2: AXIS.height };
      const line = svg(`line.player-mark.${classOf(mark)}`, place, svg("title", `${time(mark.at)} ${mark.text}`));
      line.addEventListener("click", () => this.seek(mark.at));
      return line;
    });
    const view = { viewBox: `0 0 ${AXIS.width} ${AXIS.height}`, preserveAspectRatio: "none", "aria-hidden": "true" };
    return svg("svg.player-marks", view, lines);
  }

  /** The same as a list, for all who do not point. */
  listed() {
    if (this.marks.length === 0) return null;
    const rows = this.marks.map((mark) =>
      h(
        `li.${classOf(mark)}`,
        h("button.player-moment", { type: "button", onclick: () => this.seek(mark.at) }, time(mark.at)),
        " ",
        h("span", mark.text),
      ),
    );
    const errors = this.marks.filter(({ failed }) => failed).length;
    const count = errors === 0 ? `${rows.length}` : `${rows.length}, ${errors} of them errors`;
    return h("details.player-list", h("summary", `What happened (${count})`), h("ol", rows));
  }

  key(event) {
    if (event.target.closest("select, input, button, summary") && event.key !== " ") return;
    if (event.key === " " && !event.target.closest("button, input[type=checkbox], select, summary")) this.toggle();
    else if (event.key === "ArrowLeft") this.seek(this.at - STEP_MS);
    else if (event.key === "ArrowRight") this.seek(this.at + STEP_MS);
    else return;
    event.preventDefault();
  }

  toggle() {
    if (this.isPlaying) this.pause();
    else this.play();
  }

  play() {
    if (this.at >= this.lasts) this.rewind();
    this.isPlaying = true;
    setText(this.control, "Pause");
    let before = performance.now();
    const tick = (now) => {
      if (!this.isPlaying) return;
      const next = Math.min(this.lasts, ...this.tracks.map((track) => track.nextAt));
      const isIdle = this.skips.checked && next - this.at > IDLE_MS;
      this.advance(isIdle ? next : this.at + (now - before) * this.speed);
      before = now;
      if (this.at >= this.lasts) this.pause();
      else this.frame = requestAnimationFrame(tick);
    };
    this.frame = requestAnimationFrame(tick);
  }

  pause() {
    this.isPlaying = false;
    cancelAnimationFrame(this.frame);
    setText(this.control, "Play");
  }

  /** Goes to a time; a screen is what all output before it has made of it. */
  seek(at) {
    if (at < this.at) this.rewind();
    this.advance(at);
  }

  /** Goes to the error before or after this time. */
  toError(direction) {
    const found = this.error(direction);
    if (found === undefined) return;
    this.pause();
    this.seek(found.at);
    setText(this.note, found.text);
  }

  error(direction) {
    const errors = this.marks.filter(({ failed }) => failed);
    return direction < 0 ? errors.findLast(({ at }) => at < this.at) : errors.find(({ at }) => at > this.at);
  }

  rewind() {
    this.at = 0;
    for (const track of this.tracks) track.rewind();
  }

  advance(at) {
    this.at = Math.min(Math.max(at, 0), this.lasts);
    for (const track of this.tracks) track.advance(this.at);
    this.show();
  }

  show() {
    this.scale.value = String(Math.round(this.at));
    const text = `${time(this.at)} / ${time(this.lasts)}`;
    setText(this.clock, text);
    setText(this.note, this.marks.findLast(({ at }) => at <= this.at)?.text ?? "");
    this.before.disabled = this.error(-1) === undefined;
    this.after.disabled = this.error(1) === undefined;
    this.scale.setAttribute("aria-valuetext", text);
    for (const { terminal } of this.tracks) terminal.draw();
  }

  close() {
    this.pause();
    for (const { terminal } of this.tracks) terminal.close();
  }
}

/** The class of a mark: kinds are ours, and nothing of a sandbox. */
function classOf({ kind, failed }) {
  if (failed) return "failed";
  return ["lifecycle", "egress", "run", "file"].includes(kind) ? kind : "other";
}

/** CPU and memory on the axis, each as high as its largest value. What is before and after it is cut off. */
function figures(samples, lasts) {
  const line = (name, of) => {
    const known = samples.filter((sample) => sample[of] !== undefined);
    if (known.length < 2) return null;
    const top = Math.max(...known.map((sample) => sample[of]), 1e-9);
    const point = (sample) => {
      const x = ((sample.at / Math.max(lasts, 1)) * AXIS.width).toFixed(1);
      return `${x},${(FIGURES_HEIGHT - 1 - (sample[of] / top) * (FIGURES_HEIGHT - 3)).toFixed(1)}`;
    };
    return svg(`polyline.${name}`, { points: known.map(point).join(" ") });
  };
  const lines = [line("player-cpu", "cpu"), line("player-memory", "memory")].filter(Boolean);
  if (lines.length === 0) return null;
  const view = { viewBox: `0 0 ${AXIS.width} ${FIGURES_HEIGHT}`, preserveAspectRatio: "none", role: "img" };
  return [
    svg("svg.player-figures", { ...view, "aria-label": "CPU and memory" }, lines),
    h("span.player-legend", h("span.player-cpu", "CPU"), " ", h("span.player-memory", "memory")),
  ];
}

function time(ms) {
  const seconds = Math.floor(ms / 1000);
  const two = (number) => String(number).padStart(2, "0");
  return `${two(Math.floor(seconds / 60))}:${two(seconds % 60)}`;
}

/** Bytes of base64. */
export function bytesOf(base64) {
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}
