/** Ports of a sandbox: forwards on the host, links to look at them, and apps. */

import { call, get, post, remove, sandboxPath } from "../api.js";
import { h, replace, webLink } from "../dom.js";
import { ago, until } from "../format.js";
import { attempt, badge, button, card, copy, dialog, empty, field, table } from "../parts.js";

export async function portsTab(place, { which, signal }) {
  const path = (...rest) => sandboxPath(which, ...rest);
  const fresh = h("div");
  const forwards = section(
    "Forwards",
    "No port of this host leads into the sandbox.",
    button("Forward a port", forward),
    {
      label: "Forwards",
      id: (one) => `${one.host_port}`,
      columns: [
        { name: "Port inside", cell: (one) => one.port },
        { name: "On this host", kind: "wide", cell: (one) => webLink(one.url) },
        { name: "Connections", kind: "num.aside", cell: (one) => one.connections },
        {
          name: "Actions",
          kind: "acts",
          cell: (one) => button("End", () => undo(path("ports", `${one.host_port}`)), "quiet"),
        },
      ],
    },
  );
  const previews = section(
    "Preview links",
    "A link shows a port to whoever has it, without a key.",
    button("Make a link", preview),
    {
      label: "Preview links",
      id: (one) => one.id,
      columns: [
        { name: "Port inside", cell: (one) => one.port },
        { name: "Link", kind: "wide", cell: (one) => h("code", one.id) },
        { name: "Ends", cell: (one) => until(Date.parse(one.expires_at)) },
        {
          name: "Actions",
          kind: "acts",
          cell: (one) => button("Take back", () => undo(path("previews", one.id)), "quiet"),
        },
      ],
    },
  );
  const apps = section("Apps", "An app is a program that answers HTTP, with its port and its log.", undefined, {
    label: "Apps",
    id: (one) => one.app,
    columns: [
      { name: "App", cell: (one) => one.app },
      { name: "Type", kind: "aside", cell: (one) => one.type },
      { name: "State", cell: (one) => badge(one.state) },
      { name: "Address", kind: "wide", cell: (one) => one.url && webLink(one.url) },
      { name: "Started", kind: "aside", cell: (one) => ago(one.started_at_ms) },
      { name: "Actions", kind: "acts", cell: (one) => button("Stop", () => undo(path("apps", one.app)), "quiet") },
    ],
  });
  replace(place, fresh, forwards.element, previews.element, apps.element);

  async function reload() {
    const [ports, links, running] = await Promise.all([
      get(path("ports"), {}, signal),
      get(path("previews"), {}, signal),
      get(path("apps"), {}, signal),
    ]);
    forwards.draw(ports.ports);
    previews.draw(links.previews);
    apps.draw(running.apps);
  }

  async function undo(target) {
    await attempt(() => remove(target));
    await attempt(reload);
  }

  function ask(title, action, text, submit) {
    const port = h("input", {
      name: "port",
      type: "number",
      min: 1,
      max: 65535,
      required: true,
      autofocus: true,
      placeholder: "8000",
    });
    dialog({
      title,
      action,
      children: [field("Port in the sandbox", port, text)],
      submit: (values) => submit(Number(values.port)),
    });
  }

  function forward() {
    ask("Forward a port", "Forward", "A free port of this host leads there.", async (port) => {
      await call("POST", path("ports"), { json: { port } });
      await reload();
    });
  }

  function preview() {
    ask("Make a preview link", "Make it", "Whoever has the link reaches the port, for an hour.", async (port) => {
      const made = await post(path("previews"), { port });
      replace(
        fresh,
        h(
          "div.card.notice",
          h("p", `The link to port ${made.port}, which is shown only now:`),
          h("p", webLink(made.url)),
          button("Copy", () => copy(made.url), "quiet"),
        ),
      );
      await reload();
    });
  }

  await reload();
}

function section(title, none, action, given) {
  const list = table(given);
  const body = h("div");
  return {
    element: card(title, action ? [action] : [], body),
    draw(rows) {
      if (rows.length === 0) return replace(body, empty(`No ${title.toLowerCase()}`, none));
      list.draw(rows);
      return list.element.parentNode === body ? body : replace(body, list.element);
    },
  };
}
