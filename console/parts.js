/** Parts that pages are made of: badges, tables, dialogs, forms, messages. */

import { h, replace } from "./dom.js";

/** A state as a word with a dot; the dot says nothing that the word does not. */
export function badge(state) {
  return h(`span.badge.is-${state.replace(/[^a-z_]/g, "")}`, h("i.dot", { "aria-hidden": "true" }), state);
}

export function button(text, onclick, kind = "") {
  return h(`button${kind === "" ? "" : `.${kind}`}`, { type: "button", onclick }, text);
}

export function link(href, ...children) {
  return h("a", { href }, ...children);
}

/** What is there where there is nothing. */
export function empty(title, text, ...rest) {
  return h("div.empty", h("p.empty-title", title), text && h("p", text), ...rest);
}

/** A heading with actions at its right. */
export function heading(title, ...actions) {
  return h("header.head", h("h1", title), h("div.actions", actions));
}

export function search(label, oninput) {
  return h("input.search", { type: "search", placeholder: label, "aria-label": label, "data-search": true, oninput });
}

/** Names with their values. */
export function facts(pairs) {
  const shown = pairs.filter(([, value]) => value !== undefined && value !== null && value !== "");
  return h(
    "dl.facts",
    shown.map(([name, value]) => h("div", h("dt", name), h("dd", value))),
  );
}

export function card(title, actions, ...children) {
  return h("section.card", h("header.card-head", h("h2", title), h("div.actions", actions)), ...children);
}

const AGES_MS = 30000;

/**
 * A table. `columns` are `{ name, cell(row), kind, sort(row) }`; a kind is classes: `num`, `wide`, and `aside` for what
 * a narrow screen leaves out. Rows are kept by `id`, so that what a person has chosen stays.
 */
export function table({ label, columns, id, open, sorted }) {
  const order = { at: sorted ?? -1, isDown: false };
  let rows = [];
  const body = h("tbody", { "data-rows": true });
  const heads = columns.map((column, at) => {
    if (column.sort === undefined) return h(`th.${column.kind || "plain"}`, { scope: "col" }, column.name);
    const sort = () => {
      order.isDown = order.at === at && !order.isDown;
      order.at = at;
      draw();
    };
    return h(`th.${column.kind || "plain"}`, { scope: "col" }, button(column.name, sort, "sort"));
  });
  const element = h(
    "div.table-box",
    { role: "region", "aria-label": label, tabindex: 0 },
    h("table", h("thead", h("tr", heads)), body),
  );
  const known = new Map();

  function draw() {
    heads.forEach((head, at) => {
      if (columns[at].sort === undefined) return;
      head.setAttribute("aria-sort", order.at !== at ? "none" : order.isDown ? "descending" : "ascending");
    });
    const column = columns[order.at];
    const shown = column?.sort === undefined ? rows : [...rows].sort((a, b) => compare(column.sort(a), column.sort(b)));
    if (order.isDown) shown.reverse();
    const ids = new Set(shown.map(id));
    for (const [one, { element: gone }] of known) if (!ids.has(one)) (gone.remove(), known.delete(one));
    shown.forEach((row, at) => {
      const tr = drawn(row);
      if (body.children[at] !== tr) body.insertBefore(tr, body.children[at] ?? null);
    });
  }

  function drawn(row) {
    // Ages are written again after a while.
    const text = `${JSON.stringify(row)} ${Math.floor(Date.now() / AGES_MS)}`;
    const name = id(row);
    let one = known.get(name);
    if (one === undefined) {
      one = { element: h("tr", { tabindex: -1, "data-id": name }) };
      if (open) {
        one.element.classList.add("opens");
        one.element.addEventListener("click", (event) => {
          if (!event.target.closest("a, button, input")) open(one.row);
        });
        one.element.addEventListener("keydown", (event) => {
          if (event.key === "Enter" && event.target === one.element) open(one.row);
        });
      }
      known.set(name, one);
    }
    if (one.text !== text) {
      const cells = columns.map((column) => h(`td.${column.kind || "plain"}`, column.cell(row)));
      replace(one.element, cells);
    }
    Object.assign(one, { row, text });
    return one.element;
  }

  return {
    element,
    draw(given) {
      rows = given;
      draw();
    },
  };
}

function compare(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a ?? "").localeCompare(String(b ?? ""), "en", { numeric: true });
}

/** A field of a form, with its label. */
export function field(label, input, hint) {
  return h("label.field", h("span.field-name", label), input, hint && h("span.hint", hint));
}

export function choice(name, options, selected) {
  return h(
    "select",
    { name },
    options.map(([value, text]) => h("option", { value, selected: value === selected }, text)),
  );
}

/**
 * A dialog with a form. `submit(values)` is awaited, and the dialog stays open with what it refuses.
 */
export function dialog({ title, children, action, kind = "primary", submit }) {
  const message = h("p.refused", { role: "alert", hidden: true });
  const go = h(`button.${kind}`, { type: "submit" }, action);
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", title),
    children,
    message,
    h(
      "footer",
      button("Cancel", () => box.close(), "quiet"),
      go,
    ),
  );
  const box = h("dialog", { "aria-label": title }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    message.hidden = true;
    try {
      await submit(Object.fromEntries(new FormData(form)));
      box.close();
    } catch (error) {
      replace(message, error.message, error.hint && h("span.hint", error.hint));
      message.hidden = false;
    }
    go.disabled = false;
  });
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return box;
}

/** Asks before something that cannot be taken back. */
export function confirm(title, text, action, submit) {
  return dialog({ title, children: [h("p", text)], action, kind: "danger", submit });
}

const MESSAGE_MS = 5000;

/** Says something for some seconds. */
export function tell(text, kind = "done") {
  const message = h(`div.message.${kind}`, text);
  document.querySelector("#messages").append(message);
  setTimeout(() => message.remove(), MESSAGE_MS);
}

/** Does something, and says why if it is refused. */
export async function attempt(work, done) {
  try {
    const value = await work();
    if (done) tell(done);
    return value;
  } catch (error) {
    if (error.name !== "AbortError") tell(h("span", error.message, error.hint && h("span.hint", error.hint)), "failed");
    return undefined;
  }
}

/** What a view shows instead of itself when it is refused. */
export function refusal(error) {
  if (error.status === 403) return empty("This key may not look here", error.message);
  return empty("That did not work", error.message, error.hint && h("p.hint", error.hint));
}

/** What a text has, word by word, whatever the case. */
export function matches(text, wanted) {
  const low = text.toLowerCase();
  return wanted
    .toLowerCase()
    .split(/\s+/)
    .every((word) => low.includes(word));
}

/** Has the browser save something as a file. */
export function save(content, name) {
  const url = URL.createObjectURL(new Blob([content], { type: "application/octet-stream" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

/** Copies a text, and says so. */
export async function copy(text) {
  await navigator.clipboard.writeText(text).then(
    () => tell("Copied."),
    () => tell("The browser does not let this page copy.", "failed"),
  );
}
