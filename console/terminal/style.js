/** How a cell is drawn: colours and weights, as `SGR` sequences set them. Pure. */

/** Colours are undefined, a number of the palette of 256, or `#rrggbb`. Styles are equal if they are the same object. */
export const PLAIN = Object.freeze({});

const SET = {
  1: "bold",
  2: "dim",
  3: "italic",
  4: "underline",
  7: "inverse",
  8: "hidden",
  9: "strike",
  21: "underline",
};
const UNSET = {
  22: ["bold", "dim"],
  23: ["italic"],
  24: ["underline"],
  27: ["inverse"],
  28: ["hidden"],
  29: ["strike"],
};

const known = new Map();
const KNOWN_MAX = 4096;

/** The style after a sequence of parameters. */
export function styled(before, parameters) {
  let style = { ...before };
  for (let at = 0; at < parameters.length; at += 1) {
    const parts = parameters[at];
    const code = parts[0] ?? 0;
    if (code === 0) style = {};
    else if (code === 4 && parts[1] === 0) delete style.underline;
    else if (SET[code]) style[SET[code]] = true;
    else if (UNSET[code]) for (const name of UNSET[code]) delete style[name];
    else if (code >= 30 && code <= 37) style.fg = code - 30;
    else if (code >= 40 && code <= 47) style.bg = code - 40;
    else if (code >= 90 && code <= 97) style.fg = code - 82;
    else if (code >= 100 && code <= 107) style.bg = code - 92;
    else if (code === 39) delete style.fg;
    else if (code === 49) delete style.bg;
    else if (code === 38 || code === 48) {
      const { colour, used } = colourOf(parts, parameters.slice(at + 1));
      at += used;
      if (colour !== undefined) style[code === 38 ? "fg" : "bg"] = colour;
    }
  }
  return same(style);
}

/** A style with another background and nothing else, as erased cells have it. */
export function erased(style) {
  return style.bg === undefined ? PLAIN : same({ bg: style.bg });
}

function colourOf(parts, rest) {
  if (parts.length > 1) {
    const numbers = parts.slice(1);
    // `38:2::r:g:b` names a colour space, `38:2:r:g:b` does not.
    if (numbers[0] === 2) return { colour: hex(numbers.slice(numbers.length > 4 ? 2 : 1)), used: 0 };
    return { colour: numbers[0] === 5 ? indexed(numbers[1]) : undefined, used: 0 };
  }
  const numbers = rest.map((one) => one[0]);
  if (numbers[0] === 5) return { colour: indexed(numbers[1]), used: 2 };
  if (numbers[0] === 2) return { colour: hex(numbers.slice(1, 4)), used: 4 };
  return { colour: undefined, used: numbers.length };
}

function indexed(number = 0) {
  if (number < 16) return number;
  if (number < 232) {
    const level = (step) => (step === 0 ? 0 : 55 + step * 40);
    const cube = number - 16;
    return hex([level(Math.floor(cube / 36)), level(Math.floor(cube / 6) % 6), level(cube % 6)]);
  }
  const grey = 8 + (Math.min(number, 255) - 232) * 10;
  return hex([grey, grey, grey]);
}

function hex(values) {
  const two = (value = 0) => Math.min(value, 255).toString(16).padStart(2, "0");
  return `#${two(values[0])}${two(values[1])}${two(values[2])}`;
}

function same(style) {
  const name = JSON.stringify(style, Object.keys(style).sort());
  if (name === "{}") return PLAIN;
  const found = known.get(name);
  if (found) return found;
  // A program that uses every colour there is costs no more than this.
  if (known.size >= KNOWN_MAX) known.clear();
  known.set(name, Object.freeze(style));
  return style;
}
