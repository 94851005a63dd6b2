// The clients for JavaScript: sandboxes, commands, terminals, files, watches, code.
import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { CommandExitError, Sandbox as Base, SandboxNotFoundError } from "e2b";
import { Sandbox } from "@e2b/code-interpreter";

let sbx;
before(async () => { sbx = await Sandbox.create({ metadata: { suite: "js" } }); });
after(async () => { await sbx?.kill(); });

test("a sandbox is made, looked at, listed and killed", async () => {
  assert.equal(await sbx.isRunning(), true);
  const info = await sbx.getInfo();
  assert.equal(info.sandboxId, sbx.sandboxId);
  const pages = Base.list({ query: { metadata: { suite: "js" } }, limit: 1 });
  assert.deepEqual((await pages.nextItems()).map((one) => one.sandboxId), [sbx.sandboxId]);
  await sbx.setTimeout(600_000);
  const other = await Base.create();
  assert.equal(await other.kill(), true);
  assert.equal(await other.kill(), false);
  assert.equal(await other.isRunning(), false);
  await assert.rejects(Base.connect(other.sandboxId), SandboxNotFoundError);
  assert.ok((await (await Base.connect(sbx.sandboxId)).getMetrics()).length >= 0);
});

test("commands give output, take input and are killed", async () => {
  const done = await sbx.commands.run("echo é; echo err >&2");
  assert.deepEqual([done.stdout, done.stderr, done.exitCode], ["é\n", "err\n", 0]);
  await assert.rejects(sbx.commands.run("exit 3"), CommandExitError);
  const handle = await sbx.commands.run("read l; echo got $l", { background: true, stdin: true });
  const again = await sbx.commands.connect(handle.pid);
  await sbx.commands.sendStdin(handle.pid, "x\n");
  assert.equal((await handle.wait()).stdout, "got x\n");
  assert.equal((await again.wait()).stdout, "got x\n");
  const cat = await sbx.commands.run("cat", { background: true, stdin: true });
  await cat.sendStdin("end");
  await cat.closeStdin();
  assert.equal((await cat.wait()).stdout, "end");
  const asleep = await sbx.commands.run("sleep 1000", { background: true });
  assert.ok((await sbx.commands.list()).some((one) => one.pid === asleep.pid));
  assert.equal(await asleep.kill(), true);
  await assert.rejects(asleep.wait(), /killed/);
});

test("a terminal is typed into and resized", async () => {
  let said = "";
  const pty = await sbx.pty.create({
    cols: 90, rows: 30, onData: (data) => { said += new TextDecoder().decode(data); },
  });
  await sbx.pty.resize(pty.pid, { cols: 100, rows: 40 });
  await sbx.pty.sendInput(pty.pid, new TextEncoder().encode("stty size; exit 0\n"));
  await pty.wait();
  assert.match(said, /40 100/);
});

test("files are written, read, listed and watched", async () => {
  await sbx.files.write("js/a.txt", "héllo");
  assert.equal(await sbx.files.read("js/a.txt"), "héllo");
  assert.equal((await sbx.files.read("js/a.txt", { format: "bytes" })).length, 6);
  assert.equal(await (await sbx.files.read("js/a.txt", { format: "blob" })).text(), "héllo");
  await sbx.files.write("js/empty", "");
  assert.equal(await sbx.files.read("js/empty"), "");
  await sbx.files.write([{ path: "js/b", data: "1" }, { path: "js/c", data: "2" }]);
  const names = (await sbx.files.list("js")).map((entry) => entry.name).sort();
  assert.deepEqual(names, ["a.txt", "b", "c", "empty"]);
  const seen = Promise.withResolvers ? Promise.withResolvers() : deferred();
  const watch = await sbx.files.watchDir("js", (event) => {
    if (event.name === "w" && event.type === "write") seen.resolve();
  });
  await sbx.commands.run("echo 1 > js/w");
  await seen.promise;
  await watch.stop();
  assert.equal(await sbx.files.makeDir("js"), false);
  await sbx.files.rename("js/b", "js/d");
  await sbx.files.remove("js/d");
  assert.equal(await sbx.files.exists("js/d"), false);
  const url = await sbx.downloadUrl("js/a.txt", { useSignatureExpiration: 600 });
  assert.equal(await (await fetch(url)).text(), "héllo");
});

test("code runs in contexts", async () => {
  const out = [];
  const run = await sbx.runCode("print('é\\u2028')\n1 + 1", { onStdout: (m) => out.push(m.line) });
  assert.equal(run.text, "2");
  assert.deepEqual(out, ["é\u2028\n"]);
  const context = await sbx.createCodeContext({ language: "javascript" });
  await sbx.runCode("let x = 5", { context });
  assert.equal((await sbx.runCode("x", { context })).text, "5");
  assert.ok((await sbx.listCodeContexts()).some((one) => one.id === context.id));
  await sbx.restartCodeContext(context);
  await sbx.removeCodeContext(context);
  assert.equal((await sbx.runCode("1/0")).error.name, "ZeroDivisionError");
});

test("what a sandbox may reach is changed while it runs", async () => {
  await sbx.updateNetwork({ allowOut: ["example.org"], denyOut: ["0.0.0.0/0"] });
  assert.ok((await sbx.getInfo()).allowInternetAccess);
  await sbx.updateNetwork({});
  assert.ok(!(await sbx.getInfo()).allowInternetAccess);
  await assert.rejects(sbx.updateNetwork({ denyOut: ["10.0.0.0/8"] }), /not supported/);
});

test("one whose time is over is paused, and a connection resumes it", async () => {
  const paused = await Base.create({ timeoutMs: 1000, lifecycle: { onTimeout: "pause" } });
  try {
    await paused.files.write("kept", "1");
    const giveUpAt = Date.now() + 60_000;
    while ((await paused.getInfo()).state !== "paused") {
      assert.ok(Date.now() < giveUpAt, "it is not paused");
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    await assert.rejects(paused.commands.run("true"));
    const again = await Base.connect(paused.sandboxId, { timeoutMs: 60_000 });
    assert.equal(await again.files.read("kept"), "1");
  } finally {
    await paused.kill();
  }
});

function deferred() {
  const made = {};
  made.promise = new Promise((resolve) => { made.resolve = resolve; });
  return made;
}
