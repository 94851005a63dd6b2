/** What a sandbox did, played again: one or two sessions, and all that happened meanwhile, on one axis of time. */

import { Refusal, get, lines, sandboxPath } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { empty } from "../parts.js";
import { Player, bytesOf } from "../player.js";

/** What a page of a browser plays of one session; the log has no more than twice of it. */
const BYTES_MAX = 32 * 1024 * 1024;
/** Entries beside the output that a page takes. */
const BESIDE_MAX = 20000;
const SIZE = { columns: 80, rows: 24 };
/** How long after the last output something may come that belongs to it. */
const TAIL_MS = 1000;
/** The longest time between two samples of a sandbox in which nothing runs, and some more. */
const SAMPLE_MS = 15000;
/** Keys that are shown together if no line ends before. */
const LINE_CHARS_MAX = 160;
const OF_SESSION = ["started", "output", "gap", "resized", "exited"];
const BESIDE = ["input", "gap", "exited", "damaged", "lifecycle", "run", "egress", "file", "unknown"];

const encoder = new TextEncoder();

export async function replayTab(place, { which, signal }) {
  const { sessions } = await get(sandboxPath(which, "sessions"), { recorded: true }, signal);
  if (sessions.length === 0) {
    replace(place, empty("No session yet", "What sessions write can be played again here."));
    return;
  }
  sessions.sort((one, other) => other.started_at_ms - one.started_at_ms);
  const state = h("span.dim", { role: "status" });
  const body = h("div.player-place");
  const options = () => sessions.map(({ session, command }) => h("option", { value: session }, `${session}: ${command}`));
  const first = h("select", { "aria-label": "Session", onchange: () => show() }, options());
  const second = h("select", { "aria-label": "Beside it", onchange: () => show() }, h("option", { value: "" }, "alone"), options());
  const whole = h("input", { type: "checkbox", onchange: () => show() });
  const actions = h("div.actions", first, second, h("label", whole, " whole time"));
  replace(place, h("section.card.fill", h("header.card-head", h("h2", "Replay"), state, actions), body));
  let player;
  let shown = 0;
  let beside;
  signal.addEventListener("abort", () => player?.close());

  async function show() {
    const turn = ++shown;
    const names = [...new Set([first.value, second.value].filter((name) => name !== ""))];
    setText(state, "reading the timeline");
    beside ??= await read(which, { kind: BESIDE }, signal, (entries) => entries.length >= BESIDE_MAX);
    const all = await Promise.all(names.map((name) => entriesOf(which, name, signal)));
    const { from, to } = boundsOf(all, whole.checked ? beside : []);
    const time = { from_ms: Math.max(from - SAMPLE_MS, 0), to_ms: to + SAMPLE_MS };
    const samples = await read(which, { kind: "metrics", ...time }, signal, (entries) => entries.length >= BESIDE_MAX);
    if (turn !== shown || signal.aborted) return;
    player?.close();
    player = new Player(recordingOf(names, all, beside, samples, whole.checked));
    replace(body, player.element);
    setText(state, "");
  }
  await show();
}

/** Entries of the timeline, until `isEnough` says so. */
async function read(which, query, signal, isEnough) {
  const entries = [];
  const stop = new AbortController();
  const end = () => stop.abort();
  signal.addEventListener("abort", end);
  const each = (entry) => {
    if (stop.signal.aborted) return;
    entries.push(entry);
    if (isEnough(entries, entry)) end();
  };
  try {
    await lines("GET", sandboxPath(which, "timeline"), { query, signal: stop.signal, each });
  } catch (error) {
    if (error.name !== "AbortError" || signal.aborted) throw error;
  } finally {
    signal.removeEventListener("abort", end);
  }
  // The end of a stream that the bridge could not go on with has no time.
  const problem = entries.find(({ kind }) => kind === "problem")?.problem;
  if (problem !== undefined) throw new Refusal(500, problem);
  return entries;
}

async function entriesOf(which, session, signal) {
  let size = 0;
  const isEnough = (entries, entry) => {
    // A name that was used again is another session.
    if (entry.kind === "started") entries.splice(0, entries.length - 1);
    size += (entry.text ?? entry.base64 ?? "").length;
    return size >= BYTES_MAX;
  };
  return read(which, { session, kind: OF_SESSION }, signal, isEnough);
}

/** From the first to the last entry. */
function boundsOf(all, beside) {
  const times = [...all, beside].flat().map((entry) => entry.at_ms);
  const bounds = times.reduce(([least, most], at) => [Math.min(least, at), Math.max(most, at)], [Infinity, -Infinity]);
  return times.length === 0 ? { from: 0, to: 0 } : { from: bounds[0], to: bounds[1] + TAIL_MS };
}

/** Entries of the timeline as what the player takes. The axis is that of the sessions, or of all that is known. */
function recordingOf(names, all, beside, samples, isWhole) {
  const { from, to } = boundsOf(all, isWhole ? beside : []);
  const isOther = (entry) => entry.session !== undefined && !names.includes(entry.session) && !isWhole;
  const marks = linesOf(beside)
    .filter((entry) => entry.at_ms >= from && entry.at_ms <= to && !isOther(entry))
    .map(({ at_ms, kind, summary, failed = false }) => ({ at: at_ms - from, kind, text: summary ?? kind, failed }));
  const figures = samples.map(({ at_ms, cpu_percent, memory_bytes }) => ({
    at: at_ms - from,
    cpu: cpu_percent,
    memory: memory_bytes,
  }));
  const tracks = all.map((entries, index) => trackOf(names[index], entries, from));
  return { title: names.join(" and "), tracks, marks, samples: figures, lasts: marks.length > 0 ? to - from : 0 };
}

/** Entries in which the keys of a line are one: they come one by one, and are read together. */
function linesOf(entries) {
  const open = new Map();
  const joined = [];
  const close = (session, entry) => {
    open.delete(session);
    joined.push({ ...entry, summary: `typed into session ${session}: ${JSON.stringify(entry.typed)}` });
  };
  for (const entry of entries) {
    if (entry.kind !== "input") {
      joined.push(entry);
      continue;
    }
    const keys = entry.text ?? new TextDecoder().decode(bytesOf(entry.base64));
    const typed = (open.get(entry.session)?.typed ?? "") + keys;
    const line = { ...entry, typed };
    if (typed.length >= LINE_CHARS_MAX || /[\r\n\x03\x04\x1a]$/.test(typed)) close(entry.session, line);
    else open.set(entry.session, line);
  }
  for (const [session, entry] of open) close(session, entry);
  return joined.sort((one, other) => one.at_ms - other.at_ms);
}

/** One session, on a clock that begins at `from`. */
function trackOf(title, entries, from) {
  const size = { ...SIZE };
  const steps = [];
  let hasOutput = false;
  for (const entry of entries) {
    const at = entry.at_ms - from;
    if (entry.kind === "output") {
      hasOutput = true;
      steps.push({ at, bytes: shown(entry) });
    } else if (entry.kind === "resized") {
      const { columns, rows } = entry;
      if (hasOutput) steps.push({ at, columns, rows });
      else Object.assign(size, { columns, rows });
    }
  }
  return { title, ...size, steps };
}

/** The bytes of an output as a terminal shows them: those of a pipe need returns before their line ends. */
function shown({ stream, text, base64 }) {
  if (stream === "terminal") return base64 === undefined ? encoder.encode(text) : bytesOf(base64);
  return encoder.encode((text ?? new TextDecoder().decode(bytesOf(base64))).replaceAll("\n", "\r\n"));
}
