/** A program of somebody who uses the client with strict types. It is compiled, and never run. */

import {
  BurrowClient,
  type CommandResult,
  ConflictError,
  type ErrorCode,
  type RunEvent,
  type Schemas,
  type StreamEvent,
} from "burrow-sandbox";

export async function use(client: BurrowClient): Promise<string> {
  await using sandbox = await client.create({ image: "python:3.12", packages: { pip: ["six"] } });
  const result: CommandResult = await sandbox.exec(["id"] as const, { env: { A: "b" }, user: "nobody" });
  const info: Schemas["Sandbox"] = await sandbox.info();
  const page: Schemas["SandboxPage"] = await client.call("list_sandboxes", { query: { limit: 1 } });
  for await (const event of client.events("follow_metrics", {
    path: { namespace: info.namespace, name: info.name },
  })) {
    const one: Schemas["MetricsEvent"] = event;
    void one;
  }
  return result.stdout + page.sandboxes.length;
}

export async function misuse(client: BurrowClient): Promise<void> {
  // @ts-expect-error: a number is no text
  await client.create({ memory_mib: "lots" });
  // @ts-expect-error: there is no such option
  await client.create({ memoryMib: 256 });
  const sandbox = await client.create();
  // @ts-expect-error: a line is for the shell
  await sandbox.exec("ls -l");
  // @ts-expect-error: the client itself names the session
  await sandbox.exec(["ls"], { session: "mine" });
  // @ts-expect-error: there is no such operation
  await client.call("list_nothing", {});
  // @ts-expect-error: it needs the parameters of its path
  await client.call("get_sandbox", {});
  // @ts-expect-error: a file is no JSON
  await client.call("read_file", { path: { namespace: "a", name: "b" } });
}

export function event(event: StreamEvent): string {
  switch (event.type) {
    case "output":
      return `${event.channel} ${event.offset} ${event.data.length} ${event.text}`;
    case "gap":
      return `${event.to - event.from} bytes are missing`;
    case "exited":
      return `${event.result.exitCode}`;
    default: {
      const none: never = event;
      return none;
    }
  }
}

export function run(event: RunEvent): string | undefined {
  switch (event.type) {
    case "stdout":
    case "stderr":
      return event.text;
    case "display":
      return event.display.text;
    case "error":
      return event.error.traceback;
    case "input_request":
      return event.prompt;
    case "finished":
      return event.result.status;
    default:
      return undefined;
  }
}

export function code(error: unknown): ErrorCode | undefined {
  if (error instanceof ConflictError) return error.reason ?? error.code;
  return undefined;
}
