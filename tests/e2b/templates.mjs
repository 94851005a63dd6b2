// Templates with the client for JavaScript. The image `small` is there already.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";

import { BuildError, Sandbox, Template } from "e2b";
import { suite } from "./calls.mjs";

const test = suite("templates");
const SMALL = "small:latest";

test("a template is built, tagged and used", async () => {
  mkdirSync("context/src", { recursive: true });
  writeFileSync("context/src/a.txt", "first\n");
  const template = Template({ fileContextPath: "context" })
    .fromImage(SMALL)
    .setWorkdir("/srv")
    .setEnvs({ COLOUR: "red" })
    .copy("src", "/srv/src")
    .runCmd("echo $COLOUR > built")
    .setStartCmd("echo up > /tmp/up; exec sleep 1000", "test -s /tmp/up");
  const said = [];
  const info = await Template.build(template, "js", { tags: ["v1"], onBuildLogs: (entry) => said.push(entry.message) });
  assert.equal(info.templateId, "js");
  assert.ok(said.length > 0);
  assert.equal(await Template.exists("js"), true);
  await Template.assignTags("js:v1", ["v2"]);
  assert.deepEqual((await Template.getTags("js")).map((one) => one.tag).sort(), ["v1", "v2"]);
  await Template.removeTags("js", ["v1"]);
  const sbx = await Sandbox.create("js:v2");
  const ran = await sbx.commands.run("cat built src/a.txt /tmp/up", { cwd: "/srv", user: "root" });
  assert.equal(ran.stdout, "red\nfirst\nup\n");
  await sbx.kill();
  await Template.removeTags("js", ["v2"]);
  assert.equal(await Template.exists("js"), false);
});

test("a build in the background says how it ends", async () => {
  const template = Template().fromImage(SMALL).runCmd("exit 3");
  const info = await Template.buildInBackground(template, "js-bad");
  let status = await Template.getBuildStatus(info);
  while (status.status === "building" || status.status === "waiting") status = await Template.getBuildStatus(info);
  assert.equal(status.status, "error");
  assert.match(status.reason.message, /exit code 3/);
  await assert.rejects(Template.build(template, "js-bad"), BuildError);
});
