/** Commands that are followed while they run, terminals, and ports. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { GoneError, NotFoundError, SpawnFailedError, UnsupportedError } from "burrow-sandbox";
import { clientOf, eventually, scissors, serve } from "./bridge.mjs";

const bridge = await serve("--dev");
const client = clientOf(bridge.url);
const sandbox = await client.create({ name: "work" });

/** The text of a channel in events. */
function said(events, channel = "stdout") {
  const pieces = events.filter((one) => one.type === "output" && one.channel === channel);
  return Buffer.concat(pieces.map((one) => one.data)).toString();
}

/** How many commands with these words run in the sandbox. */
async function running(words) {
  const pattern = words.replace(/^./, (letter) => `[${letter}]`);
  const script = `cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c '${pattern}'`;
  return Number((await sandbox.shell(script)).stdout);
}

test("events come as they happen and end with the exit", async () => {
  const script = "echo one; echo err >&2; while ! [ -e /tmp/go ]; do sleep 0.02; done; echo two; exit 4";
  const stream = sandbox.streamShell(script);
  const events = [];
  for await (const event of stream) {
    events.push(event);
    // It still runs, and this much of it is known.
    if (said(events) === "one\n") await sandbox.files.write("/tmp/go", "");
  }
  assert.deepEqual([said(events), said(events, "stderr")], ["one\ntwo\n", "err\n"]);
  assert.equal(events.at(-1).type, "exited");
  assert.equal(events.at(-1).result.exitCode, 4);
  assert.equal(stream.result, events.at(-1).result);
});

test("input is written while it runs, in the order of the calls", async () => {
  const stream = sandbox.stream(["cat"], { stdin: true });
  const writes = ["one\n", "two\n", new Uint8Array([51, 10])].map((data) => stream.write(data));
  await Promise.all([...writes, stream.closeStdin()]);
  const events = [];
  for await (const event of stream) events.push(event);
  assert.equal(said(events), "one\ntwo\n3\n");
  assert.ok(stream.result.ok);
});

test("megabytes both ways arrive whole", async () => {
  const data = Buffer.alloc(3 << 20, Buffer.from(Array.from({ length: 256 }, (_, at) => at)));
  const pieces = [];
  let at = 0;
  for await (const event of sandbox.stream(["cat"], { stdin: data })) {
    if (event.type !== "output") continue;
    assert.equal(event.offset, at);
    at += event.data.length;
    pieces.push(event.data);
  }
  assert.ok(Buffer.concat(pieces).equals(data));
});

test("what is left before its end is killed", async () => {
  for await (const event of sandbox.streamShell("echo on; sleep 771")) {
    assert.equal(event.text, "on\n");
    break;
  }
  await using_(sandbox.stream(["sleep", "771"]), (stream) => stream.start());
  await assert.rejects(async () => {
    for await (const _ of sandbox.streamShell("echo on; sleep 771")) throw new RangeError();
  }, RangeError);
  await eventually("nothing of it is left", async () => (await running("sleep 771")) === 0);
});

/** `await using`, which Node 20 does not have. */
async function using_(stream, work) {
  try {
    return await work(stream);
  } finally {
    await stream[Symbol.asyncDispose]();
  }
}

test("an abort kills what is followed, and its reader gets the reason", async () => {
  const controller = new AbortController();
  const stream = sandbox.streamShell("echo on; sleep 772", { signal: controller.signal });
  assert.equal((await stream.next()).text, "on\n");
  const waiting = stream.wait();
  controller.abort(new RangeError("enough"));
  await assert.rejects(waiting, RangeError);
  await eventually("nothing of it is left", async () => (await running("sleep 772")) === 0);
});

test("a stream that is closed while somebody reads ends for them", async () => {
  const stream = sandbox.stream(["sleep", "773"]);
  await stream.start();
  const reading = stream.next();
  await stream.close();
  assert.equal(await reading, undefined);
  await assert.rejects(stream.wait(), GoneError);
});

test("signals and deadlines end it", async () => {
  const asked = sandbox.streamShell("trap 'exit 9' INT; echo on; sleep 60 & wait");
  assert.equal((await asked.next()).text, "on\n");
  await asked.signal("INT");
  assert.equal((await asked.wait()).exitCode, 9);
  const killed = sandbox.stream(["sleep", "60"]);
  await killed.kill();
  assert.equal((await killed.wait()).exitCode, 137);
  const late = await sandbox.stream(["sleep", "60"], { timeout_ms: 200 }).wait();
  assert.deepEqual([late.exitCode, late.timedOut], [124, true]);
});

test("a missing program is an error at the start", async () => {
  await assert.rejects(sandbox.stream(["no-such-program"]).wait(), SpawnFailedError);
});

test("a stream that is cut goes on where it was, by offset", async () => {
  const cut = await scissors(bridge.url);
  const far = await clientOf(cut.url).get("work");
  const path = "/v1/sandboxes/default/work/sessions";
  // The start's answer is lost, the first of the stream too, and the next two are cut within.
  cut.cut(`POST ${path} `);
  cut.cut(`GET ${path}/`);
  cut.cut(`GET ${path}/`, 20_000);
  cut.cut(`GET ${path}/`, 40_001);
  const events = [];
  for await (const event of far.streamShell("echo run >> /tmp/runs; seq 1 20000; seq 1 9 >&2; exit 3")) {
    events.push(event);
  }
  assert.deepEqual(cut.cuts, []);
  const count = (last) => Array.from({ length: last }, (_, at) => `${at + 1}\n`).join("");
  assert.equal(said(events), count(20_000));
  assert.equal(said(events, "stderr"), count(9));
  assert.equal(events.at(-1).result.exitCode, 3);
  assert.ok(events.every((event) => event.type !== "gap"));
  assert.equal(await sandbox.files.readText("/tmp/runs"), "run\n");
  const asked = cut.requests.filter((line) => line.startsWith(`GET ${path}/`));
  assert.ok(asked.length >= 4 && !asked.at(-1).includes("from=0&stderr_from=0 "), asked.at(-1));
});

test("input whose answer is lost is typed once", async () => {
  const cut = await scissors(bridge.url);
  const far = await clientOf(cut.url).get("work");
  const stream = far.stream(["cat"], { stdin: true });
  cut.cut(`POST /v1/sandboxes/default/work/sessions/${stream.session}/input`);
  await stream.write("once\n");
  assert.deepEqual(cut.cuts, []);
  await stream.closeStdin();
  const events = [];
  for await (const event of stream) events.push(event);
  assert.equal(said(events), "once\n");
});

test("a slow reader holds nobody else up", async () => {
  const stream = sandbox.streamShell("yes | head -c 8000000");
  assert.equal((await stream.next()).type, "output");
  assert.ok((await sandbox.exec(["true"])).ok);
  let length = 0;
  for await (const event of stream) length += event.type === "output" ? event.data.length : 0;
  assert.ok(length > 7_000_000 && stream.result.ok);
});

test("a terminal takes keys, has a size that changes, and is attached to again", async () => {
  const terminal = sandbox.terminal({ argv: ["sh"], rows: 10, columns: 40 });
  const read = async (from, wanted) => {
    let text = "";
    while (!wanted.test(text)) text += (await from.next()).text ?? "";
    return text;
  };
  await terminal.write("stty size\n");
  await read(terminal, /10 40\r\n/);
  await terminal.resize(20, 50);
  await terminal.write("stty size\n");
  await read(terminal, /20 50\r\n/);
  const again = sandbox.attach(terminal.session);
  await read(again, /10 40[^]*20 50\r\n/);
  await again.write("echo $((6 * 7))\n");
  await read(terminal, /42\r\n/);
  await again.close();
  await terminal.write("exit 7\n");
  assert.equal((await terminal.wait()).exitCode, 7);
  // Its output is in the log.
  assert.match(await read(sandbox.attach(terminal.session), /42\r\n/), /10 40/);
  await assert.rejects(sandbox.attach("nobody").write("x"), NotFoundError);
});

test("a port inside has an address outside", async () => {
  const serving = sandbox.stream(["python3", "-m", "http.server", "8123", "--bind", "127.0.0.1"]);
  await serving.start();
  const { host_port, url } = await sandbox.forward(8123);
  assert.deepEqual((await sandbox.ports()).map((one) => one.port), [8123]);
  // Until the program listens, connections are reset; now and then Node's fetch does not notice one.
  const answers = () =>
    fetch(url, { signal: AbortSignal.timeout(2_000) }).then((answer) => answer.ok, () => false);
  await eventually("it answers", answers);
  await sandbox.closePort(host_port);
  assert.deepEqual(await sandbox.ports(), []);
  await serving.close();
});

test("a link leads to a port inside", async () => {
  const serving = sandbox.stream(["python3", "-m", "http.server", "8124", "--bind", "127.0.0.1"]);
  await serving.start();
  const link = new URL(await sandbox.previewUrl(8124, { ttl_ms: 60_000 }));
  assert.match(link.host, /^8124-work\.localhost:/);
  // Not every resolver knows the names below localhost; by its path it is the same port.
  const inside = (query) => fetch(`${bridge.url}/p/default/work/8124/${query}`);
  await eventually("it answers", () => inside(link.search).then((answer) => answer.ok));
  await serving.close();
});

if (typeof WebSocket === "undefined") {
  test("a runtime without WebSocket says so", async () => {
    await assert.rejects(sandbox.connect(1), UnsupportedError);
  });
}
