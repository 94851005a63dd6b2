/** API keys: who may do what, issued and revoked. */

import { get, post, remove } from "../api.js";
import { h, replace } from "../dom.js";
import { ago, until } from "../format.js";
import { badge, button, choice, confirm, copy, dialog, empty, field, heading, table } from "../parts.js";
import { every } from "../poll.js";

const LIST_MS = 5000;
const DAY_MS = 86_400_000;
const SCOPES = [
  ["run", "run: sandboxes, and code in them"],
  ["read", "read: look only"],
  ["admin", "admin: everything"],
];
const TIMES = [
  ["", "30 days, or as long as yours"],
  ["1", "a day"],
  ["7", "a week"],
  ["90", "90 days"],
  ["never", "no end"],
];

export async function keysView(place, { signal }) {
  let hasAll = false;
  const shown = h("input", { type: "checkbox", id: "all-keys" });
  const make = h("button.primary", { type: "button", "data-create": true, onclick: issue }, "New key");
  const fresh = h("div");
  const body = h("div");
  const ended = h("label", { for: "all-keys" }, shown, " with ended ones");
  replace(place, heading("API keys", ended, make), fresh, body);
  const list = table({
    label: "API keys",
    id: (one) => one.id,
    columns: [
      { name: "Label", kind: "wide", sort: (one) => one.name ?? "", cell: (one) => one.name ?? h("span.dim", "–") },
      { name: "Id", kind: "aside", cell: (one) => h("code", one.id) },
      { name: "Namespace", sort: (one) => one.namespace, cell: (one) => one.namespace },
      { name: "Scope", cell: (one) => one.scope },
      { name: "State", kind: "aside", cell: (one) => badge(one.state) },
      { name: "Issued", kind: "aside", cell: (one) => ago(Date.parse(one.created_at)) },
      { name: "By", kind: "aside", cell: (one) => (one.issued_by ? h("code", one.issued_by) : "the operator") },
      {
        name: "Expires",
        kind: "aside",
        cell: (one) => (one.expires_at ? until(Date.parse(one.expires_at)) : "never"),
      },
      {
        name: "Actions",
        kind: "acts",
        cell: (one) => one.state === "valid" && button("Revoke", () => gone(one), "quiet"),
      },
    ],
  });

  async function reload() {
    const { keys } = await get("/v1/keys", hasAll ? { all: true } : {}, signal);
    if (keys.length === 0) replace(body, empty("No keys", "This server knows no key that is good."));
    else {
      list.draw(keys);
      if (list.element.parentNode !== body) replace(body, list.element);
    }
  }

  function gone(one) {
    const text = "Whoever has it is refused within a second, and so are the keys that it has issued.";
    confirm(`Revoke ${one.name ?? one.id}?`, text, "Revoke", async () => {
      await remove(["v1", "keys", one.id]);
      await reload();
    });
  }

  function issue() {
    dialog({
      title: "A new key",
      action: "Issue",
      children: [
        field("Label", h("input", { name: "name", autofocus: true, autocomplete: "off", maxlength: 63 })),
        field(
          "Namespace",
          h("input", { name: "namespace", autocomplete: "off", placeholder: "default" }),
          "* is for all of them.",
        ),
        field("Scope", choice("scope", SCOPES, "run")),
        field("Good for", choice("days", TIMES, "")),
      ],
      submit: async ({ name, namespace, scope, days }) => {
        const asked = { scope };
        if (name) asked.name = name;
        if (namespace) asked.namespace = namespace;
        if (days === "never") asked.never_expires = true;
        else if (days) asked.ttl_ms = Number(days) * DAY_MS;
        const { key } = await post("/v1/keys", asked);
        replace(
          fresh,
          h(
            "div.card.notice",
            h("p", "The new key, which is shown only now and kept nowhere:"),
            h("p", h("code", { "data-new-key": true }, key)),
            button("Copy", () => copy(key), "quiet"),
          ),
        );
        await reload();
      },
    });
  }

  shown.addEventListener("change", () => {
    hasAll = shown.checked;
    reload();
  });
  await reload();
  every(signal, LIST_MS, reload);
}
