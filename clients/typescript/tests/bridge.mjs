/**
 * A real bridge for the tests: what `BURROW_TEST_BRIDGE` and `BURROW_AGENT` name, or what a build has
 * left below `target/`. And a way to it that is cut where a test wants it.
 */

import { spawn, execFileSync } from "node:child_process";
import { existsSync, mkdtempSync, openSync, closeSync, readFileSync, rmSync } from "node:fs";
import { createServer, connect } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { after } from "node:test";
import { setTimeout as pause } from "node:timers/promises";

import { BurrowClient } from "burrow-sandbox";

/** The directory of the tests. */
export const here = fileURLToPath(new URL(".", import.meta.url));
/** How long anything may take on a busy machine before a test gives it up. */
export const PATIENCE_MS = 30_000;

function built(variable, path) {
  const found = process.env[variable] ?? resolve(here, "../../..", path);
  if (!existsSync(found)) throw new Error(`${found} is missing: run \`just build\` first`);
  return found;
}

/** Polls until something holds, and returns it. */
export async function eventually(what, holds) {
  for (const deadline = Date.now() + PATIENCE_MS; Date.now() < deadline; await pause(10)) {
    const found = await holds();
    if (found) return found;
  }
  throw new Error(`not within ${PATIENCE_MS} ms: ${what}`);
}

/** A server with directories of its own, which ends with the test file. */
export async function serve(...options) {
  // Paths of sockets are short.
  const home = mkdtempSync(join(tmpdir(), "burrow-"));
  const socket = join(home, "api.sock");
  const logged = join(home, "serve.log");
  const program = built("BURROW_TEST_BRIDGE", "target/release/host-bridge");
  const environment = {
    ...process.env,
    BURROW_RUNTIME_DIR: join(home, "run"),
    BURROW_STATE_DIR: join(home, "state"),
    BURROW_NO_DAEMON: "1",
    BURROW_AGENT: built(
      "BURROW_AGENT",
      "target/x86_64-unknown-linux-musl/release/guest-agent",
    ),
    // The tests' own machine: bridges with keys give its root too.
    BURROW_PROCESS_ROOT: "/",
  };
  const log = openSync(logged, "w");
  const listening = ["--listen", "127.0.0.1:0", "--listen", `unix:${socket}`];
  const child = spawn(program, ["serve", ...listening, ...options], {
    env: environment,
    stdio: ["ignore", log, log],
  });
  closeSync(log);
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const said = () => [...readFileSync(logged, "utf8").matchAll(/listening on ((?:http|unix):\S+)\n/g)];
  const run = (...words) => {
    return execFileSync(program, words, { env: environment, encoding: "utf8" }).trim();
  };
  after(async () => {
    try {
      for (const name of run("ps", "--quiet").split("\n").filter(Boolean)) run("rm", "--force", name);
    } finally {
      child.kill("SIGTERM");
      await ended;
      rmSync(home, { recursive: true, force: true });
    }
  });
  await eventually("the bridge listens", () => {
    if (child.exitCode !== null) throw new Error(`it has ended: ${readFileSync(logged, "utf8")}`);
    return said().length === 2;
  });
  const url = said().find(([, url]) => url.startsWith("http"))[1];
  return { url, socket, run, home };
}

/** A client of a server that asks for no key, whatever the environment says. */
export function clientOf(url, options = {}) {
  return new BurrowClient({ url, apiKey: "", ...options });
}

/** A TCP proxy before a server that cuts answers: the request gets there, its answer does not get back. */
export async function scissors(url) {
  const { hostname, port } = new URL(url);
  /** What is to be cut, the first lines of the requests so far, and the bytes of their answers. */
  const way = { cuts: [], requests: [], bytes: 0 };
  const { cuts, requests } = way;
  const open = new Set();
  const proxy = createServer((near) => {
    const far = connect(Number(port), hostname);
    let left = Infinity;
    const end = () => {
      near.destroy();
      far.destroy();
    };
    for (const socket of [near, far]) {
      open.add(socket);
      socket.on("error", end).on("close", () => {
        open.delete(socket);
        end();
      });
    }
    near.on("data", (data) => {
      const line = data.toString("latin1").split("\r\n")[0];
      requests.push(line);
      const at = cuts.findIndex((cut) => line.startsWith(cut.request));
      if (at >= 0) left = cuts.splice(at, 1)[0].bytes;
      far.write(data);
    });
    far.on("data", (data) => {
      way.bytes += data.length;
      const isTaken = near.write(data.subarray(0, left), () => left <= 0 && end());
      left -= data.length;
      if (!isTaken) far.pause();
    });
    near.on("drain", () => far.resume());
  });
  await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));
  after(() => {
    proxy.close();
    for (const socket of open) socket.destroy();
  });
  return Object.assign(way, {
    url: `http://127.0.0.1:${proxy.address().port}`,
    /** The answer to the next request that begins so is cut after so many bytes of it. */
    cut(request, bytes = 0) {
      cuts.push({ request, bytes });
    },
  });
}
