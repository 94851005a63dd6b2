/** A terminal on the page: draws a `Screen` and reads the keyboard. Each cell is text, whatever is in it. */

import { h, replace } from "../dom.js";
import { pasted, typed } from "./keys.js";
import { HISTORY_MAX, Screen } from "./screen.js";
import { PLAIN } from "./style.js";

const encoder = new TextEncoder();

export class Terminal {
  /**
   * `type(bytes)` gets what is typed, `resize(columns, rows)` how many cells there is room for, and `leave()` is where
   * the keyboard goes after Shift+Escape: all other keys are the program's.
   */
  constructor({ label, type, resize, leave, isReadOnly = false }) {
    this.screen = new Screen();
    this.type = type;
    this.resize = resize;
    this.isFollowing = true;
    this.shown = [];
    this.above = h("div.term-above");
    this.rows = h("div.term-rows");
    this.cursor = h("div.term-cursor", { "aria-hidden": "true" });
    this.probe = h("span.term-probe", { "aria-hidden": "true" }, "W".repeat(50));
    this.input = h("textarea.term-input", {
      "aria-label": isReadOnly ? `${label}, read-only` : `${label}, keyboard`,
      autocapitalize: "off",
      autocomplete: "off",
      autocorrect: "off",
      spellcheck: "false",
      rows: 1,
      readonly: isReadOnly,
    });
    const page = h("div.term-page", this.above, h("div.term-screen", this.rows, this.cursor));
    this.scroller = h("div.term", { tabindex: 0, role: "group", "aria-label": label }, page, this.input, this.probe);
    this.element = this.scroller;
    this.listen(isReadOnly, leave);
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.scroller);
  }

  listen(isReadOnly, leave) {
    this.scroller.addEventListener("scroll", () => {
      const left = this.scroller.scrollHeight - this.scroller.scrollTop - this.scroller.clientHeight;
      this.isFollowing = left < 4;
    });
    this.scroller.addEventListener("mouseup", () => {
      if (getSelection().isCollapsed) this.focus();
    });
    this.scroller.addEventListener("focus", () => this.focus());
    if (isReadOnly) return;
    this.input.addEventListener("keydown", (event) => {
      if (event.isComposing) return;
      if (event.key === "Escape" && event.shiftKey) {
        leave?.();
        return;
      }
      const text = typed(event, this.screen.hasApplicationKeys);
      if (text === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      this.send(text);
    });
    this.input.addEventListener("input", (event) => {
      if (event.isComposing) return;
      this.send(this.input.value);
      this.input.value = "";
    });
    this.input.addEventListener("compositionend", () => {
      this.send(this.input.value);
      this.input.value = "";
    });
    this.input.addEventListener("paste", (event) => {
      event.preventDefault();
      this.send(pasted(event.clipboardData.getData("text/plain"), this.screen.hasBracketedPaste));
    });
  }

  send(text) {
    if (text === "") return;
    this.isFollowing = true;
    this.type(encoder.encode(text));
  }

  focus() {
    this.input.focus({ preventScroll: true });
  }

  /** Makes the screen as large as there is room for. */
  fit() {
    const box = this.probe.getBoundingClientRect();
    if (box.width === 0 || this.scroller.clientWidth === 0) return;
    const cell = { width: box.width / 50, height: box.height };
    const inside = getComputedStyle(this.scroller);
    const space = (...sides) => sides.reduce((sum, side) => sum + parseFloat(inside[`padding${side}`]), 0);
    const columns = Math.floor((this.scroller.clientWidth - space("Left", "Right")) / cell.width);
    const rows = Math.floor((this.scroller.clientHeight - space("Top", "Bottom")) / cell.height);
    this.cell = cell;
    this.screen.resize(Math.max(columns, 20), Math.max(rows, 4));
    this.draw();
    this.resize?.(this.screen.columns, this.screen.rows);
  }

  write(bytes) {
    this.screen.write(bytes);
    this.draw();
  }

  /** Something that the bridge says, on a line of its own. */
  note(text) {
    this.screen.parser.reset();
    const at = this.screen.cursor.column === 0 ? "" : "\r\n";
    this.write(encoder.encode(`\x1b[0m${at}\x1b[2m— ${text} —\x1b[0m\r\n`));
  }

  draw() {
    if (this.frame !== undefined) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = undefined;
      this.drawNow();
    });
  }

  drawNow() {
    const { screen } = this;
    if (screen.pushed < 0) {
      replace(this.above);
      screen.pushed = 0;
    }
    if (screen.pushed > 0) {
      this.above.append(...screen.history.slice(-screen.pushed).map(row));
      while (this.above.childElementCount > HISTORY_MAX) this.above.firstChild.remove();
    }
    screen.pushed = 0;
    this.above.hidden = screen.isAlternate;
    this.drawRows();
    const { row: at, column } = screen.cursor;
    this.cursor.hidden = !screen.isCursorShown;
    if (this.cell) {
      this.cursor.style.transform = `translate(${column * this.cell.width}px, ${at * this.cell.height}px)`;
      this.cursor.style.width = `${this.cell.width}px`;
      this.cursor.style.height = `${this.cell.height}px`;
    }
    if (this.isFollowing) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  drawRows() {
    const { lines } = this.screen;
    while (this.rows.childElementCount > lines.length) this.rows.lastChild.remove();
    lines.forEach((line, at) => {
      const shown = this.shown[at];
      const element = this.rows.children[at];
      if (element && shown?.line === line && shown.version === line.version) return;
      this.shown[at] = { line, version: line.version };
      if (element) element.replaceWith(row(line));
      else this.rows.append(row(line));
    });
  }

  close() {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
  }
}

/** A line as an element: one span for cells of one style. */
function row(line) {
  const element = h("div.term-row");
  let from = 0;
  const { characters, styles } = line;
  const isWide = (at) => characters[at + 1] === "";
  for (let at = 0; at < characters.length; at = from) {
    if (isWide(at)) {
      from = at + 2;
      element.append(span(characters[at], styles[at], true));
      continue;
    }
    from = at + 1;
    while (from < characters.length && styles[from] === styles[at] && !isWide(from)) from += 1;
    element.append(span(characters.slice(at, from).join(""), styles[at], false));
  }
  return element;
}

function span(text, style, isWide) {
  if (style === PLAIN && !isWide) return document.createTextNode(text);
  const element = h("span", text);
  if (isWide) element.classList.add("wide");
  for (const name of ["bold", "dim", "italic", "underline", "inverse", "hidden", "strike"]) {
    if (style[name]) element.classList.add(`t-${name}`);
  }
  paint(element, "fg", style.fg);
  paint(element, "bg", style.bg);
  return element;
}

function paint(element, what, colour) {
  if (typeof colour === "number") element.classList.add(`${what}-${colour}`);
  // Only `#rrggbb` comes here; a rule of the style sheet takes the variable.
  else if (colour !== undefined) {
    element.classList.add(`${what}-x`);
    element.style.setProperty(`--${what}`, colour);
  }
}
