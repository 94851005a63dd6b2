/**
 * The errors, all with one base. The code of a server's refusal selects the class; an unknown code
 * becomes an `ApiError` that carries it. An aborted call rejects with the reason of its signal instead.
 */

import type { Schemas } from "./api.js";

/** The server's words for kinds of refusal; codes are only ever added. */
export type ErrorCode = Schemas["Code"] | (string & {});

/** What the server says of a refusal. */
export interface Refusal {
  code?: ErrorCode | undefined;
  /** The HTTP status. */
  status?: number | undefined;
  /** What to do about it. */
  hint?: string | undefined;
  /** Facts for programs; they depend on the code. */
  details?: Readonly<Record<string, unknown>> | undefined;
  /** The id of the call in the server's log. */
  requestId?: string | undefined;
  cause?: unknown;
}

/** The base of all errors of this package. */
export class BurrowError extends Error {
  override name = "BurrowError";
  readonly code: ErrorCode | undefined;
  readonly status: number | undefined;
  readonly hint: string | undefined;
  readonly details: Readonly<Record<string, unknown>>;
  readonly requestId: string | undefined;

  constructor(message: string, refusal: Refusal = {}) {
    super(
      refusal.hint === undefined ? message : `${message} (${refusal.hint})`,
      refusal.cause === undefined ? undefined : { cause: refusal.cause },
    );
    this.code = refusal.code;
    this.status = refusal.status;
    this.hint = refusal.hint;
    this.details = refusal.details ?? {};
    this.requestId = refusal.requestId;
  }

  /** A text among the details. */
  protected text(name: string): string | undefined {
    const value = this.details[name];
    return typeof value === "string" ? value : undefined;
  }

  /** The first number among the details. */
  protected number(...names: string[]): number | undefined {
    return names.map((name) => this.details[name]).find((value) => typeof value === "number");
  }
}

/** The server refused a call for a reason that has no class of its own. */
export class ApiError extends BurrowError {
  override name = "ApiError";
}

/** The call is invalid; repeating it does not help. */
export class InvalidRequestError extends ApiError {
  override name = "InvalidRequestError";
}

/** The key does not allow this. */
export class PermissionDeniedError extends ApiError {
  override name = "PermissionDeniedError";
}

/** No key was given, or the key is no longer valid. */
export class UnauthenticatedError extends PermissionDeniedError {
  override name = "UnauthenticatedError";
}

/** There is no such sandbox, file, context, session, snapshot or notebook. */
export class NotFoundError extends ApiError {
  override name = "NotFoundError";
}

/** It existed, and no longer does. */
export class GoneError extends NotFoundError {
  override name = "GoneError";
}

/** It exists already, or is not in the state that the call needs: `reason` says which. */
export class ConflictError extends ApiError {
  override name = "ConflictError";

  get reason(): string | undefined {
    return this.text("reason");
  }
}

/** The name is in use. */
export class NameTakenError extends ConflictError {
  override name = "NameTakenError";
}

/** The sandbox is stopped or paused. */
export class NotRunningError extends ConflictError {
  override name = "NotRunningError";
}

/** The request or its answer exceeds a limit. */
export class TooLargeError extends ApiError {
  override name = "TooLargeError";
}

/** A limit is reached. `used` and `allowed` are set if the server reports them. */
export class LimitReachedError extends ApiError {
  override name = "LimitReachedError";

  get used(): number | undefined {
    return this.number("used");
  }

  get allowed(): number | undefined {
    return this.number("allowed", "limit");
  }
}

/** It would exceed a cap of the namespace or the key: `scope` says which of them. */
export class CapExceededError extends LimitReachedError {
  override name = "CapExceededError";

  get scope(): string | undefined {
    return this.text("scope");
  }
}

/** Too many calls in too short a time, even after retries. */
export class RateLimitedError extends LimitReachedError {
  override name = "RateLimitedError";
}

/** The server's disk is full. */
export class InsufficientStorageError extends ApiError {
  override name = "InsufficientStorageError";
}

/** The machine, the host or the image cannot do this. It is refused, never ignored. */
export class UnsupportedError extends ApiError {
  override name = "UnsupportedError";

  /** The part of the request that is not supported. */
  get field(): string | undefined {
    return this.text("field");
  }
}

/** The namespace may use no secret of this name. */
export class UnknownSecretError extends ApiError {
  override name = "UnknownSecretError";

  get secret(): string | undefined {
    return this.text("secret");
  }
}

/** The namespace may use no workspace of this name. */
export class UnknownWorkspaceError extends ApiError {
  override name = "UnknownWorkspaceError";

  get workspace(): string | undefined {
    return this.text("workspace");
  }
}

/** The program could not be started: it is missing or not executable. */
export class SpawnFailedError extends ApiError {
  override name = "SpawnFailedError";

  /** The step that failed. */
  get stage(): string | undefined {
    return this.text("stage");
  }

  /** Linux's number of the error; 2 for a missing program. */
  get errno(): number | undefined {
    return this.number("errno");
  }
}

/** The kernel refused an operation on a file. */
export class FileError extends ApiError {
  override name = "FileError";
}

/** An internal error of the server. */
export class ServerError extends ApiError {
  override name = "ServerError";
}

/**
 * No sandbox is available: the server is full or shutting down, the sandbox did not start, or its agent
 * does not answer.
 */
export class SandboxUnavailableError extends BurrowError {
  override name = "SandboxUnavailableError";
}

/** The sandbox did not start. */
export class StartFailedError extends SandboxUnavailableError {
  override name = "StartFailedError";
}

/** The server could not be reached, or the connection to it was cut. */
export class ConnectionFailedError extends SandboxUnavailableError {
  override name = "ConnectionFailedError";
}

/** The call cannot have reached the server, so that any call can be repeated. */
export class NotSentError extends ConnectionFailedError {
  override name = "NotSentError";
}

/** Something took longer than its timeout. */
export class SandboxTimeoutError extends BurrowError {
  override name = "SandboxTimeoutError";
  /** The timeout, if it is known. */
  readonly timeoutMs: number | undefined;

  constructor(message: string, refusal: Refusal & { timeoutMs?: number | undefined } = {}) {
    super(message, refusal);
    this.timeoutMs = refusal.timeoutMs;
  }
}

/** Code or a command failed, and the caller asked for an error with `check`. */
export class ExecutionError extends BurrowError {
  override name = "ExecutionError";
  /** `ZeroDivisionError` and the like; of a command, what ended it. */
  readonly type: string;
  /** As the language's interpreter prints it; of a command, its stderr. */
  readonly traceback: string;
  readonly exitCode: number | undefined;
  readonly stdout: string;
  readonly stderr: string;

  constructor(
    message: string,
    failed: {
      type: string;
      traceback: string;
      exitCode: number | undefined;
      stdout: string;
      stderr: string;
    },
  ) {
    super(message);
    this.type = failed.type;
    this.traceback = failed.traceback;
    this.exitCode = failed.exitCode;
    this.stdout = failed.stdout;
    this.stderr = failed.stderr;
  }
}

type ErrorClass = new (message: string, refusal?: Refusal) => BurrowError;

/** The compiler holds this table against the document: a code without a row is an error. */
const BY_CODE: Record<Schemas["Code"], ErrorClass> = {
  invalid: InvalidRequestError,
  unauthenticated: UnauthenticatedError,
  forbidden: PermissionDeniedError,
  misdirected: PermissionDeniedError,
  not_found: NotFoundError,
  method_not_allowed: ApiError,
  not_acceptable: ApiError,
  conflict: ConflictError,
  idempotency_mismatch: ConflictError,
  gone: GoneError,
  too_large: TooLargeError,
  unsupported_media_type: ApiError,
  range_not_satisfiable: InvalidRequestError,
  unsupported: UnsupportedError,
  unknown_secret: UnknownSecretError,
  secret_failed: StartFailedError,
  pull_failed: StartFailedError,
  unknown_workspace: UnknownWorkspaceError,
  workspace_failed: StartFailedError,
  spawn_failed: SpawnFailedError,
  app_failed: ApiError,
  app_not_ready: ApiError,
  module_missing: ApiError,
  io: FileError,
  rate_limited: RateLimitedError,
  limit_reached: LimitReachedError,
  cap_exceeded: CapExceededError,
  insufficient_storage: InsufficientStorageError,
  deadline_exceeded: SandboxTimeoutError,
  request_timeout: SandboxTimeoutError,
  start_failed: StartFailedError,
  guest_unreachable: SandboxUnavailableError,
  port_unreachable: SandboxUnavailableError,
  unavailable: SandboxUnavailableError,
  internal: ServerError,
};

const BY_REASON: Partial<Record<string, ErrorClass>> = {
  name_taken: NameTakenError,
  not_running: NotRunningError,
  paused: NotRunningError,
};

/** For codes that are newer than this package, and for answers from something other than the server. */
const BY_STATUS: Partial<Record<number, ErrorClass>> = {
  400: InvalidRequestError,
  401: UnauthenticatedError,
  403: PermissionDeniedError,
  404: NotFoundError,
  409: ConflictError,
  410: GoneError,
  413: TooLargeError,
  429: LimitReachedError,
  502: SandboxUnavailableError,
  503: SandboxUnavailableError,
  504: SandboxTimeoutError,
  507: InsufficientStorageError,
};

/** Builds the error for a refusal. Never fails, whatever the server sent. */
export function fromProblem(value: unknown, status?: number, requestId?: string): BurrowError {
  const problem = isRecord(value) ? value : {};
  const text = (name: string) => {
    const found = problem[name];
    return typeof found === "string" ? found : undefined;
  };
  const code = text("code");
  const details = isRecord(problem["details"]) ? problem["details"] : {};
  const message = text("message") ?? `the server answered with ${status ?? "no reason"}`;
  const kind = classOf(code, status, details);
  return new kind(message, { code, status, hint: text("hint"), details, requestId });
}

function classOf(
  code: string | undefined,
  status: number | undefined,
  details: Record<string, unknown>,
): ErrorClass {
  const known: Partial<Record<string, ErrorClass>> = BY_CODE;
  const kind = code !== undefined && Object.hasOwn(known, code) ? known[code] : undefined;
  const fallback = status !== undefined && status >= 500 ? ServerError : ApiError;
  const found = kind ?? BY_STATUS[status ?? 0] ?? fallback;
  const reason = details["reason"];
  if (found !== ConflictError || typeof reason !== "string") return found;
  return (Object.hasOwn(BY_REASON, reason) ? BY_REASON[reason] : undefined) ?? ConflictError;
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
