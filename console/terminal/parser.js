/**
 * From what a program writes to its terminal to what that means: text, control characters, and sequences with their
 * parameters. It holds at most one unfinished sequence, of bounded length. Pure.
 */

const PARAMETERS_MAX = 32;
const VALUE_MAX = 65535;
const MARKS_MAX = 4;

const GROUND = 0;
const ESCAPE = 1;
const CONTROL = 2;
/** Inside of a string for the terminal, such as a title: left out up to its end. */
const STRING = 3;
const STRING_ESCAPE = 4;

/**
 * Reads characters. `screen` gets `print(text)`, `control(code)`, `escape(marks, final)` and
 * `sequence(prefix, parameters, marks, final)`, where a parameter is a list of its parts (`4:3`) and what is left out
 * is undefined.
 */
export class Parser {
  constructor(screen) {
    this.screen = screen;
    this.state = GROUND;
    this.decoder = new TextDecoder();
    this.begin();
  }

  write(bytes) {
    this.read(this.decoder.decode(bytes, { stream: true }));
  }

  /** What comes is the end of what was before: after bytes that are lost. */
  reset() {
    this.decoder = new TextDecoder();
    this.state = GROUND;
  }

  begin() {
    this.prefix = "";
    this.marks = "";
    this.parameters = [[undefined]];
  }

  read(text) {
    let plain = 0;
    for (let at = 0; at < text.length; at += 1) {
      const code = text.charCodeAt(at);
      if (this.state === GROUND) {
        if (code >= 0x20 && (code < 0x7f || code > 0x9f)) continue;
        if (at > plain) this.screen.print(text.slice(plain, at));
        plain = at + 1;
        this.onControl(code);
      } else {
        this.take(code, text[at]);
        plain = at + 1;
      }
    }
    if (this.state === GROUND && plain < text.length) this.screen.print(text.slice(plain));
  }

  onControl(code) {
    if (code === 0x1b) {
      this.begin();
      this.state = ESCAPE;
    } else if (code < 0x20) {
      this.screen.control(code);
    }
  }

  take(code, character) {
    if (this.state === STRING || this.state === STRING_ESCAPE) return this.leaveOut(code);
    if (code === 0x18 || code === 0x1a) this.state = GROUND;
    else if (code < 0x20) this.onControl(code);
    else if (code >= 0x7f) this.state = code === 0x7f ? this.state : GROUND;
    else if (this.state === ESCAPE) this.onEscape(code, character);
    else this.onSequence(code, character);
  }

  leaveOut(code) {
    if (code === 0x07 || code === 0x18 || code === 0x1a) this.state = GROUND;
    else if (this.state === STRING_ESCAPE) {
      this.state = GROUND;
      // A string that is cut off by another sequence.
      if (code !== 0x5c) {
        this.begin();
        this.state = ESCAPE;
        this.take(code, String.fromCharCode(code));
      }
    } else if (code === 0x1b) this.state = STRING_ESCAPE;
  }

  onEscape(code, character) {
    if (code <= 0x2f) {
      this.mark(character);
    } else if (this.marks === "" && character === "[") {
      this.state = CONTROL;
    } else if (this.marks === "" && "]PX^_".includes(character)) {
      this.state = STRING;
    } else {
      this.state = GROUND;
      this.screen.escape(this.marks, character);
    }
  }

  onSequence(code, character) {
    if (code >= 0x40) {
      this.state = GROUND;
      this.screen.sequence(this.prefix, this.parameters, this.marks, character);
    } else if (code <= 0x2f) {
      this.mark(character);
    } else if (code >= 0x3c) {
      this.prefix = character;
    } else if (character === ";") {
      if (this.parameters.length < PARAMETERS_MAX) this.parameters.push([undefined]);
    } else {
      this.digit(code, character);
    }
  }

  digit(code, character) {
    const parts = this.parameters.at(-1);
    if (character === ":") {
      if (parts.length < PARAMETERS_MAX) parts.push(undefined);
      return;
    }
    const value = (parts.at(-1) ?? 0) * 10 + (code - 0x30);
    parts[parts.length - 1] = Math.min(value, VALUE_MAX);
  }

  mark(character) {
    if (this.marks.length < MARKS_MAX) this.marks += character;
  }
}
