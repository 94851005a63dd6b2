/**
 * Commands in a sandbox: run to the end, or streamed while they run.
 *
 * Each is a session with a random name, recorded in the sandbox's log. So an attempt that was cut off can be
 * repeated: it finds the program that it started and never starts a second one. A program whose caller
 * gives up is killed by its name.
 */

import type { Schemas } from "./api.js";
import {
  concat,
  type Content,
  decodeContent,
  decodeText,
  encodeContent,
  encodeText,
} from "./bytes.js";
import {
  BurrowError,
  ConflictError,
  ConnectionFailedError,
  GoneError,
  InvalidRequestError,
  NotFoundError,
} from "./errors.js";
import { type Api, type CallOptions, pauseMs } from "./http.js";
import { KILL_MS, OUTPUT_BYTES_MAX, RUN_MARGIN_MS, RUN_MS, STEADY_MS } from "./limits.js";
import { draw } from "./platform.js";
import {
  type Channel,
  CommandResult,
  commandResult,
  Output,
  type StreamEvent,
} from "./results.js";
import { linked, onAbort, pause, regardless } from "./waiting.js";

type Body<N extends "ExecCommand" | "ShellScript" | "StartSession"> = Schemas[N];
type Taken = "argv" | "script" | "session" | "stdin" | "on_disconnect" | "terminal";

/** How a command runs to its end. Names in `snake_case` are those of the API. */
export interface ExecOptions
  extends Omit<Body<"ExecCommand">, Taken>,
    Pick<Body<"ShellScript">, "shell">,
    CallOptions {
  /** Its whole input; it is empty by default. */
  stdin?: string | Uint8Array | undefined;
}

/** How a command runs that is followed. */
export interface StreamOptions
  extends Omit<Body<"StartSession">, Taken | "login_shell">,
    CallOptions {
  /** Its whole input; or `true`, and `write` sends it. */
  stdin?: string | Uint8Array | boolean | undefined;
}

/** How a terminal starts: a login shell of 24 rows of 80 columns unless it says otherwise. */
export interface TerminalOptions extends Omit<StreamOptions, "stdin"> {
  argv?: readonly string[] | undefined;
  rows?: number | undefined;
  columns?: number | undefined;
}

export type Place = { namespace: string; name: string };
type What = { argv: readonly string[] } | { script: string };

/** The commands of one sandbox. */
export class Commands {
  readonly api: Api;
  readonly place: Place;
  /** The session that ended last. The log may not have its end yet. */
  last: string | undefined;

  constructor(api: Api, place: Place) {
    this.api = api;
    this.place = place;
  }

  /** Runs a command to its end. */
  async run(what: What, options: ExecOptions): Promise<CommandResult> {
    const { signal, stdin, ...how } = options;
    const session = draw("c");
    const ms = how.timeout_ms ?? RUN_MS;
    const body = {
      ...checked(what),
      ...how,
      timeout_ms: ms,
      session,
      on_disconnect: "detach" as const,
      ...(stdin === undefined ? {} : { stdin: encodeContent(stdin) }),
    };
    const link = linked(ms + RUN_MARGIN_MS, signal);
    try {
      const result = await this.#attempts(body, session, link.signal);
      this.last = session;
      return result;
    } catch (error) {
      // It may still run: its end is not known.
      const isUnknown = link.signal.aborted || error instanceof ConnectionFailedError;
      if (isUnknown || !(error instanceof BurrowError)) await this.kill(session);
      throw error;
    } finally {
      link.release();
    }
  }

  async #attempts(
    body: Body<"ExecCommand"> | Body<"ShellScript">,
    session: string,
    signal: AbortSignal,
  ): Promise<CommandResult> {
    const path = this.place;
    const options = { signal, timeoutMs: Infinity };
    let wasCut = false;
    for (let attempt = 0; ; attempt++) {
      try {
        const answer =
          "script" in body
            ? await this.api.call("shell", { path, body }, options)
            : await this.api.call("exec", { path, body }, options);
        return commandResult(answer);
      } catch (error) {
        const bytesMax = body.output_bytes_max ?? OUTPUT_BYTES_MAX;
        if (error instanceof ConflictError && wasCut && error.reason === "session_exists") {
          // The attempt that was cut off started it.
          return await this.#collected(session, bytesMax, signal);
        }
        if (error instanceof NotFoundError) {
          // It can have ended, and been recorded, before the server came to read it. If there is nothing
          // in the log either, it is the sandbox that is missing.
          return await this.#collected(session, bytesMax, signal).catch(() => {
            signal.throwIfAborted();
            throw error;
          });
        }
        const isCut = error instanceof ConnectionFailedError;
        if (!isCut || attempt >= this.api.retries) throw error;
        wasCut = true;
        await pause(pauseMs(error, attempt), signal);
      }
    }
  }

  async #collected(session: string, bytesMax: number, signal: AbortSignal): Promise<CommandResult> {
    const kept: Record<string, Uint8Array[]> = { stdout: [], stderr: [] };
    const lengths: Record<string, number> = { stdout: 0, stderr: 0 };
    let truncated = false;
    for await (const event of this.follow(session, signal)) {
      if (event.type === "gap") truncated = true;
      if (event.type === "output") {
        const length = lengths[event.channel] ?? 0;
        const room = Math.max(0, bytesMax - length);
        truncated ||= event.data.length > room;
        kept[event.channel]?.push(event.data.subarray(0, room));
        lengths[event.channel] = length + event.data.length;
      }
      if (event.type !== "exited") continue;
      const [stdoutBytes, stderrBytes] = [concat(kept["stdout"] ?? []), concat(kept["stderr"] ?? [])];
      const [stdout, stderr] = [decodeText(stdoutBytes), decodeText(stderrBytes)];
      const output = { stdout, stderr, stdoutBytes, stderrBytes, truncated };
      return new CommandResult(event.result.exit, session, output);
    }
    throw new ConnectionFailedError("the sandbox ended before the command did");
  }

  /** All events of a session from these offsets on, over as many connections as needed. */
  async *follow(
    session: string,
    signal: AbortSignal,
    from: Partial<Record<Channel, number>> = {},
  ): AsyncGenerator<StreamEvent, void, undefined> {
    const at = { stdout: 0, stderr: 0, terminal: 0, ...from };
    const path = { ...this.place, session };
    for (let attempt = 0; ; attempt++) {
      const begun = Date.now();
      const query = { follow: true, from: at.terminal || at.stdout, stderr_from: at.stderr };
      try {
        for await (const event of this.api.events("read_session", { path, query }, { signal })) {
          attempt = 0;
          if (event.type === "output") {
            const data = decodeContent(event as Content);
            at[event.channel] = event.offset + data.length;
            yield new Output(event.channel, data, event.offset);
          } else if (event.type === "gap") {
            at[event.channel] = event.to;
            yield event;
          } else if (event.type === "exited") {
            this.last = session;
            yield { type: "exited", result: new CommandResult(event.exit, session) };
            return;
          } else if (event.type === "over") {
            throw new GoneError("the sandbox ended before the command did");
          }
        }
        // A stream that ends without its last event was cut off, too.
        throw new ConnectionFailedError("the stream was cut off");
      } catch (error) {
        if (Date.now() - begun > STEADY_MS) attempt = 0;
        if (!(error instanceof ConnectionFailedError) || attempt >= this.api.retries) throw error;
        await pause(pauseMs(error, attempt), signal);
      }
    }
  }

  /** Kills a program that nobody waits for any more, with all that it has started. */
  async kill(session: string): Promise<void> {
    const path = { ...this.place, session };
    await regardless(KILL_MS, (signal) => {
      return this.api.call("release_session", { path, query: { kill: true } }, { signal });
    });
  }
}

function checked(what: What): { argv: string[] } | { script: string } {
  if ("script" in what) return what;
  if (Array.isArray(what.argv)) return { argv: [...what.argv] };
  throw new InvalidRequestError("a program and its arguments are an array; `shell` takes a line");
}

/** How a stream gets to its session. */
interface Origin {
  session: string;
  /** The body that starts it; without one it runs already. */
  start?: Body<"StartSession">;
  from?: Partial<Record<Channel, number>>;
}

/**
 * A command that is followed while it runs. It starts when the first event is read or the first input
 * written. Leaving a `for await` before its end kills the command; so does `close`.
 */
export class CommandStream implements AsyncIterable<StreamEvent> {
  /** The session's name in the log; `sandbox.attach` finds it by that. */
  readonly session: string;
  readonly #commands: Commands;
  readonly #origin: Origin;
  readonly #given: string | Uint8Array | undefined;
  readonly #stopping = new AbortController();
  readonly #outer: AbortSignal | undefined;
  readonly #release: () => void;
  readonly #events: AsyncGenerator<StreamEvent, void, undefined>;
  #starting: Promise<void> | undefined;
  #writing: Promise<unknown> = Promise.resolve();
  #typed = 0;
  #result: CommandResult | undefined;

  /** Streams are made by a sandbox. */
  constructor(commands: Commands, origin: Origin, given?: string | Uint8Array, signal?: AbortSignal) {
    this.session = origin.session;
    this.#commands = commands;
    this.#origin = origin;
    this.#given = given;
    this.#outer = signal;
    this.#release = onAbort(signal, () => void this.close());
    this.#events = commands.follow(this.session, this.#stopping.signal, origin.from);
  }

  /** How it ended, once it has. */
  get result(): CommandResult | undefined {
    return this.#result;
  }

  /** Starts the command, unless it was started already. */
  async start(): Promise<this> {
    this.#outer?.throwIfAborted();
    this.#starting ??= this.#begin();
    await this.#starting;
    return this;
  }

  async #begin(): Promise<void> {
    const { session, start } = this.#origin;
    const { api, place } = this.#commands;
    const options = { idempotencyKey: session, signal: this.#stopping.signal };
    if (start === undefined) {
      await api.call("get_session", { path: this.#path() }, { signal: this.#stopping.signal });
      return;
    }
    await api.call("start_session", { path: place, body: { ...start, session } }, options);
    if (this.#given === undefined) return;
    const bytes = typeof this.#given === "string" ? encodeText(this.#given) : this.#given;
    this.#give(bytes, true);
  }

  /** The next event; nothing after the last, and once it is closed. */
  async next(): Promise<StreamEvent | undefined> {
    try {
      await this.start();
      const { value } = await this.#events.next();
      const event = value ?? undefined;
      if (event === undefined && this.#result === undefined) this.#outer?.throwIfAborted();
      if (event?.type === "exited") {
        this.#result = event.result;
        this.#release();
      }
      return event;
    } catch (error) {
      this.#outer?.throwIfAborted();
      if (this.#stopping.signal.aborted) return undefined;
      throw error;
    }
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<StreamEvent, void, undefined> {
    try {
      for (let event; (event = await this.next()) !== undefined; ) yield event;
    } finally {
      await this.close();
    }
  }

  /** Reads the remaining events and returns how the command ended. */
  async wait(): Promise<CommandResult> {
    while ((await this.next()) !== undefined);
    if (this.#result !== undefined) return this.#result;
    throw new GoneError("this stream was closed before its end");
  }

  /**
   * Writes input and waits until the program has received it. A retry never types anything twice. What a
   * program that ends has not read is no error. Who does not wait for a write learns nothing of its failure,
   * as with web streams.
   */
  write(data: string | Uint8Array): Promise<void> {
    return this.#write(typeof data === "string" ? encodeText(data) : data, false);
  }

  /** Ends the command's input. */
  closeStdin(): Promise<void> {
    return this.#write(new Uint8Array(), true);
  }

  /** Sends a signal such as `INT`, `TERM` or `HUP` to the command. */
  async signal(signal: Schemas["SignalName"], target?: Schemas["SignalTarget"]): Promise<void> {
    await this.start();
    const body = { signal, ...(target === undefined ? {} : { target }) };
    await this.#commands.api.call("signal_session", { path: this.#path(), body });
  }

  /** Kills the command and its descendants. The last event still says how it ended. */
  async kill(): Promise<void> {
    await this.start();
    const body = { signal: "KILL", target: "tree" as const };
    const options = { isRepeatable: true };
    await this.#commands.api.call("signal_session", { path: this.#path(), body }, options);
  }

  /** Leaves the stream. A command that it has started and that has not ended is killed. */
  async close(): Promise<void> {
    if (this.#stopping.signal.aborted) return;
    this.#release();
    this.#stopping.abort(new GoneError("this stream is closed"));
    this.#events.return(undefined).catch(() => undefined);
    await this.#starting?.catch(() => undefined);
    const isOurs = this.#origin.start !== undefined && this.#starting !== undefined;
    if (isOurs && this.#result === undefined) await this.#commands.kill(this.session);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  protected path(): Place & { session: string } {
    return this.#path();
  }

  protected get api(): Api {
    return this.#commands.api;
  }

  #path(): Place & { session: string } {
    return { ...this.#commands.place, session: this.session };
  }

  #write(data: Uint8Array, isLast: boolean): Promise<void> {
    const started = this.start();
    return this.#give(data, isLast, started);
  }

  /** Writes follow each other in the order of their calls. */
  #give(data: Uint8Array, isLast: boolean, started?: Promise<unknown>): Promise<void> {
    const before = this.#writing;
    const written = (async () => {
      await started;
      await before;
      await this.#type(data, isLast);
    })();
    // The failure is for the caller that waits for it.
    this.#writing = written.catch(() => undefined);
    return written;
  }

  async #type(data: Uint8Array, isLast: boolean): Promise<void> {
    const { signal } = this.#stopping;
    let begin = this.#typed;
    let wasCut = false;
    for (let attempt = 0; ; ) {
      const query = { offset: this.#typed, eof: isLast };
      try {
        const taken = await this.#put(data.subarray(this.#typed - begin), query);
        this.#typed = taken.offset;
        if (taken.complete) return;
      } catch (error) {
        if (error instanceof ConnectionFailedError && attempt < this.#commands.api.retries) {
          wasCut = true;
          await pause(pauseMs(error, attempt++), signal);
          continue;
        }
        const at = error instanceof ConflictError ? error.details["offset"] : undefined;
        if (typeof at !== "number" || at <= this.#typed) throw error;
        const end = begin + data.length;
        if (!wasCut) {
          // Somebody else has typed, and this comes after it.
          begin += at - this.#typed;
        } else if (at > end) {
          throw error;
        }
        this.#typed = at;
        // What was cut off had arrived.
        if (wasCut && at === end && !isLast) return;
      }
    }
  }

  async #put(
    body: Uint8Array,
    query: Schemas["WriteSessionQuery"],
  ): Promise<Schemas["InputTaken"]> {
    const { api } = this.#commands;
    const headers = { "content-type": "application/octet-stream" };
    const options = { headers, body, signal: this.#stopping.signal };
    return await api.upload("write_session", { path: this.#path(), query }, options, false);
  }
}

/** A terminal: its output is on the channel `terminal`. */
export class Terminal extends CommandStream {
  /** Changes its size. */
  async resize(rows: number, columns: number): Promise<void> {
    await this.start();
    await this.api.call("resize_session", { path: this.path(), body: { rows, columns } });
  }
}

export function streamed(commands: Commands, what: What, options: StreamOptions): CommandStream {
  const { signal, stdin, ...how } = options;
  const given = typeof stdin === "boolean" ? undefined : stdin;
  const takesInput = stdin === true || given !== undefined;
  const timeout_ms = how.timeout_ms ?? RUN_MS;
  const start = { ...checked(what), ...how, timeout_ms, stdin: takesInput };
  return new CommandStream(commands, { session: draw("s"), start }, given, signal);
}

export function terminal(commands: Commands, options: TerminalOptions): Terminal {
  const { signal, argv, rows = 24, columns = 80, ...how } = options;
  const what = argv === undefined ? { login_shell: true as const } : checked({ argv });
  const start = { ...what, ...how, terminal: { rows, columns } };
  return new Terminal(commands, { session: draw("t"), start }, undefined, signal);
}
