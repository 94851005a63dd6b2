/**
 * The platform of Node, Deno and Bun: requests over `node:http`, which reaches Unix sockets, knows
 * whether a connection was made, and waits for as long as a program is silent. The `fetch` of Node gives
 * up after five minutes.
 */

import { randomBytes } from "node:crypto";
import { setMaxListeners } from "node:events";
import { readFileSync } from "node:fs";
import * as http from "node:http";
import * as https from "node:https";
import type { Socket } from "node:net";

import { fromStream } from "./bytes.js";
import { NotSentError, SandboxUnavailableError } from "./errors.js";
import { CONNECT_MS, IDLE_CONNECTIONS_MAX, IDLE_MS } from "./limits.js";
import type { Address, HttpAnswer, HttpRequest, Platform, Transport } from "./platform.js";

/** TCP keep-alive, which detects a peer that has vanished. */
const KEEP_ALIVE_MS = 30_000;

export const node: Platform = {
  connect: (address, caFile) => new NodeTransport(address, caFile),
  variable: (name) => process.env[name] || undefined,
  random: (length) => randomBytes(length),
  allowListeners: (signal) => setMaxListeners(0, signal),
  readText(path) {
    try {
      return readFileSync(path, "utf8");
    } catch (error) {
      throw new SandboxUnavailableError(`${path} cannot be read`, { cause: error });
    }
  },
};

class NodeTransport implements Transport {
  readonly #address: Address;
  readonly #agent: http.Agent;

  constructor(address: Address, caFile: string | undefined) {
    this.#address = address;
    const kept = { keepAlive: true, maxFreeSockets: IDLE_CONNECTIONS_MAX, timeout: IDLE_MS };
    const ca = caFile === undefined ? {} : { ca: node.readText(caFile) };
    const isTls = address.base.startsWith("https:");
    this.#agent = isTls ? new https.Agent({ ...kept, ...ca }) : new http.Agent(kept);
  }

  close(): void {
    this.#agent.destroy();
  }

  send(request: HttpRequest): Promise<HttpAnswer> {
    const { base, socket } = this.#address;
    const options: http.RequestOptions = {
      agent: this.#agent,
      method: request.method,
      headers: headersOf(request),
      ...(socket === undefined ? {} : { socketPath: socket }),
    };
    return new Promise((resolve, reject) => {
      const { signal } = request;
      if (signal.aborted) return reject(signal.reason);
      const protocol = base.startsWith("https:") ? https : http;
      const asked = protocol.request(new URL(base + request.target), options);
      const abort = () => {
        // Rejected first, because Deno sends a request again whose kept connection is destroyed.
        reject(signal.reason);
        asked.destroy(new Error("aborted"));
      };
      signal.addEventListener("abort", abort, { once: true });
      asked.once("close", () => signal.removeEventListener("abort", abort));
      let isConnected = false;
      asked.once("socket", (opened) => {
        connected(opened, asked, () => (isConnected = true));
      });
      // There is one listener for the request's whole life: a late error must not end the process.
      asked.on("error", (error: Error) => {
        const address = socket === undefined ? base : `unix:${socket}`;
        const message = `${address} cannot be reached: ${error.message}`;
        reject(isConnected ? error : new NotSentError(message, { cause: error }));
      });
      asked.once("response", (answer) => resolve(answerOf(answer)));
      sendBody(asked, request.body).catch((error: unknown) => {
        reject(error);
        asked.destroy();
      });
    });
  }
}

/** Says when a connection is there, and gives up one that takes too long. */
function connected(socket: Socket, asked: http.ClientRequest, tell: () => void): void {
  if (!socket.connecting) return tell();
  const late = () => asked.destroy(new Error(`no connection within ${CONNECT_MS} ms`));
  const timer = setTimeout(late, CONNECT_MS);
  socket.once("connect", () => {
    clearTimeout(timer);
    socket.setKeepAlive(true, KEEP_ALIVE_MS);
    tell();
  });
  socket.once("close", () => clearTimeout(timer));
}

function headersOf({ method, headers, body }: HttpRequest): Record<string, string> {
  if (body instanceof Uint8Array) return { ...headers, "content-length": String(body.length) };
  if (body instanceof Blob) return { ...headers, "content-length": String(body.size) };
  if (body !== undefined || !["POST", "PUT", "PATCH"].includes(method)) return { ...headers };
  return { ...headers, "content-length": "0" };
}

async function sendBody(asked: http.ClientRequest, body: HttpRequest["body"]): Promise<void> {
  if (body === undefined || body instanceof Uint8Array) {
    asked.end(body);
    return;
  }
  for await (const piece of body instanceof Blob ? fromStream(body.stream()) : body) {
    if (asked.destroyed) return;
    if (!asked.write(piece)) await drained(asked);
  }
  asked.end();
}

function drained(asked: http.ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const done = () => {
      asked.off("drain", done);
      asked.off("close", done);
      resolve();
    };
    asked.once("drain", done);
    asked.once("close", done);
  });
}

function answerOf(answer: http.IncomingMessage): HttpAnswer {
  const pieces: AsyncIterator<Uint8Array> = answer[Symbol.asyncIterator]();
  // The reader gets a late error; without a listener it would end the process.
  answer.on("error", () => undefined);
  const body = new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await pieces.next();
        if (done === true) controller.close();
        else controller.enqueue(value);
      },
      cancel() {
        answer.destroy();
      },
    },
    { highWaterMark: 0 },
  );
  return {
    status: answer.statusCode ?? 0,
    headers: {
      get(name) {
        const value = answer.headers[name];
        return typeof value === "string" ? value : null;
      },
    },
    body,
  };
}
