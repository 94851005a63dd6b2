/** The files of a sandbox: web streams of bytes both ways, listings, archives, changes. */

import type { Schemas } from "./api.js";
import { collect, decodeText, fromStream, toStream } from "./bytes.js";
import { ConnectionFailedError, NotFoundError } from "./errors.js";
import { type Api, type CallOptions, type Input, pauseMs } from "./http.js";
import { PIECE_MS, READ_BYTES_MAX } from "./limits.js";
import type { Place } from "./commands.js";
import { bodyOf, type Bytes } from "./platform.js";
import { pause } from "./waiting.js";

/** How a file is written. */
export interface WriteOptions
  extends Pick<Schemas["WriteFileQuery"], "append" | "create_only" | "permissions">,
    CallOptions {
  /** Whether missing directories are made; they are, unless this says otherwise. */
  parents?: boolean | undefined;
}

/** The files of one sandbox. Paths in the sandbox are absolute. */
export class Files {
  readonly #api: Api;
  readonly #place: Place;

  /** They belong to a sandbox. */
  constructor(api: Api, place: Place) {
    this.#api = api;
    this.#place = place;
  }

  /** Reads a whole file. Throws `TooLargeError` if it has more bytes than the limit. */
  async read(
    path: string,
    options: CallOptions & { bytesMax?: number | undefined } = {},
  ): Promise<Uint8Array> {
    const pieces = fromStream(this.readStream(path, options));
    return await collect(pieces, options.bytesMax ?? READ_BYTES_MAX, path);
  }

  async readText(path: string, options?: CallOptions): Promise<string> {
    return decodeText(await this.read(path, options));
  }

  /**
   * The bytes of a file of any size, as they arrive. A stream that is cut goes on where it was if the file
   * is surely the same: if it was not changed, neither since then nor in the seconds before.
   */
  readStream(path: string, options: CallOptions = {}): ReadableStream<Uint8Array> {
    return toStream(resumed(this.#api, "read_file", this.#at({ path }), options));
  }

  /** Writes a file atomically: readers see the old content or the new. Returns the number of its bytes. */
  async write(path: string, data: Bytes, options: WriteOptions = {}): Promise<number> {
    const { signal, parents = true, ...how } = options;
    const body = bodyOf(data);
    const headers = { "content-type": "application/octet-stream" };
    const isKept = body instanceof Uint8Array || body instanceof Blob;
    const isRepeatable = isKept && !how.append && !how.create_only;
    const written = await this.#api.upload(
      "write_file",
      this.#at({ path, parents, ...how }),
      // The server ends a connection that stalls.
      { headers, body, signal, timeoutMs: Infinity },
      isRepeatable,
    );
    return written.bytes;
  }

  /** Lists a directory, by name. */
  async list(path: string, options?: CallOptions): Promise<Schemas["FileEntry"][]> {
    const found: Schemas["FileEntry"][] = [];
    for (let after: string | undefined; ; ) {
      const query = { path, ...(after === undefined ? {} : { after }) };
      const page = await this.#api.call("list_files", this.#at(query), options);
      found.push(...page.entries);
      after = page.next;
      if (after === undefined) return found;
    }
  }

  /** What is at a path; of a link the link itself, unless it is followed. */
  async stat(
    path: string,
    options: CallOptions & { follow?: boolean | undefined } = {},
  ): Promise<Schemas["FileEntry"]> {
    const { follow = false, ...rest } = options;
    return await this.#api.call("stat_file", this.#at({ path, follow }), rest);
  }

  async exists(path: string, options?: CallOptions): Promise<boolean> {
    try {
      await this.stat(path, options);
      return true;
    } catch (error) {
      if (error instanceof NotFoundError) return false;
      throw error;
    }
  }

  /** Makes a directory, with those above it. */
  async mkdir(
    path: string,
    options: CallOptions & { parents?: boolean | undefined } = {},
  ): Promise<void> {
    const { parents = true, ...rest } = options;
    const body = { path, parents };
    await this.#api.call("make_directory", { path: this.#place, body }, rest);
  }

  async move(
    from: string,
    to: string,
    options: CallOptions & { replace?: boolean | undefined } = {},
  ): Promise<void> {
    const { replace = false, ...rest } = options;
    await this.#api.call("move_file", { path: this.#place, body: { from, to, replace } }, rest);
  }

  async remove(
    path: string,
    options: CallOptions & { recursive?: boolean | undefined } = {},
  ): Promise<void> {
    const { recursive = false, ...rest } = options;
    await this.#api.call("remove_file", this.#at({ path, recursive }), rest);
  }

  /** The changes below a path, as they happen. Leaving ends the watch. */
  async *watch(
    path: string,
    options: CallOptions & { recursive?: boolean | undefined } = {},
  ): AsyncGenerator<Schemas["FileChange"], void, undefined> {
    const { recursive = false, ...rest } = options;
    yield* this.#api.events("watch_files", this.#at({ path, recursive }), rest);
  }

  /** A file or a directory as a tar archive. */
  readArchive(path: string, options: CallOptions = {}): ReadableStream<Uint8Array> {
    const api = this.#api;
    const input = this.#at({ path });
    return toStream(
      (async function* () {
        const opened = await api.open("pack_files", input, { ...options, pieceMs: PIECE_MS });
        yield* opened.pieces();
      })(),
    );
  }

  /** Unpacks a tar archive into a directory. */
  async writeArchive(
    path: string,
    archive: Bytes,
    options: CallOptions = {},
  ): Promise<Schemas["ArchiveUnpacked"]> {
    const headers = { "content-type": "application/x-tar" };
    const sent = { ...options, headers, body: bodyOf(archive), timeoutMs: Infinity };
    return await this.#api.upload("unpack_files", this.#at({ path, parents: true }), sent, false);
  }

  #at<Query extends object>(query: Query): { path: Place; query: Query } {
    return { path: this.#place, query };
  }
}

/**
 * The bytes of a file or an artifact, over as many connections as needed: the rest is asked for under the
 * tag that the first answer had. A file that was changed a moment before has only a weak one, and the cut is
 * an error then: the rest could be another file's.
 */
export async function* resumed<N extends "read_file" | "read_artifact">(
  api: Api,
  name: N,
  input: Input<N>,
  { signal }: CallOptions,
): AsyncGenerator<Uint8Array, void, undefined> {
  let offset = 0;
  let tag: string | undefined;
  for (let attempt = 0; ; attempt++) {
    const rest = { range: `bytes=${offset}-`, ...(tag === undefined ? {} : { "if-range": tag }) };
    const headers = offset === 0 ? {} : rest;
    try {
      const opened = await api.open(name, input, { headers, signal, pieceMs: PIECE_MS });
      if (offset > 0 && opened.status !== 206) {
        opened.leave();
        throw new ConnectionFailedError("the file has changed while it was read");
      }
      if (offset === 0) tag = strong(opened.header("etag"));
      for await (const piece of opened.pieces()) {
        attempt = 0;
        offset += piece.length;
        yield piece;
      }
      return;
    } catch (error) {
      const isCut = error instanceof ConnectionFailedError && (offset === 0 || tag !== undefined);
      if (!isCut || attempt >= api.retries) throw error;
      await pause(pauseMs(error, attempt), signal);
    }
  }
}

function strong(tag: string | undefined): string | undefined {
  return tag?.startsWith("W/") === true ? undefined : tag;
}
