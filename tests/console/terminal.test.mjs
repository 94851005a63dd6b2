/** The terminal of the console: what programs write, as it is on the screen. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { pasted, typed } from "../console/terminal/keys.js";
import { HISTORY_MAX, Screen } from "../console/terminal/screen.js";
import { PLAIN } from "../console/terminal/style.js";
import { width } from "../console/terminal/width.js";

const encoder = new TextEncoder();

function screen(text, columns = 20, rows = 5) {
  const made = new Screen(columns, rows);
  made.write(encoder.encode(text));
  return made;
}

const lines = (made) => made.lines.map((line) => line.text());
const at = (made) => [made.cursor.row, made.cursor.column];

test("text wraps at the last column only when more comes", () => {
  const made = screen("abcde", 5, 3);
  assert.deepEqual(at(made), [0, 4]);
  made.write(encoder.encode("f\r\ng"));
  assert.deepEqual(lines(made), ["abcde", "f", "g"]);
});

test("a cursor that waits at the last column goes back to where it is", () => {
  assert.deepEqual(lines(screen("abcde\bX", 5, 2)), ["abcXe", ""]);
  assert.deepEqual(lines(screen("abcde\rX", 5, 2)), ["Xbcde", ""]);
});

test("the cursor is moved, and stays on the screen", () => {
  const made = screen("\x1b[3;4HX\x1b[99;99HY\x1b[HZ\x1b[2B\x1b[3Cw");
  assert.deepEqual(lines(made), ["Z", "", "   Xw", "", `${" ".repeat(19)}Y`]);
  assert.deepEqual(at(screen("\x1b[99A\x1b[99D")), [0, 0]);
});

test("parts of lines and of the screen are erased", () => {
  assert.deepEqual(lines(screen("abcdef\x1b[3D\x1b[K", 10, 1)), ["abc"]);
  assert.deepEqual(lines(screen("abcdef\x1b[3D\x1b[1K", 10, 1)), ["    ef"]);
  assert.deepEqual(lines(screen("a\r\nb\r\nc\x1b[2;1H\x1b[J", 10, 3)), ["a", "", ""]);
  assert.deepEqual(lines(screen("a\r\nb\r\nc\x1b[2;1H\x1b[1J", 10, 3)), ["", "", "c"]);
  assert.deepEqual(lines(screen("abcdef\x1b[4D\x1b[2X", 10, 1)), ["ab  ef"]);
});

test("cells and lines are inserted and removed", () => {
  assert.deepEqual(lines(screen("abcd\x1b[3D\x1b[2@", 10, 1)), ["a  bcd"]);
  assert.deepEqual(lines(screen("abcd\x1b[3D\x1b[2P", 10, 1)), ["ad"]);
  assert.deepEqual(lines(screen("a\r\nb\r\nc\x1b[1;1H\x1b[L", 10, 3)), ["", "a", "b"]);
  assert.deepEqual(lines(screen("a\r\nb\r\nc\x1b[1;1H\x1b[M", 10, 3)), ["b", "c", ""]);
  assert.deepEqual(lines(screen("\x1b[4habc\x1b[3DX", 10, 1)), ["Xabc"]);
});

test("what scrolls off is kept, and only so much of it", () => {
  const made = screen("1\r\n2\r\n3\r\n4", 10, 2);
  assert.deepEqual(
    made.history.map((line) => line.text()),
    ["1", "2"],
  );
  made.write(encoder.encode("x\r\n".repeat(HISTORY_MAX * 3)));
  assert.ok(made.history.length <= HISTORY_MAX + 500, String(made.history.length));
});

test("a region scrolls by itself and keeps nothing", () => {
  const made = screen("top\x1b[2;3r\x1b[2;1Ha\r\nb\r\nc\r\nd\x1b[r\x1b[5;1Hend", 10, 5);
  assert.deepEqual(lines(made), ["top", "c", "d", "", "end"]);
  assert.equal(made.history.length, 0);
  assert.deepEqual(lines(screen("a\r\nb\x1b[H\x1bM", 10, 3)), ["", "a", "b"]);
});

test("the alternate screen leaves the first one as it was", () => {
  const made = screen("shell$ \x1b[?1049h\x1b[2J\x1b[Hvim", 20, 3);
  assert.deepEqual(lines(made)[0], "vim");
  made.write(encoder.encode("\x1b[?1049lnext"));
  assert.deepEqual(lines(made)[0], "shell$ next");
  assert.equal(made.isAlternate, false);
});

test("colours and weights are of the cells that follow", () => {
  const made = screen(
    "\x1b[1;31mr\x1b[0mp\x1b[38;5;196mi\x1b[48;2;1;2;3mt\x1b[38:2::4:5:6mc\x1b[39;49md\x1b[97;104mh\x1b[7mv",
  );
  const { styles } = made.lines[0];
  assert.deepEqual({ ...styles[0] }, { bold: true, fg: 1 });
  assert.equal(styles[1], PLAIN);
  assert.equal(styles[2].fg, "#ff0000");
  assert.equal(styles[3].bg, "#010203");
  assert.equal(styles[4].fg, "#040506");
  assert.equal(styles[5], PLAIN);
  assert.deepEqual({ ...styles[6] }, { fg: 15, bg: 12 });
  assert.equal(styles[7].inverse, true);
});

test("wide characters take two cells and marks none", () => {
  const made = screen("漢x\u0065\u0301e", 10, 1);
  assert.deepEqual(made.lines[0].characters.slice(0, 5), ["漢", "", "x", "e\u0301", "e"]);
  assert.deepEqual(lines(screen("abc漢", 4, 2)), ["abc", "漢"]);
  // Half of one that is written over is gone.
  assert.deepEqual(lines(screen("漢b\x1b[2GX", 10, 1)), [" Xb"]);
  assert.deepEqual(["a", "é", "漢", "🙂", "\u200d", "\u0301", "─"].map(width), [1, 1, 2, 2, 0, 0, 1]);
});

test("a character that is cut anywhere is one", () => {
  const bytes = encoder.encode("a€漢\x1b[31mb\x1b]0;title\x07c");
  for (let cut = 0; cut <= bytes.length; cut += 1) {
    const made = new Screen(20, 1);
    made.write(bytes.slice(0, cut));
    made.write(bytes.slice(cut));
    assert.deepEqual(lines(made), ["a€漢bc"], `cut at ${cut}`);
  }
});

test("titles, links and other strings are not shown", () => {
  const strings = [
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil\x1b\\",
    "\x1bPq#0\x1b\\",
    "\x1b_app\x1b\\",
    "\x1b^pm\x1b\\",
    "\x1bXsos\x1b\\",
  ];
  for (const text of strings) assert.deepEqual(lines(screen(`a${text}b`, 10, 1)), ["ab"], JSON.stringify(text));
});

test("nothing is answered, and what is not known is left out", () => {
  const queries = "\x1b[c\x1b[>c\x1b[6n\x1b[?6n\x1b[5n\x1b]11;?\x07\x1bP$q m\x1b\\\x1b[18t\x1bZ\x1b[?996n\x1b[>0q";
  assert.deepEqual(lines(screen(`a${queries}b`, 10, 1)), ["ab"]);
  assert.deepEqual(lines(screen("a\x1b[<1;2;3Mb\x1b[=5uc\x1b[1;2;3;4~d", 10, 1)), ["abcd"]);
});

test("lines are drawn with the set of graphics", () => {
  assert.deepEqual(lines(screen("\x1b(0lqk\x1b(Bq", 10, 1)), ["┌─┐q"]);
});

test("tabs stop at each eighth column, and where they are set", () => {
  assert.deepEqual(at(screen("a\tb", 20, 1)), [0, 9]);
  assert.deepEqual(at(screen("\x1b[3g\x1b[5G\x1bH\r\tx", 20, 1)), [0, 5]);
  assert.deepEqual(at(screen("\t\t\x1b[Z", 20, 1)), [0, 8]);
});

test("a saved cursor comes back with its style", () => {
  const made = screen("ab\x1b[31m\x1b7\x1b[0m\x1b[3;3H\x1b8c", 10, 3);
  assert.deepEqual(lines(made)[0], "abc");
  assert.equal(made.lines[0].styles[2].fg, 1);
});

test("another size keeps the text and the cursor on the screen", () => {
  const made = screen("1\r\n2\r\n3\r\n4", 10, 4);
  made.resize(6, 2);
  assert.deepEqual(
    [lines(made), at(made)],
    [
      ["3", "4"],
      [1, 1],
    ],
  );
  assert.deepEqual(
    made.history.map((line) => line.text()),
    ["1", "2"],
  );
  made.resize(12, 5);
  assert.deepEqual(lines(made), ["3", "4", "", "", ""]);
  assert.ok(made.lines.every((line) => line.characters.length === 12 && line.styles.length === 12));
});

test("a program cannot make the terminal large or slow", () => {
  const made = screen(
    `\x1b[999999999b\x1b[99999999S\x1b[99999999L\x1b[99999999@\x1b[99999999I${"\x1b[".repeat(5000)}${";1".repeat(5000)}m`,
  );
  made.write(encoder.encode(`e${"\u0301".repeat(10000)}`));
  made.write(encoder.encode(`\x1b]${"x".repeat(1000000)}`));
  assert.ok(made.text().length < 100000);
  made.resize(100000, 100000);
  assert.ok(made.columns <= 500 && made.rows <= 200);
});

test("any bytes leave a screen of its size", () => {
  let seed = 88172645463325252n;
  const random = () => {
    seed ^= (seed << 13n) & 0xffffffffffffffffn;
    seed ^= seed >> 7n;
    seed ^= (seed << 17n) & 0xffffffffffffffffn;
    return Number(seed & 0xffffn);
  };
  const pieces = [
    "\x1b[",
    "\x1b",
    "?",
    ";",
    "1049",
    "h",
    "l",
    "r",
    "H",
    "J",
    "K",
    "L",
    "M",
    "P",
    "@",
    "漢",
    "é",
    "a",
    "\n",
    "\r",
    "\t",
    "\b",
    "9",
    "2",
    "\x1b]",
    "\x07",
    "\x9b",
    "\x1b7",
    "\x1b8",
    "\x1bM",
  ];
  for (let round = 0; round < 200; round += 1) {
    const made = new Screen(3 + (random() % 20), 1 + (random() % 8));
    for (let piece = 0; piece < 300; piece += 1) made.write(encoder.encode(pieces[random() % pieces.length]));
    if (round % 3 === 0) made.resize(2 + (random() % 30), 1 + (random() % 9));
    assert.equal(made.lines.length, made.rows);
    for (const line of made.lines) assert.equal(line.characters.length, made.columns);
    assert.ok(
      made.cursor.row >= 0 &&
        made.cursor.row < made.rows &&
        made.cursor.column >= 0 &&
        made.cursor.column < made.columns,
    );
  }
});

test("keys type what terminals type", () => {
  const key = (name, held = {}) => typed({ key: name, ...held }, held.application ?? false);
  assert.equal(key("ArrowUp"), "\x1b[A");
  assert.equal(key("ArrowUp", { application: true }), "\x1bOA");
  assert.equal(key("ArrowRight", { ctrlKey: true }), "\x1b[1;5C");
  assert.equal(key("Delete"), "\x1b[3~");
  assert.equal(key("F5"), "\x1b[15~");
  assert.equal(key("Enter"), "\r");
  assert.equal(key("Backspace"), "\x7f");
  assert.equal(key("c", { ctrlKey: true }), "\x03");
  assert.equal(key("[", { ctrlKey: true }), "\x1b");
  assert.equal(key("b", { altKey: true }), "\x1bb");
  assert.equal(key("Tab", { shiftKey: true }), "\x1b[Z");
  // Text comes as input, and copying is the browser's.
  assert.equal(key("a"), undefined);
  assert.equal(key("C", { ctrlKey: true, shiftKey: true }), undefined);
  assert.equal(key("v", { metaKey: true }), undefined);
});

test("what is pasted cannot end its own brackets", () => {
  assert.equal(pasted("a\nb", false), "a\rb");
  assert.equal(pasted("rm\x1b[201~\nls", true), "\x1b[200~rm[201~\rls\x1b[201~");
});
