/** Sessions of a sandbox, and terminals attached to them. */

import { call, get, hangUp, post, remove, sandboxPath, socket } from "../api.js";
import { h, replace, setText } from "../dom.js";
import { ago, bytes, contentBytes, exit } from "../format.js";
import { attempt, badge, button, card, empty, table } from "../parts.js";
import { every } from "../poll.js";
import { Terminal } from "../terminal/view.js";
import { hrefOf } from "./sandboxes.js";

const LIST_MS = 3000;
const PAUSE_MS = 250;
const PAUSE_MS_MAX = 8000;
/** So that a window that is dragged is not a hundred sizes. */
const RESIZE_MS = 80;

export async function terminalsTab(place, { which, rest, signal }) {
  const [session, mode] = rest;
  if (session !== undefined) return attached(place, which, session, mode === "view", signal);
  const list = table({
    label: "Sessions",
    id: (one) => one.session,
    open: (one) => (location.hash = hrefOf(which, "terminals", one.session)),
    columns: [
      {
        name: "Session",
        sort: (one) => one.session,
        cell: (one) => h("a", { href: hrefOf(which, "terminals", one.session) }, one.session),
      },
      {
        name: "Command",
        kind: "wide.aside",
        sort: (one) => one.command,
        cell: (one) => h("code.cut", { title: one.command }, one.command),
      },
      { name: "State", sort: (one) => state(one), cell: (one) => badge(state(one)) },
      { name: "End", kind: "aside", cell: (one) => h("span.dim", exit(one.exit)) },
      { name: "Terminal", kind: "aside", cell: (one) => (one.terminal ? "yes" : "pipes") },
      { name: "Started", kind: "aside", sort: (one) => -one.started_at_ms, cell: (one) => ago(one.started_at_ms) },
      { name: "Actions", kind: "acts", cell: (one) => actions(which, one, reload) },
    ],
    sorted: 5,
  });
  const fresh = () => attempt(() => newShell(which));
  const body = h("div");
  replace(place, card("Sessions", [button("New shell", fresh, "primary")], body));

  async function reload() {
    const { sessions } = await get(sandboxPath(which, "sessions"), { recorded: true }, signal);
    if (sessions.length === 0) {
      replace(body, empty("No sessions", "A session is a program that somebody started, with all that it starts."));
      return;
    }
    list.draw(sessions);
    if (list.element.parentNode !== body) replace(body, list.element);
  }

  await reload();
  every(signal, LIST_MS, reload);
  return undefined;
}

function state(one) {
  if (one.starting) return "starting";
  return one.running ? "running" : "ended";
}

function actions(which, one, reload) {
  const end = async () => {
    const path = sandboxPath(which, "sessions", one.session, "signal");
    await attempt(() => post(path, { signal: "KILL", target: "tree" }), `${one.session} is killed.`);
    reload();
  };
  const release = async () => {
    await attempt(() => remove(sandboxPath(which, "sessions", one.session)));
    reload();
  };
  return [
    one.running &&
      h(
        "a.button.quiet",
        { href: hrefOf(which, "terminals", one.session, "view"), "aria-label": `View ${one.session}` },
        "View",
      ),
    one.running && button("Kill", end, "quiet"),
    !one.running && one.live && button("Release", release, "quiet"),
  ];
}

async function newShell(which) {
  const terminal = { rows: 30, columns: 100 };
  const made = await post(sandboxPath(which, "sessions"), { login_shell: true, terminal });
  location.hash = hrefOf(which, "terminals", made.session);
}

/** One session, on a terminal. */
function attached(place, which, session, isReadOnly, signal) {
  const said = h("span.dim", { role: "status" }, "connecting");
  const size = h("span.dim");
  const keyboard = button("Take the keyboard", () => link.send({ type: "take" }), "quiet");
  keyboard.hidden = true;
  const back = h("a.button.quiet", { href: hrefOf(which, "terminals") }, "‹ Sessions");
  const terminal = new Terminal({
    label: `Terminal of ${session}`,
    isReadOnly,
    leave: () => back.focus(),
    type: (typed) => link.type(typed),
    resize: (columns, rows) => {
      setText(size, `${columns} × ${rows}`);
      link.resize(columns, rows);
    },
  });
  const link = new Link({ which, session, isReadOnly, terminal, said, keyboard, signal });
  const other = isReadOnly
    ? h("a.button.quiet", { href: hrefOf(which, "terminals", session) }, "Type here")
    : h("a.button.quiet", { href: hrefOf(which, "terminals", session, "view") }, "Read-only");
  replace(
    place,
    h(
      "section.terminal",
      h(
        "header.terminal-head",
        back,
        h("strong", session),
        isReadOnly && h("span.label", "read-only"),
        said,
        size,
        h("div.actions", keyboard, other),
      ),
      terminal.element,
    ),
  );
  terminal.fit();
  terminal.focus();
  link.open();
  signal.addEventListener("abort", () => {
    link.close();
    terminal.close();
  });
}

/** The connection to a session: it goes on at the byte where it was cut. */
class Link {
  constructor(given) {
    Object.assign(this, given);
    this.offset = undefined;
    this.pause = PAUSE_MS;
    this.isTerminal = true;
  }

  open() {
    const { screen } = this.terminal;
    const query = { from: this.offset, read_only: this.isReadOnly || undefined };
    if (!this.isReadOnly) Object.assign(query, { rows: screen.rows, columns: screen.columns });
    this.socket = socket(sandboxPath(this.which, "sessions", this.session, "attach"), query);
    this.socket.onmessage = ({ data }) => {
      if (this.signal.aborted) return;
      this.pause = PAUSE_MS;
      if (typeof data === "string") this.hear(JSON.parse(data));
      else this.take(new Uint8Array(data));
    };
    this.socket.onclose = (event) => this.cut(event);
  }

  take(received) {
    this.offset += received.length;
    this.terminal.write(received);
  }

  hear(event) {
    switch (event.type) {
      case "attached":
        this.isTerminal = event.terminal;
        this.offset = event.offset;
        setText(this.said, "connected");
        this.setKeyboard(event.keyboard);
        // It may be another than when the connection was begun.
        if (this.isTerminal) this.resize(this.terminal.screen.columns, this.terminal.screen.rows);
        break;
      case "keyboard":
        this.setKeyboard(event.held);
        break;
      case "gap":
        this.terminal.note(`${bytes(event.to - event.from)} of output are no longer kept`);
        if (event.channel !== "stderr") this.offset = event.to;
        break;
      case "output": {
        const content = contentBytes(event);
        if (event.channel !== "stderr") this.offset = event.offset + content.length;
        this.terminal.write(withReturns(content));
        break;
      }
      case "refused":
        setText(this.said, event.problem.message);
        break;
      case "exited":
        this.end(exit(event.exit));
        break;
      case "over":
        this.end(`the sandbox ended${event.sandbox ? `: ${event.sandbox}` : ""}`);
        break;
      default:
    }
  }

  setKeyboard(isHeld) {
    this.keyboard.hidden = this.isReadOnly || isHeld || !this.isTerminal;
  }

  end(text) {
    this.isOver = true;
    this.terminal.note(text);
    setText(this.said, text);
  }

  cut(event) {
    if (this.signal.aborted || this.isOver || event.code === 1000) return;
    setText(this.said, "disconnected, trying again");
    setTimeout(async () => {
      if (this.signal.aborted) return;
      // A session that is gone is not asked for again and again.
      const found = await call("GET", sandboxPath(this.which, "sessions", this.session)).catch((error) => error);
      if (found.status === 404) this.end("this session does not exist any more");
      else if (!this.signal.aborted) this.open();
    }, this.pause);
    this.pause = Math.min(this.pause * 2, PAUSE_MS_MAX);
  }

  send(order) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(order));
  }

  type(typed) {
    if (this.socket?.readyState === WebSocket.OPEN && !this.isOver) this.socket.send(typed);
  }

  resize(columns, rows) {
    if (this.isReadOnly) return;
    clearTimeout(this.resizing);
    this.resizing = setTimeout(() => {
      if (this.isTerminal && !this.isOver) this.send({ type: "resize", rows, columns });
    }, RESIZE_MS);
  }

  close() {
    clearTimeout(this.resizing);
    if (this.socket) hangUp(this.socket);
  }
}

/** Output of pipes has no carriage returns, and a terminal needs them. */
function withReturns(content) {
  const out = [];
  content.forEach((byte, at) => {
    if (byte === 10 && content[at - 1] !== 13) out.push(13);
    out.push(byte);
  });
  return Uint8Array.from(out);
}
