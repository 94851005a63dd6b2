/** Files of a sandbox: directories, texts to read and change, what goes in and what comes out. */

import { all, call, post, request, sandboxPath } from "../api.js";
import { h, replace } from "../dom.js";
import { ago, bytes, toBase64 } from "../format.js";
import { attempt, button, confirm, dialog, empty, field, link, refusal, save, tell, table } from "../parts.js";
import { hrefOf } from "./sandboxes.js";

const VIEWED_BYTES_MAX = 1024 * 1024;
const PICTURES = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  svg: "image/svg+xml",
};

export async function filesTab(place, { which, sandbox, rest, signal }) {
  const path = `/${rest.join("/")}`;
  const files = new Files(which);
  if (rest.length === 0 && sandbox.workdir && sandbox.workdir !== "/") {
    location.replace(hrefOf(which, "files", ...split(sandbox.workdir)));
    return;
  }
  const head = h("header.files-head", crumbs(which, path));
  const body = h("div");
  replace(place, h("section.card", head, body));
  const found = await files.stat(path, signal);
  if (found.kind === "directory") await directory({ head, body, files, which, path, signal });
  else await file({ head, body, files, which, path, found, signal });
}

function split(path) {
  return path.split("/").filter(Boolean);
}

function parentOf(path) {
  return `/${split(path).slice(0, -1).join("/")}`;
}

function join(path, name) {
  return path === "/" ? `/${name}` : `${path}/${name}`;
}

function crumbs(which, path) {
  const parts = split(path);
  const links = parts.map((part, at) => [
    h("span.dim", "/"),
    link(hrefOf(which, "files", ...parts.slice(0, at + 1)), part),
  ]);
  return h("nav.crumbs", { "aria-label": "Path" }, link(hrefOf(which, "files", ""), "root"), links);
}

/** The calls for files. A path is text, or bytes where its name is not UTF-8. */
class Files {
  constructor(which) {
    this.path = (...rest) => sandboxPath(which, "files", ...rest);
  }

  stat(path, signal) {
    return call("GET", this.path("stat"), { query: { path, follow: true }, signal });
  }

  list(path, signal) {
    return all(this.path(), { path }, "entries", signal);
  }

  async read(query, signal, most) {
    const headers = most === undefined ? {} : { range: `bytes=0-${most - 1}` };
    const answer = await request("GET", this.path("content"), { query, headers, signal });
    return new Uint8Array(await answer.arrayBuffer());
  }

  write(path, body, query = {}) {
    return call("PUT", this.path("content"), { query: { path, ...query }, body });
  }

  remove(query, isDirectory) {
    return call("DELETE", this.path(), { query: { ...query, recursive: isDirectory || undefined } });
  }
}

/** How an entry of a directory is named in a call. */
function queryOf(path, entry) {
  if (entry.name_base64 === undefined) return { path: join(path, entry.name) };
  const directory = new TextEncoder().encode(path === "/" ? "/" : `${path}/`);
  const name = atob(entry.name_base64);
  return { path_base64: toBase64([...directory, ...Array.from(name, (letter) => letter.charCodeAt(0))]) };
}

async function directory({ head, body, files, which, path, signal }) {
  const pick = h("input", { type: "file", multiple: true, hidden: true, "aria-label": "Files to upload" });
  pick.addEventListener("change", () => upload([...pick.files]));
  head.append(
    h(
      "div.actions",
      button("Upload", () => pick.click()),
      button("New file", () => name("New file", (given) => files.write(join(path, given), "", { create_only: true }))),
      button("New directory", () =>
        name("New directory", (given) => post(files.path("directories"), { path: join(path, given) })),
      ),
    ),
    pick,
  );
  const list = table({
    label: "Files",
    id: (one) => one.name_base64 ?? one.name,
    open: (one) => {
      if (one.name_base64 === undefined) location.hash = hrefOf(which, "files", ...split(path), one.name);
    },
    columns: [
      {
        name: "Name",
        kind: "wide",
        sort: (one) => (one.kind === "directory" ? ` ${one.name}` : one.name),
        cell: entryName,
      },
      {
        name: "Size",
        kind: "num.aside",
        sort: (one) => one.bytes,
        cell: (one) => (one.kind === "file" ? bytes(one.bytes) : "–"),
      },
      { name: "Mode", kind: "aside", cell: (one) => h("code", one.permissions) },
      { name: "Owner", kind: "aside", cell: (one) => h("code", `${one.uid}:${one.gid}`) },
      { name: "Changed", kind: "aside", sort: (one) => -one.modified_ms, cell: (one) => ago(one.modified_ms) },
      { name: "Actions", kind: "acts", cell: actions },
    ],
    sorted: 0,
  });

  function entryName(one) {
    const shown = one.kind === "directory" ? `${one.name}/` : one.name;
    const target = one.target !== undefined && h("span.dim", ` → ${one.target}`);
    if (one.name_base64 !== undefined) return h("span", shown);
    return [link(hrefOf(which, "files", ...split(path), one.name), shown), target];
  }

  function actions(one) {
    const isDirectory = one.kind === "directory";
    const label = (made, text) => (made.setAttribute("aria-label", `${text} ${one.name}`), made);
    return [
      one.kind === "file" &&
        label(
          button("Download", () => attempt(() => download(files, queryOf(path, one), one.name)), "quiet"),
          "Download",
        ),
      label(
        button(
          "Remove",
          () =>
            confirm(
              `Remove ${one.name}?`,
              isDirectory ? "Everything in it is removed too." : "The file is gone then.",
              "Remove",
              async () => {
                await files.remove(queryOf(path, one), isDirectory);
                await reload();
              },
            ),
          "quiet",
        ),
        "Remove",
      ),
    ];
  }

  async function upload(chosen) {
    for (const one of chosen) {
      await attempt(() => files.write(join(path, one.name), one), `${one.name} is there, ${bytes(one.size)}.`);
    }
    pick.value = "";
    await attempt(reload);
  }

  function name(title, work) {
    const input = h("input", { name: "name", required: true, autofocus: true, autocomplete: "off" });
    dialog({
      title,
      action: "Make it",
      children: [field("Name", input)],
      submit: async (values) => {
        await work(values.name);
        await reload();
      },
    });
  }

  async function reload() {
    const entries = await files.list(path, signal);
    if (entries.length === 0) {
      replace(body, empty("An empty directory", "Drop files here, or upload some."));
      return;
    }
    list.draw(entries);
    if (list.element.parentNode !== body) replace(body, list.element);
  }

  body.addEventListener("dragover", (event) => event.preventDefault());
  body.addEventListener("drop", (event) => {
    event.preventDefault();
    upload([...event.dataTransfer.files]);
  });
  await reload();
}

async function download(files, query, name) {
  save(await files.read(query), name);
}

async function file({ head, body, files, which, path, found, signal }) {
  const name = split(path).at(-1);
  const up = () => (location.hash = hrefOf(which, "files", ...split(parentOf(path))));
  const acts = h(
    "div.actions",
    h("span.dim", bytes(found.bytes)),
    button("Download", () => attempt(() => download(files, { path }, name))),
  );
  head.append(acts);
  if (found.kind !== "file") {
    replace(body, empty(`A ${found.kind.replace("_", " ")}`, "There is nothing to show of it."));
    return;
  }
  acts.append(
    button(
      "Remove",
      () =>
        confirm(`Remove ${name}?`, "The file is gone then.", "Remove", async () => {
          await files.remove({ path }, false);
          up();
        }),
      "danger-quiet",
    ),
  );
  const kind = PICTURES[name.split(".").at(-1).toLowerCase()];
  if (kind !== undefined && found.bytes <= VIEWED_BYTES_MAX * 16) {
    const url = URL.createObjectURL(new Blob([await files.read({ path }, signal)], { type: kind }));
    signal.addEventListener("abort", () => URL.revokeObjectURL(url));
    replace(body, h("div.picture", h("img", { src: url, alt: name })));
    return;
  }
  const content =
    found.bytes === 0 ? new Uint8Array() : await files.read({ path }, signal, VIEWED_BYTES_MAX).catch((error) => error);
  if (content instanceof Error) {
    replace(body, refusal(content));
    return;
  }
  const text = textOf(content);
  if (text === undefined) {
    replace(body, empty("Not a text", "Download it to look at it."));
    return;
  }
  const isWhole = content.length >= found.bytes;
  editor({ acts, body, text, isWhole, save: (changed) => files.write(path, changed) });
}

/** The text of bytes, if they are one. A character that is cut off at the end is left out. */
function textOf(content) {
  if (content.includes(0)) return undefined;
  const isCut = content.length === VIEWED_BYTES_MAX;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(content, { stream: isCut });
  } catch {
    return undefined;
  }
}

function editor({ acts, body, text, isWhole, save }) {
  const area = h("textarea.code.editor", {
    "aria-label": "Text of the file",
    spellcheck: "false",
    value: text,
    readonly: !isWhole,
  });
  const write = async () => {
    await attempt(() => save(area.value), "Saved.");
    keep.disabled = true;
  };
  const keep = button("Save", write, "primary");
  keep.disabled = true;
  area.addEventListener("input", () => (keep.disabled = false));
  area.addEventListener("keydown", (event) => {
    if (event.key === "s" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      if (!keep.disabled) write();
    }
  });
  if (isWhole) acts.append(keep);
  else tell(`Only the first ${bytes(VIEWED_BYTES_MAX)} are shown, and cannot be changed here.`);
  replace(body, area);
}
