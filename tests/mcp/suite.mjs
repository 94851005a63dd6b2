// Runs scenarios of the official conformance suite against a server, and says how each has ended:
// `suite.mjs PACKAGES BUILD URL`. BUILD is `plain`, whose scenarios are listed, or `fixture`, which
// has what all others ask for too. Which they are stands in scenarios.json, with those that are left
// out or known to fail, and why.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const TIME_MAX_MS = 60_000;
const [packages, build, url] = process.argv.slice(2);
const table = JSON.parse(readFileSync(fileURLToPath(new URL("scenarios.json", import.meta.url))));

function conformance(suite, options) {
  const program = `${packages}/node_modules/${suite.package}/dist/index.js`;
  const ran = spawnSync(process.execPath, [program, ...options], {
    encoding: "utf8", timeout: TIME_MAX_MS, maxBuffer: 64 << 20,
  });
  return { isDone: ran.status === 0, output: `${ran.stdout}\n${ran.stderr}` };
}

/** All that a suite has for servers of a version, and for extensions of it. */
function listed(version, suite) {
  const { output } = conformance(suite, ["list", "--server"]);
  const ours = output.split("Client scenarios")[0];
  const rows = [...ours.matchAll(/^ {2}- (\S+) \[(.*)\]$/gm)];
  const isOurs = (versions) => versions.split(",").some((one) => [version, "extension"].includes(one));
  const found = rows.filter(([, , versions]) => isOurs(versions));
  if (found.length === 0) throw new Error(`the suite of ${version} lists nothing:\n${output}`);
  return found.map(([, name]) => name);
}

const reason = (rows, version, name) =>
  rows.find((row) => row.suite === version && name.startsWith(row.scenario))?.why;

let failed = 0;
for (const [version, suite] of Object.entries(table.suites)) {
  const all = build === "plain" ? table.plain[version] : listed(version, suite);
  for (const name of all) {
    const leftOut = reason(table.left_out, version, name);
    if (leftOut) {
      console.log(`${build.padEnd(8)} ${version}  ${name.padEnd(48)} left out: ${leftOut}`);
      continue;
    }
    const options = ["server", "--url", `${url}/mcp`, "--scenario", name, ...suite.options];
    const { isDone, output } = conformance(suite, options);
    const count = /^Passed: (\d+)\/(\d+), (\d+) failed(?:, (\d+) warnings)?/m.exec(output);
    // One that has checked nothing has not passed.
    const isPassed = isDone && count !== null && Number(count[1]) > 0 && count[3] === "0";
    const known = reason(table.known, version, name);
    let word = isPassed ? "passed" : "FAILED";
    if (known) word = isPassed ? "FAILED: it is known to fail, and passes" : `known: ${known}`;
    const figures = count ? `${count[1]} of ${count[2]}, ${count[4] ?? 0} warnings` : "no figures";
    console.log(`${build.padEnd(8)} ${version}  ${name.padEnd(48)} ${word} (${figures})`);
    if (word.startsWith("FAILED")) {
      failed += 1;
      console.log(output.split("\n").slice(-40).join("\n"));
    }
  }
}
console.log(`${build}: ${failed === 0 ? "all passed" : `${failed} FAILED`}`);
process.exit(failed === 0 ? 0 : 1);
