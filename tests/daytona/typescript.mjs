// The client for TypeScript, by either of its names.

import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

const { Daytona, DaytonaNotFoundError, DaytonaTimeoutError, DaytonaFileNotFoundError } = await import(
  process.env.BURROW_TEST_DAYTONA_PACKAGE
);

const client = new Daytona();

test.after(async () => {
  await client[Symbol.asyncDispose]();
  // Its attempts to hear events do not end by themselves.
  setImmediate(() => process.exit());
});

async function withSandbox(options, use) {
  const made = await client.create(options);
  try {
    await use(made);
  } finally {
    await made.delete();
  }
}

async function until(look) {
  for (let tries = 0; tries < 600; tries++) {
    const found = await look();
    if (found) return found;
    await sleep(50);
  }
  assert.fail("it did not come in time");
}

test("a sandbox is made, found, stopped, started and removed", async () => {
  const made = await client.create({ labels: { js: "yes" }, envVars: { A: "it's" }, autoStopInterval: 0 });
  assert.equal(made.state, "started");
  assert.equal((await client.get(made.name)).id, made.id);
  const listed = [];
  for await (const one of client.list({ labels: { js: "yes" }, limit: 1 })) listed.push(one.id);
  assert.deepEqual(listed, [made.id]);
  await made.fs.uploadFile(Buffer.from("kept"), "/tmp/kept");
  await made.stop();
  assert.equal(made.state, "stopped");
  await made.start();
  assert.equal((await made.fs.downloadFile("/tmp/kept")).toString(), "kept");
  await made.setAutostopInterval(5);
  await made.refreshData();
  assert.equal(made.autoStopInterval, 5);
  await made.pause();
  await made.start();
  await made.refreshActivity();
  assert.equal(await made.getWorkDir(), (await made.process.executeCommand("pwd")).result.trim());
  await assert.rejects(made.resize({ cpu: 2 }), (error) => error.statusCode === 501);
  await assert.rejects(made.setLabels({ a: "b" }), /not supported by this server/);
  await made.delete(60, true);
  assert.equal(made.state, "destroyed");
  await assert.rejects(client.get(made.id), DaytonaNotFoundError);
});

test("commands and code run to their end", () =>
  withSandbox({ envVars: { A: "it's" } }, async (made) => {
    let ran = await made.process.executeCommand("echo $A $B; exit 3", "/usr", { B: "b" });
    assert.deepEqual([ran.exitCode, ran.result], [3, "it's b\n"]);
    await assert.rejects(made.process.executeCommand("sleep 60", undefined, undefined, 1), DaytonaTimeoutError);
    ran = await made.process.codeRun("import sys\nprint(sys.argv[1:])", { argv: ["a b"] });
    assert.deepEqual([ran.exitCode, ran.result], [0, "['a b']\n"]);
  }));

test("sessions have logs that are followed", () =>
  withSandbox(undefined, async (made) => {
    const { process } = made;
    await process.createSession("s");
    await process.executeSessionCommand("s", { command: "cd /usr; export A=a" });
    const ran = await process.executeSessionCommand("s", { command: "pwd; echo $A >&2" });
    assert.deepEqual([ran.exitCode, ran.stdout, ran.stderr], [0, "/usr\n", "a\n"]);
    const script = "read line; for i in $(seq 5000); do echo $line $i; echo $i >&2; done";
    const { cmdId } = await process.executeSessionCommand("s", { command: script, runAsync: true });
    await process.sendSessionCommandInput("s", cmdId, "it's\n");
    const [out, err] = [[], []];
    await process.getSessionCommandLogs("s", cmdId, (text) => out.push(text), (text) => err.push(text));
    const numbers = Array.from({ length: 5000 }, (_, at) => at + 1);
    assert.equal(out.join(""), numbers.map((number) => `it's ${number}\n`).join(""));
    assert.equal(err.join(""), numbers.map((number) => `${number}\n`).join(""));
    await until(async () => (await process.getSessionCommand("s", cmdId)).exitCode === 0);
    assert.equal((await process.getSessionCommandLogs("s", cmdId)).stdout, out.join(""));
    assert.deepEqual((await process.listSessions()).map((one) => one.sessionId), ["s"]);
    assert.equal((await process.getSession("s")).commands.length, 3);
    await process.deleteSession("s");
    await assert.rejects(process.getSession("s"), DaytonaNotFoundError);
  }));

test("a terminal is typed into, resized and ended", () =>
  withSandbox(undefined, async (made) => {
    const heard = [];
    const options = { id: "t", cols: 100, rows: 30, envs: { A: "it's" }, onData: (bytes) => heard.push(bytes) };
    const handle = await made.process.createPty(options);
    assert.equal((await handle.resize(120, 40)).cols, 120);
    assert.equal((await made.process.getPtySessionInfo("t")).active, true);
    await handle.sendInput("stty size; echo a${A}z; exit 4\n");
    const ended = await handle.wait();
    const text = Buffer.concat(heard).toString();
    assert.equal(ended.exitCode, 4, text);
    assert.ok(text.includes("40 120\r\n") && text.includes("ait'sz\r\n"), text);
    const other = await made.process.createPty({ id: "u", onData: () => {} });
    const again = await made.process.connectPty("u", { onData: () => {} });
    assert.deepEqual((await made.process.listPtySessions()).map((one) => one.id), ["u"]);
    await other.kill();
    assert.equal((await again.wait()).exitCode, 137);
  }));

test("files go up and down, and are searched and changed", () =>
  withSandbox(undefined, async (made) => {
    const { fs } = made;
    await fs.createFolder("/tmp/d", "755");
    const large = Buffer.alloc(2_000_000, "x");
    await fs.uploadFiles([
      { source: Buffer.from("é TODO\n"), destination: "/tmp/d/é \"q\".txt" },
      { source: large, destination: "/tmp/d/large" },
      { source: Buffer.alloc(0), destination: "/tmp/d/empty" },
    ]);
    assert.equal((await fs.downloadFile("/tmp/d/é \"q\".txt")).toString(), "é TODO\n");
    assert.ok((await fs.downloadFile("/tmp/d/large")).equals(large));
    assert.equal((await fs.downloadFile("/tmp/d/empty")).length, 0);
    await fs.downloadFile("/tmp/d/large", "local");
    assert.ok((await readFile("local")).equals(large));
    await writeFile("other", "streamed");
    await fs.uploadFile("other", "/tmp/d/other");
    const pieces = [];
    for await (const piece of await fs.downloadFileStream("/tmp/d/other")) pieces.push(piece);
    assert.equal(Buffer.concat(pieces).toString(), "streamed");
    await fs.uploadFileStream(Buffer.from("up"), "/tmp/d/up");
    const names = (await fs.listFiles("/tmp/d")).map((one) => one.name);
    assert.deepEqual(names.sort(), ["empty", "large", "other", "up", "é \"q\".txt"]);
    assert.equal((await fs.findFiles("/tmp/d", "TODO"))[0].line, 1);
    assert.deepEqual((await fs.searchFiles("/tmp/d", "u*")).files, ["/tmp/d/up"]);
    const [result] = await fs.replaceInFiles(["/tmp/d/up"], "up", "down");
    assert.equal(result.success, true);
    await fs.setFilePermissions("/tmp/d/up", { mode: "600" });
    assert.equal((await fs.getFileDetails("/tmp/d/up")).permissions, "0600");
    await fs.moveFiles("/tmp/d/up", "/tmp/d/moved");
    assert.equal((await fs.downloadFile("/tmp/d/moved")).toString(), "down");
    await fs.deleteFile("/tmp/d", true);
    await assert.rejects(fs.getFileDetails("/tmp/d"), DaytonaFileNotFoundError);
    await assert.rejects(fs.downloadFile("/tmp/d/up"), DaytonaFileNotFoundError);
  }));

test("code keeps its state in a context", () =>
  withSandbox(undefined, async (made) => {
    const { codeInterpreter } = made;
    const context = await codeInterpreter.createContext("/usr");
    const heard = [];
    let ran = await codeInterpreter.runCode("x = 1\nprint('é')", { context, onStdout: (said) => heard.push(said.output) });
    assert.deepEqual([ran.stdout, ran.stderr, heard.join("")], ["é\n", "", "é\n"]);
    ran = await codeInterpreter.runCode("import os\nprint(x, os.getcwd())\n1/0", { context });
    assert.equal(ran.stdout, "1 /usr\n");
    assert.equal(ran.error.name, "ZeroDivisionError");
    await assert.rejects(codeInterpreter.runCode("while True: pass", { context, timeout: 1 }), DaytonaTimeoutError);
    assert.ok((await codeInterpreter.listContexts()).some((one) => one.id === context.id));
    await codeInterpreter.deleteContext(context);
  }));

test("repositories are those of the sandbox's git", async (t) => {
  await withSandbox(undefined, async (made) => {
    if ((await made.process.executeCommand("git --version")).exitCode !== 0) {
      return t.skip("there is no git in the sandbox");
    }
    const { git } = made;
    await git.init("/tmp/r", false, "main");
    await made.fs.uploadFile(Buffer.from("1"), "/tmp/r/a");
    await git.add("/tmp/r", ["a"]);
    const { sha } = await git.commit("/tmp/r", "it's one", "Me", "me@example.org");
    assert.equal(sha.length, 40);
    await git.createBranch("/tmp/r", "topic");
    assert.deepEqual((await git.branches("/tmp/r")).branches.sort(), ["main", "topic"]);
    assert.equal((await git.status("/tmp/r")).currentBranch, "topic");
    await git.clone("/tmp/r", "/tmp/c", "main");
    assert.equal((await git.status("/tmp/c")).branchPublished, true);
    await assert.rejects(git.status("/tmp"), (error) => error.code === "GIT_REPO_NOT_FOUND");
  });
});

test("a port is reached by a link", () =>
  withSandbox(undefined, async (made) => {
    const link = await made.getPreviewLink(8000);
    assert.ok(link.url.startsWith("http") && link.token.length > 20, link);
    const signed = await made.getSignedPreviewUrl(8000, 60);
    assert.ok(signed.url.includes(signed.token));
    await made.expireSignedPreviewUrl(8000, signed.token);
  }));
