// A program of somebody who has run openapi-typescript over the document, without flags. It is compiled by
// `tsc --strict`, and never run.

import type { components, paths } from "./api";

type Schemas = components["schemas"];

// Optional fields are left out, and the status decides which answer it is.
export const least: Schemas["CreateSandbox"] = { name: "work" };
export const command: Schemas["ExecCommand"] = { argv: ["id"] };
export const script: Schemas["ShellScript"] = { script: "id" };
export const code: Schemas["RunRequest"] = { code: "1" };
export const notebook: Schemas["OpenNotebook"] = { name: "work" };
type Created = paths["/v1/sandboxes"]["post"]["responses"];
export const made = (answer: Created[201]["content"]["application/json"]): string => answer.name;
export const refused = (answer: Created[409]["content"]["application/json"]): string => answer.code;

// @ts-expect-error: a name is needed
export const nameless: Schemas["CreateSandbox"] = {};
// @ts-expect-error: a number is no text
export const wrong: Schemas["CreateSandbox"] = { name: "work", memory_mib: "lots" };

function none(never: never): never {
  throw new Error(String(never));
}

export function output(event: Schemas["ExecEvent"]): string {
  switch (event.type) {
    case "started":
      return event.session;
    case "stdout":
    case "stderr":
      return "text" in event ? event.text : event.base64;
    case "gap":
      return `${event.to - event.from} bytes are missing`;
    case "artifacts":
      return event.captured.artifacts.map((one) => one.name).join();
    case "exited":
      return cause(event.exit.cause);
    case "refused":
    case "problem":
      return event.problem.message;
    default:
      return none(event);
  }
}

export function cause(cause: Schemas["Cause"]): string {
  if (cause.type === "exited") {
    return `exit code ${cause.code}`;
  }
  // @ts-expect-error: only what has ended by itself has a code
  return cause.code;
}

export function change(change: Schemas["FileChange"]): string {
  switch (change.type) {
    case "created":
    case "modified":
    case "attributes":
    case "removed":
      return change.path;
    case "moved":
      return `${change.from} is ${change.path} now`;
    case "overflow":
    case "ended":
      return change.type;
    case "failed":
      return change.problem.message;
    default:
      return none(change);
  }
}

export function input(order: Schemas["RunOrder"]): string {
  return order.type === "input" ? (order.line ?? "the end") : order.type;
}

export function length(answer: Schemas["MetricsAnswer"]): number {
  switch (answer.type) {
    case "samples":
      return answer.samples.length;
    case "history":
      return answer.points.length;
    default:
      return none(answer);
  }
}
