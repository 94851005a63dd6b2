/** Sandboxes, and commands that are run to their end. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { inspect } from "node:util";

import {
  BurrowClient,
  ConnectionFailedError,
  ExecutionError,
  NameTakenError,
  NotFoundError,
  SandboxTimeoutError,
  SpawnFailedError,
} from "burrow-sandbox";
import { clientOf, eventually, scissors, serve } from "./bridge.mjs";

const bridge = await serve("--dev");
const client = clientOf(bridge.url);
const sandbox = await client.create({ name: "work", labels: { team: "a" } });
const names = async (options) => (await Array.fromAsync(client.list(options))).map((one) => one.name);
Array.fromAsync ??= async (items) => {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
};

test("no shell sees the arguments of exec, and a result has both outputs", async () => {
  const script = "echo $0 $1; echo err >&2; exit 3";
  const result = await sandbox.exec(["sh", "-c", script, "a b", "*"]);
  assert.deepEqual([result.stdout, result.stderr, result.exitCode], ["a b *\n", "err\n", 3]);
  assert.equal(result.output, "a b *\nerr\n");
  assert.deepEqual([result.ok, result.timedOut, result.truncated], [false, false, false]);
  assert.deepEqual(result.cause, { type: "exited", code: 3 });
  assert.ok(result.durationMs > 0);
  assert.throws(() => result.check(), (error) => {
    return error instanceof ExecutionError && error.exitCode === 3 && error.stderr === "err\n";
  });
});

test("a command has its input, its directory, its environment and its exact bytes", async () => {
  const options = { stdin: "said", cwd: "/tmp", env: { WORD: "x" } };
  const result = await sandbox.shell("cat; pwd; echo $WORD; printf '\\377'", options);
  assert.equal(result.check().stdout, "said/tmp\nx\n�");
  assert.deepEqual([...result.stdoutBytes.subarray(-2)], [10, 255]);
  const bytes = new Uint8Array([0, 255, 10]);
  assert.deepEqual((await sandbox.exec(["cat"], { stdin: bytes })).stdoutBytes, bytes);
});

test("a timeout is a result, and an error by check", async () => {
  const result = await sandbox.shell("echo until; sleep 60", { timeout_ms: 300 });
  assert.deepEqual([result.exitCode, result.timedOut, result.stdout], [124, true, "until\n"]);
  assert.throws(() => result.check(), (error) => {
    return error instanceof SandboxTimeoutError && error.timeoutMs === 300;
  });
});

test("output beyond the bound is cut, and the result says so", async () => {
  const result = await sandbox.shell("seq 1 1000", { output_bytes_max: 10 });
  assert.deepEqual([result.stdout, result.truncated, result.ok], ["1\n2\n3\n4\n5\n", true, true]);
});

test("a program that is missing is an error that says so", async () => {
  await assert.rejects(sandbox.exec(["no-such-program"]), (error) => {
    return error instanceof SpawnFailedError && error.errno === 2 && error.stage === "exec";
  });
  // As JavaScript programs may do it.
  await assert.rejects(sandbox.exec("ls -l"), /are an array; `shell` takes a line/);
});

test("an abort kills the program and rejects with its reason", async () => {
  const controller = new AbortController();
  const running = sandbox.shell("touch /tmp/on; sleep 78", { signal: controller.signal });
  await eventually("it runs", () => sandbox.files.exists("/tmp/on"));
  controller.abort(new RangeError("enough"));
  await assert.rejects(running, RangeError);
  const found = await sandbox.shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'slee[p] 78'");
  assert.equal(found.stdout, "0\n");
  const before = AbortSignal.abort();
  await assert.rejects(sandbox.exec(["true"], { signal: before }), { name: "AbortError" });
});

test("many calls share one signal without a warning", async () => {
  const warnings = [];
  const warn = (warning) => warnings.push(warning);
  process.on("warning", warn);
  const { signal } = new AbortController();
  await Promise.all(Array.from({ length: 24 }, () => sandbox.exec(["true"], { signal })));
  process.off("warning", warn);
  assert.deepEqual(warnings, []);
});

test("sandboxes are found by name, label and state, and removed", async () => {
  assert.ok((await names({ labels: { team: "a" } })).includes("work"));
  assert.deepEqual(await names({ labels: { team: "b" } }), []);
  assert.ok((await names({ labels: { team: true }, states: ["running"] })).includes("work"));
  const found = await client.get("work");
  assert.equal(found.id, sandbox.id);
  const info = await found.info();
  assert.deepEqual([info.state, info.labels], ["running", { team: "a" }]);
  await assert.rejects(client.create({ name: "work" }), (error) => {
    return error instanceof NameTakenError && error.status === 409;
  });
  await assert.rejects(client.get("nobody"), (error) => {
    return error instanceof NotFoundError && error.code === "not_found" && error.requestId !== undefined;
  });
});

test("a sandbox is stopped, keeps its logs and is removed at the end of its block", async () => {
  const other = await client.create();
  assert.match(other.name, /^sb-/);
  await other.shell("echo kept");
  assert.equal(await other.logs(), "kept\n");
  await other.extend({ ttl_ms: 60_000 });
  assert.ok((await other.info()).expires_at_ms !== undefined);
  await other.stop({ grace_ms: 100 });
  assert.equal((await other.wait()).state, "stopped");
  assert.equal(await other.logs({ tail: 1 }), "kept\n");
  await other[Symbol.asyncDispose]();
  await assert.rejects(other.info(), NotFoundError);
  // What is gone does not run, and disposing of it twice is nothing.
  await other.kill();
  await other[Symbol.asyncDispose]();
});

test("one-shots leave nothing behind", async () => {
  const before = await names();
  assert.equal((await client.runPython("print(6 * 7)", { memory_mib: 256 })).stdout, "42\n");
  assert.equal((await client.runShell("cat", { stdin: "in" })).stdout, "in");
  assert.deepEqual(await names(), before);
});

test("a creation whose answer is lost makes one sandbox", async () => {
  const cut = await scissors(bridge.url);
  cut.cut("POST /v1/sandboxes ");
  cut.cut("POST /v1/sandboxes ");
  const made = await clientOf(cut.url).create({ name: "once" });
  assert.deepEqual(cut.cuts, []);
  assert.equal(cut.requests.filter((line) => line.startsWith("POST /v1/sandboxes ")).length, 3);
  assert.equal(made.id, (await client.get("once")).id);
  // A removal whose answer is lost has removed it.
  cut.cut("DELETE /v1/sandboxes/default/once");
  await made.remove();
  assert.ok(!(await names()).includes("once"));
});

test("a creation that is aborted leaves no sandbox", async () => {
  const controller = new AbortController();
  const making = client.create({ name: "unwanted", signal: controller.signal });
  setImmediate(() => controller.abort());
  await assert.rejects(making, { name: "AbortError" });
  assert.ok(!(await names()).includes("unwanted"));
});

test("a command whose answer is lost runs once, and its result is found", async () => {
  const cut = await scissors(bridge.url);
  const far = await clientOf(cut.url).get("work");
  cut.cut("POST /v1/sandboxes/default/work/shell ");
  const result = await far.shell("echo run >> /tmp/runs; echo out; echo err >&2; exit 4");
  assert.deepEqual(cut.cuts, []);
  assert.deepEqual([result.stdout, result.stderr, result.exitCode], ["out\n", "err\n", 4]);
  assert.equal(await sandbox.files.readText("/tmp/runs"), "run\n");
  const impatient = await clientOf(cut.url, { retries: 0 }).get("work");
  cut.cut("POST /v1/sandboxes/default/work/exec ");
  await assert.rejects(impatient.exec(["true"]), ConnectionFailedError);
});

test("a Unix socket is a server's address too, and the key is shown nowhere", async () => {
  const local = new BurrowClient({ url: `unix:${bridge.socket}`, apiKey: "sec.ret" });
  assert.equal((await (await local.get("work")).exec(["echo", "hi"])).stdout, "hi\n");
  assert.ok(!(inspect(local, { depth: 9, showHidden: true }) + JSON.stringify(local)).includes("sec.ret"));
  local.close();
});

test("forks have the files and part from there", async () => {
  const work = await client.get("work");
  await work.exec(["sh", "-c", "echo one > /tmp/seen"]);
  const { forks, report } = await work.fork({ names: ["left", "right"] });
  assert.equal(report.memory, false);
  const seen = [];
  for (const fork of forks) {
    seen.push((await fork.exec(["cat", "/tmp/seen", "/etc/hostname"])).stdout);
    await fork.remove();
  }
  assert.deepEqual(seen, ["one\nleft\n", "one\nright\n"]);
});

test("what was kept is compared, and a session has a receipt", async () => {
  const work = await client.get("work");
  await work.exec(["echo", "kept"]);
  const session = (await work.verify()).at(-1);
  assert.deepEqual(session.outputs.map(({ finding }) => finding), ["equal", "equal"]);
  const receipt = await work.receipt(session.session);
  assert.equal(receipt.statement.outputs[0].sha256, session.outputs[0].sha256);
});

test("a sandbox of a template is ready", async () => {
  const start = "echo $A > /tmp/up; exec sleep 1000";
  await client.putTemplate("served", { env: { A: "1" }, start, ready: "test -s /tmp/up" });
  const made = await client.create({ name: "of-template", template: "served" });
  assert.equal((await made.exec(["cat", "/tmp/up"])).stdout, "1\n");
  await made.remove();
  assert.deepEqual((await client.templates()).map((one) => one.name), ["served"]);
  await client.removeTemplate("served");
  assert.deepEqual(await client.templates(), []);
});

test("every operation of the API can be called by its name", async () => {
  const { snapshots } = await client.call("list_snapshots", {});
  assert.deepEqual(snapshots, []);
  const path = { namespace: "default", name: "work" };
  const seen = [];
  for await (const event of client.events("exec", { path, body: { argv: ["echo", "x"] } })) {
    seen.push(event.type);
  }
  assert.deepEqual(seen, ["started", "stdout", "exited"]);
});

test("a fetch of the caller's own sends the requests", async () => {
  const asked = [];
  const own = clientOf(bridge.url, {
    fetch: (url, init) => {
      asked.push(`${init.method} ${new URL(url).pathname}`);
      return fetch(url, init);
    },
  });
  assert.equal((await (await own.get("work")).exec(["echo", "hi"])).stdout, "hi\n");
  assert.deepEqual(asked, ["GET /v1/sandboxes/default/work", "POST /v1/sandboxes/default/work/exec"]);
});
