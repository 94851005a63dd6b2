/** What goes wrong, and which error says so. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import * as https from "node:https";
import { join } from "node:path";
import { test } from "node:test";

import * as burrow from "burrow-sandbox";
import { fromProblem } from "../dist/errors.js";
import { clientOf, eventually, serve } from "./bridge.mjs";

const {
  ApiError,
  BurrowClient,
  BurrowError,
  ConflictError,
  ConnectionFailedError,
  InvalidRequestError,
  NotRunningError,
  NotSentError,
  PermissionDeniedError,
  SandboxTimeoutError,
  SandboxUnavailableError,
  UnauthenticatedError,
} = burrow;

const bridge = await serve();
const key = bridge.run("keygen");

/** A server of this test's own, for answers that a real one does not give. */
async function answering(handler) {
  const server = createServer(handler);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { url: `http://127.0.0.1:${server.address().port}`, close: () => {
    server.close();
    server.closeAllConnections();
  } };
}

test("the key comes from an option, a variable or a file, and is refused in words", async () => {
  const client = new BurrowClient({ url: bridge.url, apiKey: key });
  await client.health();
  await assert.rejects(clientOf(bridge.url).health(), UnauthenticatedError);
  await assert.rejects(new BurrowClient({ url: bridge.url, apiKey: "none.such" }).health(), PermissionDeniedError);
  const file = join(bridge.home, "key");
  writeFileSync(file, `${key}\n`);
  Object.assign(process.env, { BURROW_URL: bridge.url, BURROW_API_KEY_FILE: file });
  await new BurrowClient().health();
  process.env.BURROW_API_KEY_FILE = `${file}.none`;
  assert.throws(() => new BurrowClient(), SandboxUnavailableError);
  Object.assign(process.env, { BURROW_API_KEY: key });
  await new BurrowClient().health();
  for (const name of ["BURROW_URL", "BURROW_API_KEY", "BURROW_API_KEY_FILE"]) delete process.env[name];
});

test("a key of another namespace, or one that may only read, is refused", async () => {
  const reader = new BurrowClient({ url: bridge.url, apiKey: bridge.run("keygen", "--scope", "read") });
  await reader.health();
  await assert.rejects(reader.create(), PermissionDeniedError);
  const other = bridge.run("keygen", "--namespace", "team");
  await assert.rejects(new BurrowClient({ url: bridge.url, apiKey: other }).create(), PermissionDeniedError);
  await new BurrowClient({ url: bridge.url, apiKey: other, namespace: "team" }).health();
});

test("addresses and keys that cannot be are refused before anything is sent", () => {
  for (const url of ["ftp://host", "nonsense", "http://user:word@host", "http://host/?x", "unix:relative"]) {
    assert.throws(() => clientOf(url), InvalidRequestError, url);
  }
  assert.throws(() => new BurrowClient({ url: "http://host", apiKey: "a b" }), (error) => {
    return error instanceof InvalidRequestError && !error.message.includes("a b");
  });
});

test("a server that is not there, or is something else, is unavailable", async () => {
  const nobody = await answering(() => undefined);
  nobody.close();
  await assert.rejects(clientOf(nobody.url, { retries: 1 }).health(), NotSentError);
  const other = await answering((_, answer) => answer.end("<html>"));
  await assert.rejects(clientOf(other.url, { retries: 0 }).health(), (error) => {
    return error instanceof ConnectionFailedError && error instanceof SandboxUnavailableError;
  });
  other.close();
  const proxy = await answering((_, answer) => answer.writeHead(502).end("no upstream"));
  await assert.rejects(clientOf(proxy.url).health(), (error) => {
    return error instanceof SandboxUnavailableError && error.status === 502;
  });
  proxy.close();
});

test("a redirect is not followed, so that the key stays with its server", async () => {
  let asked = 0;
  const thief = await answering((_, answer) => (asked++, answer.end("{}")));
  const server = await answering((_, answer) => answer.writeHead(307, { location: thief.url }).end());
  await assert.rejects(clientOf(server.url).health(), ApiError);
  await assert.rejects(clientOf(server.url, { fetch, retries: 0 }).health(), ConnectionFailedError);
  assert.equal(asked, 0);
  thief.close();
  server.close();
});

test("a file of certificates is trusted, and nothing else is", async () => {
  const [key, cert] = [join(bridge.home, "tls.key"), join(bridge.home, "tls.pem")];
  const made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 -subj /CN=test";
  const words = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert];
  execFileSync("openssl", [...made.split(" "), ...words], { stdio: "ignore" });
  const options = { key: readFileSync(key), cert: readFileSync(cert) };
  const server = https.createServer(options, (_, answer) => answer.end('{"sandboxes":[]}'));
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `https://127.0.0.1:${server.address().port}`;
  await clientOf(url, { caFile: cert }).health();
  await assert.rejects(clientOf(url, { retries: 0 }).health(), ConnectionFailedError);
  server.close();
  server.closeAllConnections();
});

test("a server that is busy is asked again when it says", async () => {
  let asked = 0;
  const busy = await answering((_, answer) => {
    answer.setHeader("retry-after", "0");
    if (asked++ < 2) answer.writeHead(429).end('{"code":"rate_limited","message":"slowly"}');
    else answer.end('{"sandboxes":[]}');
  });
  await clientOf(busy.url).health();
  assert.equal(asked, 3);
  busy.close();
});

test("a call that takes too long, and a body that stalls, are timeouts", async () => {
  const silent = await answering(() => undefined);
  const client = clientOf(silent.url);
  await assert.rejects(client.call("livez", {}, { timeoutMs: 100 }), (error) => {
    return error instanceof SandboxTimeoutError && error.timeoutMs === 100;
  });
  silent.close();
});

test("what is paused or stopped is a conflict that says so", async () => {
  const client = new BurrowClient({ url: bridge.url, apiKey: key });
  const sandbox = await client.create({ name: "still" });
  await assert.rejects(sandbox.snapshot("base"), BurrowError);
  assert.deepEqual(await client.snapshots(), []);
  await sandbox.stop({ grace_ms: 100 });
  await assert.rejects(sandbox.exec(["true"]), (error) => {
    return error instanceof NotRunningError && error instanceof ConflictError && error.reason === "not_running";
  });
  await sandbox.remove();
});

test("a sandbox that ends under a stream is an error, and nothing is left unhandled", async () => {
  const client = new BurrowClient({ url: bridge.url, apiKey: key });
  const sandbox = await client.create();
  const unhandled = [];
  const tell = (reason) => unhandled.push(reason);
  process.on("unhandledRejection", tell);
  const stream = sandbox.stream(["cat"], { stdin: new Uint8Array(5_000_000) });
  await stream.start();
  const typing = sandbox.stream(["sleep", "60"], { stdin: true });
  await typing.start();
  await eventually("it runs", async () => (await stream.next())?.type === "output");
  // Nobody waits for these.
  for (let at = 0; at < 3; at++) void typing.write("x");
  const left = sandbox.stream(["cat"], { stdin: true });
  void left.write("x");
  void left.close();
  void left.write("x");
  await sandbox.kill();
  const [result] = await Promise.allSettled([typing.wait()]);
  assert.ok(result.status === "rejected" || result.value.exitCode !== 0);
  await sandbox.remove();
  await left.close();
  await new Promise(setImmediate);
  process.off("unhandledRejection", tell);
  assert.deepEqual(unhandled, []);
});

test("every error has one base and its own name, and a refusal of any shape is one", () => {
  const classes = Object.entries(burrow).filter(([name]) => name.endsWith("Error"));
  assert.ok(classes.length >= 25);
  for (const [name, kind] of classes) {
    assert.ok(kind === BurrowError || kind.prototype instanceof BurrowError, name);
    if (name !== "ExecutionError") assert.equal(new kind("x").name, name);
  }
  for (const odd of [undefined, null, 7, [], { code: 7, details: "x" }, { code: "toString" }, { code: "__proto__" }]) {
    const error = fromProblem(odd, 418, "r");
    assert.ok(error instanceof ApiError && error.requestId === "r");
  }
  const newer = fromProblem({ code: "from_tomorrow", message: "no", hint: "wait" }, 409);
  assert.ok(newer instanceof ConflictError);
  assert.deepEqual([newer.code, newer.message, newer.hint], ["from_tomorrow", "no (wait)", "wait"]);
});
