// Volumes with the clients for JavaScript.
import assert from "node:assert/strict";

import { Sandbox, Volume, VolumeNotFoundError, VolumePathNotFoundError } from "e2b";
import { suite } from "./calls.mjs";

const test = suite("volumes");

test("a volume is made, filled, mounted and destroyed", async () => {
  const made = await Volume.create("javascript");
  assert.ok((await Volume.list()).some((one) => one.volumeId === made.volumeId && one.name === "javascript"));
  assert.equal((await Volume.getInfo(made.volumeId)).token, made.token);
  await assert.rejects(Volume.create("javascript"), /409/);
  await assert.rejects(Volume.connect("none-of-ours"), VolumeNotFoundError);
  const volume = await Volume.connect(made.volumeId);

  const written = await volume.writeFile("/f", "text", { mode: 0o640 });
  assert.deepEqual([written.path, written.type, written.size, written.mode], ["/f", "file", 4, 0o640]);
  assert.ok(written.mtime instanceof Date);
  assert.equal(await volume.readFile("/f"), "text");
  assert.equal(new TextDecoder().decode(await volume.readFile("/f", { format: "bytes" })), "text");
  assert.equal(await (await volume.readFile("/f", { format: "blob" })).text(), "text");
  const stream = new Blob(["streamed"]).stream();
  await volume.writeFile("/s", stream);
  let streamed = "";
  for await (const piece of await volume.readFile("/s", { format: "stream" })) {
    streamed += new TextDecoder().decode(piece);
  }
  assert.equal(streamed, "streamed");

  await assert.rejects(volume.makeDir("/d/e"), VolumePathNotFoundError);
  assert.equal((await volume.makeDir("/d/e", { force: true })).type, "directory");
  assert.deepEqual((await volume.list("/")).map((one) => one.path), ["/d", "/f", "/s"]);
  assert.deepEqual((await volume.list("/", { depth: 2 })).map((one) => one.path), ["/d", "/f", "/s", "/d/e"]);
  assert.equal((await volume.getInfo("/d")).name, "d");
  await assert.rejects(volume.getInfo("/none"), VolumePathNotFoundError);
  assert.equal((await volume.updateMetadata("/f", { mode: 0o600 })).mode, 0o600);
  assert.deepEqual([await volume.exists("/d"), await volume.exists("/none")], [true, false]);

  const sbx = await Sandbox.create({ volumeMounts: { "/data": volume } });
  try {
    assert.equal((await sbx.commands.run("cat /data/f; echo -n more > /data/g")).stdout, "text");
    assert.equal(await volume.readFile("/g"), "more");
    await assert.rejects(Volume.destroy(volume.volumeId), /409|mounted/);
  } finally {
    await sbx.kill();
  }
  await volume.remove("/d");
  await assert.rejects(volume.remove("/d"), VolumePathNotFoundError);
  assert.equal(await Volume.destroy(volume.volumeId), true);
  assert.equal(await Volume.destroy(volume.volumeId), false);
});
