/** The processes of a sandbox, as its own `/proc` shows them. */

import { post, sandboxPath } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { bytes, clock, duration, plain } from "../format.js";
import { attempt, button, card, confirm, empty, table } from "../parts.js";

/** What a process has, each after a sign that no text begins with by chance. A shell and `cat` are all that it needs. */
const LOOK = `printf '%s' $$
for at in /proc/[0-9]*; do
  printf '\\036'; cat "$at/stat" 2>/dev/null
  printf '\\035'; cat "$at/status" 2>/dev/null
  printf '\\035'; cat "$at/cmdline" 2>/dev/null
done; exit 0`;
/** The kernel counts CPU time for programs in hundredths of a second, whatever it does inside. */
const TICK_MS = 10;
const STATES = { R: "running", S: "waiting", D: "waits for a disk", Z: "ended", T: "stopped", t: "traced", I: "idle" };

export async function processesTab(place, { which, sandbox, signal }) {
  const said = h("span.dim");
  const look = button("Look again", () => attempt(reload), "quiet");
  const body = h("div");
  replace(place, card("Processes", [said, look], body));
  const list = table({
    label: "Processes",
    id: (one) => `${one.pid}`,
    sorted: 0,
    columns: [
      { name: "Number", kind: "num", sort: (one) => one.pid, cell: (one) => one.pid },
      { name: "Command", kind: "wide", sort: (one) => one.command, cell: (one) => h("code.script", plain(one.command)) },
      { name: "User", kind: "num.aside", sort: (one) => one.user, cell: (one) => one.user },
      { name: "State", kind: "aside", cell: (one) => STATES[one.state] ?? one.state },
      { name: "CPU time", kind: "num", sort: (one) => -one.cpuMs, cell: (one) => duration(one.cpuMs) },
      { name: "Memory", kind: "num", sort: (one) => -one.memory, cell: (one) => bytes(one.memory) },
      { name: "Parent", kind: "num.aside", cell: (one) => one.parent },
      {
        name: "Actions",
        kind: "acts",
        cell: (one) =>
          one.pid !== 1 && [button("End", () => end(one, "TERM"), "quiet"), button("Kill", () => kill(one), "quiet")],
      },
    ],
  });
  const run = (script) => post(sandboxPath(which, "shell"), { script }, signal);

  async function reload() {
    const answer = await run(LOOK);
    const found = processes(answer.stdout);
    setText(said, `as of ${clock(Date.now())}`);
    if (found.length === 0) return replace(body, empty("No process is to be seen", answer.stderr.trim()));
    list.draw(found);
    if (list.element.parentNode !== body) replace(body, list.element);
    return undefined;
  }

  const end = (one, name) =>
    attempt(async () => {
      const answer = await run(`kill -${name} ${one.pid}`);
      if (answer.exit_code !== 0) throw new Error(answer.stderr.trim() || "It could not be ended.");
      await reload();
    });

  function kill(one) {
    confirm(`Kill ${one.pid}?`, "It ends at once, with what it has not written.", "Kill", () => end(one, "KILL"));
  }

  if (sandbox.state !== "running") replace(body, empty("It does not run", "There are no processes to look at."));
  else if (sandbox.asleep) replace(body, empty("It is asleep", "A look would wake it."));
  else await reload();
}

/** What `LOOK` has printed, without what looked. What says nothing sensible is left out. */
function processes(printed) {
  const [own, ...records] = printed.split("\x1e");
  const looker = Number(own);
  return records.map(processOf).filter((one) => one && one.pid !== looker && one.parent !== looker);
}

function processOf(record) {
  const [stat = "", status = "", words = ""] = record.split("\x1d");
  const pid = Number.parseInt(stat, 10);
  // The name is in brackets, and may have any sign itself.
  const open = stat.indexOf("(");
  const close = stat.lastIndexOf(")");
  if (!(pid > 0) || open < 0 || close < open) return undefined;
  const [state, parent, ...rest] = stat.slice(close + 2).split(" ");
  const [user, system] = [rest[9], rest[10]].map((ticks) => Number(ticks) || 0);
  const line = (name) => status.match(new RegExp(`^${name}:\\s*(\\d+)`, "m"))?.[1];
  const command = words.split("\0").join(" ").trim();
  return {
    pid,
    parent: Number(parent),
    state,
    command: command === "" ? `[${stat.slice(open + 1, close)}]` : command,
    user: Number(line("Uid") ?? 0),
    cpuMs: (user + system) * TICK_MS,
    memory: Number(line("VmRSS") ?? 0) * 1024,
  };
}
