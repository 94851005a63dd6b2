/** The main flows of each page of the console, in Chromium, against a real bridge. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { after, test } from "node:test";
import { gzipSync } from "node:zlib";

import { api, eventually, key, launch, openUrl, shot, terminalText, url, watched } from "./page.mjs";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const SIZE_MAX = 700000;
const PAINT_MS_MAX = 300;
/** On a machine where a line of text takes long: so many times that. */
const PAINT_FLOORS_MAX = 4;

const browser = await launch();
after(() => browser.close());
const view = await watched(browser, url);
const { page, go } = view;

/** A flow, after which nothing may be wrong. */
function flow(name, work) {
  test(name, async () => {
    await work();
    view.assertFaultless();
  });
}

const named = (role, name, exact = false) => page.getByRole(role, { name, exact });

flow("a wrong key is refused, a good one opens the page, and neither is in an address", async () => {
  view.allow();
  await page.goto(url);
  await page.getByLabel("Key").fill("msb_wrong");
  await named("button", "Log in").click();
  await page.locator(".refused:not([hidden])").waitFor();
  await shot(page, "login");
  await page.getByLabel("Key").fill(key);
  await named("button", "Log in").click();
  await page.getByText("No sandboxes yet").waitFor();
  await shot(page, "empty");
  const kept = await page.evaluate(() => [JSON.stringify(localStorage), document.cookie, location.href]);
  assert.ok(!kept.join(" ").includes(key), "the key is kept elsewhere");
  assert.ok(await named("button", "Log out").isVisible());
});

flow("a sandbox is created with the keyboard, found, sorted and opened", async () => {
  await go("sandboxes");
  await page.getByText("No sandboxes yet").waitFor();
  await page.keyboard.press("c");
  await page.getByLabel("Name", { exact: true }).fill("work");
  await page.getByLabel("Labels").fill("team=a, env=dev");
  await page.getByLabel("When idle for").fill("120");
  await page.keyboard.press("Enter");
  await page.waitForURL(/sandbox\/default\/work/);
  const made = await api("GET", "/v1/sandboxes/default/work");
  assert.deepEqual([made.labels, made.idle_ttl_ms], [{ team: "a", env: "dev" }, 7200000]);
  for (const name of ["alpha", "zeta"]) await api("POST", "/v1/sandboxes", { name });
  await go("sandboxes");
  const rows = page.locator("tbody tr");
  await eventually("three rows", async () => (await rows.count()) === 3);
  await page.locator(".spark-line[d]").first().waitFor({ state: "attached" });
  await shot(page, "sandboxes-light");
  await named("button", "Name").click();
  assert.match(await rows.first().innerText(), /zeta/);
  await named("button", "Name").click();
  await page.keyboard.press("/");
  await page.keyboard.type("env=dev");
  await eventually("one row", async () => (await rows.count()) === 1);
  await page.getByRole("searchbox").fill("");
  await page.keyboard.press("Escape");
  await page.keyboard.press("j");
  await page.keyboard.press("j");
  await page.keyboard.press("k");
  await page.keyboard.press("Enter");
  await page.waitForURL(/sandbox\/default\/alpha/);
});

flow("a sandbox is paused, resumed and removed", async () => {
  await go("sandboxes");
  const row = page.locator("tbody tr", { hasText: "alpha" });
  await row.getByRole("button", { name: "Pause" }).click();
  await row.getByText("paused").waitFor();
  await row.getByRole("button", { name: "Resume" }).click();
  await row.getByText("running").waitFor();
  await row.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await row.waitFor({ state: "detached" });
  await named("link", "zeta").click();
  await named("button", "Change").click();
  await page.getByLabel("Ends after").fill("60");
  await page.getByRole("dialog").getByRole("button", { name: "Change" }).click();
  await eventually("a time to live", async () => (await api("GET", "/v1/sandboxes/default/zeta")).expires_at_ms);
  await go("sandbox/default/work/overview");
  await page.getByText("the sandbox has no way out").waitFor();
  await shot(page, "overview-light");
});

flow("a terminal types, knows its size, and loses nothing when it is cut off", async () => {
  let cut;
  let isCut = false;
  await page.routeWebSocket(/\/attach/, (near) => {
    const far = near.connectToServer();
    near.onMessage((message) => far.send(message));
    far.onMessage((message) => near.send(message));
    cut = () => {
      isCut = true;
      far.close();
      near.close({ code: 3001 });
    };
  });
  await go("sandbox/default/work/terminals");
  await named("button", "New shell").click();
  await page.getByText("connected", { exact: true }).waitFor();
  await page.keyboard.type("stty size; printf '\\033[31mred\\033[0m\\n'\n");
  await eventually("a red word", () => page.locator(".term .fg-1", { hasText: "red" }).count());
  const size = (await page.locator(".terminal-head").innerText()).match(/(\d+) × (\d+)/);
  assert.ok((await terminalText(page)).includes(`${size[2]} ${size[1]}`), await terminalText(page));
  await page.keyboard.type(
    "clear; i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; sleep 0.005; done; echo all-$((40+2))\n",
  );
  await eventually("output", async () => (await terminalText(page)).includes("line 60\n"));
  cut();
  await eventually("the end", async () => (await terminalText(page)).includes("all-42"));
  assert.ok(isCut);
  const shown = (await terminalText(page)).split("\n").filter((line) => /^line \d+$/.test(line));
  assert.deepEqual(
    shown,
    Array.from({ length: 400 }, (_, at) => `line ${at + 1}`),
  );
  await page.setViewportSize({ width: 900, height: 600 });
  await eventually("another size", async () => !(await page.locator(".terminal-head").innerText()).includes(size[0]));
  await page.setViewportSize({ width: 1280, height: 800 });
  await page.keyboard.type("clear; ls --color=always -l / | head -20\n");
  await eventually("a list", async () => (await terminalText(page)).includes("root"));
  await shot(page, "terminal-light");
  const address = page.url();
  await page.keyboard.press("Shift+Escape");
  assert.match(await page.evaluate(() => document.activeElement.textContent), /Sessions/);
  await named("link", "Read-only").click();
  await page.getByText("read-only", { exact: true }).waitFor();
  await page.getByText("connected", { exact: true }).waitFor();
  await page.keyboard.type("echo never-typed\n");
  await page.goto(address);
  await page.getByText("connected", { exact: true }).waitFor();
  await page.keyboard.type("exit\n");
  await page.getByRole("status").getByText("exit 0").waitFor();
  assert.ok(!(await terminalText(page)).includes("never-typed"));
  await page.unrouteAll({ behavior: "ignoreErrors" });
});

flow("a script is run and stopped, and its output is found in the log", async () => {
  await go("sandbox/default/work/run");
  const script = page.getByLabel("Script for the shell");
  await script.fill("echo out; echo err >&2; exit 3");
  await page.keyboard.press("Control+Enter");
  const result = page.locator(".result").first();
  await result.locator(".dim", { hasText: "exit 3" }).waitFor();
  assert.equal(await result.locator(".is-stderr").innerText(), "err\n");
  await shot(page, "run-light");
  await script.fill("sleep 600");
  await page.keyboard.press("Control+Enter");
  await page.locator(".result").first().getByRole("button", { name: "Stop" }).click();
  await page.locator(".result .dim", { hasText: "stopped" }).waitFor();
  await api("POST", "/v1/sandboxes/default/work/sessions", { script: "echo needle; echo hay", session: "logged" });
  await go("sandbox/default/work/logs");
  await page.locator(".log-line", { hasText: "needle" }).last().waitFor();
  await page.keyboard.press("/");
  await page.keyboard.type("needle");
  await eventually("lines with it only", async () =>
    (await page.locator(".log-text").allInnerTexts()).every((text) => text.includes("needle")),
  );
  await shot(page, "logs-light");
});

flow("files are made, written, uploaded, downloaded and removed", async () => {
  await api("PUT", "/v1/sandboxes/default/work/files/content?path=/srv/tree/a.txt&parents=true", "first\n");
  await go("sandbox/default/work/files/srv/tree");
  await named("link", "a.txt").click();
  const text = page.getByLabel("Text of the file");
  await eventually("the text", async () => (await text.inputValue()) === "first\n");
  await text.fill("second é\n");
  await named("button", "Save").click();
  await page.getByText("Saved.").waitFor();
  await shot(page, "file-light");
  await named("link", "tree").click();
  await page
    .locator("input[type=file]")
    .setInputFiles({ name: "up.bin", mimeType: "application/octet-stream", buffer: Buffer.from([0, 1, 2, 255]) });
  await named("link", "up.bin").waitFor();
  const [download] = await Promise.all([page.waitForEvent("download"), named("button", "Download up.bin").click()]);
  assert.deepEqual([...readFileSync(await download.path())], [0, 1, 2, 255]);
  const [again] = await Promise.all([page.waitForEvent("download"), named("button", "Download a.txt").click()]);
  assert.equal(readFileSync(await again.path(), "utf8"), "second é\n");
  await named("button", "New directory").click();
  await page.getByLabel("Name", { exact: true }).fill("inner");
  await page.keyboard.press("Enter");
  await named("link", "inner/").waitFor();
  await named("button", "Remove up.bin").click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await named("link", "up.bin").waitFor({ state: "detached" });
  await shot(page, "files-light");
});

flow("a session is played again, from any moment, and its page plays without a server", async () => {
  const script = "printf '\\033[31mred\\033[0m <b>bold</b>\\n'; sleep 0.4; echo second";
  await api("POST", "/v1/sandboxes/default/work/sessions", { script, session: "played" });
  await eventually("its end is recorded", async () =>
    (await api("GET", "/v1/sandboxes/default/work/logs?session=played")).entries.some(({ type }) => type === "exited"),
  );
  await go("sandbox/default/work/replay");
  await page.getByLabel("Session", { exact: true }).selectOption("played");
  await plays(page, "replay-light");
  const file = join(process.cwd(), "played.html");
  execFileSync(process.env.BURROW_TEST_BRIDGE, ["replay", "work", "played", "--export", "html", file]);
  const alone = await watched(browser, "null");
  await alone.page.goto(`file://${file}`);
  await plays(alone.page, "replay-page");
  const ran = await alone.page.evaluate(() => {
    const made = document.createElement("script");
    made.textContent = "window.ran = true";
    document.body.append(made);
    return window.ran;
  });
  assert.equal(ran, undefined, "the page's policy lets other scripts run");
});

/** Plays what the flow above has written. */
async function plays(page, name) {
  const text = () => terminalText(page);
  await page.getByRole("button", { name: "Play", exact: true }).click();
  await eventually("all of it is shown", async () => (await text()).includes("red <b>bold</b>\nsecond"));
  await page.getByRole("button", { name: "Play", exact: true }).waitFor();
  assert.equal(await page.locator(".term b").count(), 0, "output became markup");
  await shot(page, name);
  await page.getByLabel("Position").fill("0");
  await eventually("the beginning is shown", async () => !(await text()).includes("second"));
}

flow("what happened is marked on the axis, errors lead to each other, and two sessions play side by side", async () => {
  const start = (session, script) => api("POST", "/v1/sandboxes/default/work/sessions", { script, session });
  await start("failing", "echo begin; sleep 0.3; echo '<i>last</i>'; exit 5");
  await start("beside", "sleep 0.1; echo '<i>other</i>'; sleep 0.4; exit 6");
  await eventually("their ends are recorded", async () => {
    const { entries } = await api("GET", "/v1/sandboxes/default/work/timeline?kind=exited");
    return ["failing", "beside"].every((name) => entries.some(({ session }) => session === name));
  });
  await go("events");
  await named("heading", "Events").waitFor();
  await go("sandbox/default/work/replay");
  await page.getByLabel("Session", { exact: true }).selectOption("failing");
  await page.getByLabel("Beside it").selectOption("beside");
  await eventually("there are two", async () => (await page.locator(".player .term").count()) === 2);
  const note = page.locator(".player-note");
  const [before, next] = [named("button", "Previous error"), named("button", "Next error")];
  assert.equal(await before.isDisabled(), true);
  await next.click();
  await eventually("the first error", async () => (await note.innerText()).includes("session failing ended with code 5"));
  const screens = async () => (await page.locator(".player .term-screen").allInnerTexts()).join("\n");
  await eventually("both are as they were", async () => /<i>last<\/i>[^]*<i>other<\/i>/.test(await screens()));
  await next.click();
  await eventually("the second error", async () => (await note.innerText()).includes("session beside ended with code 6"));
  assert.equal(await next.isDisabled(), true);
  await page.getByText(/What happened \(/).click();
  await page.locator(".player-list li.failed", { hasText: "code 5" }).waitFor();
  assert.ok((await page.locator(".player-mark.failed").count()) >= 2);
  assert.equal(await page.locator(".player i").count(), 0, "output became markup");
  await page.locator("polyline.player-cpu").waitFor({ state: "attached" });
  await shot(page, "replay-both-light");
  await page.getByLabel("whole time").check();
  await page.locator(".player-mark.lifecycle").first().waitFor({ state: "attached" });
  await page.locator("polyline.player-cpu").waitFor({ state: "attached" });
  await page.getByText(/What happened \(/).click();
  await shot(page, "replay-whole-light");
  await before.waitFor();
});

flow("what was typed is shown in the replay of a sandbox that records it", async () => {
  const path = "/v1/sandboxes/default/recorded";
  await api("POST", "/v1/sandboxes", { name: "recorded", record: "input" });
  await api("POST", `${path}/sessions`, { argv: ["cat"], session: "typing", terminal: { rows: 24, columns: 80 } });
  const octets = { "content-type": "application/octet-stream" };
  for (const keys of ["<u>ke", "ys</u>\n", "\x04"]) await api("POST", `${path}/sessions/typing/input`, keys, octets);
  await eventually("its end is recorded", async () =>
    (await api("GET", `${path}/logs?session=typing`)).entries.some(({ type }) => type === "exited"),
  );
  await go("sandbox/default/recorded/replay");
  await page.getByText(/What happened \(/).click();
  await page.locator(".player-list li", { hasText: 'typed into session typing: "<u>keys</u>\\n"' }).waitFor();
  assert.equal(await page.locator(".player u").count(), 0, "what was typed became markup");
  await shot(page, "replay-typed-light");
  await api("DELETE", `${path}?force=true`);
});

flow("figures are drawn as they come", async () => {
  await go("sandbox/default/work/metrics");
  await page.locator(".chart-line[d*=L]").first().waitFor({ state: "attached" });
  assert.match(await page.locator(".chart", { hasText: "Memory" }).first().innerText(), /[KM]iB/);
  await named("button", "1 min", true).click();
  assert.equal(await named("button", "1 min", true).getAttribute("aria-pressed"), "true");
  await shot(page, "metrics-light");
});

flow("what was used before is drawn, and a part of it chosen by dragging or by buttons", async () => {
  await go("sandbox/default/work/metrics");
  await named("button", "1 hour", true).click();
  const state = page.locator(".chart-bar [role=status]");
  await eventually("the hour is drawn", async () => /^1 h, a point for each/.test(await state.innerText()));
  await page.locator(".chart-line[d*=M]").first().waitFor({ state: "attached" });
  assert.ok(await named("button", "Later", true).isDisabled(), "there is something after now");
  const drawing = await page.locator(".chart-drawing").first().boundingBox();
  const middle = drawing.y + drawing.height / 2;
  await page.mouse.move(drawing.x + drawing.width * 0.5, middle);
  await page.mouse.down();
  await page.mouse.move(drawing.x + drawing.width * 0.75, middle, { steps: 3 });
  await page.mouse.up();
  await eventually("a part of the hour is drawn", async () => /^1\d min/.test(await state.innerText()));
  const zoomed = parseInt(await state.innerText());
  await named("button", "Zoom in", true).press("Enter");
  await eventually("half of that", async () => parseInt(await state.innerText()) <= zoomed / 2 + 1);
  await named("button", "Later", true).click();
  await named("button", "5 min", true).click();
  await eventually("samples come again", async () => /a sample each second/.test(await state.innerText()));
  await shot(page, "metrics-history-light");
});

flow("cells run code, show pictures, tables and errors, and are interrupted", async () => {
  await go("sandbox/default/work/contexts");
  await named("button", "Open Python").click();
  await page.waitForURL(/contexts\/python/);
  const codes = page.getByLabel("Code", { exact: true });
  const cells = page.locator(".cell");
  const run = async (at, code) => {
    await codes.nth(at).fill(code);
    await codes.nth(at).press("Shift+Enter");
  };
  await run(0, "x = 6\nprint('said')\nx * 7");
  await cells.nth(0).getByText("42").waitFor();
  await run(1, `import base64\nclass P:\n    def _repr_png_(self): return base64.b64decode("${PNG}")\nP()`);
  await eventually("a picture", () =>
    cells
      .nth(1)
      .locator("img")
      .evaluate((img) => img.complete && img.naturalWidth === 1),
  );
  await run(
    2,
    "class T:\n    def _repr_html_(self): return '<table><tr><th>name</th></tr><tr><td>cell</td></tr></table>'\nT()",
  );
  await cells.nth(2).frameLocator("iframe").getByText("cell").waitFor();
  await run(3, "1 / 0");
  await cells.nth(3).getByText("ZeroDivisionError: division by zero").waitFor();
  await shot(page, "cells-light");
  await run(4, "import time\nwhile True: time.sleep(0.1)");
  await cells.nth(4).getByRole("button", { name: "Interrupt" }).click();
  await cells.nth(4).getByText("interrupted").waitFor();
  await page.reload();
  assert.equal(await codes.first().inputValue(), "x = 6\nprint('said')\nx * 7");
});

flow("a notebook keeps its variables and shows its history", async () => {
  await go("notebooks");
  await page.locator("main .head").getByRole("button", { name: "New notebook" }).click();
  await page.getByLabel("Name", { exact: true }).fill("study");
  await page.getByLabel("Sandbox").fill("work");
  await page.keyboard.press("Enter");
  await page.waitForURL(/notebook\/default\/study/);
  await page.getByLabel("Code", { exact: true }).first().fill("kept = 5; kept");
  await page.getByLabel("Code", { exact: true }).first().press("Control+Enter");
  await page.locator(".runs").getByText("kept = 5; kept").waitFor();
  await named("button", "Save").click();
  await page.locator(".facts", { hasText: "kept" }).waitFor();
  await shot(page, "notebook-light");
  await go("notebooks");
  await named("link", "study").waitFor();
});

flow("ports are forwarded and have links", async () => {
  await go("sandbox/default/work/ports");
  await named("button", "Forward a port").click();
  await page.getByLabel("Port in the sandbox").fill("8000");
  await page.getByRole("dialog").getByRole("button", { name: "Forward" }).click();
  await page.locator("td", { hasText: "127.0.0.1" }).waitFor();
  await named("button", "Make a link").click();
  await page.getByLabel("Port in the sandbox").fill("8000");
  await page.getByRole("dialog").getByRole("button", { name: "Make it" }).click();
  await page.getByText("which is shown only now").waitFor();
  await shot(page, "ports-light");
  for (const [button, text] of [
    ["Take back", "No preview links"],
    ["End", "No forwards"],
  ]) {
    await named("button", button, true).click();
    await page.getByText(text).waitFor();
  }
});

flow("events are followed, the audit log is filtered, and the rest is there", async () => {
  await go("events");
  await page.locator("td", { hasText: "created" }).first().waitFor();
  await api("POST", "/v1/sandboxes", { name: "newcomer" });
  await page.locator("tr", { hasText: "newcomer" }).first().waitFor();
  await api("DELETE", "/v1/sandboxes/default/newcomer?force=true");
  await shot(page, "events-light");
  await go("audit");
  await page.locator("td", { hasText: "create_sandbox" }).first().waitFor();
  await page.getByLabel("operation").fill("pause_sandbox");
  await named("button", "Filter").click();
  await eventually("that operation only", async () => {
    const found = await page.locator("tbody tr td:nth-child(3)").allInnerTexts();
    return found.length > 0 && found.every((text) => text === "pause_sandbox");
  });
  await shot(page, "audit-light");
  await go("images");
  await page.getByText("No images", { exact: true }).waitFor();
  await go("snapshots");
  await page.getByText("No snapshots", { exact: true }).waitFor();
  await go("caps");
  await page.getByText("Run time today").first().waitFor();
});

flow("each call is shown as curl, which does the same", async () => {
  await go("sandboxes");
  await named("link", "work").waitFor();
  await page.keyboard.press("`");
  const line = page.locator("#calls code", { hasText: "/v1/sandboxes?limit" }).first();
  await line.waitFor();
  await shot(page, "calls-light");
  const text = await line.innerText();
  assert.ok(text.includes("$BURROW_KEY") && !text.includes(key), text);
  const answer = execFileSync("sh", ["-c", `${text} -s`], { env: { ...process.env, BURROW_KEY: key } });
  assert.ok(JSON.parse(answer).sandboxes.some((one) => one.name === "work"));
  await page.keyboard.press("Escape");
  await page.locator("#calls").waitFor({ state: "hidden" });
});

flow("the keyboard goes everywhere and the theme is turned", async () => {
  await go("sandbox/default/work");
  await page.getByText("the sandbox has no way out").waitFor();
  await page.keyboard.press("8");
  await page.waitForURL(/metrics/);
  await page.keyboard.press("g");
  await page.keyboard.press("e");
  await page.waitForURL(/events/);
  // The address changes first, and the page that comes then closes dialogs.
  await named("heading", "Events").waitFor();
  await page.keyboard.press("?");
  await page.getByRole("dialog", { name: "Keyboard" }).waitFor();
  await shot(page, "help-light");
  await page.keyboard.press("Escape");
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const before = await ground();
  await page.keyboard.press("t");
  assert.notEqual(await ground(), before);
  await page.keyboard.press("t");
  assert.equal(await ground(), before);
});

flow("a name is completed by the interpreter, by keyboard", async () => {
  await go("sandbox/default/work/contexts/python");
  const code = page.getByLabel("Code", { exact: true }).last();
  await code.fill("value_one = value_two = 1");
  await code.press("Control+Enter");
  await page.locator(".cell").last().locator(".is-error").waitFor({ state: "detached" });
  await eventually("it has run", async () => /went-well/.test(await page.locator(".cell").last().getAttribute("class")));
  await code.fill("é = valu");
  await code.press("Tab");
  await page.getByRole("option", { name: "value_two" }).waitFor();
  await shot(page, "completion-light");
  await code.press("ArrowDown");
  await code.press("Enter");
  assert.equal(await code.inputValue(), "é = value_two");
  await code.fill("x = ");
  await code.press("Tab");
  assert.equal(await code.inputValue(), "x =     ", "Tab indents where there is nothing to complete");
});

flow("artifacts are a gallery, with the pictures in it", async () => {
  const box = "/v1/sandboxes/default/work";
  const script = `echo ${PNG} | base64 -d >/srv/dot.png; echo a,b >'/srv/<b>t.csv'`;
  await api("POST", `${box}/shell`, { script });
  for (const path of ["/srv/dot.png", "/srv/<b>t.csv"]) await api("POST", `${box}/artifacts`, { path });
  await go("artifacts");
  await page.locator(".gallery-picture img").first().waitFor();
  await page.getByRole("heading", { name: "<b>t.csv" }).waitFor();
  assert.equal(await page.locator(".gallery b").count(), 0, "a name became markup");
  await shot(page, "artifacts-light");
  const card = page.locator(".artifact", { hasText: "t.csv" });
  const saved = page.waitForEvent("download");
  await card.getByRole("button", { name: "Download" }).click();
  assert.equal(readFileSync(await (await saved).path(), "utf8"), "a,b\n");
  await card.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await card.waitFor({ state: "detached" });
});

flow("a sandbox is made of a template, and forked", async () => {
  await api("PUT", "/v1/templates/default/shop", { ready: "true", labels: { from: "shop" } });
  await go("templates");
  await page.getByRole("row", { name: /shop/ }).getByRole("button", { name: "Create" }).click();
  await page.getByLabel("Name").fill("sold");
  await page.getByRole("dialog").getByRole("button", { name: "Create" }).click();
  await page.waitForURL(/sandbox\/default\/sold/);
  await named("button", "Fork").click();
  await page.getByRole("dialog").getByRole("button", { name: "Fork" }).click();
  await page.getByRole("link", { name: "sold-1" }).click();
  await page.getByText("Forked from").waitFor();
  await page.getByRole("link", { name: "sold", exact: true }).waitFor();
  await shot(page, "fork-light");
  for (const name of ["sold", "sold-1"]) await api("DELETE", `/v1/sandboxes/default/${name}?force=true`);
});

flow("processes are seen, and one is ended", async () => {
  await api("POST", "/v1/sandboxes/default/work/sessions", { session: "long", argv: ["sleep", "4242"] });
  await go("sandbox/default/work/processes");
  const row = page.getByRole("row", { name: /sleep 4242/ });
  await row.waitFor();
  await page.getByRole("row", { name: /^1 / }).waitFor();
  assert.equal(await page.getByRole("row", { name: /cat|\\036/ }).count(), 0, "what looks is shown");
  await shot(page, "processes-light");
  await row.getByRole("button", { name: "End" }).click();
  await row.waitFor({ state: "detached" });
  await eventually("its session has ended", async () => {
    const { exit } = await api("GET", "/v1/sandboxes/default/work/sessions/long");
    return exit?.exit_code === 143;
  });
});

flow("a key is issued, shown once, used, and revoked", async () => {
  await go("keys");
  await page.keyboard.press("c");
  await page.getByLabel("Label").fill("ci");
  await page.getByLabel("Good for").selectOption("1");
  await page.getByRole("dialog").getByRole("button", { name: "Issue" }).click();
  const made = await page.locator("[data-new-key]").innerText();
  const ask = () => fetch(`${url}/v1/sandboxes`, { headers: { authorization: `Bearer ${made}` } });
  assert.equal((await ask()).status, 200);
  await shot(page, "keys-light");
  await go("sandboxes");
  await go("keys");
  const row = page.getByRole("row", { name: /ci/ });
  await row.waitFor();
  assert.equal(await page.getByText(made).count(), 0, "it is shown again");
  await row.getByRole("button", { name: "Revoke" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Revoke" }).click();
  await row.waitFor({ state: "detached" });
  await eventually("it is refused", async () => (await ask()).status === 401);
  await page.getByLabel("with ended ones").check();
  await row.getByText("revoked").waitFor();
});

/** Every page that has something to show by now. */
const PAGES = [
  "sandboxes",
  "notebooks",
  "artifacts",
  "images",
  "templates",
  "events",
  "audit",
  "caps",
  "keys",
  ...[
    "overview",
    "terminals",
    "run",
    "contexts/python",
    "files/srv/tree",
    "logs",
    "processes",
    "metrics",
    "ports",
    "replay",
  ].map((tab) => `sandbox/default/work/${tab}`),
  "notebook/default/study",
];

flow("axe finds no serious fault on any page, dark or light", async () => {
  const axe = readFileSync(join(process.cwd(), "node_modules/axe-core/axe.min.js"), "utf8");
  const found = [];
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme, reducedMotion: "reduce" });
    const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/)[0]);
    assert.equal(ground < 128, colorScheme === "dark", `the ground is ${ground}`);
    for (const about of PAGES) {
      await go(about);
      await page.locator("main h1").waitFor();
      await page.locator("main :is(.card, .table-box, .empty)").first().waitFor();
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => globalThis.axe.run(document, { iframes: false }));
      for (const one of violations.filter(({ impact }) => ["serious", "critical"].includes(impact))) {
        found.push(
          `${colorScheme} ${about}: ${one.id} ${one.nodes
            .slice(0, 3)
            .map((node) => `${node.html} ${node.failureSummary}`)
            .join(" | ")}`,
        );
      }
    }
  }
  assert.deepEqual(found, []);
});

flow("each page fits a phone and a desk, dark and light", async () => {
  for (const [width, height] of [
    [1280, 800],
    [390, 844],
  ]) {
    await page.setViewportSize({ width, height });
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      for (const about of PAGES) {
        await go(about);
        await page.locator("main :is(.card, .table-box, .empty)").first().waitFor();
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        assert.ok(wide <= 0, `${about} is ${wide} pixels too wide for ${width}`);
        await shot(page, `${about.replaceAll("/", "-")}-${width}-${colorScheme}`);
      }
    }
  }
  await page.setViewportSize({ width: 1280, height: 800 });
});

test("the page is small and soon there", async () => {
  const directory = join(process.cwd(), "console");
  const files = readdirSync(directory, { recursive: true }).map((name) => join(directory, String(name)));
  const sizes = files.filter((path) => statSync(path).isFile()).map((path) => gzipSync(readFileSync(path)).length);
  const sum = sizes.reduce((all, size) => all + size, 0);
  assert.ok(sum < SIZE_MAX, `${sum} bytes`);
  const open = await watched(browser, openUrl);
  const plain = await watched(browser, openUrl);
  const painted = async (at, address, words) => {
    await at.page.goto(address);
    await at.page.getByText(words).first().waitFor();
    return at.page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime);
  };
  const paints = [];
  const floors = [];
  const isSlow = () => Math.min(...paints) >= Math.max(PAINT_MS_MAX, PAINT_FLOORS_MAX * Math.min(...floors));
  // Three rounds, and some more on a machine that is busy with other tests.
  for (let round = 0; round < 3 || (round < 12 && isSlow()); round += 1) {
    floors.push(await painted(plain, `${openUrl}/livez`, /\w/));
    paints.push(await painted(open, openUrl, "No sandboxes yet"));
  }
  const told = `painted after ${paints.map(Math.round).join(", ")} ms, a line of text after ${floors.map(Math.round).join(", ")}`;
  console.log(`# ${sum} bytes compressed; ${told}`);
  assert.ok(!isSlow(), told);
  assert.ok(await open.page.getByRole("button", { name: "Log out" }).isHidden());
  open.assertFaultless();
});
