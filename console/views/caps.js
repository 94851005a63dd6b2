/** Caps and what of them is used. */

import { get } from "../api.js";
import { h, replace } from "../dom.js";
import { bytes, count, duration } from "../format.js";
import { card, empty, heading } from "../parts.js";
import { every } from "../poll.js";

const LOOK_MS = 5000;

const SHOWN = {
  sandboxes: ["Sandboxes", count],
  memory_mib: ["Memory", (value) => bytes(value * 1024 * 1024)],
  cpu_millis: ["CPUs", (value) => count(value / 1000)],
  disk_bytes: ["Disk", bytes],
  run_ms_per_day: ["Run time today", duration],
  output_bytes_per_day: ["Output today", bytes],
  ttl_ms: ["Longest time to live", duration],
};

export async function capsView(place, { signal }) {
  const body = h("div.grid");
  replace(place, heading("Caps"), body);
  const reload = async () => {
    const { scopes } = await get("/v1/caps", {}, signal);
    if (scopes.length === 0)
      replace(body, empty("No caps", "Nothing bounds what the sandboxes of this key take together."));
    else
      replace(
        body,
        scopes.map((one) => card(`${one.scope} ${one.name}`, [], h("div.meters", one.caps.map(meter)))),
      );
  };
  await reload();
  every(signal, LOOK_MS, reload);
}

function meter(cap) {
  const [name, format] = Object.hasOwn(SHOWN, cap.cap) ? SHOWN[cap.cap] : [cap.cap, count];
  const isOfEach = cap.cap === "ttl_ms";
  const limit = cap.allowed === undefined ? "no limit" : format(cap.allowed);
  const used = cap.allowed === undefined ? format(cap.used) : `${format(cap.used)} of ${limit}`;
  const text = isOfEach ? limit : used;
  const bar = h("meter", {
    min: 0,
    max: cap.allowed ?? 1,
    value: cap.allowed ? cap.used : 0,
    high: (cap.allowed ?? 1) * 0.9,
    "aria-label": `${name}: ${text}`,
  });
  return h("div.meter", h("span", name), h("span.dim", text), cap.allowed !== undefined && !isOfEach && bar);
}
