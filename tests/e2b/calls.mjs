// Which methods of the packages for JavaScript a test calls: what the page says that it shows is compared with it.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import nodeTest from "node:test";

import { Git, Sandbox as Base, Secret, Template, Volume } from "e2b";
import { Sandbox } from "@e2b/code-interpreter";

const page = readFileSync(process.env.BURROW_TEST_PAGE, "utf8");
const ROW = /^\| (\w+): (\w+) \| ((?:`[\w.]+`(?:, )?)+) \|$/gm;
const called = new Set();
const watched = new WeakSet();

/** Has the methods of an object noted under a name when a suite calls them; what the packages call among themselves
 * shows nothing. */
function watch(name, object) {
  if (watched.has(object)) return;
  watched.add(object);
  for (const method of Object.getOwnPropertyNames(object)) {
    const { value, writable } = Object.getOwnPropertyDescriptor(object, method);
    if (typeof value !== "function" || !writable || method === "constructor" || value.prototype) continue;
    object[method] = function (...given) {
      // The first line is the words of the error, the second is here.
      const caller = new Error().stack.split("\n")[2];
      if (!caller.includes("node_modules")) called.add(`${name}.${method}`);
      const answer = value.apply(this, given);
      return answer instanceof Promise ? answer.then(seen) : answer;
    };
  }
}

/** Classes that the packages do not export are known by the first object of each. */
function seen(object) {
  const name = object?.constructor?.name;
  if (name === "CommandHandle" || name === "WatchHandle") watch(name, Object.getPrototypeOf(object));
  for (const part of object instanceof Base ? ["commands", "files", "pty"] : []) {
    watch(part, Object.getPrototypeOf(object[part]));
  }
  return object;
}

for (const kind of [Sandbox, Base, Object.getPrototypeOf(Base)]) {
  watch("Sandbox", kind);
  watch("Sandbox", kind.prototype);
}
watch("git", Git.prototype);
watch("Template", Template);
watch("Secret", Secret);
watch("Volume", Volume);
watch("Volume", Volume.prototype);

/** The tests of a suite: each must call what the page says that it shows. */
export function suite(name) {
  return (title, run) => nodeTest(title, async () => {
    called.clear();
    await run();
    const own = title.replace(/[^\p{L}\d]+/gu, "_");
    const cited = [...page.matchAll(ROW)].filter(([, where, test]) => where === name && test === own);
    const shown = cited.flatMap(([, , , methods]) => methods.match(/[\w.]+/g));
    const missing = shown.filter((method) => !called.has(method));
    assert.deepEqual(missing, [], "the page says that this test shows these, which it does not call");
  });
}
