/**
 * What the runtime gives: a way to send HTTP requests, the environment, files. `index.ts` sets that of
 * Node, Deno and Bun; a browser has the one here.
 */

import { fromStream } from "./bytes.js";
import { InvalidRequestError, SandboxUnavailableError } from "./errors.js";

/** A request; its body is sent once, and so can be repeated only if it is bytes. */
export interface HttpRequest {
  readonly method: string;
  /** The path with its query. */
  readonly target: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Uint8Array | Blob | AsyncIterable<Uint8Array>;
  readonly signal: AbortSignal;
}

/** What is used of an answer. The web's `Response` is one. */
export interface HttpAnswer {
  readonly status: number;
  readonly headers: { get(name: string): string | null };
  readonly body: ReadableStream<Uint8Array> | null;
}

/** Connections to one server. */
export interface Transport {
  /** Rejects with `NotSentError` if it is sure that the server has received nothing. */
  send(request: HttpRequest): Promise<HttpAnswer>;
  close(): void;
}

/** Where a server listens. */
export interface Address {
  /** `http://127.0.0.1:5555`, without a slash at its end. */
  readonly base: string;
  /** A Unix socket, which is used instead of the host of `base`. */
  readonly socket?: string;
}

export interface Platform {
  connect(address: Address, caFile: string | undefined): Transport;
  variable(name: string): string | undefined;
  readText(path: string): string;
  random(length: number): Uint8Array;
  /** Lets any number of calls listen to a signal. */
  allowListeners(signal: AbortSignal): void;
}

const web: Platform = {
  connect(address) {
    if (address.socket !== undefined) {
      throw new InvalidRequestError("a Unix socket can be reached from Node, Deno and Bun only");
    }
    return overFetch(address, (url, init) => fetch(url, init));
  },
  variable: () => undefined,
  readText(path) {
    throw new SandboxUnavailableError(`${path}: there are no files here`);
  },
  random: (length) => crypto.getRandomValues(new Uint8Array(length)),
  allowListeners() {},
};

let current = web;

export function platform(): Platform {
  return current;
}

export function setPlatform(platform: Platform): void {
  current = platform;
}

/** A name that nobody else has. */
export function draw(prefix: string): string {
  const bytes = current.random(16);
  const digits = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0"));
  return `${prefix}-${digits.join("")}`;
}

/** A transport over a `fetch` function. */
export function overFetch(address: Address, fetch: typeof globalThis.fetch): Transport {
  return {
    async send({ method, target, headers, body, signal }) {
      // Redirects are not followed: the key is for one server.
      const init: RequestInit = { method, headers, signal, redirect: "error", cache: "no-store" };
      const sent = body !== undefined && isIterable(body) ? await gathered(body) : body;
      // A typed array of any buffer is a body; the types know only of one of them.
      if (sent !== undefined) init.body = sent as Exclude<typeof sent, Uint8Array> | BodyInit;
      return await fetch(address.base + target, init);
    },
    close() {},
  };
}

/**
 * Browsers send no stream over HTTP/1.1, but take a blob, which they keep on disk if it is large.
 */
async function gathered(body: AsyncIterable<Uint8Array>): Promise<Blob> {
  const stream = new ReadableStream<Uint8Array>({
    async start(controller) {
      for await (const piece of body) controller.enqueue(piece);
      controller.close();
    },
  });
  return await new Response(stream).blob();
}

export function isIterable(body: object): body is AsyncIterable<Uint8Array> {
  return Symbol.asyncIterator in body;
}

/** The pieces of anything that has bytes. */
export type Bytes =
  | Uint8Array
  | ArrayBuffer
  | Blob
  | string
  | ReadableStream<Uint8Array>
  | AsyncIterable<Uint8Array>;

/** The body of a request that has these bytes. */
export function bodyOf(data: Bytes): Uint8Array | Blob | AsyncIterable<Uint8Array> {
  if (typeof data === "string") return new TextEncoder().encode(data);
  if (data instanceof Uint8Array || data instanceof Blob) return data;
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  if (data instanceof ReadableStream) return fromStream(data);
  if (typeof data === "object" && data !== null && isIterable(data)) return data;
  throw new InvalidRequestError("data is bytes, a text, a blob or a stream of bytes");
}
