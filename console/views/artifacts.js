/** Artifacts: what runs have left, as a gallery. Contents are fetched with the key and shown from memory. */

import { get, remove, request } from "../api.js";
import { h, replace } from "../dom.js";
import { ago, bytes } from "../format.js";
import { attempt, button, choice, confirm, empty, heading, link, save } from "../parts.js";
import { eachOf } from "../poll.js";
import { hrefOfNotebook } from "./notebooks.js";
import { hrefOf } from "./sandboxes.js";

const PAGE = 60;
/** Larger pictures are shown when somebody asks for them. */
const PICTURE_BYTES_MAX = 4 << 20;
const PICTURES_AT_ONCE = 3;
const PICTURE = /^image\/(png|jpeg|gif|webp|svg\+xml)$/;
const CATEGORIES = ["image", "figure", "video", "audio", "document", "data", "code", "archive", "text", "other"];

export async function artifactsView(place, { parameters, signal }) {
  // `artifacts/NAMESPACE/SANDBOX` shows those of one sandbox.
  const [namespace, sandbox] = parameters;
  let category = "";
  // Which list is shown; what comes of one before is dropped.
  let shown = 0;
  const kinds = choice("category", [["", "Every kind"], ...CATEGORIES.map((one) => [one, one])], "");
  kinds.setAttribute("aria-label", "Kind of artifact");
  kinds.addEventListener("change", () => {
    category = kinds.value;
    attempt(show);
  });
  const grid = h("div.gallery");
  const more = h("div.actions.gallery-more");
  const body = h("div", grid, more);
  const from = sandbox && [link("#/artifacts", "All"), h("span.dim", ` · of ${namespace}/${sandbox}`)];
  replace(place, heading("Artifacts", from, kinds), body);

  async function show() {
    shown += 1;
    const asked = shown;
    replace(grid);
    replace(more);
    const found = await page(undefined);
    if (found.length > 0 || asked !== shown) return;
    replace(
      grid,
      empty(
        "No artifacts",
        "What a run shows, and the files that it leaves in /artifacts or its directory, are kept here.",
      ),
    );
  }

  async function page(after) {
    const asked = shown;
    const query = { namespace, sandbox, category, limit: PAGE, after };
    const { artifacts, next } = await get("/v1/artifacts", query, signal);
    if (asked !== shown) return [];
    const cards = artifacts.map((one) => new Card(one, signal));
    grid.append(...cards.map((one) => one.element));
    replace(more, next !== undefined && button("More", () => attempt(() => page(next))));
    // The pictures come behind the list.
    eachOf(
      cards.filter((one) => one.isSmallPicture),
      PICTURES_AT_ONCE,
      (one) => one.show(),
    );
    return artifacts;
  }

  await show();
}

class Card {
  constructor(artifact, signal) {
    Object.assign(this, { artifact, signal });
    const { id, name, size, namespace, sandbox, notebook, created_ms: createdMs } = artifact;
    const isPicture = PICTURE.test(artifact.type);
    this.isSmallPicture = isPicture && size <= PICTURE_BYTES_MAX;
    this.picture = h("div.gallery-picture", h("span.dim", artifact.type));
    const of = notebook === undefined ? `${namespace}/${sandbox}` : `${namespace}/${notebook}`;
    const href =
      notebook === undefined ? hrefOf({ namespace, name: sandbox }) : hrefOfNotebook({ namespace, name: notebook });
    this.element = h(
      "article.card.artifact",
      { "data-id": id },
      this.picture,
      h("h2", { title: artifact.path ?? name }, name),
      h("p.dim", `${artifact.category} · ${bytes(size)} · ${ago(createdMs)}`),
      h("p", link(href, of), artifact.run !== undefined && h("span.dim", ` · run ${artifact.run}`)),
      h(
        "div.actions",
        isPicture && !this.isSmallPicture && button("Show", () => this.show(), "quiet"),
        button("Download", () => attempt(() => this.download()), "quiet"),
        button("Remove", () => this.ask(), "quiet"),
      ),
    );
  }

  async content() {
    const answer = await request("GET", ["v1", "artifacts", this.artifact.id, "content"], { signal: this.signal });
    return answer.arrayBuffer();
  }

  /** A drawing in an image runs no script and loads nothing. */
  async show() {
    const content = await attempt(() => this.content());
    if (content === undefined) return;
    const url = URL.createObjectURL(new Blob([content], { type: this.artifact.type }));
    const image = h("img", { src: url, alt: this.artifact.name });
    image.addEventListener("load", () => URL.revokeObjectURL(url));
    image.addEventListener("error", () => replace(this.picture, h("span.dim", "not a picture that is shown here")));
    replace(this.picture, image);
  }

  async download() {
    save(await this.content(), this.artifact.name);
  }

  ask() {
    confirm(`Remove ${this.artifact.name}?`, "Nothing keeps a copy of it.", "Remove", async () => {
      await remove(["v1", "artifacts", this.artifact.id]);
      this.element.remove();
    });
  }
}
