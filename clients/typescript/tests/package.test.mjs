/** The package itself: its types, what is made from the document, its installation, and that its README is true. */

import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, resolve } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";

import { here, serve } from "./bridge.mjs";

const home = resolve(here, "..");
const tool = (name) => join(home, "node_modules/.bin", name);
const bridge = await serve("--dev");
const run = promisify(execFile);

/** Runs a program; what it says is why it failed. */
async function succeeds(program, words, options = {}) {
  try {
    return (await run(program, words, { cwd: home, timeout: 120_000, ...options })).stdout;
  } catch (error) {
    assert.fail(`${program} ${words.join(" ")}: ${error.stdout}${error.stderr}`);
  }
}

/** A directory within the package, in which its name is known. */
function scratch(name) {
  const directory = join(home, name);
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory);
  return directory;
}

const readme = readFileSync(join(home, "README.md"), "utf8");
const examples = [...readme.matchAll(/```ts\n([^]*?)```/g)].map(([, text]) => text);

test("what is made from the server's document is what is here", async () => {
  const served = await (await fetch(`${bridge.url}/openapi.json`)).text();
  const directory = scratch("made");
  writeFileSync(join(directory, "openapi.json"), served);
  await succeeds("node", ["scripts/generate.mjs", "made/openapi.json", "made"]);
  for (const name of ["api.ts", "operations.ts"]) {
    const made = readFileSync(join(directory, name), "utf8");
    if (process.env.BURROW_WRITE_TYPES) cpSync(join(directory, name), join(process.env.BURROW_WRITE_TYPES, name));
    const kept = readFileSync(join(home, "src", name), "utf8");
    assert.ok(made === kept, `src/${name} is of another document: \`just typescript\` makes it`);
  }
});

test("the package has the server's version", async () => {
  const { version } = JSON.parse(readFileSync(join(home, "package.json"), "utf8"));
  const document = await (await fetch(`${bridge.url}/openapi.json`)).json();
  assert.equal(version, document.info.version);
});

test("the sources compile with strict types", () => {
  assert.equal(readFileSync(join(home, "errors"), "utf8"), "");
});

test("strict types hold for who uses it, with a browser's and with Node's own", async () => {
  const options = ["--strict", "--noEmit", "--skipDefaultLibCheck", "--module", "nodenext", "--target", "es2022"];
  const checked = (more) => succeeds(tool("tsc"), [...options, ...more, "tests/types.ts"]);
  // A program for a browser has no types of Node, and a program for Node may have none of the DOM.
  const both = [
    checked(["--lib", "es2022,dom,esnext.disposable", "--typeRoots", "tests"]),
    checked(["--lib", "es2022", "--types", "node"]),
  ];
  await Promise.all(both);
});

test("the examples of the README are typed and run, and leave nothing behind", async () => {
  assert.ok(examples.length >= 7);
  const directory = scratch("examples");
  const names = examples.map((text, at) => {
    writeFileSync(join(directory, `${at}.ts`), text);
    return `examples/${at}.ts`;
  });
  const options = ["--strict", "--skipLibCheck", "--module", "nodenext", "--target", "es2022"];
  const libraries = ["--lib", "es2022,dom,dom.iterable,esnext.disposable", "--types", "node"];
  await succeeds(tool("tsc"), [...options, ...libraries, ...names]);
  const env = { ...process.env, BURROW_URL: bridge.url, BURROW_API_KEY: "" };
  const words = ["--unhandled-rejections=strict", "--trace-warnings"];
  const running = names.map(async (name) => {
    const said = await run("node", [...words, name.replace(/ts$/, "js")], { cwd: home, env });
    assert.equal(said.stderr, "", `${name}: ${said.stderr}`);
  });
  await Promise.all(running);
  assert.equal(bridge.run("ps", "--quiet"), "");
});

test("it is packed with its types, installs without anything else, and is found by its name", async () => {
  const directory = mkdtempSync(join(home, "packed-"));
  for (const name of ["package.json", "README.md", "dist"]) {
    cpSync(join(home, name), join(directory, name), { recursive: true });
  }
  const npm = ["--silent", "--ignore-scripts", "--offline", "--no-audit", "--no-fund"];
  const [{ filename, files }] = JSON.parse(await succeeds("npm", ["pack", "--json", ...npm], { cwd: directory }));
  const packed = files.map((file) => file.path);
  for (const name of ["package.json", "README.md", "dist/index.js", "dist/index.d.ts", "dist/web.js"]) {
    assert.ok(packed.includes(name), name);
  }
  assert.ok(packed.every((name) => /^(package\.json|README\.md|dist\/[\w-]+\.(js|d\.ts))$/.test(name)), packed);
  const target = join(directory, "elsewhere");
  mkdirSync(target);
  writeFileSync(join(target, "package.json"), '{"private":true}');
  await succeeds("npm", ["install", ...npm, "--omit=dev", join(directory, filename)], { cwd: target });
  const installed = readdirSync(join(target, "node_modules")).filter((name) => !name.startsWith("."));
  assert.deepEqual(installed, ["burrow-sandbox"]);
  const script = "import('burrow-sandbox').then((all) => console.log(typeof all.BurrowClient))";
  assert.equal(await succeeds("node", ["-e", script], { cwd: target }), "function\n");
  rmSync(directory, { recursive: true });
});

test("the browser's part imports nothing of Node", () => {
  const seen = new Set();
  const visit = (name) => {
    if (seen.has(name)) return;
    seen.add(name);
    const text = readFileSync(join(home, "dist", name), "utf8");
    for (const [, from] of text.matchAll(/(?:from|import\()\s*"([^"]+)"/g)) {
      assert.match(from, /^\.\/[\w-]+\.js$/, `${name} imports ${from}`);
      visit(from.slice(2));
    }
  };
  visit("web.js");
  assert.ok(seen.has("client.js") && !seen.has("node.js"));
});
