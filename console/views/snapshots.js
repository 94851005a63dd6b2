/** Snapshots, and sandboxes that continue from them. */

import { get, post, remove } from "../api.js";
import { h, replace } from "../dom.js";
import { ago, bytes } from "../format.js";
import { button, confirm, dialog, empty, field, heading, table } from "../parts.js";
import { hrefOf } from "./sandboxes.js";

export async function snapshotsView(place, { signal }) {
  const body = h("div");
  replace(place, heading("Snapshots"), body);
  const list = table({
    label: "Snapshots",
    id: (one) => one.id,
    sorted: 0,
    columns: [
      {
        name: "Name",
        kind: "wide",
        sort: (one) => one.name,
        cell: (one) => [one.namespace !== "default" && h("span.dim", `${one.namespace}/`), one.name],
      },
      { name: "Of", cell: (one) => one.sandbox },
      { name: "Machine", kind: "aside", cell: (one) => one.machine },
      { name: "Size", kind: "num", sort: (one) => one.bytes, cell: (one) => bytes(one.bytes) },
      { name: "Taken", kind: "aside", sort: (one) => -one.created_at_ms, cell: (one) => ago(one.created_at_ms) },
      {
        name: "Actions",
        kind: "acts",
        cell: (one) => [button("Continue", () => start(one), "quiet"), button("Remove", () => gone(one), "quiet")],
      },
    ],
  });

  async function reload() {
    const { snapshots } = await get("/v1/snapshots", {}, signal);
    if (snapshots.length === 0) {
      replace(
        body,
        empty(
          "No snapshots",
          "A snapshot holds everything of a virtual machine: programs, variables, files. It is taken on the page of a sandbox.",
        ),
      );
      return;
    }
    list.draw(snapshots);
    if (list.element.parentNode !== body) replace(body, list.element);
  }

  function gone(one) {
    confirm(`Remove ${one.name}?`, "Sandboxes made from it do not need it.", "Remove", async () => {
      await remove(["v1", "snapshots", one.namespace, one.name]);
      await reload();
    });
  }

  function start(one) {
    dialog({
      title: `Continue from ${one.name}`,
      action: "Create",
      children: [
        field(
          "Name of the sandbox",
          h("input", { name: "name", required: true, autofocus: true, autocomplete: "off" }),
        ),
      ],
      submit: async ({ name }) => {
        const made = await post("/v1/sandboxes", { name, namespace: one.namespace, snapshot: one.name });
        location.hash = hrefOf(made);
      },
    });
  }

  await reload();
}
