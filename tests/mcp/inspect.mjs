// Lets the official inspector list and call every tool of a server: `inspect.mjs PACKAGES BRIDGE URL
// KEY`, over lines and over HTTP. What is called with what, and what must come of it, are the rows of
// calls.json; a tool without a row fails. Each call of the inspector is a session of its own, except
// over the version that has none.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const TIME_MAX_MS = 60_000;
/** What the inspector ends with when a tool says that it has failed. */
const EXIT_IS_ERROR = 5;
const [packages, bridge, url, key] = process.argv.slice(2);
const rows = JSON.parse(readFileSync(fileURLToPath(new URL("calls.json", import.meta.url))));
const program = `${packages}/node_modules/.bin/mcp-inspector`;

const remote = ["--server-url", `${url}/mcp`, "--transport", "http", "--header", `Authorization: Bearer ${key}`];
// What clients start has little of their environment.
const places = ["BURROW_RUNTIME_DIR", "BURROW_STATE_DIR", "BURROW_AGENT"];
const handed = places.filter((name) => process.env[name]).flatMap((name) => ["-e", `${name}=${process.env[name]}`]);
const ways = [
  { name: "lines", options: [bridge, "mcp", ...handed], keepsSession: false },
  { name: "HTTP", options: remote, keepsSession: false },
  { name: "HTTP, 2026-07-28", options: [...remote, "--protocol-era", "modern"], keepsSession: true },
];

function inspect(way, method, options) {
  const asked = ["--cli", ...way.options, "--quiet", "--method", method, ...options];
  const ran = spawnSync(process.execPath, [program, ...asked], {
    encoding: "utf8", timeout: TIME_MAX_MS, maxBuffer: 64 << 20,
  });
  let result = null;
  try {
    result = JSON.parse(ran.stdout);
  } catch {
    // Whoever asked says that there was no result.
  }
  return { exit: ran.status, result, output: `${ran.stdout}\n${ran.stderr}` };
}

const at = (value, path) => path.split(".").reduce((found, name) => found?.[name], value);

/** What is wrong with a result. */
function wrong(row, way, { exit, result }) {
  if (!result?.content) return "no result";
  const text = result.content.map((block) => block.text ?? "").join("\n");
  // A cut output is its session's alone, which has ended.
  const isRefused = row.of_session && !way.keepsSession;
  const isError = isRefused || row.is_error === true;
  if (result.isError !== isError) return `isError is ${result.isError}`;
  if (exit !== (isError ? EXIT_IS_ERROR : 0)) return `exit ${exit}`;
  if (isRefused) return text.includes("not_found") ? null : "a refusal that says something else";
  if (row.text && !text.includes(row.text)) return `the text lacks ${row.text}`;
  if (!isError && !result.structuredContent) return "no structure";
  for (const [path, wanted] of Object.entries(row.structured ?? {})) {
    const found = at(result.structuredContent, path);
    if (found !== wanted) return `${path} is ${JSON.stringify(found)}`;
  }
  return null;
}

let failed = 0;
function tell(way, what, problem, output) {
  console.log(`inspector over ${way.name}: ${what.padEnd(24)} ${problem ? `FAILED: ${problem}` : "passed"}`);
  if (problem) {
    failed += 1;
    console.log(output.split("\n").slice(-20).join("\n"));
  }
}

for (const way of ways) {
  const listed = inspect(way, "tools/list", ["--strict"]);
  const names = (listed.result?.tools ?? []).map((tool) => tool.name);
  const without = names.filter((name) => !rows.some((row) => row.tool === name));
  const gone = rows.filter((row) => !names.includes(row.tool)).map((row) => row.tool);
  let problem = listed.exit === 0 ? null : `exit ${listed.exit}`;
  if (without.length > 0) problem = `no row in calls.json for ${without.join(", ")}`;
  if (gone.length > 0) problem = `no tool is called ${gone.join(", ")}`;
  tell(way, `tools/list of ${names.length}`, problem, listed.output);

  const kept = {};
  for (const row of rows) {
    const filled = Object.entries(row.arguments).map(([name, value]) => {
      const isKept = typeof value === "string" && value.startsWith("$");
      return [name, isKept ? kept[value.slice(1)] : value];
    });
    const asked = JSON.stringify(Object.fromEntries(filled));
    const ran = inspect(way, "tools/call", ["--tool-name", row.tool, "--tool-args-json", asked]);
    for (const [name, path] of Object.entries(row.keep ?? {})) {
      kept[name] = at(ran.result?.structuredContent, path);
    }
    tell(way, row.tool, wrong(row, way, ran), ran.output);
  }
  for (const method of ["resources/list", "resources/templates/list"]) {
    const ran = inspect(way, method, []);
    const isThere = ran.result?.resources ?? ran.result?.resourceTemplates;
    tell(way, method, ran.exit === 0 && isThere ? null : `exit ${ran.exit}`, ran.output);
  }
}
console.log(`inspector: ${failed === 0 ? "all passed" : `${failed} FAILED`}`);
process.exit(failed === 0 ? 0 : 1);
