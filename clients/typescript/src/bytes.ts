/** Bytes and text: contents in JSON, streams of pieces. Knows no resource of the API. */

import { ConnectionFailedError, TooLargeError } from "./errors.js";

/** Bytes that wait nowhere: `pull` is called only when a reader wants a piece. */
const UNBUFFERED = { highWaterMark: 0 };

const encoder = new TextEncoder();
const decoder = new TextDecoder();

export function encodeText(text: string): Uint8Array {
  return encoder.encode(text);
}

/** Text of bytes; what is not UTF-8 is shown as U+FFFD. */
export function decodeText(bytes: Uint8Array): string {
  return decoder.decode(bytes);
}

/** A content of the API: `text` where it is UTF-8, `base64` where it is not. */
export type Content = { text?: string; base64?: string };

export function decodeContent(content: Content): Uint8Array {
  if (content.base64 !== undefined) return decodeBase64(content.base64);
  return encodeText(content.text ?? "");
}

export function encodeContent(data: Uint8Array | string): { text: string } | { base64: string } {
  return typeof data === "string" ? { text: data } : { base64: encodeBase64(data) };
}

export function decodeBase64(text: string): Uint8Array {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let at = 0; at < binary.length; at++) bytes[at] = binary.charCodeAt(at);
  return bytes;
}

function encodeBase64(bytes: Uint8Array): string {
  // Arguments of a call are on its stack, so that there is a limit to them.
  const piece = 8192;
  let binary = "";
  for (let at = 0; at < bytes.length; at += piece) {
    binary += String.fromCharCode(...bytes.subarray(at, at + piece));
  }
  return btoa(binary);
}

export function concat(pieces: readonly Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(pieces.reduce((length, piece) => length + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

/** Reads all pieces into memory. */
export async function collect(
  pieces: AsyncIterable<Uint8Array>,
  bytesMax: number,
  what: string,
): Promise<Uint8Array> {
  const found: Uint8Array[] = [];
  let length = 0;
  for await (const piece of pieces) {
    length += piece.length;
    if (length > bytesMax) throw new TooLargeError(`${what} is larger than ${bytesMax} bytes`);
    found.push(piece);
  }
  return concat(found);
}

/** The lines of a stream. An unfinished last line means that the stream was cut. */
export async function* lines(
  pieces: AsyncIterable<Uint8Array>,
  bytesMax: number,
): AsyncGenerator<string, void, undefined> {
  let begun: Uint8Array[] = [];
  let length = 0;
  for await (const piece of pieces) {
    let at = 0;
    for (let end; (end = piece.indexOf(10, at)) >= 0; at = end + 1) {
      const line = decodeText(concat([...begun, piece.subarray(at, end)]));
      [begun, length] = [[], 0];
      if (line.trim() !== "") yield line;
    }
    if (at === piece.length) continue;
    begun.push(piece.subarray(at));
    length += piece.length - at;
    if (length > bytesMax) throw new TooLargeError(`a line is larger than ${bytesMax} bytes`);
  }
  if (length > 0) throw new ConnectionFailedError("the connection was cut within a line");
}

/** A web stream of pieces that are produced as they are read. */
export function toStream(pieces: AsyncGenerator<Uint8Array>): ReadableStream<Uint8Array> {
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        const { done, value } = await pieces.next();
        if (done === true) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        await pieces.return(undefined);
      },
    },
    UNBUFFERED,
  );
}

/** The pieces of a web stream, which is cancelled if they are left. Not every browser iterates them. */
export async function* fromStream(
  stream: ReadableStream<Uint8Array>,
): AsyncGenerator<Uint8Array, void, undefined> {
  const reader = stream.getReader();
  let isDone = false;
  try {
    while (true) {
      const { done, value } = await reader.read();
      isDone = done;
      if (done) return;
      yield value;
    }
  } catch (error) {
    isDone = true;
    throw error;
  } finally {
    if (!isDone) await reader.cancel().catch(() => undefined);
    reader.releaseLock();
  }
}
