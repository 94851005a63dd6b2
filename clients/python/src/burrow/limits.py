"""Every bound of this client, each with its reason. Those that a caller may want to change are
arguments of the client."""

from __future__ import annotations

#: How long a call that runs nothing may take, from its first byte to its last.
CALL_SECONDS = 60.0
#: How long the start of a sandbox may take: an emulated machine on a busy host, an image to fetch.
CREATE_SECONDS = 300.0
#: How long syncing a workspace may take: the server's own limit, and a little more.
SYNC_SECONDS = 630.0
#: The default timeout of a command or a run. An hour is more than an agent waits.
RUN_SECONDS = 3600.0
#: How long after the server's timeout of a run the client gives up.
RUN_MARGIN_SECONDS = 30.0
#: How long connecting may take.
CONNECT_SECONDS = 10.0
#: How long the removal of a created sandbox may take after a call was cancelled.
TEARDOWN_SECONDS = 30.0
#: How long killing an abandoned program may take.
KILL_SECONDS = 10.0
#: How long a transfer of a file or an archive may stall.
PIECE_SECONDS = 60.0

#: Retries of a call that can be repeated.
RETRIES = 3
#: The pause before the first retry. Each further pause is twice as long.
RETRY_PAUSE_SECONDS = 0.1
#: The longest pause, and the longest that a server's `Retry-After` is heeded.
RETRY_PAUSE_SECONDS_MAX = 5.0

#: How long a stream of events tries to go on after a cut before it raises: longer than a restart.
FOLLOW_SECONDS = 60.0
#: A stream that was open for this long is cut for the first time when it is cut.
STEADY_SECONDS = 10.0

#: How long an idle connection is used again. Servers keep theirs for longer.
IDLE_SECONDS = 15.0
#: Idle connections that are kept: as many as a busy client has calls under way at once.
IDLE_CONNECTIONS_MAX = 16

#: A line or the headers of an answer; the server sends some hundred bytes.
HEAD_BYTES_MAX = 64 * 1024
#: Headers of an answer.
HEADERS_MAX = 100
#: An answer that is read into memory: two outputs of 64 MiB, as base64 beside their text.
ANSWER_BYTES_MAX = 512 * 1024 * 1024
#: A line of a stream: one event, of a display at most.
LINE_BYTES_MAX = 64 * 1024 * 1024
#: Bytes that are read of a refusal.
PROBLEM_BYTES_MAX = 1024 * 1024
#: Bytes that are read or sent at once.
CHUNK_BYTES = 64 * 1024

#: The default limit of `files.read`, which reads into memory.
READ_BYTES_MAX = 64 * 1024 * 1024
#: The default limits of `files.download`: bytes and entries.
DOWNLOAD_BYTES_MAX = 4 * 1024 * 1024 * 1024
DOWNLOAD_ENTRIES_MAX = 1_000_000
#: An archive that is larger waits on disk instead of in memory.
ARCHIVE_MEMORY_BYTES = 8 * 1024 * 1024

#: How long to wait for a log that lacks the end of the last command, and how often to look at it
#: meanwhile.
LOG_SETTLE_SECONDS = 2.0
LOG_SETTLE_PAUSE_SECONDS = 0.02

#: How long code of a framework's tool may run by default: longer than a model's caller waits.
TOOL_RUN_SECONDS = 240.0
#: A text that a framework's tool gives to a model: some eight thousand tokens.
TOOL_TEXT_CHARS_MAX = 32 * 1024
#: A longer message of an exception may be cut by the server, which keeps 64 KiB of it.
RAISED_CHARS_MAX = 60_000
#: The most that the server keeps of each output of a command.
EXEC_OUTPUT_BYTES_MAX = 64 * 1024 * 1024
