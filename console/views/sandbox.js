/** One sandbox: its head, its tabs, and the view of the tab that is chosen. */

import { get, post, sandboxPath } from "../api.js";
import { h, replace } from "../dom.js";
import { attempt, badge, button, dialog, field, link } from "../parts.js";
import { every } from "../poll.js";
import { contextsTab } from "./contexts.js";
import { filesTab } from "./files.js";
import { logsTab } from "./logs.js";
import { metricsTab } from "./metrics.js";
import { overviewTab } from "./overview.js";
import { portsTab } from "./ports.js";
import { processesTab } from "./processes.js";
import { replayTab } from "./replay.js";
import { runTab } from "./run.js";
import { hrefOf, removeSandbox } from "./sandboxes.js";
import { terminalsTab } from "./terminals.js";

const LOOK_MS = 3000;

const TABS = {
  overview: ["Overview", overviewTab],
  terminals: ["Terminals", terminalsTab],
  run: ["Run", runTab],
  contexts: ["Contexts", contextsTab],
  files: ["Files", filesTab],
  logs: ["Logs", logsTab],
  processes: ["Processes", processesTab],
  metrics: ["Metrics", metricsTab],
  ports: ["Ports", portsTab],
  replay: ["Replay", replayTab],
};

export async function sandboxView(place, { parameters, signal }) {
  const [namespace, name, tab = "overview", ...rest] = parameters;
  const which = { namespace, name };
  let sandbox = await get(sandboxPath(which), {}, signal);
  const head = h("header.head");
  const tabs = h(
    "div.tabs",
    { role: "navigation", "aria-label": "Parts of the sandbox" },
    Object.entries(TABS).map(([at, [title]]) =>
      h("a", { href: hrefOf(which, at), "aria-current": at === tab ? "page" : undefined }, title),
    ),
  );
  const body = h("div.tab");
  replace(place, head, tabs, body);
  tabs.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  const watchers = [];
  let shown;

  function draw() {
    const text = JSON.stringify([sandbox.state, sandbox.asleep]);
    if (shown === text) return;
    shown = text;
    replace(
      head,
      h("h1", link("#/sandboxes", h("span.dim", `${namespace} / `)), name),
      badge(sandbox.asleep ? "asleep" : sandbox.state),
      h("div.actions", actions(sandbox, reload)),
    );
  }

  async function reload() {
    try {
      sandbox = await get(sandboxPath(which), {}, signal);
    } catch (error) {
      if (error.status !== 404) throw error;
      sandbox = { ...sandbox, state: "removed", asleep: false };
    }
    draw();
    for (const watch of watchers) watch(sandbox);
  }

  draw();
  every(signal, LOOK_MS, reload);
  const [, view] = TABS[Object.hasOwn(TABS, tab) ? tab : "overview"];
  await view(body, { which, sandbox, rest, signal, reload, watch: (work) => watchers.push(work) });
}

function actions(sandbox, reload) {
  const path = (...rest) => sandboxPath(sandbox, ...rest);
  const act = (verb, done) => async () => {
    await attempt(() => post(path(verb), verb === "stop" ? {} : undefined), done);
    await attempt(reload);
  };
  const leave = () => (location.hash = "#/sandboxes");
  const isRunning = sandbox.state === "running";
  return [
    isRunning && button("Pause", act("pause", "Paused.")),
    sandbox.state === "paused" && button("Resume", act("resume", "It runs again.")),
    isRunning && button("Snapshot", () => snapshot(sandbox)),
    isRunning && button("Stop", act("stop", "Stopped.")),
    sandbox.state !== "removed" && button("Remove", () => removeSandbox(sandbox, leave), "danger-quiet"),
  ];
}

function snapshot(sandbox) {
  dialog({
    title: "Take a snapshot",
    action: "Take it",
    children: [
      field(
        "Name",
        h("input", { name: "name", required: true, autofocus: true, autocomplete: "off" }),
        "It holds the memory of all programs, with any secrets in it. The sandbox keeps running.",
      ),
    ],
    submit: async ({ name }) => {
      await post(sandboxPath(sandbox, "snapshots"), { name });
      location.hash = "#/snapshots";
    },
  });
}
