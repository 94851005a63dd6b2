/**
 * A browser with the console in it, against the server that `tests/tests/clients/console.rs` has started, and what
 * a flow must not leave behind: errors, violations of the page's policy, requests to anybody else.
 */

import assert from "node:assert/strict";
import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";

import { chromium } from "playwright-core";

export const url = process.env.MSB_SERVER_URL;
export const openUrl = process.env.BURROW_OPEN_URL;
export const key = process.env.BURROW_KEY;
/** No flow waits longer for one thing, on a busy machine. */
export const MS_MAX = 45000;

const PROGRAMS = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];
export const program = PROGRAMS.find((path) => existsSync(path));
/** What a browser says of an answer that a flow asks for. */
const REFUSED = /Failed to load resource: the server responded with a status of 4/;

const pictures = join(import.meta.dirname ?? new URL(".", import.meta.url).pathname, "../screenshots");
mkdirSync(pictures, { recursive: true });

export async function launch() {
  return chromium.launch({ executablePath: program, args: ["--no-sandbox"] });
}

/** A page whose faults are collected. */
export async function watched(browser, origin, options = {}) {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 800 },
    acceptDownloads: true,
    ...options,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(MS_MAX);
  const faults = [];
  const expected = [];
  const outside = new Set();
  page.on("console", (message) => {
    const text = message.text();
    const isFault = ["error", "warning"].includes(message.type());
    if (isFault && !expected.some((pattern) => pattern.test(text))) faults.push(text);
  });
  page.on("pageerror", (error) => faults.push(error.stack));
  page.on("dialog", (dialog) => {
    faults.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  context.on("page", (other) => other !== page && faults.push(`another page: ${other.url()}`));
  page.on("request", (request) => {
    const asked = request.url();
    if (!/^(data|blob|about):/.test(asked) && new URL(asked).origin !== origin) outside.add(request);
    if (key && asked.includes(key)) faults.push(`the key is in the address ${asked}`);
  });
  // The browser names those too that the policy keeps it from sending.
  page.on("requestfailed", (request) => {
    if (/csp/i.test(request.failure()?.errorText ?? "")) outside.delete(request);
  });
  return {
    page,
    /** Goes to a view; `about` is what comes after `#/`. */
    async go(about) {
      await page.goto(`${origin}/#/${about}`);
    },
    /** What is refused in this flow is what the flow is about. */
    allow(...patterns) {
      expected.push(...(patterns.length > 0 ? patterns : [REFUSED]));
    },
    assertFaultless() {
      expected.length = 0;
      for (const request of outside) faults.push(`a request to ${request.url()}`);
      outside.clear();
      assert.deepEqual(faults.splice(0), []);
    },
  };
}

export async function shot(page, name) {
  await page.screenshot({ path: join(pictures, `${name}.png`) });
}

/** A call of the API, to prepare what a flow looks at and to see what it has done. */
export async function api(method, path, body, headers = {}) {
  const isBytes = typeof body === "string" || body instanceof Uint8Array;
  const answer = await fetch(url + path, {
    method,
    headers: {
      authorization: `Bearer ${key}`,
      ...(body && !isBytes ? { "content-type": "application/json" } : {}),
      ...headers,
    },
    body: body === undefined || isBytes ? body : JSON.stringify(body),
  });
  const text = await answer.text();
  assert.ok(answer.ok, `${method} ${path}: ${answer.status} ${text}`);
  return text === "" ? undefined : JSON.parse(text);
}

/** Waits until something is so. */
export async function eventually(what, look) {
  const until = Date.now() + MS_MAX;
  for (;;) {
    const found = await look();
    if (found) return found;
    if (Date.now() > until) throw new Error(`never: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

/** The text of the terminal that is shown. */
export function terminalText(page) {
  return page
    .locator(".term")
    .evaluate((term) => [...term.querySelectorAll(".term-row")].map((row) => row.textContent.trimEnd()).join("\n"));
}
