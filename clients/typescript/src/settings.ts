/** Where the server is and who asks: options of the client before variables of the environment. */

import { InvalidRequestError, SandboxUnavailableError } from "./errors.js";
import { type Address, overFetch, platform, type Transport } from "./platform.js";

const URL_DEFAULT = "http://127.0.0.1:5555";
const NAMESPACE_DEFAULT = "default";

/** How a client reaches its server. What is left out comes from the environment. */
export interface ConnectOptions {
  /** `http://…`, `https://…` or `unix:/path`; else `BURROW_URL`, else `MSB_SERVER_URL`, else port 5555 here. */
  url?: string | undefined;
  /** The key, or an empty text for none; else `BURROW_API_KEY`, `BURROW_API_KEY_FILE`, `MSB_API_KEY`. */
  apiKey?: string | undefined;
  /** Else `BURROW_NAMESPACE`, else `default`. */
  namespace?: string | undefined;
  /** A file of certificates that are trusted instead of the system's; else `BURROW_CA_FILE`. */
  caFile?: string | undefined;
  /** Sends the requests instead of the runtime's own connections. */
  fetch?: typeof globalThis.fetch | undefined;
}

export interface Settings {
  readonly address: Address;
  readonly key: string | undefined;
  readonly namespace: string;
  readonly transport: Transport;
}

export function settings(options: ConnectOptions): Settings {
  const { variable } = platform();
  const url = options.url ?? variable("BURROW_URL") ?? variable("MSB_SERVER_URL") ?? URL_DEFAULT;
  const address = parseAddress(url);
  const caFile = options.caFile ?? variable("BURROW_CA_FILE");
  return {
    address,
    key: checkedKey(options.apiKey ?? foundKey()),
    namespace: options.namespace ?? variable("BURROW_NAMESPACE") ?? NAMESPACE_DEFAULT,
    transport:
      options.fetch === undefined
        ? platform().connect(address, caFile)
        : overFetch(address, options.fetch),
  };
}

export function parseAddress(url: string): Address {
  if (url.startsWith("unix:")) {
    const socket = url.slice("unix:".length).replace(/^\/\/(?=\/)/, "");
    if (socket.startsWith("/")) return { base: "http://localhost", socket };
    throw new InvalidRequestError("the URL of a Unix socket is unix: and an absolute path");
  }
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw new InvalidRequestError("the URL of the server cannot be read");
  }
  if (!["http:", "https:"].includes(parsed.protocol)) {
    throw new InvalidRequestError("the URL of the server begins with http://, https:// or unix:");
  }
  // A password there would end up in messages.
  if (parsed.username || parsed.password || parsed.search || parsed.hash) {
    throw new InvalidRequestError("the URL of the server has a host, a port, a path and nothing else");
  }
  return { base: parsed.origin + parsed.pathname.replace(/\/+$/, "") };
}

function foundKey(): string | undefined {
  const { variable, readText } = platform();
  const key = variable("BURROW_API_KEY");
  if (key !== undefined) return key;
  const file = variable("BURROW_API_KEY_FILE");
  if (file === undefined) return variable("MSB_API_KEY");
  const text = readText(file).trim();
  if (text === "") throw new SandboxUnavailableError(`the API key in ${file}: the file is empty`);
  return text;
}

function checkedKey(key: string | undefined): string | undefined {
  if (key === undefined || key === "") return undefined;
  if (!/^[\x21-\x7e]+$/.test(key)) {
    throw new InvalidRequestError("the API key has characters that no key has");
  }
  return key;
}
