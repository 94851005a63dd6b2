/** Every bound of this client, each with its reason. Callers change some by options of the client. */

/** How long a call that runs nothing may take, from its first byte to its last. */
export const CALL_MS = 60_000;
/** How long the start of a sandbox may take: an emulated machine on a busy host, an image to fetch. */
export const CREATE_MS = 300_000;
/** How long syncing a workspace may take: the server's own limit, and a little more. */
export const SYNC_MS = 630_000;
/** The default timeout of a command or a run. An hour is more than an agent waits. */
export const RUN_MS = 3_600_000;
/** How long after the server's timeout of a run the client gives up. */
export const RUN_MARGIN_MS = 30_000;
/** How long connecting may take, where the runtime says when it has connected. */
export const CONNECT_MS = 10_000;
/** How long the removal of a created sandbox may take after a call was aborted. */
export const TEARDOWN_MS = 30_000;
/** How long killing an abandoned program may take. */
export const KILL_MS = 10_000;
/** How long a transfer of a file or an archive may stall. */
export const PIECE_MS = 60_000;

/** Retries of a call that can be repeated. */
export const RETRIES = 3;
/** The pause before the first retry. Each further pause is twice as long. */
export const RETRY_PAUSE_MS = 100;
/** The longest pause, and the longest that a server's `Retry-After` is heeded. */
export const RETRY_PAUSE_MS_MAX = 5_000;
/** How long a stream of sandboxes' events tries to go on after a cut before it throws: longer than a restart. */
export const FOLLOW_MS = 60_000;
/** A stream that was open for this long is cut for the first time when it is cut. */
export const STEADY_MS = 10_000;

/** How long an idle connection is used again. Servers keep theirs for longer. */
export const IDLE_MS = 15_000;
/** Idle connections that are kept: as many as a busy client has calls under way at once. */
export const IDLE_CONNECTIONS_MAX = 16;

/** An answer that is read into memory: two outputs of 64 MiB, as base64 beside their text. */
export const ANSWER_BYTES_MAX = 512 * 1024 * 1024;
/** A line of a stream: one event, of a display at most. */
export const LINE_BYTES_MAX = 64 * 1024 * 1024;
/** Bytes that are read of a refusal. */
export const PROBLEM_BYTES_MAX = 1024 * 1024;
/** The default limit of `files.read`, which reads into memory. */
export const READ_BYTES_MAX = 64 * 1024 * 1024;
/** Output bytes that a result keeps by default; the server's own limit. */
export const OUTPUT_BYTES_MAX = 8 * 1024 * 1024;
/** Bytes that wait in a WebSocket before a writer waits for them. */
export const SOCKET_BUFFER_BYTES = 1024 * 1024;

/** How long to wait for a log that lacks the end of the last command, and how often to look at it. */
export const LOG_SETTLE_MS = 2_000;
export const LOG_SETTLE_PAUSE_MS = 20;

/** The longest timer that JavaScript has; a longer time is none. */
export const TIMER_MS_MAX = 2 ** 31 - 1;
