/** The page: who may use it, which view is shown, the keyboard, and the calls that were made. */

import { asCurl, calls, events, get, key } from "./api.js";
import { h, replace, setText } from "./dom.js";
import { clock, duration } from "./format.js";
import { button, copy, field, refusal } from "./parts.js";
import { artifactsView } from "./views/artifacts.js";
import { auditView } from "./views/audit.js";
import { capsView } from "./views/caps.js";
import { eventsView } from "./views/events.js";
import { imagesView } from "./views/images.js";
import { keysView } from "./views/keys.js";
import { notebookView, notebooksView } from "./views/notebooks.js";
import { sandboxView } from "./views/sandbox.js";
import { sandboxesView } from "./views/sandboxes.js";
import { snapshotsView } from "./views/snapshots.js";
import { templatesView } from "./views/templates.js";

/** What the addresses after `#/` show. */
const VIEWS = {
  sandboxes: { name: "Sandboxes", view: sandboxesView, keys: "g s" },
  notebooks: { name: "Notebooks", view: notebooksView, keys: "g n" },
  artifacts: { name: "Artifacts", view: artifactsView, keys: "g r" },
  images: { name: "Images", view: imagesView, keys: "g i" },
  templates: { name: "Templates", view: templatesView, keys: "g t" },
  snapshots: { name: "Snapshots", view: snapshotsView, keys: "g p" },
  events: { name: "Events", view: eventsView, keys: "g e" },
  audit: { name: "Audit", view: auditView, keys: "g a" },
  caps: { name: "Caps", view: capsView, keys: "g c" },
  keys: { name: "API keys", view: keysView, keys: "g k" },
  sandbox: { view: sandboxView, under: "sandboxes" },
  notebook: { view: notebookView, under: "notebooks" },
};

const KEYS = [
  ["/", "search"],
  ["j k", "next and previous row"],
  ["Enter", "open the row"],
  ["c", "create a sandbox"],
  ["1 … 9", "the tabs of a sandbox"],
  ["g s", "sandboxes; g n notebooks, g r artifacts, g i images, g t templates, g p snapshots"],
  ["g e", "events; g a audit, g c caps, g k API keys"],
  ["Tab", "in a cell: complete a name, or four spaces"],
  ["`", "the last calls as curl"],
  ["t", "dark or light"],
  ["?", "this help"],
  ["Escape", "close, or leave a field; Shift+Escape leaves a terminal"],
];

const main = document.querySelector("main");
const nav = document.querySelector("nav");
const drawer = document.querySelector("#calls");
let leaving = new AbortController();

/** Ends what the page that is left waits for. Its dialogs would stand before the next page. */
function leave() {
  leaving.abort();
  for (const box of document.querySelectorAll("dialog[open]")) box.close();
}

/** Shows what the address names. */
async function show() {
  leave();
  leaving = new AbortController();
  const [name = "sandboxes", ...rest] = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean);
  const parameters = rest.map(decoded);
  const at = Object.hasOwn(VIEWS, name) ? name : "sandboxes";
  const chosen = VIEWS[at];
  const under = chosen.under ?? at;
  for (const link of nav.querySelectorAll("a[data-view]")) {
    if (link.dataset.view === under) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${[...parameters.slice(0, 2), VIEWS[under].name].filter(Boolean).join(" · ")} – Burrow`;
  const place = h("div.view");
  replace(main, place);
  try {
    await chosen.view(place, { parameters, signal: leaving.signal });
  } catch (error) {
    if (error.name !== "AbortError" && error.status !== 401) replace(place, refusal(error));
  }
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Asks for a key, tries it, and goes on. */
function logIn(message) {
  leave();
  document.body.classList.add("is-locked");
  const input = h("input", { type: "password", name: "key", autocomplete: "off", required: true, autofocus: true });
  const said = h("p.refused", { role: "alert", hidden: message === undefined }, message);
  const form = h(
    "form.login.card",
    h("div.mark", { "aria-hidden": "true" }),
    h("h1", "Burrow"),
    h("p", "This bridge asks for a key. ", h("code", "host-bridge keygen"), " makes one."),
    field("Key", input, "It is kept in this tab until you close it or log out."),
    said,
    h("button.primary", { type: "submit" }, "Log in"),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    key.set(input.value.trim());
    try {
      await get("/v1/sandboxes", { limit: 1 });
      document.body.classList.remove("is-locked");
      begin();
    } catch (error) {
      key.remove();
      setText(said, error.message);
      said.hidden = false;
      input.select();
    }
  });
  replace(main, form);
  input.focus();
}

function logOut() {
  key.remove();
  location.reload();
}

function begin() {
  for (const leave of document.querySelectorAll("[data-logout]")) leave.hidden = key.get() === "";
  window.removeEventListener("hashchange", show);
  window.addEventListener("hashchange", show);
  show();
}

function drawNav() {
  const links = Object.entries(VIEWS).filter(([, one]) => one.name);
  const list = links.map(([at, one]) => h("li", h("a", { href: `#/${at}`, "data-view": at }, icon(at), one.name)));
  replace(nav.querySelector("ul"), list);
  const foot = document.querySelector("#foot");
  const version = h("span.version");
  replace(
    foot,
    button("Calls", toggleCalls, "quiet"),
    button("Theme", turnTheme, "quiet"),
    button("Keyboard", help, "quiet"),
    h("a.button.quiet", { href: "/docs" }, "API"),
    h("button.quiet", { type: "button", "data-logout": true, hidden: true, onclick: logOut }, "Log out"),
    version,
  );
  get("/api/v1/health").then(
    (health) => setText(version, `host-bridge ${health.version}`),
    () => {},
  );
}

function icon(name) {
  return h(`i.icon.icon-${name}`, { "aria-hidden": "true" });
}

// Dark and light.

const THEME = "burrow.theme";

function setTheme(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

/** To the other theme; where that is the system's own, the page follows the system again. */
function turnTheme() {
  const system = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
  const theme = (document.documentElement.dataset.theme ?? system) === "dark" ? "light" : "dark";
  if (theme === system) localStorage.removeItem(THEME);
  else localStorage.setItem(THEME, theme);
  setTheme(theme === system ? undefined : theme);
}

// The calls that were made.

function toggleCalls() {
  drawer.hidden = !drawer.hidden;
  drawCalls();
  if (!drawer.hidden) drawer.querySelector("button").focus();
}

let isDrawing = false;

function drawCalls() {
  if (drawer.hidden || isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    // A line that somebody is selecting stays.
    if (drawer.contains(getSelection().anchorNode) && !getSelection().isCollapsed) return;
    const rows = calls.map((one) => {
      const line = asCurl(one, location.origin, key.get() !== "");
      const status = one.status === undefined ? "…" : one.status === 0 ? "cut" : one.status;
      const kind = one.status >= 400 || one.status === 0 ? "is-bad" : "is-good";
      return h(
        "li",
        h("span.call-status", { class: kind }, status),
        h("code", line),
        h("span.call-time", one.times > 1 && `${one.times} × `, one.ms ? duration(one.ms) : clock(one.at)),
        button("Copy", () => copy(line), "quiet"),
      );
    });
    replace(drawer.querySelector("ol"), rows);
  });
}

// The keyboard.

function help() {
  const open = document.querySelector("dialog.help");
  if (open) return open.close();
  const list = KEYS.map(([keys, what]) => h("div", h("dt", h("kbd", keys)), h("dd", what)));
  const box = h("dialog.help", { "aria-label": "Keyboard" }, h("h2", "Keyboard"), h("dl.facts", list));
  box.append(
    h(
      "footer",
      button("Close", () => box.close(), "primary"),
    ),
  );
  box.addEventListener("close", () => box.remove());
  document.body.append(box);
  box.showModal();
  return undefined;
}

let isGoing = false;

function onKey(event) {
  const { key: pressed, target } = event;
  const isTyping = target.closest("input, textarea, select, .term");
  if (pressed === "Escape") {
    if (isTyping && !target.closest(".term")) target.blur();
    else if (!drawer.hidden && !target.closest(".term")) toggleCalls();
    return;
  }
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.body.classList.contains("is-locked"))
    return;
  if (document.querySelector("dialog[open]") && pressed !== "?") return;
  if (isGoing) {
    isGoing = false;
    const to = Object.entries(VIEWS).find(([, one]) => one.keys === `g ${pressed}`);
    if (to) location.hash = `#/${to[0]}`;
    return;
  }
  const done = act(pressed);
  if (done) event.preventDefault();
}

function act(pressed) {
  switch (pressed) {
    case "/": {
      const field = main.querySelector("[data-search]");
      field?.focus();
      return field !== null;
    }
    case "?":
      help();
      return true;
    case "`":
      toggleCalls();
      return true;
    case "t":
      turnTheme();
      return true;
    case "g":
      isGoing = true;
      return true;
    case "j":
    case "k":
      return step(pressed === "j" ? 1 : -1);
    case "c": {
      const create = main.querySelector("[data-create]");
      create?.click();
      return create !== null;
    }
    default: {
      const tab = /^[1-9]$/.test(pressed) && main.querySelectorAll(".tabs a")[pressed - 1];
      if (tab) location.hash = tab.getAttribute("href");
      return Boolean(tab);
    }
  }
}

function step(by) {
  const rows = [...main.querySelectorAll("[data-rows] > *")];
  if (rows.length === 0) return false;
  const at = rows.indexOf(document.activeElement);
  rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))].focus();
  return true;
}

setTheme(localStorage.getItem(THEME));
drawNav();
drawer.querySelector("button").addEventListener("click", toggleCalls);
events.addEventListener("call", drawCalls);
events.addEventListener("unauthorized", () => {
  if (!document.body.classList.contains("is-locked")) {
    logIn(key.get() === "" ? undefined : "The key is not valid any more.");
  }
});
document.addEventListener("keydown", onKey);
begin();
