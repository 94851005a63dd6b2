/**
 * Calls of the API by the names of its operations: JSON both ways, refusals as errors, retries of calls
 * that are safe to repeat, streams of events. It knows no resource.
 */

import type { Operations } from "./api.js";
import { collect, decodeText, encodeText, fromStream, lines } from "./bytes.js";
import {
  BurrowError,
  ConnectionFailedError,
  fromProblem,
  isRecord,
  NotFoundError,
  NotSentError,
} from "./errors.js";
import {
  ANSWER_BYTES_MAX,
  CALL_MS,
  LINE_BYTES_MAX,
  PROBLEM_BYTES_MAX,
  RETRY_PAUSE_MS,
  RETRY_PAUSE_MS_MAX,
} from "./limits.js";
import { operations } from "./operations.js";
import { type HttpAnswer, type HttpRequest, isIterable } from "./platform.js";
import type { Settings } from "./settings.js";
import { linked, pause, within } from "./waiting.js";

/** What every call takes. */
export interface CallOptions {
  /** Aborts the call, which then rejects with the signal's reason. */
  signal?: AbortSignal | undefined;
}

type Name = keyof Operations;

/** What an operation takes: the parameters of its path, its query and its body. */
export type Input<N extends Name> = Pick<
  Operations[N],
  Extract<keyof Operations[N], "path" | "query" | "body">
>;
/** The operations that answer with JSON, or with nothing. */
export type JsonOperation = {
  [N in Name]: Operations[N] extends { upload: true }
    ? never
    : Operations[N] extends { answer: unknown }
      ? N
      : never;
}[Name];
/** The operations that take bytes. */
export type UploadOperation = {
  [N in Name]: Operations[N] extends { upload: true } ? N : never;
}[Name];
/** The operations that answer with a stream of events. */
export type EventOperation = {
  [N in Name]: Operations[N] extends { events: unknown } ? N : never;
}[Name];
export type Answer<N extends Name> = Operations[N] extends { answer: infer A } ? A : never;
export type EventOf<N extends Name> = Operations[N] extends { events: infer E } ? E : never;

type Values = Readonly<Record<string, unknown>>;
/** An input without the type of its operation. */
interface Parts {
  path?: Values;
  query?: Values;
  body?: unknown;
}

export interface ApiCallOptions extends CallOptions {
  /** All attempts together; `Infinity` for no limit. */
  timeoutMs?: number | undefined;
  /** Makes a creation repeatable. */
  idempotencyKey?: string | undefined;
  /** That the call can be repeated although its method does not say so. */
  isRepeatable?: boolean | undefined;
}

export interface OpenOptions extends CallOptions {
  headers?: Record<string, string>;
  body?: HttpRequest["body"];
  /** How long the beginning of the answer may take. */
  timeoutMs?: number | undefined;
  /** How long each piece of the body may take. */
  pieceMs?: number | undefined;
}

/** The head of an answer, and its body, which can be read once and must be read or left. */
export interface Opened {
  readonly status: number;
  header(name: string): string | undefined;
  pieces(): AsyncGenerator<Uint8Array, void, undefined>;
  /** Leaves it unread. */
  leave(): void;
}

const REPEATABLE = ["GET", "PUT", "DELETE"];

export class Api {
  readonly settings: Settings;
  readonly retries: number;

  /** What every request carries. */
  readonly #headers: Readonly<Record<string, string>>;

  constructor(settings: Settings, retries: number, headers: Readonly<Record<string, string>> = {}) {
    this.settings = settings;
    this.retries = retries;
    this.#headers = headers;
  }

  /** The same for one sandbox alone: another one that has its name now is not meant. */
  ofSandbox(id: string): Api {
    return new Api(this.settings, this.retries, { "burrow-sandbox-id": id });
  }

  close(): void {
    this.settings.transport.close();
  }

  /** Makes a call and returns its answer. */
  async call<N extends JsonOperation>(
    name: N,
    input: Input<N>,
    options: ApiCallOptions = {},
  ): Promise<Answer<N>> {
    const { method, target, body } = this.#request(name, input);
    const headers: Record<string, string> = { accept: "application/json" };
    if (body !== undefined) headers["content-type"] = "application/json";
    const key = options.idempotencyKey;
    if (key !== undefined) headers["idempotency-key"] = key;
    const isRepeatable =
      options.isRepeatable ?? (REPEATABLE.includes(method) || key !== undefined);
    const ms = finite(options.timeoutMs ?? CALL_MS);
    const answer = await within(ms, options.signal, (signal) => {
      const request = { method, target, headers, signal, ...(body === undefined ? {} : { body }) };
      return this.#attempts(request, isRepeatable);
    });
    return answer as Answer<N>;
  }

  /** Yields the events of a stream as they arrive. A `problem` among them is thrown. */
  async *events<N extends EventOperation>(
    name: N,
    input: Input<N>,
    options: CallOptions & { timeoutMs?: number | undefined } = {},
  ): AsyncGenerator<EventOf<N>, void, undefined> {
    const { body } = this.#request(name, input);
    const headers: Record<string, string> = { accept: "application/x-ndjson" };
    if (body !== undefined) headers["content-type"] = "application/json";
    const opened = await this.open(name, input, {
      ...options,
      headers,
      ...(body === undefined ? {} : { body }),
    });
    for await (const line of lines(opened.pieces(), LINE_BYTES_MAX)) {
      const event = parsed(line);
      if (event["type"] === "problem" && isRecord(event["problem"])) {
        throw fromProblem(event["problem"]);
      }
      yield event as EventOf<N>;
    }
  }

  /**
   * Makes a call whose body is bytes, either way. It is never repeated, because its body may be readable
   * only once.
   */
  async open<N extends Name>(
    name: N,
    input: Input<N>,
    options: OpenOptions = {},
  ): Promise<Opened> {
    const { method, target } = this.#request(name, input);
    const link = linked(finite(options.timeoutMs ?? CALL_MS), options.signal);
    const { signal } = link;
    const { headers = {}, body, pieceMs } = options;
    try {
      const request = { method, target, headers, signal, ...(body === undefined ? {} : { body }) };
      const answer = await this.#send(request);
      link.wait(undefined);
      return {
        status: answer.status,
        header: (name) => answer.headers.get(name) ?? undefined,
        leave() {
          link.abort(new ConnectionFailedError("the answer was left"));
          link.release();
        },
        async *pieces() {
          try {
            link.wait(pieceMs);
            for await (const piece of piecesOf(answer, signal)) {
              link.wait(undefined);
              yield piece;
              link.wait(pieceMs);
            }
          } finally {
            link.release();
          }
        },
      };
    } catch (error) {
      link.release();
      throw error;
    }
  }

  /** Sends bytes and returns what the server says of them. Repeatable ones are sent again after a cut. */
  async upload<N extends UploadOperation>(
    name: N,
    input: Input<N>,
    options: OpenOptions,
    isRepeatable: boolean,
  ): Promise<Answer<N>> {
    for (let attempt = 0; ; attempt++) {
      try {
        const opened = await this.open(name, input, { ...options, pieceMs: CALL_MS });
        const text = await collect(opened.pieces(), ANSWER_BYTES_MAX, "the answer");
        return parsed(decodeText(text)) as Answer<N>;
      } catch (error) {
        const isCut = error instanceof ConnectionFailedError && isRepeatable;
        if (!isCut || attempt >= this.retries) throw error;
        await pause(pauseMs(error, attempt), options.signal);
      }
    }
  }

  /** The URL of a WebSocket, and the subprotocols that carry the key. */
  socket<N extends Name>(name: N, input: Input<N>): { url: string; protocols: string[] } {
    const { address, key } = this.settings;
    const { target } = this.#request(name, input);
    const bearer = key === undefined ? [] : [`bearer.${key}`];
    return { url: address.base.replace(/^http/, "ws") + target, protocols: ["burrow.v1", ...bearer] };
  }

  #request<N extends Name>(name: N, input: Input<N>) {
    const { path = {}, query = {}, body } = input as Parts;
    const [method, template] = operations[name];
    const target = template.replace(/\{(\w+)\}/g, (_, part: string) => {
      return encodeURIComponent(String(path[part]));
    });
    const sent = body === undefined ? undefined : encodeText(JSON.stringify(body));
    return { method, target: target + queryOf(query), body: sent };
  }

  async #attempts(request: HttpRequest, isRepeatable: boolean): Promise<unknown> {
    let wasCut = false;
    for (let attempt = 0; ; attempt++) {
      try {
        const answer = await this.#send(request);
        const pieces = piecesOf(answer, request.signal);
        const text = await collect(pieces, ANSWER_BYTES_MAX, "the answer");
        return text.length === 0 ? undefined : parsed(decodeText(text));
      } catch (error) {
        // An attempt whose answer was lost has removed it.
        if (error instanceof NotFoundError && wasCut && request.method === "DELETE") {
          return undefined;
        }
        if (attempt >= this.retries || !mayRepeat(error, isRepeatable)) throw error;
        wasCut ||= error instanceof ConnectionFailedError && !(error instanceof NotSentError);
        await pause(pauseMs(error, attempt), request.signal);
      }
    }
  }

  /** Makes one attempt. Throws a refusal. */
  async #send(request: HttpRequest): Promise<HttpAnswer> {
    const { key, transport } = this.settings;
    const bearer = key === undefined ? {} : { authorization: `Bearer ${key}` };
    const headers = { ...this.#headers, ...request.headers, ...bearer };
    const source = watched(request.body);
    let answer: HttpAnswer;
    try {
      answer = await transport.send({ ...request, ...source, headers });
    } catch (error) {
      if (source.failed !== undefined) throw source.failed.error;
      throw failure(error, request.signal, "the connection was cut before an answer");
    }
    if (answer.status < 300) return answer;
    throw await refusal(answer, request.signal);
  }
}

/** A body that remembers why it could not be read: that is no fault of the connection. */
function watched(body: HttpRequest["body"]): {
  body?: NonNullable<HttpRequest["body"]>;
  failed?: { error: unknown };
} {
  if (body === undefined) return {};
  if (!isIterable(body)) return { body };
  const source: ReturnType<typeof watched> = {};
  source.body = (async function* () {
    try {
      yield* body;
    } catch (error) {
      source.failed = { error };
      throw error;
    }
  })();
  return source;
}

/** Why a request failed: its caller, or its connection. */
function failure(error: unknown, signal: AbortSignal, message: string): unknown {
  if (signal.aborted) return signal.reason;
  if (error instanceof BurrowError) return error;
  return new ConnectionFailedError(message, { cause: error });
}

async function* piecesOf(
  answer: HttpAnswer,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array, void, undefined> {
  if (answer.body === null) return;
  try {
    yield* fromStream(answer.body);
  } catch (error) {
    throw failure(error, signal, "the connection was cut within an answer");
  }
}

async function refusal(answer: HttpAnswer, signal: AbortSignal): Promise<BurrowError> {
  const text = await collect(piecesOf(answer, signal), PROBLEM_BYTES_MAX, "the refusal");
  let problem: Record<string, unknown> = {};
  try {
    problem = parsed(decodeText(text));
  } catch {
    // Something between here and the server has answered in its place.
  }
  const after = Number(answer.headers.get("retry-after") ?? NaN);
  if (Number.isFinite(after)) {
    const details = isRecord(problem["details"]) ? problem["details"] : {};
    problem = { ...problem, details: { retry_after: after, ...details } };
  }
  return fromProblem(problem, answer.status, answer.headers.get("x-request-id") ?? undefined);
}

function parsed(text: string): Record<string, unknown> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const message = "what answers does not speak this API: its answer is no JSON";
    throw new ConnectionFailedError(message, { cause: error });
  }
  if (isRecord(value)) return value;
  throw new ConnectionFailedError("what answers does not speak this API: its answer is no object");
}

function mayRepeat(error: unknown, isRepeatable: boolean): boolean {
  if (error instanceof NotSentError) return true;
  if (error instanceof ConnectionFailedError) return isRepeatable;
  if (!(error instanceof BurrowError)) return false;
  // Refused before anything began, with a time to retry after.
  const isEarly = error.code === "rate_limited" || error.code === "unavailable";
  return isEarly && "retry_after" in error.details;
}

/** How long to wait before another attempt. */
export function pauseMs(error: unknown, attempt: number): number {
  const asked = error instanceof BurrowError ? error.details["retry_after"] : undefined;
  if (typeof asked === "number") return Math.min(asked * 1000, RETRY_PAUSE_MS_MAX);
  const ms = Math.min(RETRY_PAUSE_MS * 2 ** attempt, RETRY_PAUSE_MS_MAX);
  // Clients that were cut off together must not come back together.
  return ms * (0.5 + Math.random() / 2);
}

function queryOf(query: Values): string {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value === undefined || value === null) continue;
    for (const one of Array.isArray(value) ? value : [value]) found.append(name, String(one));
  }
  const text = found.toString();
  return text === "" ? "" : `?${text}`;
}

function finite(ms: number): number | undefined {
  return Number.isFinite(ms) ? ms : undefined;
}
