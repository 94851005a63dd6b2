/// <reference lib="esnext.disposable" preserve="true" />
/** Run untrusted code in Burrow's sandboxes: the part for browsers, which is all but the connections of Node. */

export type { Operations, Schemas } from "./api.js";
export type { Artifacts } from "./artifacts.js";
export {
  BurrowClient,
  type ClientOptions,
  type CreateOptions,
  type EventOptions,
  type ListOptions,
  type OneShotOptions,
} from "./client.js";
export type {
  CommandStream,
  ExecOptions,
  StreamOptions,
  Terminal,
  TerminalOptions,
} from "./commands.js";
export type { Context, ContextOptions, Notebook, RunOptions } from "./contexts.js";
export {
  ApiError,
  BurrowError,
  CapExceededError,
  ConflictError,
  ConnectionFailedError,
  type ErrorCode,
  ExecutionError,
  FileError,
  GoneError,
  InsufficientStorageError,
  InvalidRequestError,
  LimitReachedError,
  NameTakenError,
  NotFoundError,
  NotRunningError,
  NotSentError,
  PermissionDeniedError,
  RateLimitedError,
  SandboxTimeoutError,
  SandboxUnavailableError,
  ServerError,
  SpawnFailedError,
  StartFailedError,
  TooLargeError,
  UnauthenticatedError,
  UnknownSecretError,
  UnknownWorkspaceError,
  UnsupportedError,
} from "./errors.js";
export type { Files, WriteOptions } from "./files.js";
export type { ApiCallOptions, CallOptions } from "./http.js";
export type { Bytes } from "./platform.js";
export type { PortConnection } from "./ports.js";
export {
  type CauseType,
  type Channel,
  CommandResult,
  Display,
  type Exited,
  type Gap,
  Output,
  type RunEvent,
  type RunOutput,
  RunResult,
  type RunStatus,
  type StreamEvent,
} from "./results.js";
export type { Sandbox } from "./sandbox.js";
