/** Templates, and sandboxes that are made of them. */

import { get, post, remove } from "../api.js";
import { h, replace } from "../dom.js";
import { ago } from "../format.js";
import { button, confirm, dialog, empty, field, heading, table } from "../parts.js";
import { every } from "../poll.js";
import { hrefOf } from "./sandboxes.js";

const LIST_MS = 5000;

export async function templatesView(place, { signal }) {
  const body = h("div");
  replace(place, heading("Templates"), body);
  const list = table({
    label: "Templates",
    id: (one) => `${one.namespace}/${one.name}`,
    sorted: 0,
    columns: [
      {
        name: "Name",
        kind: "wide",
        sort: (one) => one.name,
        cell: (one) => [
          one.namespace !== "default" && h("span.dim", `${one.namespace}/`),
          one.name,
          one.warm_failure && h("p.warning", one.warm_failure),
        ],
      },
      { name: "Image", sort: (one) => one.image ?? "", cell: (one) => h("code.cut", one.image ?? "–") },
      { name: "Start", kind: "aside", cell: (one) => one.start && h("code.cut", { title: one.start }, one.start) },
      { name: "Ready", kind: "aside", cell: (one) => one.ready && h("code.cut", { title: one.ready }, one.ready) },
      { name: "Warm", kind: "num", sort: (one) => -one.warm, cell: (one) => `${one.warm_ready} of ${one.warm}` },
      {
        name: "Created",
        kind: "aside",
        sort: (one) => -one.created_at_ms,
        cell: (one) => (one.configured ? h("span.dim", "configuration") : ago(one.created_at_ms)),
      },
      {
        name: "Actions",
        kind: "acts",
        cell: (one) => [
          button("Create", () => create(one), "quiet"),
          !one.configured && button("Remove", () => gone(one), "quiet"),
        ],
      },
    ],
  });

  async function reload() {
    const { templates } = await get("/v1/templates", {}, signal);
    if (templates.length === 0) {
      const how = h("code", "host-bridge template create");
      replace(body, empty("No templates", "A template is a name for an image with options and commands. ", how));
      return;
    }
    list.draw(templates);
    if (list.element.parentNode !== body) replace(body, list.element);
  }

  function gone(one) {
    confirm(`Remove ${one.name}?`, "Sandboxes made of it do not need it.", "Remove", async () => {
      await remove(["v1", "templates", one.namespace, one.name]);
      await reload();
    });
  }

  function create(one) {
    dialog({
      title: `A sandbox of ${one.name}`,
      action: "Create",
      children: [
        field(
          "Name",
          h("input", { name: "name", required: true, autofocus: true, autocomplete: "off" }),
          one.ready ? "The answer comes when its ready command says yes." : undefined,
        ),
      ],
      submit: async ({ name }) => {
        const made = await post("/v1/sandboxes", { name, namespace: one.namespace, template: one.name });
        location.hash = hrefOf(made);
      },
    });
  }

  await reload();
  every(signal, LIST_MS, reload);
}
