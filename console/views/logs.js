/** The log of a sandbox: what its sessions wrote, followed, with a search. */

import { follow, sandboxPath } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { bytes, clock, contentText, exit, plain } from "../format.js";
import { empty, matches, search, choice } from "../parts.js";

const TAIL = 2000;
/** Entries that are kept here; the log itself has more. */
const ENTRIES_MAX = 4000;
const LINE_MAX = 4096;

export function logsTab(place, { which, signal }) {
  const entries = [];
  let wanted = "";
  let stream = "";
  let position = undefined;
  let isFollowing = true;
  const state = h("span.dim", { role: "status" });
  const list = h("div.log", { tabindex: 0, role: "log", "aria-label": "Log", "aria-live": "off" });
  const find = search("Search the log", (event) => {
    wanted = event.target.value;
    drawAll();
  });
  const streams = choice(
    "stream",
    [
      ["", "all outputs"],
      ["stdout", "stdout"],
      ["stderr", "stderr"],
      ["terminal", "terminal"],
    ],
    "",
  );
  streams.setAttribute("aria-label", "Output");
  streams.addEventListener("change", () => {
    stream = streams.value;
    drawAll();
  });
  replace(
    place,
    h("section.card.fill", h("header.card-head", h("h2", "Log"), state, h("div.actions", streams, find)), list),
  );
  list.addEventListener("scroll", () => {
    isFollowing = list.scrollHeight - list.scrollTop - list.clientHeight < 20;
  });

  const isWanted = (one) =>
    (stream === "" || one.stream === undefined || one.stream === stream) &&
    (wanted === "" || matches(`${one.session} ${one.text}`, wanted));

  function drawAll() {
    const shown = entries.filter(isWanted);
    if (shown.length > 0) replace(list, shown.map(line));
    else if (entries.length > 0) replace(list, empty("No line matches", "The search looks at what is loaded."));
    else replace(list, empty("Nothing was written yet", "Output of sessions appears here as it comes."));
    list.scrollTop = list.scrollHeight;
  }

  let waiting = [];
  function draw() {
    const fresh = waiting.filter(isWanted);
    waiting = [];
    if (fresh.length === 0) return;
    list.querySelector(".empty")?.remove();
    list.append(...fresh.map(line));
    while (list.childElementCount > ENTRIES_MAX) list.firstChild.remove();
    if (isFollowing) list.scrollTop = list.scrollHeight;
  }

  function take(entry) {
    position = entry.place ?? position;
    if (entry.type === "problem") setText(state, entry.problem.message);
    for (const one of linesOf(entry)) {
      if (one.raw !== undefined && goOn(one)) continue;
      entries.push(one);
      waiting.push(one);
    }
    if (entries.length > ENTRIES_MAX * 1.2) entries.splice(0, entries.length - ENTRIES_MAX);
    if (waiting.length > 0) scheduleDraw();
    return entry.type === "closed";
  }

  /** Output that comes in pieces is one line until it ends. */
  function goOn(one) {
    const before = entries.at(-1);
    const isSame = before?.raw !== undefined && before.session === one.session && before.stream === one.stream;
    if (!isSame || before.isWhole || before.raw.length > LINE_MAX) return false;
    before.raw += one.raw;
    before.text = plain(before.raw);
    before.isWhole = one.isWhole;
    if (before.element) setText(before.element.lastChild, before.text);
    return true;
  }

  let frame;
  function scheduleDraw() {
    frame ??= requestAnimationFrame(() => {
      frame = undefined;
      draw();
    });
  }

  drawAll();
  const query = () => (position === undefined ? { follow: true, tail: TAIL } : { follow: true, after: position });
  follow(sandboxPath(which, "logs"), query, take, signal, (now) =>
    setText(state, { live: "following", cut: "disconnected, trying again", over: "the sandbox has ended" }[now]),
  );
}

/** An entry as lines of text. */
function linesOf(entry) {
  const { session = "", at_ms: at, stream } = entry;
  const said = (text, kind) => [{ at, session, text, kind }];
  switch (entry.type) {
    case "started":
      return said(`started ${entry.command}`, "note");
    case "resized":
      return said(`the terminal has ${entry.columns} × ${entry.rows} cells`, "note");
    case "exited":
      return said(exit(entry.exit), "note");
    case "gap":
      return said(`${bytes(entry.to - entry.from)} were never recorded`, "note");
    case "missing":
      return said(`${bytes(entry.bytes)} were removed to keep the log small`, "note");
    case "damaged":
      return said(`${bytes(entry.bytes)} of the log are damaged`, "note");
    case "closed":
      return said(`the sandbox ended: ${entry.reason}`, "note");
    case "output": {
      const pieces = contentText(entry).split("\n");
      const last = pieces.length - 1;
      if (pieces[last] === "") pieces.pop();
      return pieces.map((raw, number) => ({
        at,
        session,
        stream,
        raw,
        text: plain(raw),
        isWhole: number < last,
        kind: stream,
      }));
    }
    default:
      return [];
  }
}

function line(one) {
  one.element = h(
    `div.log-line.is-${one.kind}`,
    h("time", one.at ? clock(one.at) : ""),
    h("span.log-session", one.session),
    h("span.log-text", one.text),
  );
  return one.element;
}
