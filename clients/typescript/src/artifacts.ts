/** Artifacts: files that runs have produced and the server keeps. */

import type { Schemas } from "./api.js";
import { toStream } from "./bytes.js";
import { resumed } from "./files.js";
import type { Api, CallOptions } from "./http.js";

/** The artifacts of one namespace. */
export class Artifacts {
  readonly #api: Api;
  readonly #namespace: string;

  /** They belong to a client. */
  constructor(api: Api, namespace: string) {
    this.#api = api;
    this.#namespace = namespace;
  }

  /** All artifacts, of a sandbox, a notebook or a category for example; a page is fetched when it is read. */
  async *list(
    query: Omit<Schemas["ListArtifactsQuery"], "namespace" | "after"> = {},
    options?: CallOptions,
  ): AsyncGenerator<Schemas["KeptArtifact"], void, undefined> {
    for (let after: number | undefined; ; ) {
      const next = after === undefined ? {} : { after };
      const asked = { ...query, ...next, namespace: this.#namespace };
      const page = await this.#api.call("list_artifacts", { query: asked }, options);
      yield* page.artifacts;
      after = page.next;
      if (after === undefined) return;
    }
  }

  async get(id: string, options?: CallOptions): Promise<Schemas["KeptArtifact"]> {
    return await this.#api.call("get_artifact", { path: { id } }, options);
  }

  /** The bytes of an artifact. A stream that is cut goes on where it was. */
  readStream(id: string, options: CallOptions = {}): ReadableStream<Uint8Array> {
    return toStream(resumed(this.#api, "read_artifact", { path: { id } }, options));
  }

  async remove(id: string, options?: CallOptions): Promise<void> {
    await this.#api.call("remove_artifact", { path: { id } }, options);
  }
}
