/** Run untrusted code in Burrow's sandboxes, from Node, Deno or Bun. */

import { node } from "./node.js";
import { setPlatform } from "./platform.js";

setPlatform(node);

export * from "./web.js";
