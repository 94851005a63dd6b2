/** The client: makes, finds and removes sandboxes of a Burrow server. */

import type { Schemas } from "./api.js";
import { Artifacts } from "./artifacts.js";
import type { ExecOptions } from "./commands.js";
import { Notebook } from "./contexts.js";
import {
  BurrowError,
  ConnectionFailedError,
  RateLimitedError,
  SandboxUnavailableError,
  SpawnFailedError,
} from "./errors.js";
import {
  type Answer,
  Api,
  type ApiCallOptions,
  type CallOptions,
  type EventOf,
  type EventOperation,
  type Input,
  type JsonOperation,
  pauseMs,
} from "./http.js";
import { CREATE_MS, FOLLOW_MS, RETRIES, STEADY_MS, TEARDOWN_MS } from "./limits.js";
import { draw } from "./platform.js";
import type { CommandResult } from "./results.js";
import { Sandbox } from "./sandbox.js";
import { type ConnectOptions, settings } from "./settings.js";
import { pause, regardless } from "./waiting.js";

/** Linux's number for a missing file. */
const NO_SUCH_FILE = 2;

/** How a client reaches its server. */
export interface ClientOptions extends ConnectOptions {
  /** How often a call that was cut is repeated, if nothing can happen twice; three times by default. */
  retries?: number | undefined;
}

/**
 * A sandbox to make. Names in `snake_case` are those of the API. What is left out is the server's default;
 * the name is drawn.
 */
export interface CreateOptions
  extends Omit<Schemas["CreateSandbox"], "name" | "namespace">,
    CallOptions {
  name?: string | undefined;
  /** Calls with the same key and the same body make one sandbox; one is drawn by default. */
  idempotencyKey?: string | undefined;
}

/** Which sandboxes to list. */
export interface ListOptions extends CallOptions {
  /** All of these labels; `true` matches any value. */
  labels?: Readonly<Record<string, string | true>> | undefined;
  /** One of these states. */
  states?: readonly Schemas["StateName"][] | undefined;
}

/** Which events of sandboxes to read. */
export interface EventOptions extends CallOptions {
  /** The first offset; by default that of the oldest event that is kept. */
  since?: number | undefined;
  /** Only events of this time or later, in milliseconds since 1970. Not with `since`. */
  since_ms?: number | undefined;
  /** Names or ids of sandboxes. */
  sandboxes?: readonly string[] | undefined;
  kinds?: readonly Schemas["EventKind"][] | undefined;
  /** Whether to go on with new events; true by default. */
  follow?: boolean | undefined;
}

/** A new sandbox for one command, and how the command runs. */
export interface OneShotOptions
  extends Omit<CreateOptions, "name" | "idempotencyKey">,
    Pick<ExecOptions, "timeout_ms" | "stdin" | "output_bytes_max"> {}

/** The sandboxes of one namespace of a server. */
export class BurrowClient implements AsyncDisposable {
  readonly namespace: string;
  readonly artifacts: Artifacts;
  readonly #api: Api;

  constructor(options: ClientOptions = {}) {
    const known = settings(options);
    this.namespace = known.namespace;
    this.#api = new Api(known, options.retries ?? RETRIES);
    this.artifacts = new Artifacts(this.#api, known.namespace);
  }

  /** Closes the connections. Sandboxes stay. */
  close(): void {
    this.#api.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  /**
   * Makes a sandbox and starts it; `snapshot` names one that it continues from. An attempt that was cut off
   * is repeated under the same idempotency key, so that there is never a second sandbox. When the signal is
   * aborted, what was made in the meantime is removed.
   */
  async create(options: CreateOptions = {}): Promise<Sandbox> {
    const { signal, idempotencyKey = draw("create"), name = draw("sb"), ...more } = options;
    const body = { ...more, name, namespace: this.namespace };
    const ask = async (signal: AbortSignal | undefined) => {
      const how = { signal, idempotencyKey, timeoutMs: CREATE_MS };
      return new Sandbox(this.#api, await this.#api.call("create_sandbox", { body }, how));
    };
    try {
      return await ask(signal);
    } catch (error) {
      const isRefused = error instanceof BurrowError && error.status !== undefined;
      if (!isRefused && !(error instanceof ConnectionFailedError)) {
        // Repeated under its key, a call that still runs at the server returns its result.
        await regardless(TEARDOWN_MS, async (signal) => (await ask(signal)).remove({ signal }));
      }
      throw error;
    }
  }

  /** The sandbox with this name, a stopped one too. Throws `NotFoundError` if there is none. */
  async get(name: string, options?: CallOptions): Promise<Sandbox> {
    const path = { namespace: this.namespace, name };
    return new Sandbox(this.#api, await this.#api.call("get_sandbox", { path }, options));
  }

  /** The sandboxes as the server describes them; a page is fetched when it is read. */
  async *list(options: ListOptions = {}): AsyncGenerator<Schemas["Sandbox"], void, undefined> {
    const { labels = {}, states = [], signal } = options;
    const label = Object.entries(labels).map(([key, value]) => {
      return value === true ? key : `${key}=${value}`;
    });
    for (let after: string | undefined; ; ) {
      const next = after === undefined ? {} : { after };
      const query = { namespace: this.namespace, label, state: [...states], ...next };
      const page = await this.#api.call("list_sandboxes", { query }, { signal });
      yield* page.sandboxes;
      after = page.next;
      if (after === undefined) return;
    }
  }

  /** Removes a sandbox, and stops it first if it runs. */
  async remove(name: string, options: CallOptions = {}): Promise<void> {
    const input = { path: { namespace: this.namespace, name }, query: { force: true } };
    await this.#api.call("remove_sandbox", input, { ...options, timeoutMs: CREATE_MS });
  }

  /** Runs Python code in a new sandbox, which is removed afterwards. */
  async runPython(code: string, options: OneShotOptions = {}): Promise<CommandResult> {
    return await this.#once(options, async (sandbox, how) => {
      try {
        return await sandbox.exec(["python", "-c", code], how);
      } catch (error) {
        // Debian's images have Python only under this name.
        if (!(error instanceof SpawnFailedError) || error.errno !== NO_SUCH_FILE) throw error;
        return await sandbox.exec(["python3", "-c", code], how);
      }
    });
  }

  /** Runs a script in a new sandbox, which is removed afterwards. */
  async runShell(script: string, options: OneShotOptions = {}): Promise<CommandResult> {
    return await this.#once(options, (sandbox, how) => sandbox.shell(script, how));
  }

  async #once<T>(
    options: OneShotOptions,
    work: (sandbox: Sandbox, how: ExecOptions) => Promise<T>,
  ): Promise<T> {
    const { timeout_ms, stdin, output_bytes_max, ...more } = options;
    const given = { timeout_ms, stdin, output_bytes_max, signal: options.signal };
    const entries = Object.entries(given).filter(([, value]) => value !== undefined);
    const sandbox = await this.create(more);
    try {
      return await work(sandbox, Object.fromEntries(entries));
    } finally {
      await sandbox[Symbol.asyncDispose]();
    }
  }

  /** A context whose variables outlive its interpreter, its sandbox and the server. */
  notebook(name: string, options: { language?: string | undefined } = {}): Notebook {
    return new Notebook(this.#api, this.namespace, name, options.language);
  }

  async notebooks(options?: CallOptions): Promise<Schemas["Notebook"][]> {
    const query = { namespace: this.namespace };
    return (await this.#api.call("list_notebooks", { query }, options)).notebooks;
  }

  async snapshots(options?: CallOptions): Promise<Schemas["Snapshot"][]> {
    const query = { namespace: this.namespace };
    return (await this.#api.call("list_snapshots", { query }, options)).snapshots;
  }

  async removeSnapshot(name: string, options?: CallOptions): Promise<void> {
    const path = { namespace: this.namespace, name };
    await this.#api.call("remove_snapshot", { path }, options);
  }

  /**
   * Keeps a template, in the place of one with its name. `create({ template: name })` makes a sandbox of it,
   * which is ready then.
   */
  async putTemplate(
    name: string, template: Schemas["PutTemplate"], options?: CallOptions,
  ): Promise<Schemas["Template"]> {
    const path = { namespace: this.namespace, name };
    return await this.#api.call("put_template", { path, body: template }, options);
  }

  async templates(options?: CallOptions): Promise<Schemas["Template"][]> {
    const query = { namespace: this.namespace };
    return (await this.#api.call("list_templates", { query }, options)).templates;
  }

  async removeTemplate(name: string, options?: CallOptions): Promise<void> {
    const path = { namespace: this.namespace, name };
    await this.#api.call("remove_template", { path }, options);
  }

  /**
   * Checks that the server answers and accepts this client. Throws `SandboxUnavailableError` or
   * `PermissionDeniedError` otherwise.
   */
  async health(options?: CallOptions): Promise<void> {
    const query = { namespace: this.namespace, limit: 1 };
    await this.#api.call("list_sandboxes", { query }, options);
  }

  /** Any operation of the API, by its name in the OpenAPI document. */
  async call<N extends JsonOperation>(
    operation: N,
    input: Input<N>,
    options?: ApiCallOptions,
  ): Promise<Answer<N>> {
    return await this.#api.call(operation, input, options);
  }

  /**
   * What has happened to sandboxes, and what happens to them. After a cut, and over a restart of the server, it
   * goes on after the last event, so that none is missed and none comes twice; it throws when that fails for a
   * minute.
   */
  events(options?: EventOptions): AsyncGenerator<Schemas["EventInfo"], void, undefined>;
  /** The events of any operation of the API that has some. Leaving ends what they are of. */
  events<N extends EventOperation>(
    operation: N,
    input: Input<N>,
    options?: CallOptions,
  ): AsyncGenerator<EventOf<N>, void, undefined>;
  events(
    first: EventOptions | EventOperation = {},
    input: object = {},
    options?: CallOptions,
  ): AsyncGenerator<unknown, void, undefined> {
    if (typeof first !== "string") return this.#follow(first);
    return this.#api.events(first, input as Input<EventOperation>, options);
  }

  async *#follow(
    options: EventOptions,
  ): AsyncGenerator<Schemas["EventInfo"], void, undefined> {
    const { signal, since_ms, sandboxes = [], kinds = [], follow = true } = options;
    let since = options.since;
    let failingSince: number | undefined;
    for (let attempt = 0; ; attempt++) {
      const from = since !== undefined ? { since } : since_ms !== undefined ? { since_ms } : {};
      const chosen = { sandbox: [...sandboxes], kind: [...kinds], follow };
      const query = { namespace: this.namespace, ...chosen, ...from };
      const begun = Date.now();
      let failure: unknown;
      try {
        for await (const event of this.#api.events("list_events", { query }, { signal })) {
          since = event.offset + 1;
          attempt = 0;
          failingSince = undefined;
          yield event;
        }
        if (!follow) return;
        // The server ends, and another one may take its place.
      } catch (error) {
        const mayPass = error instanceof SandboxUnavailableError || error instanceof RateLimitedError;
        if (!mayPass) throw error;
        failure = error;
      }
      if (Date.now() - begun > STEADY_MS) {
        // It was open, and nothing happened: this is its first cut.
        attempt = 0;
        failingSince = undefined;
      }
      failingSince ??= Date.now();
      if (failure !== undefined && Date.now() - failingSince > FOLLOW_MS) throw failure;
      await pause(pauseMs(failure, attempt), signal);
    }
  }
}
