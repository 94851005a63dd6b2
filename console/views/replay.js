/** A session of a sandbox, played again from the log. */

import { get, sandboxPath } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { bytes, exit } from "../format.js";
import { empty } from "../parts.js";
import { Player, bytesOf } from "../player.js";

const PAGE = 10000;
/** What a page of a browser plays of one session; the log has no more than twice of it. */
const BYTES_MAX = 32 * 1024 * 1024;
const SIZE = { columns: 80, rows: 24 };

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
  const choice = h(
    "select",
    { "aria-label": "Session", onchange: () => show(choice.value) },
    sessions.map(({ session, command }) => h("option", { value: session }, `${session}: ${command}`)),
  );
  replace(place, h("section.card.fill", h("header.card-head", h("h2", "Replay"), state, h("div.actions", choice)), body));
  let player;
  signal.addEventListener("abort", () => player?.close());

  async function show(session) {
    setText(state, "reading the log");
    const entries = await entriesOf(which, session, signal);
    if (choice.value !== session || signal.aborted) return;
    player?.close();
    player = new Player({ title: session, ...recordingOf(entries) });
    replace(body, player.element);
    setText(state, "");
  }
  await show(choice.value);
}

async function entriesOf(which, session, signal) {
  const entries = [];
  let size = 0;
  let after;
  do {
    const page = await get(sandboxPath(which, "logs"), { session, limit: PAGE, after }, signal);
    for (const entry of page.entries) {
      // A name that was used again is another session.
      if (entry.type === "started") entries.length = 0;
      entries.push(entry);
      size += (entry.text ?? entry.base64 ?? "").length;
    }
    after = page.next;
  } while (after !== undefined && size < BYTES_MAX);
  return entries;
}

/** Entries of the log as what the player takes. */
export function recordingOf(entries) {
  const size = { ...SIZE };
  const steps = [];
  const first = entries[0]?.at_ms ?? 0;
  let hasOutput = false;
  for (const entry of entries) {
    const at = entry.at_ms - first;
    if (entry.type === "output") {
      hasOutput = true;
      steps.push({ at, bytes: shown(entry) });
    } else if (entry.type === "resized") {
      const { columns, rows } = entry;
      if (hasOutput) steps.push({ at, columns, rows });
      else Object.assign(size, { columns, rows });
    } else if (entry.type === "gap") steps.push({ at, note: `${bytes(entry.to - entry.from)} were never recorded` });
    else if (entry.type === "exited") steps.push({ at, note: exit(entry.exit) });
  }
  return { ...size, steps };
}

/** The bytes of an output as a terminal shows them: those of a pipe need returns before their line ends. */
function shown({ stream, text, base64 }) {
  if (stream === "terminal") return base64 === undefined ? encoder.encode(text) : bytesOf(base64);
  return encoder.encode((text ?? new TextDecoder().decode(bytesOf(base64))).replaceAll("\n", "\r\n"));
}
