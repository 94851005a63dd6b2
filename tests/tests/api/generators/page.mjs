// Runs the script of `/docs` as a browser would, with linkedom for the page, against the server that gave it:
//
//     page.mjs URL KEY

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import vm from "node:vm";

const [url, key] = process.argv.slice(2);
const { parseHTML } = createRequire(join(process.cwd(), "package.json"))("linkedom");

const html = await (await fetch(url + "/docs")).text();
const { document, Event } = parseHTML(html);
const fetched = [];
const surroundings = {
  document, performance, URLSearchParams, Headers, AbortController, TextDecoder, console,
  // A browser finds a path at the server of the page.
  fetch(path, options) {
    fetched.push(path);
    return fetch(new URL(path, url), options);
  },
};
vm.runInNewContext(document.querySelector("script").textContent, surroundings);

const find = (selector) => document.querySelector(selector);
const articles = [...document.querySelectorAll("article")];
const shown = () => articles.filter((article) => !article.hidden).map((article) => article.id);

function search(words) {
  find("#search").value = words;
  find("#search").dispatchEvent(new Event("input"));
}

async function send(id, fields, body) {
  const form = find(`#${id} form`);
  for (const [name, value] of Object.entries(fields)) form.querySelector(`[name="${name}"]`).value = value;
  if (body !== undefined) form.querySelector("textarea").value = body;
  form.dispatchEvent(new Event("submit", { bubbles: true, cancelable: true }));
  while (form.querySelector("button").textContent !== "Send") await new Promise((next) => setTimeout(next, 5));
  return form.querySelector("pre").textContent;
}

// The search hides what has not all of its words, and the sections that are left with nothing.
assert.ok(articles.length > 80, `only ${articles.length} calls`);
search("Create SANDBOX");
assert.ok(shown().includes("create_sandbox") && !shown().includes("livez"), shown().join());
assert.equal(find("#found").textContent, `${shown().length} of ${articles.length}`);
for (const section of document.querySelectorAll("section")) {
  const left = [...section.querySelectorAll("article")].filter((article) => !article.hidden).length;
  assert.equal(!section.hidden, left > 0, section.querySelector("h2").id);
}
search("no such call at all");
assert.deepEqual(shown(), []);
search("");
assert.equal(shown().length, articles.length);
assert.equal(find("#found").textContent, "");

// A slash goes to the search, but not while somebody writes one.
let focused = 0;
find("#search").focus = () => focused++;
const press = (target) => {
  const event = new Event("keydown", { bubbles: true, cancelable: true });
  event.key = "/";
  target.dispatchEvent(event);
};
press(find("h1"));
press(find("#key"));
assert.equal(focused, 1);

// A call without the key is refused, and shown as such; with it, it is made.
const spec = JSON.stringify({ name: "tried" });
assert.match(await send("create_sandbox", {}, spec), /^401 [^]*"unauthenticated"/);
find("#key").value = key;
assert.match(await send("create_sandbox", {}, spec), /^201 [^]*"name": "tried"/);

// Parts of the path, the query and the body are sent; a stream is shown whole.
const where = { namespace: "default", name: "tried" };
const ran = await send("shell", where, JSON.stringify({ script: "echo '<b>out</b>'" }));
assert.match(ran, /^200 [^]*<b>out<\/b>/);
assert.match(await send("list_sandboxes", { limit: "1" }), /^200 [^]*"tried"/);
assert.ok(fetched.at(-1).endsWith("limit=1"), fetched.at(-1));
assert.match(await send("get_sandbox", { ...where, name: "a/b" }), /^4/);
assert.ok(fetched.at(-1).endsWith("/default/a%2Fb"), fetched.at(-1));

console.log("the page works");
