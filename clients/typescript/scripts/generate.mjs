/**
 * Writes `src/api.ts` and `src/operations.ts` from the OpenAPI document of a server: the types of what
 * crosses the wire, and where each operation is. The suite `package` runs it again and compares.
 *
 *     node scripts/generate.mjs openapi.json [DIRECTORY]
 */

import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import openapiTS, { astToString } from "openapi-typescript";

const METHODS = ["get", "post", "put", "patch", "delete"];
/** Doors with clients of their own, and pages for people. */
const LEFT_OUT = /^\/(a2a|api|docs|metrics|openapi\.json)/;
const NOTICE = "// Made by scripts/generate.mjs from the server's OpenAPI document. Do not edit it.\n\n";

const [, , source, target = "src"] = process.argv;
if (source === undefined) throw new Error("usage: generate.mjs openapi.json [DIRECTORY]");
const document = JSON.parse(readFileSync(source, "utf8"));

const operations = [];
for (const [path, item] of Object.entries(document.paths)) {
  for (const method of METHODS) {
    const operation = item[method];
    if (operation === undefined || LEFT_OUT.test(path)) continue;
    operations.push({ method, path, operation });
  }
}

const used = new Set();
const schemas = {};

/** The type of a schema, which gets a name if it has none, and with it all that it refers to. */
function typed(schema, name) {
  if (schema.$ref === undefined) {
    schemas[name] = schema;
    collect(schema);
    return `Schemas["${name}"]`;
  }
  collect(schema);
  return `Schemas["${schema.$ref.split("/").at(-1)}"]`;
}

function collect(value) {
  if (Array.isArray(value)) return value.forEach(collect);
  if (value === null || typeof value !== "object") return;
  const name = typeof value.$ref === "string" ? value.$ref.split("/").at(-1) : undefined;
  if (name !== undefined && !used.has(name)) {
    used.add(name);
    schemas[name] = document.components.schemas[name];
    collect(schemas[name]);
  }
  Object.values(value).forEach(collect);
}

const pascal = (id) => id.replace(/(^|_)(\w)/g, (_, __, letter) => letter.toUpperCase());

/** What a call of an operation takes and gives, as the members of a type. */
function members({ path, operation }) {
  const name = pascal(operation.operationId);
  const lines = [];
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, one]) => `${one}: string | number`);
  if (names.length > 0) lines.push(`path: { ${names.join("; ")} };`);
  const query = (operation.parameters ?? []).filter((one) => one.in === "query");
  if (query.length > 0) {
    const properties = Object.fromEntries(
      query.map((one) => [one.name, { description: one.description, ...one.schema }]),
    );
    const required = query.filter((one) => one.required).map((one) => one.name);
    const type = typed({ type: "object", properties, required }, `${name}Query`);
    lines.push(`query${required.length > 0 ? "" : "?"}: ${type};`);
  }
  const body = operation.requestBody?.content["application/json"];
  if (body !== undefined) {
    const mark = operation.requestBody.required === true ? "" : "?";
    lines.push(`body${mark}: ${typed(body.schema, `${name}Body`)};`);
  }
  const answers = Object.entries(operation.responses)
    .filter(([status]) => status.startsWith("2"))
    .map(([, answer]) => answer.content ?? {});
  const answer = answers.map((content) => content["application/json"]).find(Boolean);
  const events = answers.map((content) => content["application/x-ndjson"]).find(Boolean);
  if (answer !== undefined) {
    lines.push(`answer: ${typed(answer.schema, `${name}Answer`)};`);
  } else if (operation.responses["204"] !== undefined) {
    lines.push("answer: void;");
  }
  const uploads = operation.requestBody?.content["application/octet-stream"];
  if (uploads ?? operation.requestBody?.content["application/x-tar"]) lines.push("upload: true;");
  if (events !== undefined) lines.push(`events: ${typed(events.schema, `${name}Events`)};`);
  return lines;
}

const types = operations.map((one) => {
  const lines = members(one).map((line) => `    ${line}\n`);
  return `  /** ${one.operation.summary} */\n  ${one.operation.operationId}: {\n${lines.join("")}  };\n`;
});

typed({ $ref: "#/components/schemas/Problem" });
const sorted = Object.fromEntries(Object.entries(schemas).sort(([a], [b]) => (a < b ? -1 : 1)));
const nodes = await openapiTS({
  openapi: document.openapi,
  info: document.info,
  paths: {},
  components: { schemas: sorted },
});
const components = nodes.filter((node) => node.name?.text === "components");
const api = `${NOTICE}${astToString(components)}
/** The shapes of the API, by their names in its document. */
export type Schemas = components["schemas"];

/** What each operation of the API takes and answers. */
export interface Operations {
${types.join("")}}
`;
writeFileSync(join(target, "api.ts"), api);

const rows = operations.map(({ method, path, operation }) => {
  return `  ${operation.operationId}: ["${method.toUpperCase()}", "${path}"],\n`;
});
const table = `${NOTICE}import type { Operations } from "./api.js";

/** The method and the path of each operation. */
export const operations: { readonly [Name in keyof Operations]: readonly [string, string] } = {
${rows.join("")}};
`;
writeFileSync(join(target, "operations.ts"), table);
