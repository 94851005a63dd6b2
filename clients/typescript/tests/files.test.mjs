/** Files of a sandbox: streams both ways, listings, archives, changes. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";

import { ConnectionFailedError, FileError, InvalidRequestError, NotFoundError, TooLargeError } from "burrow-sandbox";
import { clientOf, here, scissors, serve } from "./bridge.mjs";

const bridge = await serve("--dev");
const client = clientOf(bridge.url);
const sandbox = await client.create({ name: "work" });
const { files } = sandbox;

test("anything that has bytes is written, and read as bytes, text or a stream", async () => {
  async function* pieces() {
    yield new TextEncoder().encode("one ");
    yield new TextEncoder().encode("two");
  }
  const stream = () => new Response("one two").body;
  const bytes = new TextEncoder().encode("one two");
  for (const data of ["one two", bytes, bytes.buffer, new Blob(["one two"]), stream(), pieces()]) {
    assert.equal(await files.write("/srv/new/file", data, { permissions: "0640" }), 7);
    assert.equal(await files.readText("/srv/new/file"), "one two");
  }
  assert.equal((await files.stat("/srv/new/file")).permissions, "0640");
  await files.write("/srv/new/file", "!", { append: true });
  assert.equal(await new Response(files.readStream("/srv/new/file")).text(), "one two!");
  await assert.rejects(files.write("/srv/new/file", 7), InvalidRequestError);
  await assert.rejects(files.read("/srv/new/file", { bytesMax: 3 }), TooLargeError);
  await assert.rejects(files.read("/srv/none"), NotFoundError);
});

test("a source that fails is why the write fails, and the file stays as it was", async () => {
  await files.write("/tmp/kept", "old");
  async function* failing() {
    yield new Uint8Array(100_000);
    throw new RangeError("the source");
  }
  await assert.rejects(files.write("/tmp/kept", failing()), RangeError);
  assert.equal(await files.readText("/tmp/kept"), "old");
});

test("directories are listed, made, moved and removed", async () => {
  await files.mkdir("/tmp/a/b");
  for (const name of ["z", "a", "ü"]) await files.write(`/tmp/a/${name}`, name);
  const listed = await files.list("/tmp/a");
  assert.deepEqual(listed.map((one) => [one.name, one.kind]), [["a", "file"], ["b", "directory"], ["z", "file"], ["ü", "file"]]);
  await files.move("/tmp/a/z", "/tmp/a/y");
  assert.deepEqual([await files.exists("/tmp/a/z"), await files.exists("/tmp/a/y")], [false, true]);
  await assert.rejects(files.remove("/tmp/a"), (error) => {
    return error instanceof FileError || error.code === "conflict";
  });
  await files.remove("/tmp/a", { recursive: true });
  assert.equal(await files.exists("/tmp/a"), false);
});

test("a directory goes out and in as an archive", async () => {
  const archive = execFileSync("tar", ["-cf", "-", "-C", here, "files.test.mjs"]);
  const unpacked = await files.writeArchive("/srv/project", archive);
  assert.equal(unpacked.entries, 1);
  const stream = files.readArchive("/srv/project");
  const listed = execFileSync("tar", ["-tf", "-"], { input: Buffer.from(await new Response(stream).arrayBuffer()) });
  assert.match(listed.toString(), /files\.test\.mjs\n/);
});

test("a file of megabytes that is cut while it is read goes on where it was", async () => {
  await sandbox.shell("seq 1 400000 > /tmp/numbers; touch -d '1 hour ago' /tmp/numbers");
  const cut = await scissors(bridge.url);
  const far = await clientOf(cut.url).get("work");
  const path = "GET /v1/sandboxes/default/work/files/content";
  cut.cut(path);
  cut.cut(path, 300_000);
  cut.cut(path, 1_000_000);
  const text = await far.files.readText("/tmp/numbers");
  assert.equal(text, Array.from({ length: 400_000 }, (_, at) => `${at + 1}\n`).join(""));
  assert.deepEqual(cut.cuts, []);
});

test("a file that has changed since it was cut is not put together of two", async () => {
  await sandbox.shell("seq 1 400000 > /tmp/numbers; touch -d '1 hour ago' /tmp/numbers");
  const cut = await scissors(bridge.url);
  const far = await clientOf(cut.url, { retries: 1 }).get("work");
  const reader = far.files.readStream("/tmp/numbers").getReader();
  cut.cut("GET /v1/sandboxes/default/work/files/content", 300_000);
  await reader.read();
  await sandbox.shell("seq 2 400001 > /tmp/numbers");
  await assert.rejects(async () => {
    while (!(await reader.read()).done);
  }, ConnectionFailedError);
});

test("a write whose answer is lost is repeated, and an append is not", async () => {
  const cut = await scissors(bridge.url);
  const far = await clientOf(cut.url).get("work");
  const path = "PUT /v1/sandboxes/default/work/files/content";
  cut.cut(path);
  assert.equal(await far.files.write("/tmp/written", "once"), 4);
  cut.cut(path);
  await assert.rejects(far.files.write("/tmp/written", "+", { append: true }), ConnectionFailedError);
  assert.equal(await files.readText("/tmp/written"), "once+");
});

test("what nobody reads is not sent", async () => {
  await sandbox.shell("head -c 100000000 /dev/zero > /tmp/large");
  const way = await scissors(bridge.url);
  const far = await clientOf(way.url).get("work");
  const reader = far.files.readStream("/tmp/large").getReader();
  await reader.read();
  // Until nothing more comes.
  for (let before; before !== way.bytes; ) {
    before = way.bytes;
    for (let at = 0; at < 5; at++) await sandbox.exec(["true"]);
  }
  assert.ok(way.bytes < 30_000_000, `${way.bytes}`);
  let length = 0;
  for (let piece; !(piece = await reader.read()).done; ) length += piece.value.length;
  assert.ok(length > 90_000_000 && way.bytes > 100_000_000);
});

test("a stream that is left closes its connection, and an abort ends it", async () => {
  await sandbox.shell("head -c 50000000 /dev/zero > /tmp/large");
  const reader = files.readStream("/tmp/large").getReader();
  await reader.read();
  await reader.cancel();
  const controller = new AbortController();
  const aborted = files.readStream("/tmp/large", { signal: controller.signal }).getReader();
  await aborted.read();
  controller.abort();
  await assert.rejects(async () => {
    while (!(await aborted.read()).done);
  }, { name: "AbortError" });
});

test("changes are followed", async () => {
  await files.mkdir("/tmp/watched");
  let isSeen = false;
  const seen = (async () => {
    for await (const change of files.watch("/tmp/watched")) {
      if (change.type === "moved" && change.path === "file") break;
    }
    isSeen = true;
  })();
  while (!isSeen) await files.write("/tmp/watched/file", "x");
  await seen;
});
