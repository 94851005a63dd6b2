/** Notebooks: contexts whose variables are kept, with the history of their runs. */

import { call, get, post, remove } from "../api.js";
import { h, replace } from "../dom.js";
import { ago, bytes, clock, duration } from "../format.js";
import {
  attempt,
  badge,
  button,
  card,
  choice,
  confirm,
  dialog,
  empty,
  facts,
  field,
  heading,
  link,
  table,
} from "../parts.js";
import { cells } from "./cells.js";
import { LANGUAGES } from "./contexts.js";
import { hrefOf } from "./sandboxes.js";

const HISTORY_SHOWN = 50;

export function hrefOfNotebook(one) {
  return `#/notebook/${encodeURIComponent(one.namespace)}/${encodeURIComponent(one.name)}`;
}

export async function notebooksView(place, { signal }) {
  const body = h("div");
  replace(place, heading("Notebooks", button("New notebook", create, "primary")), body);
  const list = table({
    label: "Notebooks",
    id: (one) => `${one.namespace}/${one.name}`,
    open: (one) => (location.hash = hrefOfNotebook(one)),
    sorted: 0,
    columns: [
      {
        name: "Name",
        kind: "wide",
        sort: (one) => one.name,
        cell: (one) =>
          link(hrefOfNotebook(one), one.namespace !== "default" && h("span.dim", `${one.namespace}/`), one.name),
      },
      { name: "Language", sort: (one) => one.language, cell: (one) => one.language },
      { name: "Runs", kind: "num", sort: (one) => one.runs, cell: (one) => one.runs },
      {
        name: "Sandbox",
        kind: "aside",
        cell: (one) => link(hrefOf({ namespace: one.namespace, name: one.sandbox }), one.sandbox),
      },
      {
        name: "Saved",
        kind: "aside",
        cell: (one) => (one.saved ? `${bytes(one.saved.bytes)}, ${ago(one.saved.saved_at_ms)}` : "–"),
      },
      { name: "Used", kind: "aside", sort: (one) => -one.used_at_ms, cell: (one) => ago(one.used_at_ms) },
    ],
  });
  const { notebooks } = await get("/v1/notebooks", {}, signal);
  if (notebooks.length === 0) {
    replace(
      body,
      empty(
        "No notebooks yet",
        "A notebook keeps its variables when its sandbox ends.",
        button("New notebook", create, "primary"),
      ),
    );
    return;
  }
  replace(body, list.element);
  list.draw(notebooks);
}

function create() {
  dialog({
    title: "New notebook",
    action: "Open",
    children: [
      field("Name", h("input", { name: "name", required: true, autofocus: true, autocomplete: "off" })),
      field("Language", choice("language", LANGUAGES, "python")),
      field("Sandbox", h("input", { name: "sandbox", autocomplete: "off", placeholder: "one of its own" })),
    ],
    submit: async ({ name, language, sandbox }) => {
      const made = await post("/v1/notebooks", { name, language, ...(sandbox ? { sandbox } : {}) });
      location.hash = hrefOfNotebook(made);
    },
  });
}

export async function notebookView(place, { parameters, signal }) {
  const [namespace, name] = parameters;
  const path = (...rest) => ["v1", "notebooks", namespace, name, ...rest];
  let notebook = await get(path(), {}, signal);
  const about = h("div");
  const past = h("div");
  const act = (verb, done) => async () => {
    await attempt(() => call("POST", path(verb)), done);
    await attempt(reload);
  };
  const gone = () =>
    confirm(`Remove ${name}?`, "Its variables and its history are removed too.", "Remove", async () => {
      await remove(path());
      location.hash = "#/notebooks";
    });
  const sheet = cells({ path: path(), name: `notebook/${namespace}/${name}`, signal, ran: () => attempt(reload) });
  replace(
    place,
    h(
      "header.head",
      h("h1", link("#/notebooks", h("span.dim", `${namespace} / `)), name),
      h(
        "div.actions",
        button("Save", act("save", "Saved.")),
        button("Reset", act("reset", "All variables are gone.")),
        button("Remove", gone, "danger-quiet"),
      ),
    ),
    sheet.element,
    h("div.grid", card("Notebook", [], about), card("History", [], past)),
  );

  function draw(runs) {
    const { saved } = notebook;
    replace(
      about,
      facts([
        ["Language", notebook.language],
        ["Sandbox", link(hrefOf({ namespace, name: notebook.sandbox }), notebook.sandbox)],
        ["Runs", notebook.runs],
        ["Not yet saved", notebook.unsaved_runs],
        ["Saved", saved && `${bytes(saved.bytes)}, as of run ${saved.run}`],
        ["Variables", saved && h("code", saved.kept.map((one) => one.name).join(" "))],
        ["Lost", saved && saved.lost.map((one) => one.name).join(" ")],
      ]),
    );
    if (runs.length === 0) replace(past, empty("No runs yet", "Each run is kept with its code and its output."));
    else replace(past, h("ol.runs", runs.map(run)));
  }

  async function reload() {
    const [found, history] = await Promise.all([
      get(path(), {}, signal),
      get(path("history"), { limit: HISTORY_SHOWN }, signal),
    ]);
    notebook = found;
    draw(history.runs);
  }

  await reload();
}

function run(one) {
  return h(
    "li",
    h(
      "header",
      h("span.dim", `${one.number} · ${clock(one.started_at_ms)} · ${duration(one.duration_us / 1000)} · ${one.by}`),
      badge(one.status),
    ),
    h("pre.output", one.code),
    one.stdout && h("pre.output.is-stdout", one.stdout),
    one.error && h("pre.output.is-error", one.error),
  );
}
