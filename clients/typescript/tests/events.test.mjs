/** Events of sandboxes, followed over cuts. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { clientOf, eventually, scissors, serve } from "./bridge.mjs";

const bridge = await serve("--dev");
const client = clientOf(bridge.url);

async function all(options) {
  const found = [];
  for await (const event of client.events({ ...options, follow: false })) found.push(event);
  return found;
}

test("the life of a sandbox is followed over cuts, and nothing comes twice", async () => {
  const way = await scissors(bridge.url);
  // Before the first event, and within one.
  for (const bytes of [0, 700]) way.cuts.push({ request: "GET /v1/events", bytes });
  const seen = [];
  for (const name of ["one", "two"]) {
    const sandbox = await client.create({ name });
    await sandbox.remove();
  }
  for await (const event of clientOf(way.url).events()) {
    seen.push(event);
    if (event.kind === "removed" && event.sandbox === "two") break;
  }
  assert.deepEqual(seen.map((one) => one.offset), [0, 1, 2, 3, 4, 5, 6, 7]);
  const life = ["created", "ready", "exited", "removed"];
  assert.deepEqual(seen.map((one) => one.kind), [...life, ...life]);
  assert.deepEqual(way.cuts, []);
  assert.ok(way.requests.some((line) => /[?&]since=\d/.test(line)), way.requests.join("\n"));
});

test("events are chosen by offset, time, sandbox and kind", async () => {
  const sandbox = await client.create({ name: "three" });
  const [ready] = await eventually("it is ready in the stream", async () => {
    const found = await all({ sandboxes: ["three"], kinds: ["ready"] });
    return found.length > 0 && found;
  });
  assert.equal(ready.kind, "ready");
  assert.deepEqual((await all({ since: ready.offset }))[0], ready);
  assert.ok((await all({ since_ms: ready.at_ms })).some((one) => one.offset === ready.offset));
  await sandbox.remove();
});
