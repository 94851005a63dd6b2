/** Connections to ports inside a sandbox, over a WebSocket. */

import { encodeText } from "./bytes.js";
import { ConnectionFailedError, UnsupportedError } from "./errors.js";
import type { Api, CallOptions } from "./http.js";
import { SOCKET_BUFFER_BYTES } from "./limits.js";
import type { Place } from "./commands.js";
import { onAbort, pause } from "./waiting.js";

/** How often a writer looks whether a WebSocket has room. */
const ROOM_PAUSE_MS = 5;
/** The WebSocket's word for an end without a fault. */
const NORMAL = 1000;

/** A TCP connection to a port inside. */
export interface PortConnection extends AsyncDisposable {
  readonly readable: ReadableStream<Uint8Array>;
  /** Closing it ends this side; the program inside reads the end of its input. */
  readonly writable: WritableStream<Uint8Array | string>;
  close(): void;
}

/** Connects to a port inside. What a server sends while nobody reads waits in memory. */
export async function connect(
  api: Api,
  place: Place,
  port: number,
  { signal }: CallOptions,
): Promise<PortConnection> {
  signal?.throwIfAborted();
  if (typeof WebSocket === "undefined") {
    const message = "this runtime has no WebSocket; Node has it from version 22 on";
    throw new UnsupportedError(message, { hint: "`forward` gives the port an address" });
  }
  const { url, protocols } = api.socket("connect_port", { path: { ...place, port } });
  const socket = new WebSocket(url, protocols);
  socket.binaryType = "arraybuffer";
  const forget = onAbort(signal, () => socket.close());
  const opened = new Promise<void>((resolve, reject) => {
    socket.addEventListener("open", () => resolve(), { once: true });
    const refused = () => reject(new ConnectionFailedError(`port ${port} cannot be connected to`));
    socket.addEventListener("close", refused, { once: true });
  });
  const readable = incoming(socket);
  try {
    await opened;
  } catch (error) {
    signal?.throwIfAborted();
    throw error;
  }
  socket.addEventListener("close", forget);
  const close = () => socket.close(NORMAL);
  return {
    readable,
    writable: outgoing(socket),
    close,
    [Symbol.asyncDispose]: async () => close(),
  };
}

function incoming(socket: WebSocket): ReadableStream<Uint8Array> {
  let isOver = false;
  return new ReadableStream<Uint8Array>({
    start(controller) {
      socket.addEventListener("message", ({ data }) => {
        if (isOver) return;
        controller.enqueue(typeof data === "string" ? encodeText(data) : new Uint8Array(data));
      });
      socket.addEventListener("close", ({ code, reason }) => {
        if (isOver) return;
        isOver = true;
        const why = reason || `code ${code}`;
        if (code === NORMAL || code === 1005) controller.close();
        else controller.error(new ConnectionFailedError(`the connection was cut: ${why}`));
      });
    },
    cancel() {
      isOver = true;
      socket.close(NORMAL);
    },
  });
}

function outgoing(socket: WebSocket): WritableStream<Uint8Array | string> {
  return new WritableStream<Uint8Array | string>({
    async write(data) {
      if (socket.readyState !== socket.OPEN) {
        throw new ConnectionFailedError("the connection is closed");
      }
      const bytes = typeof data === "string" ? encodeText(data) : data;
      socket.send(bytes as Uint8Array<ArrayBuffer>);
      // A WebSocket says how full it is, and not when that changes.
      while (socket.bufferedAmount > SOCKET_BUFFER_BYTES) await pause(ROOM_PAUSE_MS);
    },
    close() {
      if (socket.readyState === socket.OPEN) socket.send(JSON.stringify({ type: "end" }));
    },
    abort() {
      socket.close(NORMAL);
    },
  });
}
