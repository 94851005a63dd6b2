/**
 * The client in a browser: Chromium on a page of another origin, against a server that lists the origin and
 * asks for a key.
 */

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, test } from "node:test";

import { chromium } from "playwright-core";

import { here, serve } from "./bridge.mjs";

const PROGRAMS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
const program = PROGRAMS.find((path) => existsSync(path));
const dist = join(here, "../dist");

/** What a page asks its own server for: its key. */
let session = {};

/** Pages that have the client's files beside them: an empty one, and the one of the README. */
async function pages() {
  const readme = readFileSync(join(dist, "../README.md"), "utf8");
  const found = {
    "/": "<!doctype html>",
    "/favicon.ico": "",
    "/readme": readme.match(/```html\n([^]*?)```/)[1],
  };
  const server = createServer((request, answer) => {
    const path = new URL(request.url, "http://page").pathname;
    const file = path.match(/^\/burrow-sandbox(\/[\w-]+\.js)$/);
    if (path in found) return answer.setHeader("content-type", "text/html").end(found[path]);
    if (path === "/session") return answer.end(JSON.stringify(session));
    if (file === null) return answer.writeHead(404).end();
    answer.setHeader("content-type", "text/javascript").end(readFileSync(join(dist, file[1])));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  after(() => server.close().closeAllConnections());
  return `http://127.0.0.1:${server.address().port}`;
}

if (program === undefined) {
  test("the client in a browser", { skip: "no Chromium" }, () => undefined);
} else {
  const origin = await pages();
  process.env.BURROW_SERVER_ALLOWED_ORIGINS = origin;
  const bridge = await serve();
  const stranger = await serve("--dev");
  delete process.env.BURROW_SERVER_ALLOWED_ORIGINS;
  const key = bridge.run("keygen");
  session = { url: bridge.url, apiKey: key };
  const browser = await chromium.launch({ executablePath: program, args: ["--no-sandbox"] });
  after(() => browser.close());
  const page = await browser.newPage();
  const problems = [];
  page.on("pageerror", (error) => problems.push(error));
  await page.goto(origin);
  /** Runs a function in the page with a client and a sandbox of its own. */
  const inPage = (work) => {
    const script = `(async ({ url, apiKey }) => {
      const burrow = await import("/burrow-sandbox/web.js");
      const client = new burrow.BurrowClient({ url, apiKey });
      const sandbox = await client.create();
      try {
        return await (${work})(sandbox, client, burrow);
      } finally {
        await sandbox.remove();
      }
    })(${JSON.stringify(session)})`;
    return page.evaluate(script);
  };

  test("commands, contexts and files work in a page", async () => {
    const found = await inPage(async (sandbox) => {
      const result = await sandbox.exec(["cat"], { stdin: "said" });
      const run = await sandbox.context("python").run("6 * 7");
      // A browser sends no stream over HTTP/1.1, and yet it is taken.
      await sandbox.files.write("/tmp/up", new Blob(["a".repeat(300_000)]).stream());
      const text = await new Response(sandbox.files.readStream("/tmp/up")).text();
      return [result.stdout, run.result, text.length];
    });
    assert.deepEqual(found, ["said", "42", 300_000]);
  });

  test("a terminal takes keys in a page, and a stream that is left is killed", async () => {
    const found = await inPage(async (sandbox) => {
      const terminal = sandbox.terminal({ argv: ["sh"] });
      await terminal.write("echo $((6 * 7)); exit 3\n");
      let text = "";
      for await (const event of terminal) if (event.type === "output") text += event.text;
      for await (const event of sandbox.streamShell("echo on; sleep 774")) break;
      const left = await sandbox.shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'slee[p] 774'");
      return [text.includes("42\r\n"), terminal.result.exitCode, left.stdout];
    });
    assert.deepEqual(found, [true, 3, "0\n"]);
  });

  test("an abort ends a command in a page with its reason", async () => {
    const name = await inPage(async (sandbox) => {
      const signal = AbortSignal.timeout(200);
      return await sandbox.exec(["sleep", "60"], { signal }).catch((error) => error.name);
    });
    assert.equal(name, "TimeoutError");
  });

  test("a page talks to a port inside over a WebSocket", async () => {
    const text = await inPage(async (sandbox) => {
      const script = "import socket\ns = socket.create_server(('127.0.0.1', 8124))\nprint('on', flush=True)\nc = s.accept()[0]\nwhile d := c.recv(9999): c.sendall(d.upper())";
      const serving = sandbox.stream(["python3", "-c", script]);
      await serving.next();
      const connection = await sandbox.connect(8124);
      const writer = connection.writable.getWriter();
      await writer.write("shout");
      await writer.close();
      const text = await new Response(connection.readable).text();
      await serving.close();
      return text;
    });
    assert.equal(text, "SHOUT");
  });

  test("the page of the README works", async () => {
    await page.goto(`${origin}/readme`);
    await page.waitForFunction(() => document.title === "done");
    assert.equal(await page.textContent("#out"), "hello\nLinux\n");
    await page.goto(origin);
  });

  test("a refusal is an error with its code, and a page of another origin is not let in", async () => {
    const code = await inPage((_, client) => client.get("nobody").catch((error) => error.code));
    assert.equal(code, "not_found");
    await page.goto(origin.replace("127.0.0.1", "localhost"));
    const refused = await page.evaluate(async (url) => {
      const { BurrowClient } = await import("/burrow-sandbox/web.js");
      const error = await new BurrowClient({ url, retries: 0 }).health().catch((error) => error);
      return error.name;
    }, stranger.url);
    assert.equal(refused, "ConnectionFailedError");
    assert.deepEqual(problems, []);
  });
}
