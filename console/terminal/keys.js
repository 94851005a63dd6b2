/** What a pressed key types in a terminal. Pure. */

const ARROWS = { ArrowUp: "A", ArrowDown: "B", ArrowRight: "C", ArrowLeft: "D", Home: "H", End: "F" };
const TILDES = {
  Insert: 2,
  Delete: 3,
  PageUp: 5,
  PageDown: 6,
  F5: 15,
  F6: 17,
  F7: 18,
  F8: 19,
  F9: 20,
  F10: 21,
  F11: 23,
  F12: 24,
};
const FUNCTIONS = { F1: "P", F2: "Q", F3: "R", F4: "S" };
const PLAIN = { Enter: "\r", Escape: "\x1b", Tab: "\t", Backspace: "\x7f" };

/** What an event of the keyboard types; undefined for what the browser keeps, and for text, which comes as input. */
export function typed(event, hasApplicationKeys) {
  const { key } = event;
  if (event.metaKey) return undefined;
  const held = 1 + (event.shiftKey ? 1 : 0) + (event.altKey ? 2 : 0) + (event.ctrlKey ? 4 : 0);
  if (ARROWS[key]) {
    if (held > 1) return `\x1b[1;${held}${ARROWS[key]}`;
    return `\x1b${hasApplicationKeys ? "O" : "["}${ARROWS[key]}`;
  }
  if (TILDES[key]) return held > 1 ? `\x1b[${TILDES[key]};${held}~` : `\x1b[${TILDES[key]}~`;
  if (FUNCTIONS[key]) return held > 1 ? `\x1b[1;${held}${FUNCTIONS[key]}` : `\x1bO${FUNCTIONS[key]}`;
  if (key === "Tab" && event.shiftKey) return "\x1b[Z";
  if (PLAIN[key]) return (event.altKey ? "\x1b" : "") + (key === "Backspace" && event.ctrlKey ? "\x08" : PLAIN[key]);
  if (event.ctrlKey && !event.altKey) return controlled(event);
  if (event.altKey && !event.ctrlKey && key.length === 1) return `\x1b${key}`;
  return undefined;
}

function controlled({ key, shiftKey }) {
  // With shift they are the browser's: copy and paste among them.
  if (shiftKey && /^[a-z]$/i.test(key)) return undefined;
  if (key === " " || key === "@") return "\0";
  if (/^[a-z[\]\\^_]$/i.test(key)) return String.fromCharCode(key.toUpperCase().charCodeAt(0) & 0x1f);
  return undefined;
}

/** Text that is pasted. What ends a paste cannot be in it. */
export function pasted(text, isBracketed) {
  const lines = text.replace(/\r?\n/g, "\r");
  return isBracketed ? `\x1b[200~${lines.replaceAll("\x1b", "")}\x1b[201~` : lines;
}
