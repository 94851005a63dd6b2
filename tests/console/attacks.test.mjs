/**
 * What a sandbox may send that is meant for the browser of who looks at it: as names, labels, files, logs, results,
 * escapes of terminals and addresses. Nothing of it may run, load, leave or type.
 */

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { api, eventually, launch, shot, terminalText, url, watched } from "./page.mjs";

const box = "/v1/sandboxes/default/attacker";
/** Which leaves a trace if any page takes it for markup. */
const MARKUP = `<img src=x onerror="window.owned=1"><script>window.owned=2</script>"><svg onload=window.owned=3>`;
const OUTSIDE = "http://outside.invalid";

const browser = await launch();
after(() => browser.close());
const view = await watched(browser, url);
const { page, go } = view;

/** A test, after which no page has been taken over. */
function attack(name, work) {
  test(name, async () => {
    await work();
    for (const frame of page.frames()) {
      const owned = await frame.evaluate(() => globalThis.owned).catch(() => undefined);
      assert.equal(owned, undefined, `${frame.url()} ran it`);
    }
    const strange = await page.evaluate(
      () =>
        document.querySelectorAll(
          "body script, main [onerror], main [onload], main base, main meta, main link, main form[action]",
        ).length,
    );
    assert.equal(strange, 0, "markup came into the page");
    assert.equal(new URL(page.url()).origin, url);
    view.assertFaultless();
  });
}

attack("labels, directories and hosts of a sandbox are text", async () => {
  view.allow();
  await page.goto(url);
  await page.getByLabel("Key").fill(process.env.BURROW_KEY);
  await page.getByRole("button", { name: "Log in" }).click();
  await page.locator("main h1").waitFor();
  await api("POST", "/v1/sandboxes", { name: "attacker", labels: { evil: MARKUP.slice(0, 250) }, workdir: "/tmp" });
  await go("sandboxes");
  await page.locator(".label", { hasText: "onerror" }).waitFor();
  await go("sandbox/default/attacker/overview");
  await page.locator("dd", { hasText: "onerror" }).waitFor();
});

attack("commands of sessions, what they write, and records of them are text", async () => {
  const script = `echo '${MARKUP}'; printf '\\033[31m<b>red</b>\\033]0;title\\007\\n'`;
  await api("POST", `${box}/sessions`, { script, session: "evil" });
  await go("sandbox/default/attacker/terminals");
  await page.locator("code", { hasText: "onerror" }).first().waitFor();
  await go("sandbox/default/attacker/logs");
  await page.locator(".log-text", { hasText: "<img src=x" }).first().waitFor();
  await page.locator(".log-text", { hasText: "<b>red</b>" }).first().waitFor();
  await go("sandbox/default/attacker/run");
  await page.getByLabel("Script for the shell").fill(script);
  await page.keyboard.press("Control+Enter");
  await page.locator(".output", { hasText: "<img src=x" }).waitFor();
  const named = ["python3", "-c", "import os, sys; os.execv('/bin/sleep', [sys.argv[1], '1000'])", `${MARKUP}\x1e7 (`];
  await api("POST", `${box}/sessions`, { argv: named, session: "named" });
  await go("sandbox/default/attacker/processes");
  await page.locator("code", { hasText: "onerror" }).first().waitFor();
  await go("audit");
  await page.locator("td", { hasText: "start_session" }).first().waitFor();
});

attack("names of files are text, whatever bytes they are", async () => {
  const code = [
    "import os",
    "os.makedirs('/tmp/f', exist_ok=True); os.chdir('/tmp/f')",
    `for name in (b'<img src=x onerror=window.owned=4>.txt', b'a"onmouseover="window.owned=5', b'line\\nbreak', b'\\xff\\xfe', '\\u202etxt.exe'.encode(), b'javascript:window.owned=6', b'%2e%2e', b'#?&'):`,
    "    open(name, 'wb').write(b'inside')",
    `open('evil.svg', 'w').write('<svg xmlns="http://www.w3.org/2000/svg" onload="window.owned=7"><script>window.owned=8</script><image href="${OUTSIDE}/x"/></svg>')`,
    "open('page.html', 'w').write('<script>window.owned=9</script>')",
  ];
  await api("POST", `${box}/contexts/python/run`, { code: code.join("\n") });
  await go("sandbox/default/attacker/files/tmp/f");
  const rows = page.locator("tbody tr");
  await eventually("all files", async () => (await rows.count()) === 10);
  await shot(page, "attack-files");
  for (const name of ["<img src=x onerror=window.owned=4>.txt", "javascript:window.owned=6", "%2e%2e", "#?&"]) {
    await go("sandbox/default/attacker/files/tmp/f");
    await page.getByRole("link", { name, exact: true }).click();
    await eventually(name, async () => (await page.getByLabel("Text of the file").inputValue()) === "inside");
  }
  await go("sandbox/default/attacker/files/tmp/f/page.html");
  await eventually("the text", async () =>
    (await page.getByLabel("Text of the file").inputValue()).includes("<script>"),
  );
  await go("sandbox/default/attacker/files/tmp/f/evil.svg");
  await page.locator(".picture img").waitFor();
  await go("sandbox/default/attacker/files/tmp/f");
  const strange = rows.filter({ hasText: "\ufffd" });
  await strange.getByRole("button", { name: "Remove" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Remove" }).click();
  await strange.waitFor({ state: "detached" });
});

attack("HTML, drawings and errors of code run nothing, load nothing and lead nowhere", async () => {
  const html = [
    MARKUP,
    "<script>parent.owned=10; top.location='http://outside.invalid/'; fetch('http://outside.invalid/')</script>",
    `<meta http-equiv=refresh content="0;url=${OUTSIDE}/refresh">`,
    `<base href="${OUTSIDE}/"><link rel=stylesheet href="${OUTSIDE}/a.css"><style>@import '${OUTSIDE}/b.css'; body{background:url(${OUTSIDE}/c.png)}</style>`,
    `<iframe src="${OUTSIDE}/frame"></iframe><object data="${OUTSIDE}/o"></object><embed src="${OUTSIDE}/e"><video src="${OUTSIDE}/v"></video>`,
    `<form action="${OUTSIDE}/form"><input autofocus onfocus="window.owned=11"><button>go</button></form>`,
    `<a id=away target=_top href="${OUTSIDE}/top">away</a><a href="javascript:parent.owned=12">run</a>`,
    "</iframe></div><p id=seen>seen</p>",
  ].join("");
  const code = [
    `class H:\n    def _repr_html_(self): return ${JSON.stringify(html)}`,
    `class S:\n    def _repr_svg_(self): return '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9" onload="window.owned=13"><script>window.owned=14</script></svg>'`,
    `class E(Exception): pass`,
    `print(${JSON.stringify(MARKUP)})`,
    `try:\n    from IPython.display import display\nexcept ImportError:\n    pass`,
    "H()",
  ];
  // What a browser says of what it has kept from running; each other word is a fault still.
  view.allow(
    /about:srcdoc/,
    /Content Security Policy/,
    /Blocked (script|form|opening)/,
    /Unsafe attempt to initiate navigation/,
    /sandboxed/,
  );
  await go("sandbox/default/attacker/contexts/python");
  const codes = page.getByLabel("Code", { exact: true });
  await codes.first().fill(code.join("\n"));
  await codes.first().press("Shift+Enter");
  const frame = page.frameLocator("iframe");
  await frame.locator("#seen").waitFor();
  assert.equal(await page.locator("iframe").first().getAttribute("sandbox"), "");
  await frame.getByText("away").click();
  await frame.getByText("go", { exact: true }).click();
  await codes.nth(1).fill("S()");
  await codes.nth(1).press("Shift+Enter");
  await page.locator(".cell").nth(1).locator("img").waitFor();
  await codes.nth(2).fill(`raise E(${JSON.stringify(MARKUP)})`);
  await codes.nth(2).press("Shift+Enter");
  await page.locator(".is-error", { hasText: "<img src=x" }).waitFor();
  await shot(page, "attack-results");
  // It had the time to do what it wanted.
  await page.getByText("idle").waitFor();
});

attack("a terminal runs no markup, answers no query and sets nothing of the browser", async () => {
  const title = await page.title();
  const bytes = [
    MARKUP.replaceAll("'", ""),
    "\\033]0;owned\\007\\033]52;c;b3duZWQ=\\007\\033]8;;javascript:window.owned=15\\033\\\\link\\033]8;;\\033\\\\",
    "\\033[c\\033[6n\\033]11;?\\007\\033P$q m\\033\\\\\\033[18t\\033[21t\\005",
  ];
  await go("sandbox/default/attacker/terminals");
  await page.getByRole("button", { name: "New shell" }).click();
  await page.getByText("connected", { exact: true }).waitFor();
  await page.keyboard.type(
    `printf '${bytes.join("")}'; if read -rsn1 -t 1 answer; then echo "got $answer"; else echo got-$((6*7)); fi\n`,
  );
  await eventually("the end", async () => /got-42|got [^$]/.test(await terminalText(page)));
  const text = await terminalText(page);
  assert.ok(text.includes("got-42"), text);
  assert.ok(text.includes("<img src=x") && !text.includes("b3duZWQ=\n"), text);
  assert.equal(await page.locator(".term a, .term img, .term script").count(), 0);
  assert.ok(!(await page.title()).includes("owned") || title.includes("owned"));
});

attack("addresses that name anything show a page", async () => {
  view.allow();
  const names = [
    "constructor",
    "__proto__",
    "sandbox/default/attacker/__proto__",
    `sandbox/default/${encodeURIComponent(MARKUP)}`,
    "sandbox/../../docs",
    "%ff",
    "javascript:window.owned=16",
    "notebook//",
  ];
  for (const name of names) {
    await go(name);
    await page.locator("main :is(h1, .empty)").first().waitFor();
  }
});

test("what the bridge says of the page lets a browser load and frame nothing else", async () => {
  const answer = await fetch(url, { headers: { accept: "text/html" } });
  const policy = answer.headers.get("content-security-policy");
  for (const rule of [
    "default-src 'none'",
    "script-src 'self'",
    "connect-src 'self'",
    "frame-ancestors 'none'",
    "base-uri 'none'",
    "form-action 'none'",
  ]) {
    assert.ok(policy.split("; ").includes(rule), policy);
  }
  assert.ok(!/unsafe|\*/.test(policy), policy);
  assert.equal(answer.headers.get("x-content-type-options"), "nosniff");
  assert.equal(answer.headers.get("referrer-policy"), "no-referrer");
  const framing = await watched(browser, url);
  framing.allow(/frame-ancestors|ERR_BLOCKED_BY_RESPONSE/);
  await framing.page.goto(`${url}/docs`);
  const shown = await framing.page.evaluate(async (address) => {
    const frame = document.createElement("iframe");
    frame.src = address;
    await new Promise((resolve) => {
      frame.onload = resolve;
      document.body.append(frame);
    });
    try {
      return frame.contentDocument?.querySelector("main") !== null && frame.contentDocument !== null;
    } catch {
      return false;
    }
  }, `${url}/`);
  assert.equal(shown, false, "the page is in a frame");
});
