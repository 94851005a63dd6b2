/** Living interpreters of a sandbox, each with its cells. */

import { get, post, remove, sandboxPath } from "../api.js";
import { h, replace } from "../dom.js";
import { attempt, badge, button, choice, confirm, dialog, empty, field } from "../parts.js";
import { every } from "../poll.js";
import { cells } from "./cells.js";
import { hrefOf } from "./sandboxes.js";

const LOOK_MS = 3000;
export const LANGUAGES = [
  ["python", "Python"],
  ["node", "JavaScript (Node)"],
  ["bash", "Bash"],
];

export async function contextsTab(place, { which, rest, signal }) {
  const path = (...more) => sandboxPath(which, "contexts", ...more);
  const bar = h("div.chips", { role: "navigation", "aria-label": "Contexts" });
  const state = h("div.context-state");
  const body = h("div");
  replace(place, h("div.context-bar", bar, button("Open a context", open)), state, body);
  const chosen = rest[0];

  function drawBar(contexts) {
    replace(
      bar,
      contexts.map((one) => {
        const current = one.context === chosen ? "page" : undefined;
        return h("a.chip", { href: hrefOf(which, "contexts", one.context), "aria-current": current }, one.context);
      }),
    );
    const one = contexts.find((context) => context.context === chosen);
    if (one) replace(state, about(one));
    else if (chosen !== undefined) replace(state);
  }

  function about(one) {
    const act = (verb, text) => async () => {
      await attempt(() => post(path(one.context, verb), verb === "interrupt" ? {} : undefined), text);
      await attempt(reload);
    };
    const close = () =>
      confirm(`Close ${one.context}?`, "Its variables are lost.", "Close", async () => {
        await remove(path(one.context));
        location.hash = hrefOf(which, "contexts");
      });
    return [
      badge(one.state),
      h("span.dim", `${one.language} ${one.interpreter?.version ?? ""} · ${one.runs} runs · ${one.queued} waiting`),
      h(
        "div.actions",
        button("Interrupt", act("interrupt", "Interrupted."), "quiet"),
        button("Restart", act("restart", "The interpreter is a new one."), "quiet"),
        button("Close", close, "quiet.danger-quiet"),
      ),
      one.warnings.map((text) => h("p.warning", text)),
    ];
  }

  async function reload() {
    const { contexts } = await get(path(), {}, signal);
    drawBar(contexts);
    return contexts;
  }

  function open() {
    dialog({
      title: "Open a context",
      action: "Open",
      children: [
        field("Language", choice("language", LANGUAGES, "python")),
        field("Name", h("input", { name: "context", autocomplete: "off", placeholder: "that of the language" })),
      ],
      submit: async ({ language, context }) => {
        const made = await post(path(), { language, context: context || language });
        location.hash = hrefOf(which, "contexts", made.context);
      },
    });
  }

  const contexts = await reload();
  if (chosen === undefined && contexts.length > 0) {
    location.replace(hrefOf(which, "contexts", contexts[0].context));
    return;
  }
  every(signal, LOOK_MS, reload);
  if (chosen === undefined) {
    const python = async () => {
      const made = await attempt(() => post(path(), { language: "python", context: "python" }));
      if (made) location.hash = hrefOf(which, "contexts", made.context);
    };
    replace(
      body,
      empty(
        "No contexts",
        "A context is an interpreter that keeps its variables between runs.",
        button("Open Python", python, "primary"),
      ),
    );
    return;
  }
  const sheet = cells({
    path: path(chosen),
    name: `${which.namespace}/${which.name}/${chosen}`,
    signal,
    completes: true,
    ran: () => attempt(reload),
  });
  replace(body, sheet.element);
  sheet.focus();
}
