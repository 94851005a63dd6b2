/** What happens to sandboxes, as it happens. */

import { follow, get } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { bytes, date, duration } from "../format.js";
import { badge, empty, heading, link, matches, search, table } from "../parts.js";
import { hrefOf } from "./sandboxes.js";

const KEPT = 1000;
/** What is shown of the time before. */
const PAST_MS = 24 * 3600 * 1000;

export async function eventsView(place, { signal }) {
  let events = [];
  let wanted = "";
  const state = h("span.counted", { role: "status" });
  const namespace = h("input", { "aria-label": "Namespace", placeholder: "namespace", size: 14 });
  const body = h("div");
  const find = search("Search events", (event) => {
    wanted = event.target.value;
    draw();
  });
  replace(place, heading("Events", state, namespace, find), body);
  const list = table({
    label: "Events",
    id: (one) => `${one.namespace} ${one.offset} ${one.kind}`,
    columns: [
      { name: "Time", cell: (one) => h("time", date(one.at_ms)) },
      { name: "Event", cell: (one) => badge(one.kind) },
      {
        name: "Sandbox",
        kind: "wide",
        cell: (one) => one.sandbox && link(hrefOf({ namespace: one.namespace, name: one.sandbox }), one.sandbox),
      },
      { name: "What", kind: "wide.aside", cell: (one) => h("span.dim", about(one)) },
    ],
  });

  function draw() {
    const found = events.filter((one) => matches(words(one), wanted));
    if (found.length === 0) {
      const text =
        events.length > 0
          ? "The search looks at what is loaded."
          : "Creations, ends, pauses and losses of sandboxes appear here.";
      replace(body, empty(events.length > 0 ? "No event matches" : "No events in the last day", text));
      return;
    }
    list.draw([...found].reverse());
    if (list.element.parentNode !== body) replace(body, list.element);
  }

  let following = new AbortController();
  function begin() {
    following.abort();
    following = new AbortController();
    signal.addEventListener("abort", () => following.abort());
    events = [];
    draw();
    let next;
    const query = () => ({
      follow: true,
      namespace: namespace.value,
      ...(next === undefined ? { since_ms: Date.now() - PAST_MS } : { since: next }),
    });
    let frame;
    const take = (event) => {
      if (event.kind === undefined) return;
      next = event.kind === "gap" ? event.to : event.offset + 1;
      events.push(event);
      events.splice(0, events.length - KEPT);
      frame ??= requestAnimationFrame(() => {
        frame = undefined;
        draw();
      });
    };
    follow("/v1/events", query, take, following.signal, (now) =>
      setText(state, { live: "following", cut: "disconnected, trying again", over: "over" }[now]),
    );
  }

  namespace.addEventListener("change", begin);
  // A refusal of the stream itself has no words in a browser.
  await get("/v1/events", { limit: 1, since_ms: Date.now() }, signal);
  begin();
}

function words(one) {
  return [one.kind, one.sandbox, one.id, about(one)].join(" ");
}

function about(one) {
  const parts = [
    one.cause,
    one.reason,
    one.image && `image ${one.image}`,
    one.machine,
    one.snapshot && `snapshot ${one.snapshot}`,
    one.session && `session ${one.session}`,
    one.limit_bytes && `limit ${bytes(one.limit_bytes)}`,
    one.ttl_ms && `ends after ${duration(one.ttl_ms)}`,
    one.idle_ttl_ms && `idle for ${duration(one.idle_ttl_ms)}`,
    one.count && `${one.count} times`,
  ];
  return parts.filter(Boolean).join(" · ");
}
