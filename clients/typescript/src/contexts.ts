/** Contexts and notebooks: interpreters that keep their state between runs of code. */

import type { Schemas } from "./api.js";
import { ConnectionFailedError } from "./errors.js";
import type { Api, CallOptions } from "./http.js";
import { RUN_MARGIN_MS, RUN_MS } from "./limits.js";
import type { Place } from "./commands.js";
import { type RunEvent, runEvent, RunResult } from "./results.js";

/** How code runs. Names in `snake_case` are those of the API. */
export interface RunOptions extends Omit<Schemas["RunRequest"], "code" | "language">, CallOptions {}

type Request = Schemas["RunRequest"];

/** Something that runs code: a context or a notebook. */
abstract class Interpreter {
  readonly name: string;
  readonly language: string | undefined;
  protected readonly api: Api;

  constructor(api: Api, name: string, language: string | undefined) {
    this.api = api;
    this.name = name;
    this.language = language;
  }

  /**
   * Runs code to its end. An exception in the code, a timeout and a crash are results. When the signal
   * is aborted, the run is interrupted. A run whose connection is cut is not repeated.
   */
  async run(code: string, options: RunOptions = {}): Promise<RunResult> {
    await this.opened(options);
    const body = this.#body(code, options);
    const timeoutMs = body.timeout_ms + RUN_MARGIN_MS;
    const answer = await this.answered(body, { signal: options.signal, timeoutMs });
    return new RunResult(answer);
  }

  /** Runs code and yields its events as they happen. Leaving before the end interrupts the run. */
  async *stream(code: string, options: RunOptions = {}): AsyncGenerator<RunEvent, void, undefined> {
    await this.opened(options);
    const events = this.happening(this.#body(code, options), { signal: options.signal });
    for await (const raw of events) {
      yield runEvent(raw);
      if (raw.type === "finished") return;
    }
    throw new ConnectionFailedError("the connection was cut before the end of the run");
  }

  /** Creates it, if its first run would not create it as was asked. */
  protected abstract opened(options: CallOptions): Promise<void>;

  protected abstract answered(
    body: Request,
    options: CallOptions & { timeoutMs: number },
  ): Promise<Schemas["RunResult"]>;

  protected abstract happening(
    body: Request,
    options: CallOptions,
  ): AsyncGenerator<Schemas["RunEvent"], void, undefined>;

  #body(code: string, { signal: _, ...options }: RunOptions): Request & { timeout_ms: number } {
    const language = this.language === undefined ? {} : { language: this.language };
    return { ...options, ...language, code, timeout_ms: options.timeout_ms ?? RUN_MS };
  }
}

/** How a context is made, if it is not there yet. */
export interface ContextOptions extends Omit<Schemas["OpenRequest"], "context" | "language"> {
  /** It may be left out for a context that exists or is named after its language. */
  language?: string | undefined;
}

/**
 * A named interpreter in a sandbox. It starts with its first run, and lives until it is closed or its sandbox
 * ends. All who use the same name share its variables.
 */
export class Context extends Interpreter {
  readonly #place: Place & { context: string };
  #made: Omit<ContextOptions, "language"> | undefined;

  /** Contexts are made by a sandbox. */
  constructor(api: Api, place: Place, name: string, options: ContextOptions) {
    const { language, ...made } = options;
    super(api, name, language);
    this.#place = { ...place, context: name };
    this.#made = Object.keys(made).length === 0 ? undefined : made;
  }

  protected override async opened({ signal }: CallOptions): Promise<void> {
    if (this.#made === undefined) return;
    const body = { ...this.#made, context: this.name, language: this.language ?? this.name };
    await this.api.call("open_context", { path: this.#place, body }, { signal });
    // It exists now, and a run finds it by its name.
    this.#made = undefined;
  }

  protected override answered(body: Request, options: CallOptions & { timeoutMs: number }) {
    return this.api.call("run_in_context", { path: this.#place, body }, options);
  }

  protected override happening(body: Request, options: CallOptions) {
    return this.api.events("run_in_context", { path: this.#place, body }, options);
  }

  /** Answers an `input_request` of a run that was started with `input: true`; nothing ends its input. */
  async answer(event: { run?: number; request: number }, line?: string): Promise<void> {
    const input = line === undefined ? {} : { line };
    const body = { run: event.run ?? 0, request: event.request, ...input };
    await this.api.call("answer_input", { path: this.#place, body });
  }

  /** Its state. Throws `NotFoundError` before its first run. */
  async info(options?: CallOptions): Promise<Schemas["Context"]> {
    return await this.api.call("get_context", { path: this.#place }, options);
  }

  /** Interrupts the current run. */
  async interrupt(options?: CallOptions): Promise<void> {
    await this.api.call("interrupt_run", { path: this.#place }, options);
  }

  /** Restarts the interpreter. Its variables are lost. */
  async restart(options?: CallOptions): Promise<void> {
    await this.api.call("restart_context", { path: this.#place }, options);
  }

  /** Ends the interpreter and all that it has started. */
  async close(options?: CallOptions): Promise<void> {
    await this.api.call("close_context", { path: this.#place }, options);
  }
}

/**
 * A context whose variables outlive its interpreter, its sandbox and the server. It starts with its first
 * run.
 */
export class Notebook extends Interpreter {
  readonly #place: { namespace: string; notebook: string };

  /** Notebooks are made by a client. */
  constructor(api: Api, namespace: string, name: string, language: string | undefined) {
    super(api, name, language);
    this.#place = { namespace, notebook: name };
  }

  protected override async opened(): Promise<void> {}

  protected override answered(body: Request, options: CallOptions & { timeoutMs: number }) {
    return this.api.call("run_in_notebook", { path: this.#place, body }, options);
  }

  protected override happening(body: Request, options: CallOptions) {
    return this.api.events("run_in_notebook", { path: this.#place, body }, options);
  }

  /** Its state, with each variable that is kept and the reason for each that is not. */
  async info(options?: CallOptions): Promise<Schemas["Notebook"]> {
    return await this.api.call("get_notebook", { path: this.#place }, options);
  }

  /** Its runs, newest first. */
  async history(
    query: Schemas["NotebookHistoryQuery"] = {},
    options?: CallOptions,
  ): Promise<Schemas["History"]> {
    return await this.api.call("notebook_history", { path: this.#place, query }, options);
  }

  /** Interrupts the current run. */
  async interrupt(options?: CallOptions): Promise<void> {
    await this.api.call("interrupt_notebook", { path: this.#place }, options);
  }

  /** Waits until all variables are on disk. */
  async save(options?: CallOptions): Promise<Schemas["Notebook"] | Schemas["SavedState"]> {
    const repeatable = { ...options, isRepeatable: true };
    return await this.api.call("save_notebook", { path: this.#place }, repeatable);
  }

  /** Deletes all variables. */
  async reset(options?: CallOptions): Promise<void> {
    const repeatable = { ...options, isRepeatable: true };
    await this.api.call("reset_notebook", { path: this.#place }, repeatable);
  }

  /** Removes the notebook, its variables, its history and its own sandbox. */
  async remove(options?: CallOptions): Promise<void> {
    await this.api.call("remove_notebook", { path: this.#place }, options);
  }
}
