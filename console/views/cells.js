/** Cells of code with their results, for a context or a notebook. */

import { lines, post } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { contentText, duration, fromBase64, plain } from "../format.js";
import { attempt, button } from "../parts.js";
import { Completion } from "./completion.js";
import { frame } from "./frame.js";

const OUTPUT_SHOWN_MAX = 200000;
const PICTURES = ["image/png", "image/jpeg", "image/gif", "image/webp", "image/svg+xml"];

/**
 * Cells whose code is run at `path` with `/run`, one after the other. Cells stay while the tab of the browser does.
 * `completes` says whether the path has `/complete`, too.
 */
export function cells({ path, name, signal, completes = false, ran = () => {} }) {
  const list = h("div.cells");
  const add = (code = "") => {
    const cell = new Cell({ path, signal, completes, ran, next: () => next(cell), gone: () => forget(cell) });
    cell.code.value = code;
    list.append(cell.element);
    cell.fit();
    known.push(cell);
    return cell;
  };
  const known = [];
  const place = `burrow.cells.${name}`;
  const keep = () => sessionStorage.setItem(place, JSON.stringify(known.map((cell) => cell.code.value)));
  const next = (cell) => {
    keep();
    const after = known[known.indexOf(cell) + 1] ?? add();
    after.code.focus();
  };
  const forget = (cell) => {
    known.splice(known.indexOf(cell), 1);
    cell.element.remove();
    if (known.length === 0) add();
    keep();
  };
  const runAll = async () => {
    for (const cell of [...known]) if (!(await cell.run())) break;
  };
  const element = h(
    "section",
    list,
    h(
      "div.actions.cell-bar",
      button("Add a cell", () => add().code.focus()),
      button("Run all", runAll, "quiet"),
    ),
  );
  const kept = JSON.parse(sessionStorage.getItem(place) ?? "[]");
  for (const code of kept.length > 0 ? kept : [""]) add(code);
  return { element, focus: () => known[0].code.focus() };
}

class Cell {
  constructor({ path, signal, completes, ran, next, gone }) {
    Object.assign(this, { path, signal, ran });
    this.displays = new Map();
    this.code = h("textarea.code", {
      rows: 1,
      wrap: "off",
      spellcheck: "false",
      "aria-label": "Code",
      placeholder: "Code. Shift+Enter runs it and goes to the next cell.",
    });
    this.count = h("span.cell-count", "[ ]");
    this.said = h("span.dim", { role: "status" });
    this.go = button("Run", () => this.run(), "quiet");
    this.stop = button("Interrupt", () => this.interrupt(), "quiet.danger-quiet");
    this.stop.hidden = true;
    const away = button("×", gone, "quiet");
    away.setAttribute("aria-label", "Remove the cell");
    this.output = h("div.cell-output", { hidden: true });
    const { code } = this;
    this.completion = completes ? new Completion({ code, path, signal, changed: () => this.fit() }) : undefined;
    this.element = h(
      "article.card.cell",
      h("div.cell-head", this.count, code, h("div.actions", this.said, this.stop, this.go, away)),
      this.completion?.list,
      this.output,
    );
    this.code.addEventListener("input", () => this.fit());
    this.code.addEventListener("keydown", (event) => {
      if (this.completion?.onKey(event)) return;
      const asks = event.key === "Tab" ? !event.shiftKey : event.key === " " && event.ctrlKey;
      if (asks && this.completion?.isPossible) {
        event.preventDefault();
        attempt(() => this.completion.ask());
      } else if (event.key === "Enter" && (event.shiftKey || event.ctrlKey || event.metaKey)) {
        event.preventDefault();
        this.run();
        if (event.shiftKey) next();
      } else if (event.key === "Tab" && !event.shiftKey && this.code.value !== "" && this.code.selectionStart > 0) {
        event.preventDefault();
        this.code.setRangeText("    ", this.code.selectionStart, this.code.selectionEnd, "end");
      }
    });
  }

  fit() {
    this.code.rows = Math.max(1, Math.min(30, this.code.value.split("\n").length));
  }

  async interrupt() {
    await attempt(() => post([...this.path, "interrupt"], this.number === undefined ? {} : { run: this.number }));
  }

  /** Runs the code; returns whether it went well. */
  async run() {
    const code = this.code.value;
    if (code.trim() === "" || this.isRunning) return true;
    this.isRunning = true;
    this.isWell = false;
    this.number = undefined;
    this.written = 0;
    this.displays.clear();
    replace(this.output);
    this.output.hidden = false;
    this.stop.hidden = false;
    this.go.hidden = true;
    this.element.classList.remove("went-badly", "went-well");
    setText(this.count, "[*]");
    setText(this.said, "running");
    try {
      await lines("POST", [...this.path, "run"], {
        json: { code },
        signal: this.signal,
        each: (event) => this.take(event),
      });
    } catch (error) {
      if (error.name !== "AbortError") this.fail(error.message, error.hint);
    }
    this.isRunning = false;
    this.stop.hidden = true;
    this.go.hidden = false;
    if (this.output.childElementCount === 0) this.output.hidden = true;
    this.ran();
    return this.isWell;
  }

  take(event) {
    this.number = event.run ?? this.number;
    switch (event.type) {
      case "queued":
        if (event.ahead > 0) setText(this.said, `${event.ahead} before it`);
        break;
      case "started":
        setText(this.count, `[${event.count}]`);
        setText(this.said, "running");
        if (event.lost) this.note(event.lost);
        break;
      case "stdout":
      case "stderr":
      case "late":
        this.write(contentText(event), event.type === "late" ? event.channel : event.type);
        break;
      case "display":
        this.show(event.display);
        break;
      case "error":
        this.fail(event.error.traceback || `${event.error.type}: ${event.error.message}`);
        break;
      case "artifact":
        this.offer(event.artifact);
        break;
      case "lost":
        this.note(`the interpreter's variables are lost: ${event.reason}`);
        break;
      case "gap":
        this.note(`${event.bytes} bytes of output are missing`);
        break;
      case "notebook":
        if (event.notebook.reopened) this.note(`variables as of run ${event.notebook.reopened.as_of_run}`);
        break;
      case "problem":
        this.fail(event.problem.message, event.problem.hint);
        break;
      case "finished":
        this.isWell = event.status === "ok";
        this.element.classList.add(this.isWell ? "went-well" : "went-badly");
        setText(this.said, `${this.isWell ? "" : `${event.status} · `}${duration(event.duration_us / 1000)}`);
        break;
      default:
    }
  }

  write(text, stream) {
    if (this.written > OUTPUT_SHOWN_MAX) return;
    this.written += text.length;
    let last = this.output.lastElementChild;
    if (!last?.matches(`pre.is-${stream}`)) {
      last = h(`pre.output.is-${stream}`);
      this.output.append(last);
    }
    last.append(plain(text));
    if (this.written > OUTPUT_SHOWN_MAX) this.note("there is more output than is shown");
  }

  offer(artifact) {
    const { namespace, sandbox, name } = artifact;
    const href = namespace && sandbox ? `#/artifacts/${[namespace, sandbox].map(encodeURIComponent).join("/")}` : "#/artifacts";
    this.output.append(h("p.is-note", "offers ", h("a", { href }, name)));
  }

  note(text) {
    this.output.append(h("p.is-note", text));
  }

  fail(text, hint) {
    this.element.classList.add("went-badly");
    this.output.append(h("pre.output.is-error", plain(text)), hint ? h("p.hint", hint) : "");
  }

  /** A display; one with an id replaces the one that had it. */
  show(display) {
    const element = shown(display.data);
    if (element === undefined) return;
    const before = display.id && this.displays.get(display.id);
    if (before) before.replaceWith(element);
    else this.output.append(element);
    if (display.id) this.displays.set(display.id, element);
  }
}

/** The richest form that this page shows of what code displays. */
export function shown(data) {
  const picture = PICTURES.find((type) => data[type] !== undefined);
  if (picture !== undefined) return image(picture, data[picture], data["text/plain"]);
  if (data["text/html"] !== undefined) return frame(contentText(data["text/html"]));
  const text = data["text/plain"] ?? data["text/markdown"] ?? data["application/json"] ?? data["text/latex"];
  if (text !== undefined) return h("pre.output.is-value", plain(contentText(text)));
  const types = Object.keys(data);
  return types.length === 0 ? undefined : h("p.is-note", `a display that is not shown here: ${types.join(", ")}`);
}

function image(type, content, text) {
  // A drawing in an image runs no script and loads nothing.
  const bytes =
    content.base64 !== undefined && type !== "image/svg+xml" ? fromBase64(content.base64.trim()) : undefined;
  const parts = bytes ?? (isBase64(type) ? fromBase64(contentText(content).trim()) : contentText(content));
  const url = URL.createObjectURL(new Blob([parts], { type }));
  const element = h("img.display", { src: url, alt: text ? contentText(text) : "A picture that the code displays" });
  element.addEventListener("load", () => URL.revokeObjectURL(url));
  return element;
}

function isBase64(type) {
  return type !== "image/svg+xml";
}
