/** What a sandbox is, and how long it stays. */

import { all, call, post, sandboxPath } from "../api.js";
import { h, replace } from "../dom.js";
import { ago, bytes, date, duration, until } from "../format.js";
import { attempt, button, card, dialog, facts, field, link, tell } from "../parts.js";
import { hrefOf } from "./sandboxes.js";

export function overviewTab(place, { sandbox, signal, watch, reload }) {
  const lineage = new Lineage(sandbox, signal);
  const draw = (one) => {
    const warnings = one.warnings.map((text) => h("p.warning", text));
    const reason = one.reason && h("p.warning", one.reason);
    replace(place, reason, warnings, h("div.grid", what(one), time(one, reload), network(one), names(one), lineage.element(one)));
  };
  let shown = "";
  const change = (one) => {
    // Ages are drawn again each time, and what somebody selects is not.
    if (JSON.stringify(one) === shown) return;
    shown = JSON.stringify(one);
    draw(one);
  };
  change(sandbox);
  watch(change);
}

function what(one) {
  return card(
    "Sandbox",
    [],
    facts([
      ["Image", h("code", one.image ?? "–")],
      ["Digest", one.image_digest && h("code.cut", { title: one.image_digest }, one.image_digest)],
      ["Machine", one.machine],
      ["CPUs", one.cpus],
      ["Memory", one.memory_mib && bytes(one.memory_mib * 1024 * 1024)],
      ["Disk", [bytes(one.scratch_bytes), one.scratch_place && h("span.dim", ` on ${one.scratch_place}`)]],
      ["User", one.user],
      ["Directory", one.workdir && h("code", one.workdir)],
      ["Workspace", one.workspace && h("code", one.workspace)],
      ["Host name", h("code", one.hostname)],
      ["Id", h("code", one.id)],
    ]),
  );
}

function time(one, reload) {
  const ends = (ms) => ms && [date(ms), h("span.dim", ` · ${until(ms)}`)];
  return card(
    "Time",
    [button("Change", () => extend(one, reload), "quiet")],
    facts([
      ["Created", [date(one.created_at_ms), h("span.dim", ` · ${ago(one.created_at_ms)}`)]],
      ["Stopped", one.stopped_at_ms && date(one.stopped_at_ms)],
      ["Time to live", one.ttl_ms ? duration(one.ttl_ms) : "no limit"],
      ["Ends", ends(one.expires_at_ms)],
      ["Idle time", one.idle_ttl_ms ? `${duration(one.idle_ttl_ms)}, then ${one.on_idle}` : "no limit"],
      ["Idle since", one.idle_since_ms && date(one.idle_since_ms)],
      ["Ends if idle", ends(one.idle_expires_at_ms)],
    ]),
  );
}

function network(one) {
  const rules = one.egress ?? [];
  const body =
    rules.length === 0
      ? h("p.dim", "Nothing: the sandbox has no way out.")
      : h(
          "ul.rules",
          rules.map((rule) => h("li", h("code", rule))),
        );
  const secrets = one.secrets ?? [];
  const used = secrets.length > 0 && facts([["Secrets", secrets.join(", ")]]);
  return card("Egress", [], body, used);
}

/** What a sandbox was forked from, and what was forked from it. */
class Lineage {
  constructor(sandbox, signal) {
    Object.assign(this, { id: sandbox.id, namespace: sandbox.namespace, signal });
    this.body = h("div");
    this.isAsked = false;
  }

  element(one) {
    if (!this.isAsked) {
      this.isAsked = true;
      attempt(() => this.look(one));
    }
    const acts = ["running", "paused"].includes(one.state) ? [button("Fork", () => this.fork(one), "quiet")] : [];
    return card("Forks", acts, this.body);
  }

  async look(one) {
    const every = await all("/v1/sandboxes", { namespace: this.namespace }, "sandboxes", this.signal);
    const named = new Map(every.map((other) => [other.id, other]));
    const shown = ({ id, name, at_ms: atMs }) => {
      const other = named.get(id);
      const text = other === undefined ? h("span", name, h("span.dim", " · removed")) : link(hrefOf(other), other.name);
      return h("div", text, h("span.dim", ` · ${date(atMs)}`));
    };
    const ancestors = (one.ancestors ?? []).map(shown);
    const forks = every.flatMap((other) => {
      const at = (other.ancestors ?? []).find((ancestor) => ancestor.id === this.id);
      return at === undefined ? [] : [shown({ id: other.id, name: other.name, at_ms: at.at_ms })];
    });
    const none = ancestors.length + forks.length === 0;
    replace(
      this.body,
      none && h("p.dim", "None, and it is not a fork."),
      facts([
        ["Forked from", ancestors.length > 0 ? ancestors : undefined],
        ["Forks", forks.length > 0 ? forks : undefined],
      ]),
    );
  }

  fork(one) {
    dialog({
      title: `Fork ${one.name}`,
      action: "Fork",
      children: [
        field("Copies", h("input", { name: "count", type: "number", min: 1, value: 1, required: true, autofocus: true })),
      ],
      submit: async ({ count }) => {
        const { forks, report } = await post(sandboxPath(one, "fork"), { count: Number(count) });
        const { contexts = [], sessions = [], workspace } = report.left;
        const missing = [...contexts.map((name) => `context ${name}`), ...sessions.map((name) => `session ${name}`)];
        if (workspace !== undefined) missing.push(`changes to the workspace ${workspace}`);
        const left = missing.length > 0 ? ` Not carried: ${missing.join(", ")}.` : "";
        tell(`Forked as ${forks.map((fork) => fork.name).join(", ")}.${left}`);
        await attempt(() => this.look(one));
      },
    });
  }
}

function names(one) {
  const labels = Object.entries(one.labels);
  const none = labels.length === 0 && one.env_names.length === 0;
  return card(
    "Labels and environment",
    [],
    none && h("p.dim", "No labels, and no variables of its own."),
    labels.length > 0 && facts(labels.map(([name, value]) => [name, h("code", value)])),
    one.env_names.length > 0 && facts([["Variables", h("code", one.env_names.join(" "))]]),
  );
}

function extend(one, reload) {
  const minutes = (name) => h("input", { name, type: "number", min: 0 });
  dialog({
    title: "Change the time to live",
    action: "Change",
    children: [
      field("Ends after, minutes from now", minutes("ttl"), "Empty leaves it as it is; 0 is no limit."),
      field("Ends when idle for, minutes", minutes("idle"), "Empty leaves it as it is; 0 is no limit."),
    ],
    submit: async ({ ttl, idle }) => {
      const json = {};
      if (ttl !== "") json.ttl_ms = Number(ttl) * 60000;
      if (idle !== "") json.idle_ttl_ms = Number(idle) * 60000;
      await call("PATCH", sandboxPath(one), { json });
      await reload();
    },
  });
}
