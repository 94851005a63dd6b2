// The clients for JavaScript: sandboxes, commands, terminals, files, watches, code.
import assert from "node:assert/strict";
import { after, before } from "node:test";

import { CommandExitError, Sandbox as Base, SandboxNotFoundError, Secret, Template } from "e2b";
import { Sandbox } from "@e2b/code-interpreter";
import { suite } from "./calls.mjs";

const test = suite("javascript");
let sbx;
before(async () => { sbx = await Sandbox.create({ metadata: { suite: "js" } }); });
after(async () => { await sbx?.kill(); });

test("a sandbox is made, looked at, listed and killed", async () => {
  assert.equal(await sbx.isRunning(), true);
  const info = await sbx.getInfo();
  assert.equal(info.sandboxId, sbx.sandboxId);
  assert.equal((await Base.getFullInfo(sbx.sandboxId)).sandboxId, sbx.sandboxId);
  assert.ok(sbx.getHost(3000).startsWith(`3000-${sbx.sandboxId}.`));
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
  const other = await sbx.commands.run("cat", { background: true, stdin: true });
  await sbx.commands.closeStdin(other.pid);
  assert.equal((await other.wait()).exitCode, 0);
  const asleep = await sbx.commands.run("sleep 1000", { background: true });
  assert.ok((await sbx.commands.list()).some((one) => one.pid === asleep.pid));
  assert.equal(await asleep.kill(), true);
  await assert.rejects(asleep.wait(), /killed/);
  const left = await sbx.commands.run("sleep 1000", { background: true });
  await left.disconnect();
  assert.ok((await sbx.commands.list()).some((one) => one.pid === left.pid));
  assert.equal(await sbx.commands.kill(left.pid), true);
  assert.equal(await sbx.commands.kill(left.pid), false);
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
  const other = await sbx.pty.create({ cols: 80, rows: 24, onData: () => {} });
  const heard = Promise.withResolvers ? Promise.withResolvers() : deferred();
  let text = "";
  await sbx.pty.connect(other.pid, {
    onData: (data) => {
      text += new TextDecoder().decode(data);
      if (text.includes("word-3")) heard.resolve();
    },
  });
  await sbx.pty.sendInput(other.pid, new TextEncoder().encode("echo word-$((1 + 2))\n"));
  await heard.promise;
  assert.equal(await sbx.pty.kill(other.pid), true);
});

test("files are written, read, listed and watched", async () => {
  await sbx.files.write("js/a.txt", "héllo");
  assert.equal(await sbx.files.read("js/a.txt"), "héllo");
  assert.equal((await sbx.files.read("js/a.txt", { format: "bytes" })).length, 6);
  assert.equal(await (await sbx.files.read("js/a.txt", { format: "blob" })).text(), "héllo");
  await sbx.files.write("js/empty", "");
  assert.equal(await sbx.files.read("js/empty"), "");
  await sbx.files.write([{ path: "js/b", data: "1" }, { path: "js/c", data: "2" }]);
  await sbx.files.writeFiles([{ path: "js/b", data: "12" }]);
  assert.equal((await sbx.files.getInfo("js/b")).size, 2);
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
  const up = await sbx.uploadUrl("js/up");
  const headers = { "Content-Type": "application/octet-stream" };
  assert.ok((await fetch(up, { method: "POST", headers, body: "up" })).ok);
  assert.equal(await sbx.files.read("js/up"), "up");
});

test("git is a command", async () => {
  const { git, files } = sbx;
  await git.init("/tmp/repo", { initialBranch: "main" });
  await git.configureUser("A", "a@example.org");
  await files.write("/tmp/repo/a", "1");
  await git.add("/tmp/repo");
  await git.commit("/tmp/repo", "one");
  assert.equal((await git.branches("/tmp/repo")).currentBranch, "main");
  assert.equal((await git.status("/tmp/repo")).isClean, true);
  await sbx.commands.run("git clone --bare /tmp/repo /tmp/bare.git");
  await git.clone("/tmp/bare.git", { path: "/tmp/clone" });
  await git.createBranch("/tmp/clone", "side");
  await git.checkoutBranch("/tmp/clone", "main");
  await git.deleteBranch("/tmp/clone", "side");
  await files.write("/tmp/clone/a", "2");
  await git.restore("/tmp/clone", { paths: ["a"] });
  assert.equal(await files.read("/tmp/clone/a"), "1");
  await files.write("/tmp/clone/b", "2");
  await git.add("/tmp/clone");
  await git.reset("/tmp/clone");
  await git.add("/tmp/clone");
  await git.commit("/tmp/clone", "two");
  await git.push("/tmp/clone");
  await git.remoteAdd("/tmp/repo", "origin", "/tmp/bare.git");
  assert.equal(await git.remoteGet("/tmp/repo", "origin"), "/tmp/bare.git");
  await git.pull("/tmp/repo", { remote: "origin", branch: "main" });
  assert.equal(await files.read("/tmp/repo/b"), "2");
  await git.setConfig("burrow.test", "yes");
  assert.equal(await git.getConfig("burrow.test"), "yes");
  await git.dangerouslyAuthenticate({ username: "name", password: "word" });
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

test("a pause is done once and a connection ends it", async () => {
  const one = await Base.create();
  try {
    assert.equal(await one.pause(), true);
    assert.equal(await one.pause(), false);
    assert.equal(await one.betaPause(), false);
    assert.equal((await one.getInfo()).state, "paused");
    const again = await one.connect();
    assert.equal((await again.commands.run("echo 1")).stdout, "1\n");
  } finally {
    await one.kill();
  }
});

test("a template that is not there is refused", async () => {
  await assert.rejects(Base.create("none-of-ours"), /404/);
  assert.match(sbx.getMcpUrl(), /\/mcp$/);
  await sbx.files.write("/etc/mcp-gateway/.token", "t", { user: "root" });
  assert.equal(await sbx.getMcpToken(), "t");
});

test("what this server does not do is refused with the reason", async () => {
  const calls = {
    createSnapshot: () => sbx.createSnapshot(),
    fork: () => sbx.fork(),
    secretCreate: () => Secret.create("a", "b"),
    secretGetInfo: () => Secret.getInfo("a"),
    secretList: () => Secret.list().nextItems(),
    secretUpdate: () => Secret.update("a", "b"),
    secretExists: () => Secret.exists("a"),
    secretDestroy: () => Secret.destroy("a"),
  };
  for (const [name, call] of Object.entries(calls)) {
    await assert.rejects(call(), (error) => {
      assert.match(error.message, /501|not supported/, `${name}: ${error}`);
      return true;
    });
  }
  assert.deepEqual(await Base.listSnapshots().nextItems(), []);
  assert.equal(await Base.deleteSnapshot("none-of-ours"), false);
  assert.equal(await Template.aliasExists("none-of-ours"), false);
});

function deferred() {
  const made = {};
  made.promise = new Promise((resolve) => { made.resolve = resolve; });
  return made;
}
