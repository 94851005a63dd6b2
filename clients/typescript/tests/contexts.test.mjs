/** Contexts, notebooks, and what runs leave behind. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { ConnectionFailedError, ExecutionError, NotFoundError, SandboxTimeoutError } from "burrow-sandbox";
import { clientOf, eventually, scissors, serve } from "./bridge.mjs";

const bridge = await serve("--dev");
const client = clientOf(bridge.url);
const sandbox = await client.create({ name: "work" });
const python = sandbox.context("python");

async function all(items) {
  const found = [];
  for await (const item of items) found.push(item);
  return found;
}

test("state stays between runs, and the value of the last expression is the result", async () => {
  await python.run("x = 41");
  const run = await python.run("print('said')\nx + 1");
  assert.deepEqual([run.stdout, run.result, run.status, run.ok], ["said\n", "42", "ok", true]);
  assert.equal(run.check(), run);
  const bash = sandbox.context("other", { language: "bash" });
  assert.equal((await bash.run("echo $((6 * 7))")).stdout, "42\n");
  assert.equal((await bash.info()).language, "bash");
  await bash.close();
  await assert.rejects(bash.info(), NotFoundError);
});

test("an exception is a result, and an error by check", async () => {
  const run = await python.run("1 / 0");
  assert.deepEqual([run.ok, run.status, run.error.type], [false, "error", "ZeroDivisionError"]);
  assert.throws(() => run.check(), (error) => {
    return error instanceof ExecutionError && error.traceback.includes("line 1");
  });
  const late = await python.run("while True: pass", { timeout_ms: 200 });
  assert.deepEqual([late.timedOut, late.stateKept], [true, true]);
  assert.throws(() => late.check(), SandboxTimeoutError);
  assert.equal((await python.run("x")).result, "41");
});

test("the events of a run come as they happen", async () => {
  const events = await all(python.stream("for n in range(2): print(n)\nn"));
  const types = events.map((event) => event.type);
  assert.deepEqual([types[0], types.at(-1)], ["queued", "finished"]);
  const out = events.filter((event) => event.type === "stdout");
  assert.equal(out.map((event) => event.text).join(""), "0\n1\n");
  const display = events.find((event) => event.type === "display").display;
  assert.deepEqual([display.role, display.text], ["value", "1"]);
  assert.ok(events.at(-1).result.ok);
});

test("leaving a run, or aborting it, interrupts it and keeps its state", async () => {
  const endless = "kept = 1\nprint('on')\nwhile True: pass";
  for await (const event of python.stream(endless)) if (event.type === "stdout") break;
  const controller = new AbortController();
  const running = python.run("while True: pass", { signal: controller.signal });
  await eventually("it runs", async () => (await python.info()).state === "running");
  controller.abort();
  await assert.rejects(running, { name: "AbortError" });
  assert.equal((await python.run("kept")).result, "1");
  await python.restart();
  assert.equal((await python.run("kept")).error.type, "NameError");
});

test("a run that asks for input is answered", async () => {
  let result;
  for await (const event of python.stream("name = input('who? ')\nname * 2", { input: true })) {
    if (event.type === "input_request") {
      assert.equal(event.prompt, "who? ");
      await python.answer(event, "ab");
    }
    if (event.type === "finished") ({ result } = event);
  }
  assert.equal(result.ok, true);
  assert.equal((await python.run("name")).result, "'ab'");
});

test("a run whose connection is cut is not repeated", async () => {
  const cut = await scissors(bridge.url);
  const far = (await clientOf(cut.url).get("work")).context("python");
  await python.run("count = 0");
  cut.cut("POST /v1/sandboxes/default/work/contexts/python/run");
  await assert.rejects(far.run("count += 1"), ConnectionFailedError);
  assert.equal((await python.run("count")).result, "1");
});

test("what a run leaves is an artifact, and its stream goes on where it was cut", async () => {
  const code = "import os\nos.makedirs('/tmp/a', exist_ok=True)\nos.chdir('/tmp/a')\n";
  await python.run(code);
  const script = "seq 1 20000 > numbers.txt; echo two > two.txt";
  const ran = await sandbox.shell(script, { cwd: "/tmp/a", artifacts: true });
  const kept = ran.captured.artifacts.find((one) => one.name === "numbers.txt");
  const cut = await scissors(bridge.url);
  cut.cut(`GET /v1/artifacts/${kept.id}/content`, 30_000);
  const stream = clientOf(cut.url).artifacts.readStream(kept.id);
  const text = await new Response(stream).text();
  assert.equal(text, Array.from({ length: 20_000 }, (_, at) => `${at + 1}\n`).join(""));
  assert.deepEqual(cut.cuts, []);
  const listed = await all(client.artifacts.list({ sandbox: "work", limit: 1 }));
  assert.deepEqual(listed.map((one) => one.name).sort(), ["numbers.txt", "two.txt"]);
  await client.artifacts.remove(kept.id);
  await assert.rejects(client.artifacts.get(kept.id), NotFoundError);
  assert.equal((await sandbox.keep("/tmp/a/two.txt")).bytes ?? 4, 4);
});

test("a notebook keeps its variables, and has a history", async () => {
  const notebook = client.notebook("kept");
  await notebook.run("y = 20");
  await notebook.save();
  assert.equal((await notebook.run("y + 1")).result, "21");
  assert.equal((await notebook.info()).name, "kept");
  assert.equal((await notebook.history()).runs.length, 2);
  assert.deepEqual((await client.notebooks()).map((one) => one.name), ["kept"]);
  await notebook.reset();
  assert.equal((await notebook.run("y")).error.type, "NameError");
  await notebook.remove();
  assert.deepEqual(await client.notebooks(), []);
});
