/** Completion of code in a field: matches of the interpreter, chosen by keyboard or by pointer. */

import { post } from "../api.js";
import { h, replace } from "../dom.js";

const SHOWN_MAX = 200;

/**
 * Completes what is before the cursor of `code`, a field. `path` is that of a context, with `/complete`; `changed` is
 * called after each insertion.
 */
export class Completion {
  constructor({ code, path, signal, changed }) {
    Object.assign(this, { code, path, signal, changed });
    this.id = `completion-${crypto.randomUUID?.() ?? Math.random().toString(36).slice(2)}`;
    this.list = h("ul.completion", { role: "listbox", id: this.id, "aria-label": "Completions", hidden: true });
    this.matches = [];
    code.addEventListener("blur", () => this.close());
    code.addEventListener("input", () => this.close());
    // A press would take the focus from the field.
    this.list.addEventListener("pointerdown", (event) => {
      event.preventDefault();
      const at = [...this.list.children].indexOf(event.target.closest("li"));
      if (at >= 0) this.take(at);
    });
  }

  get isOpen() {
    return !this.list.hidden;
  }

  /** Whether there is something to complete before the cursor. */
  get isPossible() {
    const { selectionStart: at, selectionEnd, value } = this.code;
    return at === selectionEnd && /[\p{L}\p{N}_.$]$/u.test(value.slice(0, at));
  }

  /** Asks the interpreter. One match is inserted, several are listed. */
  async ask() {
    const { value, selectionStart } = this.code;
    // The API counts code points.
    const cursor = [...value.slice(0, selectionStart)].length;
    let found;
    try {
      found = await post([...this.path, "complete"], { code: value, cursor }, this.signal);
    } catch (error) {
      // A busy context completes nothing.
      if (error.name === "AbortError" || error.status === 409) return;
      throw error;
    }
    const isThere = document.activeElement === this.code;
    if (!isThere || this.code.value !== value || this.code.selectionStart !== selectionStart) return;
    const letters = [...value];
    this.start = letters.slice(0, found.start).join("").length;
    this.end = letters.slice(0, found.end).join("").length;
    this.matches = found.matches.slice(0, SHOWN_MAX);
    if (this.matches.length === 1) this.take(0);
    else if (this.matches.length > 1) this.open();
  }

  open() {
    replace(
      this.list,
      this.matches.map((text, at) => h("li", { role: "option", id: `${this.id}-${at}` }, text)),
    );
    this.list.hidden = false;
    this.code.setAttribute("aria-controls", this.id);
    this.choose(0);
  }

  close() {
    this.list.hidden = true;
    this.code.removeAttribute("aria-controls");
    this.code.removeAttribute("aria-activedescendant");
  }

  choose(at) {
    this.chosen = (at + this.matches.length) % this.matches.length;
    [...this.list.children].forEach((one, index) => one.setAttribute("aria-selected", String(index === this.chosen)));
    const one = this.list.children[this.chosen];
    one.scrollIntoView({ block: "nearest" });
    this.code.setAttribute("aria-activedescendant", one.id);
  }

  take(at) {
    const text = this.matches[at];
    this.close();
    this.code.setRangeText(text, this.start, this.end, "end");
    this.changed();
  }

  /** What a key does while matches are listed; whether it did something. */
  onKey(event) {
    if (!this.isOpen) return false;
    const steps = { ArrowDown: 1, ArrowUp: -1 };
    if (event.key in steps) this.choose(this.chosen + steps[event.key]);
    else if ((event.key === "Enter" && !event.shiftKey) || event.key === "Tab") this.take(this.chosen);
    else if (event.key === "Escape") this.close();
    else return false;
    event.preventDefault();
    event.stopPropagation();
    return true;
  }
}
