/**
 * What comes back of commands and of runs: results and events with methods. What the server only describes
 * is passed as it is, with the types of its document.
 */

import type { Schemas } from "./api.js";
import { type Content, decodeBase64, decodeContent, decodeText, encodeText } from "./bytes.js";
import { ExecutionError, SandboxTimeoutError } from "./errors.js";

/** What ended a program: `exited`, `signaled`, `killed`, `timeout`, `out_of_memory` … */
export type CauseType = Schemas["Cause"]["type"];

/** The end of a command. */
export type ExitFields = Pick<Schemas["Exit"], "exit_code" | "cause" | "duration_us" | "usage">;

/** A command's output, and how it ended. */
export class CommandResult {
  /** The output as text; what is not UTF-8 is shown as U+FFFD. */
  readonly stdout: string;
  readonly stderr: string;
  /** As a shell reports it: 128 plus the signal that ended the program, 124 for a timeout. */
  readonly exitCode: number;
  /** True exactly if a limit has cut output off. */
  readonly truncated: boolean;
  /** Why it ended. */
  readonly cause: Schemas["Cause"];
  /** The session's name in the sandbox's log. */
  readonly session: string;
  /** How long it took, by the sandbox's clock. */
  readonly durationMs: number;
  readonly usage: Schemas["Usage"];
  /** What was asked for and could not be had. */
  readonly warnings: readonly string[];
  /** With `artifacts`: the files that it has produced. */
  readonly captured: Schemas["Captured"] | undefined;
  /** The end as the API describes it. */
  readonly exit: ExitFields;
  readonly #stdout: Uint8Array | undefined;
  readonly #stderr: Uint8Array | undefined;

  constructor(exit: ExitFields, session: string, output: CommandOutput = {}) {
    this.stdout = output.stdout ?? "";
    this.stderr = output.stderr ?? "";
    this.#stdout = output.stdoutBytes;
    this.#stderr = output.stderrBytes;
    this.exit = exit;
    this.exitCode = exit.exit_code;
    this.truncated = output.truncated ?? false;
    this.cause = exit.cause;
    this.session = session;
    this.durationMs = exit.duration_us / 1000;
    this.usage = exit.usage;
    this.warnings = output.warnings ?? [];
    this.captured = output.captured;
  }

  /** Both outputs, stdout first. */
  get output(): string {
    return this.stdout + this.stderr;
  }

  get ok(): boolean {
    return this.exitCode === 0;
  }

  get timedOut(): boolean {
    return this.cause.type === "timeout";
  }

  /** Exactly what was written. */
  get stdoutBytes(): Uint8Array {
    return this.#stdout ?? encodeText(this.stdout);
  }

  get stderrBytes(): Uint8Array {
    return this.#stderr ?? encodeText(this.stderr);
  }

  /** Returns itself if it succeeded. Throws `SandboxTimeoutError` or `ExecutionError` otherwise. */
  check(): this {
    if (this.cause.type === "timeout") {
      const timeoutMs = this.cause.limit_ms;
      throw new SandboxTimeoutError(`the command took longer than ${timeoutMs} ms`, { timeoutMs });
    }
    if (this.ok) return this;
    throw new ExecutionError(`the command ${this.#ended()}`, {
      type: this.cause.type,
      traceback: this.stderr,
      exitCode: this.exitCode,
      stdout: this.stdout,
      stderr: this.stderr,
    });
  }

  #ended(): string {
    if (this.cause.type === "out_of_memory" && this.cause.limit_bytes !== undefined) {
      return `ran out of memory, with a limit of ${this.cause.limit_bytes / 2 ** 20} MiB`;
    }
    return `ended with code ${this.exitCode} (${this.cause.type})`;
  }
}

export interface CommandOutput {
  stdout?: string;
  stderr?: string;
  stdoutBytes?: Uint8Array | undefined;
  stderrBytes?: Uint8Array | undefined;
  truncated?: boolean;
  warnings?: readonly string[];
  captured?: Schemas["Captured"] | undefined;
}

export function commandResult(answer: Schemas["ExecResult"]): CommandResult {
  return new CommandResult(answer, answer.session, {
    stdout: answer.stdout,
    stderr: answer.stderr,
    stdoutBytes: bytes(answer.stdout_base64),
    stderrBytes: bytes(answer.stderr_base64),
    truncated: answer.truncated || (answer.missing_bytes ?? 0) > 0,
    warnings: answer.warnings ?? [],
    captured: answer.captured,
  });
}

function bytes(base64: string | undefined): Uint8Array | undefined {
  return base64 === undefined ? undefined : decodeBase64(base64);
}

export type Channel = Schemas["ChannelName"];

/** A piece of what a command writes, in its order within its channel. */
export class Output {
  readonly type = "output";
  readonly channel: Channel;
  readonly data: Uint8Array;
  /** Where in the channel it begins, in bytes. */
  readonly offset: number;

  constructor(channel: Channel, data: Uint8Array, offset: number) {
    this.channel = channel;
    this.data = data;
    this.offset = offset;
  }

  /** A character that the piece cuts is shown as U+FFFD; `data` of all pieces has it. */
  get text(): string {
    return decodeText(this.data);
  }
}

/** Output that was lost. It is always reported. */
export interface Gap {
  readonly type: "gap";
  readonly channel: Channel;
  readonly from: number;
  readonly to: number;
}

/** The end of a command; nothing follows. Its result is without the outputs, which were events. */
export interface Exited {
  readonly type: "exited";
  readonly result: CommandResult;
}

export type StreamEvent = Output | Gap | Exited;

/** Something to show, in each form that it offers. */
export class Display {
  /** From the MIME type of a form to its content. */
  readonly data: Readonly<Record<string, Uint8Array>>;
  readonly role: Schemas["DisplayRoleName"];
  /** The id that later updates of it have. */
  readonly id: string | undefined;
  readonly metadata: Readonly<Record<string, unknown>>;

  constructor(display: Schemas["Display"]) {
    const forms = Object.entries(display.data);
    this.data = Object.fromEntries(forms.map(([mime, form]) => [mime, decodeContent(form)]));
    this.role = display.role;
    this.id = display.id;
    this.metadata = display.metadata ?? {};
  }

  /** Its form as text, if it has one. */
  get text(): string | undefined {
    const plain = this.data["text/plain"];
    return plain === undefined ? undefined : decodeText(plain);
  }
}

/** `ok`, `error`, `exited`, `timeout`, `interrupted`, `died` … */
export type RunStatus = Schemas["RunStatus"];

/** A finished run of code. */
export class RunResult {
  readonly status: RunStatus;
  readonly stdout: string;
  readonly stderr: string;
  /** The value of the last expression. */
  readonly value: Display | undefined;
  /** What the code has shown, each as it was last updated. */
  readonly displays: readonly Display[];
  /** The exception that nobody has caught. */
  readonly error: Schemas["RunError"] | undefined;
  readonly exitCode: number | undefined;
  readonly truncated: boolean;
  /** Whether the next run finds the variables of this one. */
  readonly stateKept: boolean;
  readonly durationMs: number;
  /** With `artifacts`: the files that it has produced. */
  readonly captured: Schemas["Captured"] | undefined;
  /** The whole answer. */
  readonly raw: Schemas["RunResult"] | Schemas["End"];

  constructor(answer: Schemas["RunResult"] | Schemas["End"]) {
    const output: Partial<Schemas["RunResult"]> = answer;
    this.status = answer.status;
    this.stdout = output.stdout ?? "";
    this.stderr = output.stderr ?? "";
    this.value = output.value === undefined ? undefined : new Display(output.value);
    this.displays = (output.displays ?? []).map((display) => new Display(display));
    this.error = output.error;
    this.exitCode = answer.exit_code;
    this.truncated = output.truncated ?? false;
    this.stateKept = answer.state_kept;
    this.durationMs = answer.duration_us / 1000;
    this.captured = output.captured;
    this.raw = answer;
  }

  get ok(): boolean {
    return this.status === "ok" || (this.status === "exited" && !this.exitCode);
  }

  get timedOut(): boolean {
    return this.status === "timeout";
  }

  /** The value of the last expression as text. */
  get result(): string | undefined {
    return this.value?.text;
  }

  /** Returns itself if it succeeded. Throws `SandboxTimeoutError` or `ExecutionError` otherwise. */
  check(): this {
    if (this.timedOut) {
      const timeoutMs = this.raw.timeout_ms;
      throw new SandboxTimeoutError(`the code took longer than ${timeoutMs} ms`, { timeoutMs });
    }
    if (this.ok) return this;
    const { error } = this;
    const words = error === undefined ? undefined : `${error.type}: ${error.message}`;
    throw new ExecutionError(words ?? this.raw.reason ?? this.status, {
      type: error?.type ?? this.status,
      traceback: error?.traceback ?? "",
      exitCode: this.exitCode,
      stdout: this.stdout,
      stderr: this.stderr,
    });
  }
}

type Raw = Schemas["RunEvent"];
type Translated = "stdout" | "stderr" | "late" | "display" | "finished" | "problem";

/** What the code writes. */
export interface RunOutput {
  readonly type: "stdout" | "stderr";
  readonly data: Uint8Array;
  readonly text: string;
}

/**
 * One thing that happens in a run. The types that are not here are those of the API. Ignore those that
 * you do not know: there may be more of them in a later version.
 */
export type RunEvent =
  | RunOutput
  | { readonly type: "display"; readonly display: Display }
  /** The last event. The result is without what were events. */
  | { readonly type: "finished"; readonly result: RunResult }
  | Exclude<Raw, { type: Translated }>
  | Extract<Raw, { type: "late" }>;

export function runEvent(raw: Raw): RunEvent {
  switch (raw.type) {
    case "stdout":
    case "stderr": {
      const data = decodeContent(raw as Content);
      return { type: raw.type, data, text: decodeText(data) };
    }
    case "display":
      return { type: "display", display: new Display(raw.display) };
    case "finished":
      return { type: "finished", result: new RunResult(raw) };
    default:
      return raw as RunEvent;
  }
}
