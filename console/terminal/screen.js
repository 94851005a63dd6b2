/**
 * The screen of a terminal: what a program's output makes of its cells. It is drawn by `view.js` and answers no query
 * of the program. Pure; its memory is bounded by its size and `HISTORY_MAX`.
 */

import { Parser } from "./parser.js";
import { PLAIN, erased, styled } from "./style.js";
import { width } from "./width.js";

/** Lines above the screen. */
export const HISTORY_MAX = 4000;
export const COLUMNS_MAX = 500;
export const ROWS_MAX = 200;
/** Marks on one character. */
const MARKS_MAX = 8;
const REPEATS_MAX = 10000;

const DRAWING = "◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·";

/** A row of cells; `""` in `characters` is the right half of a wide character. */
class Line {
  constructor(columns, style = PLAIN) {
    this.characters = new Array(columns).fill(" ");
    this.styles = new Array(columns).fill(style);
    this.version = 0;
  }

  text() {
    return this.characters.join("").trimEnd();
  }

  fit(columns) {
    while (this.characters.length < columns) {
      this.characters.push(" ");
      this.styles.push(PLAIN);
    }
    this.characters.length = columns;
    this.styles.length = columns;
    this.version += 1;
  }
}

export class Screen {
  constructor(columns = 80, rows = 24) {
    this.columns = columns;
    this.rows = rows;
    this.parser = new Parser(this);
    /** Lines that have left the screen at its top, oldest first. */
    this.history = [];
    /** How many of the newest of them have not been drawn. */
    this.pushed = 0;
    this.reset();
  }

  write(bytes) {
    this.parser.write(bytes);
  }

  reset() {
    this.main = this.blank();
    this.lines = this.main;
    this.isAlternate = false;
    this.cursor = { row: 0, column: 0 };
    this.style = PLAIN;
    this.top = 0;
    this.bottom = this.rows - 1;
    this.isWrapping = true;
    this.isInserting = false;
    this.isOrigin = false;
    this.isCursorShown = true;
    this.hasApplicationKeys = false;
    this.hasBracketedPaste = false;
    this.willWrap = false;
    this.sets = ["B", "B"];
    this.set = 0;
    this.saved = undefined;
    this.savedMain = undefined;
    this.last = " ";
    this.tabs = new Set();
    for (let column = 8; column < COLUMNS_MAX; column += 8) this.tabs.add(column);
  }

  blank() {
    return Array.from({ length: this.rows }, () => new Line(this.columns));
  }

  resize(columns, rows) {
    columns = Math.max(2, Math.min(columns, COLUMNS_MAX));
    rows = Math.max(1, Math.min(rows, ROWS_MAX));
    if (columns === this.columns && rows === this.rows) return;
    this.columns = columns;
    for (const lines of new Set([this.main, this.lines])) {
      const isShown = lines === this.lines;
      for (const line of lines) line.fit(columns);
      this.fitRows(lines, rows, isShown);
    }
    this.rows = rows;
    this.top = 0;
    this.bottom = rows - 1;
    this.willWrap = false;
    this.move(this.cursor.row, this.cursor.column);
  }

  fitRows(lines, rows, isShown) {
    while (lines.length < rows) lines.push(new Line(this.columns));
    const last = isShown ? this.cursor.row : lines.length - 1;
    while (lines.length > rows) {
      // What is empty below the cursor goes first.
      const isBelow = lines.length - 1 > last && lines.at(-1).text() === "";
      if (isBelow) {
        lines.pop();
        continue;
      }
      const gone = lines.shift();
      if (lines === this.main) this.keep(gone);
      if (isShown) this.cursor.row = Math.max(0, this.cursor.row - 1);
    }
  }

  keep(line) {
    this.history.push(line);
    this.pushed += 1;
    // Many at once, since removing from the front costs as much as there is.
    if (this.history.length > HISTORY_MAX + 500) this.history.splice(0, this.history.length - HISTORY_MAX);
  }

  /** All text, of the lines above the screen too. */
  text() {
    const lines = [...(this.isAlternate ? [] : this.history), ...this.lines].map((line) => line.text());
    return lines.join("\n").trimEnd();
  }

  // What the parser finds.

  print(text) {
    for (const character of text) this.put(character);
  }

  put(given) {
    const character = this.sets[this.set] === "0" ? drawing(given) : given;
    const cells = width(character);
    if (cells === 0) return this.mark(character);
    this.last = character;
    if (this.willWrap && this.isWrapping) {
      this.cursor.column = 0;
      this.feed();
    }
    this.willWrap = false;
    if (this.cursor.column + cells > this.columns) {
      if (!this.isWrapping) this.cursor.column = this.columns - cells;
      else {
        this.cursor.column = 0;
        this.feed();
      }
    }
    const { column } = this.cursor;
    if (this.isInserting) this.insert(cells);
    const line = this.line();
    this.split(line, column);
    this.split(line, column + cells);
    line.characters[column] = character;
    line.styles[column] = this.style;
    if (cells === 2) {
      line.characters[column + 1] = "";
      line.styles[column + 1] = this.style;
    }
    line.version += 1;
    this.cursor.column += cells;
    if (this.cursor.column >= this.columns) {
      this.cursor.column = this.columns - 1;
      this.willWrap = true;
    }
  }

  /** A mark belongs to the character before the cursor. */
  mark(character) {
    const line = this.line();
    let column = this.willWrap ? this.cursor.column : this.cursor.column - 1;
    if (column > 0 && line.characters[column] === "") column -= 1;
    if (column < 0 || line.characters[column].length > MARKS_MAX) return;
    line.characters[column] += character;
    line.version += 1;
  }

  /** A wide character of which one half is overwritten is gone. */
  split(line, column) {
    if (column <= 0 || column >= this.columns || line.characters[column] !== "") return;
    line.characters[column - 1] = " ";
    line.characters[column] = " ";
  }

  control(code) {
    switch (code) {
      case 0x08:
        this.cursor.column = Math.max(0, this.cursor.column - 1);
        this.willWrap = false;
        break;
      case 0x09:
        this.tab(1);
        break;
      case 0x0a:
      case 0x0b:
      case 0x0c:
        this.feed();
        break;
      case 0x0d:
        this.cursor.column = 0;
        this.willWrap = false;
        break;
      case 0x0e:
        this.set = 1;
        break;
      case 0x0f:
        this.set = 0;
        break;
      default:
    }
  }

  escape(marks, final) {
    if (marks === "(" || marks === ")") {
      this.sets[marks === "(" ? 0 : 1] = final;
      return;
    }
    if (marks === "#" && final === "8") {
      for (const line of this.lines) this.erase(line, 0, this.columns, "E");
      return;
    }
    if (marks !== "") return;
    switch (final) {
      case "7":
        this.save();
        break;
      case "8":
        this.restore();
        break;
      case "D":
        this.feed();
        break;
      case "E":
        this.cursor.column = 0;
        this.feed();
        break;
      case "H":
        this.tabs.add(this.cursor.column);
        break;
      case "M":
        this.feedBack();
        break;
      case "c":
        this.reset();
        break;
      default:
    }
  }

  sequence(prefix, parameters, marks, final) {
    if (prefix === "?" && marks === "" && (final === "h" || final === "l")) {
      for (const [mode] of parameters) this.setPrivate(mode, final === "h");
      return;
    }
    if (prefix === "" && marks === "!" && final === "p") {
      this.softReset();
      return;
    }
    if (prefix !== "" || marks !== "") return;
    const of = (at, otherwise = 1) => parameters[at]?.[0] || otherwise;
    const mode = parameters[0][0] ?? 0;
    const { row, column } = this.cursor;
    switch (final) {
      case "A":
        return this.move(Math.max(row - of(0), row >= this.top ? this.top : 0), column);
      case "B":
      case "e":
        return this.move(Math.min(row + of(0), row <= this.bottom ? this.bottom : this.rows - 1), column);
      case "C":
      case "a":
        return this.move(row, column + of(0));
      case "D":
        return this.move(row, column - of(0));
      case "E":
        return this.move(Math.min(row + of(0), this.bottom), 0);
      case "F":
        return this.move(Math.max(row - of(0), this.top), 0);
      case "G":
      case "`":
        return this.move(row, of(0) - 1);
      case "H":
      case "f":
        return this.move(of(0) - 1 + (this.isOrigin ? this.top : 0), of(1) - 1);
      case "d":
        return this.move(of(0) - 1 + (this.isOrigin ? this.top : 0), column);
      case "I":
        return this.tab(of(0));
      case "Z":
        return this.tab(-of(0));
      case "J":
        return this.eraseScreen(mode);
      case "K":
        return this.eraseLine(mode);
      case "L":
        return this.shift(row, of(0), false);
      case "M":
        return this.shift(row, of(0), true);
      case "@":
        return this.insert(of(0));
      case "P":
        return this.removeCells(of(0));
      case "X":
        return this.erase(this.line(), column, Math.min(column + of(0), this.columns));
      case "S":
        return this.scroll(Math.min(of(0), this.rows));
      case "T":
        return this.scrollBack(Math.min(of(0), this.rows));
      case "b":
        return this.print(this.last.repeat(Math.min(of(0), REPEATS_MAX)));
      case "g":
        if (mode === 3) this.tabs.clear();
        else this.tabs.delete(column);
        return undefined;
      case "h":
      case "l":
        if (mode === 4) this.isInserting = final === "h";
        return undefined;
      case "m":
        this.style = styled(this.style, parameters);
        return undefined;
      case "r":
        return this.setRegion(of(0) - 1, of(1, this.rows) - 1);
      case "s":
        return this.save();
      case "u":
        return this.restore();
      default:
        // Queries are among the rest: nothing is ever answered.
        return undefined;
    }
  }

  // What that does.

  line() {
    return this.lines[this.cursor.row];
  }

  move(row, column) {
    const first = this.isOrigin ? this.top : 0;
    const last = this.isOrigin ? this.bottom : this.rows - 1;
    this.cursor.row = Math.max(first, Math.min(row, last));
    this.cursor.column = Math.max(0, Math.min(column, this.columns - 1));
    this.willWrap = false;
  }

  tab(times) {
    for (let left = Math.min(Math.abs(times), this.columns); left > 0; left -= 1) {
      let column = this.cursor.column + Math.sign(times);
      while (column > 0 && column < this.columns - 1 && !this.tabs.has(column)) column += Math.sign(times);
      this.move(this.cursor.row, column);
    }
  }

  feed() {
    this.willWrap = false;
    if (this.cursor.row === this.bottom) this.scroll(1);
    else if (this.cursor.row < this.rows - 1) this.cursor.row += 1;
  }

  feedBack() {
    if (this.cursor.row === this.top) this.scrollBack(1);
    else if (this.cursor.row > 0) this.cursor.row -= 1;
  }

  scroll(times) {
    for (let left = times; left > 0; left -= 1) {
      const [gone] = this.lines.splice(this.top, 1);
      if (this.top === 0 && !this.isAlternate) this.keep(gone);
      this.lines.splice(this.bottom, 0, new Line(this.columns, erased(this.style)));
    }
  }

  scrollBack(times) {
    for (let left = times; left > 0; left -= 1) {
      this.lines.splice(this.bottom, 1);
      this.lines.splice(this.top, 0, new Line(this.columns, erased(this.style)));
    }
  }

  /** Inserts or removes lines at a row of the region. */
  shift(row, times, isRemoved) {
    if (row < this.top || row > this.bottom) return;
    for (let left = Math.min(times, this.bottom - row + 1); left > 0; left -= 1) {
      this.lines.splice(isRemoved ? row : this.bottom, 1);
      this.lines.splice(isRemoved ? this.bottom : row, 0, new Line(this.columns, erased(this.style)));
    }
    this.cursor.column = 0;
    this.willWrap = false;
  }

  insert(times) {
    const line = this.line();
    const { column } = this.cursor;
    this.split(line, column);
    const many = Math.min(times, this.columns - column);
    line.characters.splice(column, 0, ...new Array(many).fill(" "));
    line.styles.splice(column, 0, ...new Array(many).fill(erased(this.style)));
    line.fit(this.columns);
    this.mend(line);
  }

  removeCells(times) {
    const line = this.line();
    const { column } = this.cursor;
    this.split(line, column);
    const many = Math.min(times, this.columns - column);
    line.characters.splice(column, many);
    line.styles.splice(column, many);
    line.fit(this.columns);
    this.mend(line);
  }

  /** Halves of wide characters at the borders of what was moved. */
  mend(line) {
    const { column } = this.cursor;
    if (line.characters[column] === "") line.characters[column] = " ";
    const last = this.columns - 1;
    if (width(line.characters[last] || " ") === 2) line.characters[last] = " ";
  }

  erase(line, from, to, character = " ") {
    this.split(line, from);
    this.split(line, to);
    const style = erased(this.style);
    line.characters.fill(character, from, to);
    line.styles.fill(style, from, to);
    line.version += 1;
  }

  eraseLine(mode) {
    const { column } = this.cursor;
    this.willWrap = false;
    if (mode === 0) this.erase(this.line(), column, this.columns);
    else if (mode === 1) this.erase(this.line(), 0, column + 1);
    else if (mode === 2) this.erase(this.line(), 0, this.columns);
  }

  eraseScreen(mode) {
    const { row } = this.cursor;
    if (mode === 3) {
      this.history = [];
      this.pushed = -1;
      return;
    }
    if (mode > 2) return;
    if (mode !== 2) this.eraseLine(mode);
    const from = mode === 0 ? row + 1 : 0;
    const to = mode === 1 ? row : this.rows;
    for (let at = from; at < to; at += 1) this.erase(this.lines[at], 0, this.columns);
  }

  setRegion(top, bottom) {
    const last = Math.min(bottom, this.rows - 1);
    if (top >= last) return;
    this.top = top;
    this.bottom = last;
    this.move(this.isOrigin ? top : 0, 0);
  }

  setPrivate(mode, isOn) {
    switch (mode) {
      case 1:
        this.hasApplicationKeys = isOn;
        break;
      case 6:
        this.isOrigin = isOn;
        this.move(isOn ? this.top : 0, 0);
        break;
      case 7:
        this.isWrapping = isOn;
        break;
      case 25:
        this.isCursorShown = isOn;
        break;
      case 47:
      case 1047:
        this.alternate(isOn);
        break;
      case 1048:
        if (isOn) this.save();
        else this.restore();
        break;
      case 1049:
        if (isOn === this.isAlternate) break;
        if (isOn) {
          this.save();
          this.savedMain = this.saved;
        }
        this.alternate(isOn);
        if (!isOn) {
          this.saved = this.savedMain;
          this.restore();
        }
        break;
      case 2004:
        this.hasBracketedPaste = isOn;
        break;
      default:
    }
  }

  alternate(isOn) {
    if (isOn === this.isAlternate) return;
    this.isAlternate = isOn;
    this.lines = isOn ? this.blank() : this.main;
    this.willWrap = false;
  }

  save() {
    const { cursor, style, isOrigin, set, willWrap } = this;
    this.saved = { cursor: { ...cursor }, style, isOrigin, set, willWrap, sets: [...this.sets] };
  }

  restore() {
    const saved = this.saved ?? { cursor: { row: 0, column: 0 }, style: PLAIN, set: 0, sets: ["B", "B"] };
    this.isOrigin = saved.isOrigin ?? false;
    this.style = saved.style;
    this.set = saved.set;
    this.sets = [...saved.sets];
    this.move(saved.cursor.row, saved.cursor.column);
    this.willWrap = saved.willWrap ?? false;
  }

  softReset() {
    this.isInserting = false;
    this.isOrigin = false;
    this.isWrapping = true;
    this.isCursorShown = true;
    this.hasApplicationKeys = false;
    this.style = PLAIN;
    this.sets = ["B", "B"];
    this.set = 0;
    this.saved = undefined;
    this.top = 0;
    this.bottom = this.rows - 1;
  }
}

/** Letters that draw lines in the set of special graphics. */
function drawing(character) {
  const at = character.charCodeAt(0) - 0x60;
  return at >= 0 && at < DRAWING.length && character.length === 1 ? DRAWING[at] : character;
}
