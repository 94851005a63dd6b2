/** All sandboxes, with what they use at the moment. */

import { all, call, get, post, sandboxPath } from "../api.js";
import { sparkline } from "../charts.js";
import { h, replace, setText } from "../dom.js";
import { ago, bytes, percent, until } from "../format.js";
import {
  attempt,
  badge,
  button,
  choice,
  confirm,
  dialog,
  empty,
  field,
  heading,
  link,
  matches,
  search,
  table,
} from "../parts.js";
import { eachOf, every } from "../poll.js";

const LIST_MS = 3000;
const SAMPLES_MS = 2000;
const SAMPLES_SHOWN = 60;
/** Calls for samples at a time; a browser has six connections to a server. */
const AT_ONCE = 3;

export function hrefOf(which, ...rest) {
  return `#/sandbox/${[which.namespace, which.name, ...rest].map(encodeURIComponent).join("/")}`;
}

export async function sandboxesView(place, { signal }) {
  const usage = new Usage();
  let sandboxes = [];
  let wanted = "";
  const counted = h("span.counted");
  const body = h("div");
  const field = search("Search name, state, image, label", (event) => {
    wanted = event.target.value;
    draw();
  });
  const make = h("button.primary", { type: "button", "data-create": true, onclick: create }, "New sandbox");
  replace(place, heading("Sandboxes", counted, field, make), body);

  const list = table({
    label: "Sandboxes",
    id: (one) => one.id,
    open: (one) => (location.hash = hrefOf(one)),
    sorted: 0,
    columns: [
      { name: "Name", kind: "wide", sort: (one) => one.name, cell: name },
      { name: "State", sort: (one) => one.state, cell: (one) => badge(one.asleep ? "asleep" : one.state) },
      { name: "CPU", kind: "use", sort: (one) => -usage.of(one).cpu, cell: (one) => usage.of(one).cpuElement },
      { name: "Memory", kind: "use", sort: (one) => -usage.of(one).memory, cell: (one) => usage.of(one).memoryElement },
      {
        name: "Image",
        kind: "aside",
        sort: (one) => one.image,
        cell: (one) => [h("code.cut", { title: one.image }, one.image ?? "–"), h("span.dim", ` ${one.machine}`)],
      },
      { name: "Made", kind: "aside", sort: (one) => -one.created_at_ms, cell: (one) => ago(one.created_at_ms) },
      {
        name: "Ends",
        kind: "aside",
        sort: (one) => endOf(one) ?? Infinity,
        cell: (one) => (endOf(one) ? until(endOf(one)) : h("span.dim", "–")),
      },
      { name: "Actions", kind: "acts.aside", cell: (one) => actions(one, reload) },
    ],
  });

  function draw() {
    const found = sandboxes.filter((one) => matches(words(one), wanted));
    const running = sandboxes.filter((one) => one.state === "running").length;
    setText(counted, sandboxes.length === 0 ? "" : `${running} of ${sandboxes.length} running`);
    if (found.length > 0) {
      list.draw(found);
      if (list.element.parentNode !== body) replace(body, list.element);
    } else if (sandboxes.length > 0) {
      replace(body, empty("No sandbox matches", `${sandboxes.length} do not have “${wanted}”.`));
    } else {
      const first = button("New sandbox", create, "primary");
      replace(body, empty("No sandboxes yet", "A sandbox runs code that nobody has to trust.", first));
    }
  }

  async function reload() {
    sandboxes = await all("/v1/sandboxes", {}, "sandboxes", signal);
    draw();
  }

  await reload();
  every(signal, LIST_MS, reload);
  every(signal, SAMPLES_MS, async () => {
    const shown = sandboxes.filter((one) => one.state === "running" && usage.isSeen(one));
    await eachOf(shown, AT_ONCE, (one) => usage.fetch(one, signal));
  });
}

function words(one) {
  const labels = Object.entries(one.labels).map(([name, value]) => `${name}=${value}`);
  return [one.namespace, one.name, one.state, one.machine, one.image, one.id, ...labels].join(" ");
}

function name(one) {
  const labels = Object.entries(one.labels);
  return [
    link(hrefOf(one), one.namespace !== "default" && h("span.dim", `${one.namespace}/`), one.name),
    labels.length > 0 &&
      h(
        "span.labels",
        labels.map(([key, value]) => h("span.label", `${key}=${value}`)),
      ),
  ];
}

/** When it ends at the latest, or if nothing is done with it. */
function endOf(one) {
  if (one.state !== "running") return undefined;
  const ends = [one.expires_at_ms, one.idle_expires_at_ms].filter((ms) => ms !== undefined);
  return ends.length > 0 ? Math.min(...ends) : undefined;
}

function actions(one, reload) {
  const act = (verb, done) => async () => {
    await attempt(() => post(sandboxPath(one, verb)), done);
    reload();
  };
  const can = [];
  const named = (text, work, kind = "quiet") => {
    const made = button(text, work, kind);
    made.setAttribute("aria-label", `${text} ${one.name}`);
    can.push(made);
  };
  if (one.state === "running") named("Pause", act("pause", `${one.name} is paused.`));
  if (one.state === "paused") named("Resume", act("resume", `${one.name} runs again.`));
  named("Remove", () => removeSandbox(one, reload), "quiet");
  return can;
}

export function removeSandbox(one, done) {
  const text = `${one.namespace}/${one.name} ends now, and its files, logs and record are gone.`;
  confirm("Remove the sandbox?", text, "Remove", async () => {
    await call("DELETE", sandboxPath(one), { query: { force: true } });
    done();
  });
}

/** Asks for the few things that most sandboxes are made with. */
async function create() {
  const images = await get("/v1/images").then(
    (found) => found.images.flatMap((image) => image.names),
    () => [],
  );
  const known = h(
    "datalist",
    { id: "images" },
    images.map((one) => h("option", { value: one })),
  );
  const input = (name, more) => h("input", { name, autocomplete: "off", ...more });
  dialog({
    title: "New sandbox",
    action: "Create",
    children: [
      h(
        "div.fields",
        field("Name", input("name", { required: true, autofocus: true, pattern: "[A-Za-z0-9][A-Za-z0-9_\\-]{0,62}" })),
        field("Namespace", input("namespace", { placeholder: "that of the key" })),
        field("Image", input("image", { list: "images", placeholder: "the server's default" })),
        field("Machine", choice("machine", MACHINES, "")),
        field("Memory, MiB", input("memory_mib", { type: "number", min: 16, placeholder: "512" })),
        field("CPUs", input("cpus", { type: "number", min: 0.1, step: 0.1, placeholder: "1" })),
        field("When idle for, minutes", input("idle", { type: "number", min: 1, placeholder: "never" })),
        field(
          "Then",
          choice(
            "on_idle",
            [
              ["stop", "stop"],
              ["pause", "pause"],
              ["snapshot", "write to disk"],
            ],
            "stop",
          ),
        ),
      ),
      field(
        "Egress",
        input("egress", { placeholder: "pypi.org, *.example.com:443" }),
        "Hosts that it may reach; none by default.",
      ),
      field("Labels", input("labels", { placeholder: "team=a, env=dev" })),
      known,
    ],
    submit: async (values) => {
      const made = await post("/v1/sandboxes", bodyOf(values));
      location.hash = hrefOf(made);
    },
  });
}

const MACHINES = [
  ["", "the default"],
  ["process", "process"],
  ["qemu", "qemu"],
  ["firecracker", "firecracker"],
  ["cloud-hypervisor", "cloud-hypervisor"],
];

function bodyOf(values) {
  const parts = (text) =>
    text
      .split(",")
      .map((part) => part.trim())
      .filter(Boolean);
  const body = { name: values.name };
  for (const name of ["namespace", "image", "machine"]) if (values[name]) body[name] = values[name];
  if (values.memory_mib) body.memory_mib = Number(values.memory_mib);
  if (values.cpus) body.cpus = Number(values.cpus);
  if (values.idle) Object.assign(body, { idle_ttl_ms: Number(values.idle) * 60000, on_idle: values.on_idle });
  if (values.egress) body.egress = parts(values.egress);
  if (values.labels) {
    body.labels = Object.fromEntries(
      parts(values.labels).map((pair) => [pair.split("=")[0], pair.split("=").slice(1).join("=")]),
    );
  }
  return body;
}

/** What the sandboxes of the list use, drawn as small lines. */
class Usage {
  constructor() {
    this.known = new Map();
  }

  of(one) {
    let found = this.known.get(one.id);
    if (found === undefined) {
      found = new Use(one.name);
      this.known.set(one.id, found);
    }
    return found;
  }

  isSeen(one) {
    const box = this.of(one).cpuElement.getBoundingClientRect();
    return box.height > 0 && box.bottom > 0 && box.top < innerHeight;
  }

  async fetch(one, signal) {
    const use = this.of(one);
    const path = sandboxPath(one, "metrics");
    try {
      if (use.next === undefined) {
        const newest = await get(path, {}, signal);
        use.next = Math.max(0, newest.next - 1 - SAMPLES_SHOWN);
      }
      const page = await get(path, { since: use.next }, signal);
      use.take(page, one);
    } catch (error) {
      if (error.name === "AbortError") throw error;
    }
  }
}

class Use {
  constructor(name) {
    this.cpu = 0;
    this.memory = 0;
    this.samples = [];
    this.lines = [sparkline(`CPU of ${name}`), sparkline(`Memory of ${name}`)];
    this.figures = [h("span.figure", "–"), h("span.figure", "–")];
    [this.cpuElement, this.memoryElement] = this.lines.map((line, at) =>
      h("div.spark-box", line.element, this.figures[at]),
    );
  }

  take(page, one) {
    this.samples.push(...page.samples);
    this.samples.splice(0, this.samples.length - SAMPLES_SHOWN);
    const last = this.samples.at(-1);
    if (last === undefined) return;
    this.next = last.number;
    this.cpu = last.cpu_percent ?? 0;
    this.memory = last.memory_bytes;
    const cpus = (one.cpus ?? page.cpus) * 100;
    const most = last.memory_bytes_max ?? (one.memory_mib ?? 0) * 1024 * 1024;
    this.lines[0].draw(
      this.samples.map((sample) => sample.cpu_percent ?? 0),
      Math.max(cpus, 10),
    );
    this.lines[1].draw(
      this.samples.map((sample) => sample.memory_bytes),
      most,
    );
    setText(this.figures[0], percent(last.cpu_percent));
    setText(this.figures[1], bytes(last.memory_bytes));
  }
}
