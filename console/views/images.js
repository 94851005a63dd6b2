/** Images of this host: what there is, and pulls. */

import { get, post, remove } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { ago, bytes } from "../format.js";
import { button, confirm, dialog, empty, field, heading, matches, search, table } from "../parts.js";
import { every } from "../poll.js";

const LIST_MS = 5000;

export async function imagesView(place, { signal }) {
  let images = [];
  let wanted = "";
  const pulls = h("div");
  const body = h("div");
  const find = search("Search images", (event) => {
    wanted = event.target.value;
    draw();
  });
  replace(place, heading("Images", find, button("Pull an image", pull, "primary")), pulls, body);
  const list = table({
    label: "Images",
    id: (one) => one.digest,
    sorted: 0,
    columns: [
      {
        name: "Names",
        kind: "wide",
        sort: (one) => one.names[0] ?? "",
        cell: (one) => (one.names.length > 0 ? one.names.map((name) => h("div", name)) : h("span.dim", "no name")),
      },
      { name: "Digest", kind: "aside", cell: (one) => h("code", { title: one.digest }, one.digest.slice(0, 19)) },
      { name: "Size", kind: "num", sort: (one) => one.size_bytes, cell: (one) => bytes(one.size_bytes) },
      { name: "Layers", kind: "num.aside", sort: (one) => one.layers, cell: (one) => one.layers },
      { name: "Command", kind: "aside", cell: (one) => h("code.cut", one.command.join(" ")) },
      { name: "Added", kind: "aside", sort: (one) => -one.added_at_ms, cell: (one) => ago(one.added_at_ms) },
      { name: "Actions", kind: "acts", cell: (one) => button("Remove", () => gone(one), "quiet") },
    ],
  });

  function draw() {
    const found = images.filter((one) => matches([one.digest, ...one.names].join(" "), wanted));
    if (images.length === 0) {
      replace(
        body,
        empty(
          "No images",
          "Sandboxes of the process machine can do without; others start from an image.",
          button("Pull an image", pull, "primary"),
        ),
      );
    } else if (found.length === 0) replace(body, empty("No image matches", ""));
    else {
      list.draw(found);
      if (list.element.parentNode !== body) replace(body, list.element);
    }
  }

  async function reload() {
    const [stored, running] = await Promise.all([get("/v1/images", {}, signal), get("/v1/images/pulls", {}, signal)]);
    images = stored.images;
    replace(pulls, running.pulls.map(progress));
    draw();
  }

  function gone(one) {
    confirm("Remove the image?", one.names.join(", ") || one.digest, "Remove", async () => {
      await remove(["v1", "images", one.digest]);
      await reload();
    });
  }

  function pull() {
    const box = dialog({
      title: "Pull an image",
      action: "Pull",
      children: [
        field(
          "Image",
          h("input", {
            name: "image",
            required: true,
            autofocus: true,
            autocomplete: "off",
            placeholder: "docker.io/library/python:3.13-slim",
          }),
          "The answer comes when it is here; the dialog may stay open.",
        ),
      ],
      submit: async ({ image }) => {
        await post("/v1/images/pull", { image }, signal);
        await reload();
      },
    });
    signal.addEventListener("abort", () => box.close());
  }

  await reload();
  every(signal, LIST_MS, reload);
}

function progress(one) {
  const bar = h("progress", { max: one.size_bytes || 1, value: one.bytes, "aria-label": `Pull of ${one.image}` });
  const text = h("span.dim");
  setText(text, `${bytes(one.bytes)} of ${bytes(one.size_bytes)}`);
  return h("div.card.pull", h("strong", one.image), bar, text);
}
