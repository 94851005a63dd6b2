// The clients for JavaScript: charts and tables of results. `BURROW_TEST_LIBRARIES` is an environment of Python with
// matplotlib and pandas.
import assert from "node:assert/strict";
import test, { after, before } from "node:test";

import { Sandbox } from "@e2b/code-interpreter";

const libraries = process.env.BURROW_TEST_LIBRARIES;
let sbx;
before(async () => {
  const envs = { PATH: `${libraries}/bin:/usr/bin:/bin`, MPLCONFIGDIR: `${libraries}/fonts` };
  sbx = await Sandbox.create({ envs });
});
after(async () => { await sbx?.kill(); });

test("a figure is a chart beside its picture", async () => {
  const draw = "import matplotlib.pyplot as plt\nplt.bar(['A', 'B'], [1, 2], label='S')\nplt.title('T')\nplt.show()";
  const run = await sbx.runCode(draw, { timeoutMs: 0 });
  assert.equal(run.error, undefined);
  const [result] = run.results;
  assert.ok(result.png.startsWith("iVBOR"));
  assert.equal(result.chart.type, "bar");
  assert.equal(result.chart.title, "T");
  assert.deepEqual(result.chart.elements.map((bar) => [bar.label, bar.group, bar.value]), [["A", "S", 1], ["B", "S", 2]]);
});

test("a table has its data", async () => {
  const run = await sbx.runCode("import pandas\npandas.DataFrame({'é': [1, None]})", { timeoutMs: 0 });
  assert.deepEqual(run.results[0].data, { é: [1, null] });
  assert.match(run.results[0].html, /<table/);
});
