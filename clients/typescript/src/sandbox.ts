/** One sandbox. */

import type { Schemas } from "./api.js";
import { type Content, concat, decodeContent, decodeText } from "./bytes.js";
import {
  CommandStream,
  type Commands,
  Commands as CommandsOf,
  type ExecOptions,
  streamed,
  type StreamOptions,
  Terminal,
  terminal,
  type TerminalOptions,
} from "./commands.js";
import { Context, type ContextOptions } from "./contexts.js";
import { NotFoundError } from "./errors.js";
import { Files } from "./files.js";
import type { Api, CallOptions } from "./http.js";
import {
  CREATE_MS,
  LOG_SETTLE_MS,
  LOG_SETTLE_PAUSE_MS,
  RUN_MARGIN_MS,
  SYNC_MS,
  TEARDOWN_MS,
} from "./limits.js";
import { draw } from "./platform.js";
import { connect, type PortConnection } from "./ports.js";
import type { CommandResult } from "./results.js";
import { pause, regardless } from "./waiting.js";

/** A sandbox. At the end of an `await using` it is removed. */
export class Sandbox implements AsyncDisposable {
  readonly name: string;
  readonly namespace: string;
  /** Unique, even when the name is used again. */
  readonly id: string;
  readonly files: Files;
  readonly #api: Api;
  readonly #commands: Commands;

  /** Sandboxes are made by a client. */
  constructor(api: Api, info: Schemas["Sandbox"]) {
    this.name = info.name;
    this.namespace = info.namespace;
    this.id = info.id;
    this.#api = api.ofSandbox(info.id);
    const place = { namespace: info.namespace, name: info.name };
    this.#commands = new CommandsOf(this.#api, place);
    this.files = new Files(this.#api, place);
  }

  get #path() {
    return this.#commands.place;
  }

  /**
   * Runs a program to its end; no shell sees its arguments. An exit code other than 0 and a timeout (124,
   * `timedOut`) are results. A program that cannot be started is a `SpawnFailedError`. When the signal is
   * aborted, the program is killed with all that it has started.
   */
  async exec(argv: readonly string[], options: ExecOptions = {}): Promise<CommandResult> {
    return await this.#commands.run({ argv }, options);
  }

  /** Runs a script with `/bin/sh` to its end, like `exec`. */
  async shell(script: string, options: ExecOptions = {}): Promise<CommandResult> {
    return await this.#commands.run({ script }, options);
  }

  /** A program whose events are read as they happen. With `stdin: true`, `write` sends it input. */
  stream(argv: readonly string[], options: StreamOptions = {}): CommandStream {
    return streamed(this.#commands, { argv }, options);
  }

  /** A script with `/bin/sh` whose events are read as they happen, like `stream`. */
  streamShell(script: string, options: StreamOptions = {}): CommandStream {
    return streamed(this.#commands, { script }, options);
  }

  /** A program on a terminal; a login shell by default. */
  terminal(options: TerminalOptions = {}): Terminal {
    return terminal(this.#commands, options);
  }

  /**
   * A command that runs already, by its session's name, from these offsets of its outputs on. It is not
   * killed when this stream is left.
   */
  attach(
    session: string,
    options: CallOptions & { from?: Partial<Record<Schemas["ChannelName"], number>> } = {},
  ): Terminal {
    const { from = {}, signal } = options;
    return new Terminal(this.#commands, { session, from }, undefined, signal);
  }

  /** An interpreter that keeps its state between runs. */
  context(name = "python", options: ContextOptions = {}): Context {
    return new Context(this.#api, this.#path, name, options);
  }

  /** Forwards a port inside to one of the server's host, at a loopback address. */
  async forward(
    port: number,
    options: Omit<Schemas["ForwardPort"], "port"> & CallOptions = {},
  ): Promise<Schemas["ForwardedPort"]> {
    const { signal, ...how } = options;
    const input = { path: this.#path, body: { port, ...how } };
    return await this.#api.call("forward_port", input, { signal });
  }

  async ports(options?: CallOptions): Promise<Schemas["ForwardedPort"][]> {
    return (await this.#api.call("list_ports", { path: this.#path }, options)).ports;
  }

  /** Ends a forward and its connections, by the port of the host. */
  async closePort(hostPort: number, options?: CallOptions): Promise<void> {
    const path = { ...this.#path, forward: hostPort };
    await this.#api.call("close_port", { path }, options);
  }

  /**
   * A link to a port inside: who has it reaches the port without a key, for an hour or for `ttl_ms`. Where the
   * server has host names for ports, browsers can open it too.
   */
  async previewUrl(
    port: number,
    options: Omit<Schemas["CreatePreview"], "port"> & CallOptions = {},
  ): Promise<string> {
    const { signal, ...how } = options;
    const input = { path: this.#path, body: { port, ...how } };
    return (await this.#api.call("create_preview", input, { signal })).url;
  }

  /** A TCP connection to a port inside. Needs a runtime with `WebSocket`. */
  async connect(port: number, options: CallOptions = {}): Promise<PortConnection> {
    return await connect(this.#api, this.#path, port, options);
  }

  /** What its commands have written, or the last lines of it; stopped sandboxes have it too. */
  async logs(options: CallOptions & { tail?: number | undefined } = {}): Promise<string> {
    const { tail, signal } = options;
    await this.#settled(signal);
    const pieces: Uint8Array[] = [];
    const input = { path: this.#path, query: tail === undefined ? {} : { tail } };
    for await (const entry of this.#api.events("read_log", input, { signal })) {
      if (entry.type === "output") pieces.push(decodeContent(entry as Content));
    }
    return decodeText(concat(pieces));
  }

  /**
   * Compares what the log has of sessions with the digests of the agent: for each session its `outputs`, with a
   * `finding`: `equal`, `partial`, `damaged`, `differs` or `unknown`.
   */
  async verify(
    options: CallOptions & { session?: string | undefined } = {},
  ): Promise<Schemas["Comparison"][]> {
    const { session, signal } = options;
    await this.#settled(signal);
    const input = { path: this.#path, query: session === undefined ? {} : { session } };
    return (await this.#api.call("verify_output", input, { signal })).sessions;
  }

  /** The signed receipt of a session that has ended. `host-bridge receipt verify` checks it. */
  async receipt(session: string, options?: CallOptions): Promise<Schemas["Receipt"]> {
    return await this.#api.call("get_receipt", { path: { ...this.#path, session } }, options);
  }

  /** The signed receipt of a run of a context: by its number, or of the last that has ended. */
  async runReceipt(context: string, run?: number, options?: CallOptions): Promise<Schemas["Receipt"]> {
    const query = run === undefined ? {} : { run };
    const input = { path: { ...this.#path, context }, query };
    return await this.#api.call("get_run_receipt", input, options);
  }

  /**
   * Waits until the log has the end of the last command. The log is written separately from the answer, so
   * that it may be a moment later.
   */
  async #settled(signal: AbortSignal | undefined): Promise<void> {
    const session = this.#commands.last;
    this.#commands.last = undefined;
    if (session === undefined) return;
    const query = { session, limit: 1000, stream: "stderr" as const };
    for (const deadline = Date.now() + LOG_SETTLE_MS; Date.now() < deadline; ) {
      const page = await this.#api.call("read_log", { path: this.#path, query }, { signal });
      if (page.entries.some((entry) => entry.type === "exited")) return;
      await pause(LOG_SETTLE_PAUSE_MS, signal);
    }
  }

  /** The server's description of it. */
  async info(options?: CallOptions): Promise<Schemas["Sandbox"]> {
    return await this.#api.call("get_sandbox", { path: this.#path }, options);
  }

  /** What it uses at the moment. */
  async metrics(options?: CallOptions): Promise<Schemas["MetricsSample"] | undefined> {
    const page = await this.#api.call("get_metrics", { path: this.#path }, options);
    return "samples" in page ? page.samples.at(-1) : undefined;
  }

  /** What it uses, a sample for each second. Leaving ends the stream. */
  followMetrics(options?: CallOptions): AsyncGenerator<Schemas["MetricsEvent"], void, undefined> {
    return this.#api.events("follow_metrics", { path: this.#path }, options);
  }

  /**
   * Copies changes in the workspace back to its origin. That also happens by itself after a command or
   * run, and before a stop or a removal.
   */
  async sync(options?: CallOptions): Promise<Schemas["Synced"]> {
    const long = { timeoutMs: SYNC_MS, ...options };
    return await this.#api.call("sync_workspace", { path: this.#path }, long);
  }

  /** Sets how long it lives from now on, and how long while it is idle. 0 removes the limit. */
  async extend(
    times: Schemas["ExtendSandbox"],
    options?: CallOptions,
  ): Promise<Schemas["Sandbox"]> {
    return await this.#api.call("extend_sandbox", { path: this.#path, body: times }, options);
  }

  /**
   * Sets what it may reach from now on, instead of what it could. Connections that the rules do not allow are ended;
   * an empty list allows nothing.
   */
  async setEgress(rules: string[], options?: CallOptions): Promise<Schemas["Sandbox"]> {
    return await this.extend({ egress: rules }, options);
  }

  /** Waits until it is `created`, `stopped` or `removed`, or the time is over, and returns its state. */
  async wait(
    until: Schemas["WaitFor"] = "stopped",
    options: CallOptions & { timeout_ms?: number | undefined } = {},
  ): Promise<Schemas["Sandbox"]> {
    const { timeout_ms, signal } = options;
    const query = { until, ...(timeout_ms === undefined ? {} : { timeout_ms }) };
    const timeoutMs = timeout_ms === undefined ? Infinity : timeout_ms + RUN_MARGIN_MS;
    const input = { path: this.#path, query };
    return await this.#api.call("wait_for_sandbox", input, { signal, timeoutMs });
  }

  /** Pauses it, if its machine can. */
  async pause(options?: CallOptions): Promise<void> {
    const repeatable = { ...options, isRepeatable: true };
    await this.#api.call("pause_sandbox", { path: this.#path }, repeatable);
  }

  async resume(options?: CallOptions): Promise<void> {
    const repeatable = { ...options, isRepeatable: true };
    await this.#api.call("resume_sandbox", { path: this.#path }, repeatable);
  }

  /** Takes a snapshot of it and all that runs in it, if its machine can. It goes on. */
  async snapshot(name: string, options?: CallOptions): Promise<Schemas["Snapshot"]> {
    const long = { timeoutMs: CREATE_MS, ...options };
    return await this.#api.call("take_snapshot", { path: this.#path, body: { name } }, long);
  }

  /**
   * Makes copies of it, all or none: one, or as many as `count` or `names` say. The report says what they have
   * of it: its memory, or its files and the variables of notebooks.
   */
  async fork(
    options: Schemas["ForkSandbox"] & CallOptions = {},
  ): Promise<{ forks: Sandbox[]; report: Schemas["ForkReport"] }> {
    const { signal, ...body } = options;
    const how = { signal, idempotencyKey: draw("fork"), timeoutMs: CREATE_MS };
    const made = await this.#api.call("fork_sandbox", { path: this.#path, body }, how);
    const forks = made.forks.map((info) => new Sandbox(this.#api, info));
    return { forks, report: made.report };
  }

  /** Keeps a file of it as an artifact. */
  async keep(path: string, options?: CallOptions): Promise<Schemas["KeptArtifact"]> {
    return await this.#api.call("keep_artifact", { path: this.#path, body: { path } }, options);
  }

  /**
   * Stops it: its processes are asked to end, and killed after the grace. Its record and logs stay until
   * it is removed. Does nothing if it has ended.
   */
  async stop(options: Schemas["StopSandbox"] & CallOptions = {}): Promise<void> {
    const { signal, ...body } = options;
    const timeoutMs = Math.max(CREATE_MS, (body.grace_ms ?? 0) + RUN_MARGIN_MS);
    const how = { signal, timeoutMs, isRepeatable: true };
    await unlessGone(this.#api.call("stop_sandbox", { path: this.#path, body }, how));
  }

  /** Ends it at once. Does nothing if it has ended. */
  async kill(options: CallOptions = {}): Promise<void> {
    const how = { ...options, timeoutMs: CREATE_MS, isRepeatable: true };
    await unlessGone(this.#api.call("kill_sandbox", { path: this.#path }, how));
  }

  /** Removes it, and stops it first if it runs. */
  async remove(options: CallOptions = {}): Promise<void> {
    const input = { path: this.#path, query: { force: true } };
    await this.#api.call("remove_sandbox", input, { ...options, timeoutMs: CREATE_MS });
  }

  /** Removes it if it is there. A failure does not hide what has ended the block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await regardless(TEARDOWN_MS, (signal) => this.remove({ signal }));
  }
}

async function unlessGone(call: Promise<unknown>): Promise<void> {
  try {
    await call;
  } catch (error) {
    if (!(error instanceof NotFoundError)) throw error;
  }
}
