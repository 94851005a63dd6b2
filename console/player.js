/**
 * Plays what a session wrote, with its times, on a terminal: play and pause, a place on a scale, a speed. It only
 * shows, and what is typed goes nowhere. A step is `{ at, bytes }`, `{ at, columns, rows }` or `{ at, note }`, with
 * milliseconds since the beginning.
 */

import { h, replace, setText } from "./dom.js";
import { Screen } from "./terminal/screen.js";
import { Terminal } from "./terminal/view.js";

const SPEEDS = [0.5, 1, 2, 4, 8, 16];
/** A pause that is longer is one in which nothing happens. */
const IDLE_MS = 1500;
const STEP_MS = 5000;

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

export class Player {
  constructor({ title, columns, rows, steps }) {
    this.size = { columns, rows };
    this.steps = steps;
    this.lasts = steps.at(-1)?.at ?? 0;
    this.terminal = new Replayed({ label: title, type: () => {}, isReadOnly: true });
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
    const bar = h("div.player-bar", this.control, this.scale, this.clock, speed, h("label", this.skips, " skip pauses"), this.note);
    this.element = h("section.player", { "aria-label": `Replay of ${title}` }, bar, this.terminal.element);
    this.element.addEventListener("keydown", (event) => this.key(event));
    this.rewind();
    this.show();
  }

  key(event) {
    if (event.target.closest("select, input, button") && event.key !== " ") return;
    if (event.key === " " && !event.target.closest("button, input[type=checkbox], select")) this.toggle();
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
      const next = this.steps[this.next]?.at ?? this.lasts;
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

  rewind() {
    this.at = 0;
    this.next = 0;
    setText(this.note, "");
    this.terminal.begin(this.size.columns, this.size.rows);
  }

  advance(at) {
    this.at = Math.min(Math.max(at, 0), this.lasts);
    while (this.next < this.steps.length && this.steps[this.next].at <= this.at) this.take(this.steps[this.next++]);
    this.show();
  }

  take(step) {
    if (step.bytes !== undefined) this.terminal.screen.write(step.bytes);
    else if (step.note !== undefined) setText(this.note, step.note);
    else this.terminal.screen.resize(step.columns, step.rows);
  }

  show() {
    this.scale.value = String(Math.round(this.at));
    const text = `${time(this.at)} / ${time(this.lasts)}`;
    setText(this.clock, text);
    this.scale.setAttribute("aria-valuetext", text);
    this.terminal.draw();
  }

  close() {
    this.pause();
    this.terminal.close();
  }
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
