/** Commands that are run to their end, with what they write. */

import { lines, sandboxPath } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { contentText, duration, exit, plain } from "../format.js";
import { button, empty } from "../parts.js";

const OUTPUT_SHOWN_MAX = 200000;

export function runTab(place, { which, signal }) {
  const input = h("textarea.code", {
    name: "script",
    rows: 3,
    spellcheck: "false",
    "aria-label": "Script for the shell",
    placeholder: "A script for the shell. Ctrl+Enter runs it.",
    "data-search": true,
  });
  const results = h(
    "div.results",
    empty("Nothing was run here yet", "What you run is a session, and its output is kept in the log."),
  );
  const run = () => {
    const script = input.value;
    if (script.trim() === "") return;
    if (results.querySelector(".empty")) replace(results);
    results.prepend(started(which, script, signal));
    input.select();
  };
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    run();
  });
  replace(place, h("section.card.composer", input, h("div.actions", button("Run", run, "primary"))), results);
  input.focus();
}

function started(which, script, signal) {
  const leash = new AbortController();
  const leave = () => leash.abort();
  signal.addEventListener("abort", leave);
  const said = h("span.dim", "running");
  const output = h("pre.output", { tabindex: 0, "aria-label": "Output" });
  const stop = button("Stop", leave, "quiet");
  const element = h(
    "section.card.result",
    h("header.card-head", h("code.script", script), h("div.actions", said, stop)),
    output,
  );
  const write = (text, kind) => {
    if (output.textContent.length > OUTPUT_SHOWN_MAX) return setText(said, "more output is in the log");
    output.append(h(`span.is-${kind}`, plain(text)));
    return undefined;
  };
  const each = (event) => {
    if (event.type === "stdout" || event.type === "stderr") write(contentText(event), event.type);
    else if (event.type === "gap") write(`— ${event.to - event.from} bytes are missing —\n`, "note");
    else if (event.type === "exited") {
      setText(said, `${exit(event.exit)} · ${duration(event.exit.duration_us / 1000)}`);
      element.classList.add(event.exit.success ? "went-well" : "went-badly");
    } else if (event.problem) write(`${event.problem.message}\n`, "stderr");
  };
  lines("POST", sandboxPath(which, "shell"), { json: { script }, each, signal: leash.signal })
    .catch((error) => {
      element.classList.add("went-badly");
      setText(said, error.name === "AbortError" ? "stopped" : error.message);
    })
    .finally(() => {
      stop.remove();
      signal.removeEventListener("abort", leave);
      if (output.textContent === "") output.append(h("span.is-note", "no output"));
    });
  return element;
}
