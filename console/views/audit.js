/** The audit log: who did what, with filters. */

import { get } from "../api.js";
import { h, replace } from "../dom.js";
import { badge, choice, empty, heading, table } from "../parts.js";

const PAGE = 200;
const FILTERS = ["operation", "sandbox", "who", "namespace"];
/** How far back one looks at first. */
const SINCE = [
  ["3600000", "last hour"],
  ["86400000", "last day"],
  ["604800000", "last week"],
  ["", "all"],
];
/** So many pages at most are read to find the newest. */
const PAGES_MAX = 25;

export async function auditView(place, { signal }) {
  const fields = FILTERS.map((name) =>
    h("input", { name, "aria-label": name, placeholder: name, size: 14, "data-search": name === "operation" }),
  );
  const outcome = choice(
    "outcome",
    [
      ["", "any outcome"],
      ["ok", "ok"],
      ["refused", "refused"],
      ["failed", "failed"],
    ],
    "",
  );
  outcome.setAttribute("aria-label", "Outcome");
  const since = choice("since", SINCE, SINCE[0][0]);
  since.setAttribute("aria-label", "Since");
  const form = h("form.filters", fields, outcome, since, h("button", { type: "submit" }, "Filter"));
  const body = h("div");
  replace(place, heading("Audit"), form, body);
  const list = table({
    label: "Audit records",
    id: (one) => String(one.seq),
    columns: [
      {
        name: "Time",
        cell: (one) => h("time", h("span.aside", String(one.time).slice(0, 10), " "), String(one.time).slice(11, 19)),
      },
      { name: "Who", kind: "aside", cell: (one) => who(one.who) },
      { name: "Operation", kind: "wide", cell: (one) => h("code", one.operation) },
      { name: "Outcome", cell: (one) => badge(String(one.outcome)) },
      { name: "Sandbox", kind: "aside", cell: (one) => sandbox(one.sandbox) },
      { name: "Door", kind: "aside", cell: (one) => one.door },
      { name: "Facts", kind: "aside", cell: (one) => facts(one) },
    ],
  });

  async function load() {
    const query = { limit: PAGE, outcome: outcome.value };
    for (const field of fields) query[field.name] = field.value.trim();
    if (since.value !== "") query.since_ms = Date.now() - Number(since.value);
    let records = [];
    let after;
    for (let page = 0; page < PAGES_MAX; page += 1) {
      const found = await get("/v1/audit", { ...query, after }, signal);
      records = [...records, ...found.records].slice(-PAGE * 5);
      if (found.records.length === 0 || found.next === undefined || found.next === after) break;
      after = found.next;
      if (found.records.length < PAGE) break;
    }
    if (records.length === 0) {
      replace(body, empty("No records", "Nothing like this was recorded in this time."));
      return;
    }
    list.draw(records.reverse());
    if (list.element.parentNode !== body) replace(body, list.element);
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    load().catch((error) => replace(body, empty("The filter is not valid", error.message)));
  });
  for (const one of [outcome, since]) one.addEventListener("change", () => form.requestSubmit());
  await load();
}

function who(one) {
  if (one === undefined) return "–";
  const name = one.label ?? one.name ?? one.id ?? one.uid;
  return name === undefined ? one.kind : `${one.kind} ${name}`;
}

function sandbox(one) {
  if (one === undefined) return "";
  return typeof one === "string" ? one : (one.name ?? one.id ?? JSON.stringify(one));
}

/** What else a record says, as it is in the log. */
function facts(one) {
  const { seq, time, who: by, operation, outcome, door, sandbox: of, ...rest } = one;
  const text = JSON.stringify(rest.facts ?? rest);
  return text === "{}" ? "" : h("code.cut", { title: JSON.stringify(rest) }, text);
}
