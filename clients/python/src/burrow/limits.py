"""Every bound of this client, each with its reason. Those that a caller may want to change are
arguments of the client."""

from __future__ import annotations

#: How long a call that runs nothing may take, from its first byte to its last.
CALL_SECONDS = 60.0
#: How long the start of a sandbox may take: an emulated machine on a busy host, an image to fetch.
CREATE_SECONDS = 300.0
#: What an exchange of all changes of a workspace may take: as long as the server gives it, and a little.
SYNC_SECONDS = 630.0
#: The length of a command or a run that names none. An hour is more than an agent waits.
RUN_SECONDS = 3600.0
#: How much later than the server's own end of a run the client gives up waiting for it.
RUN_MARGIN_SECONDS = 30.0
#: How long a connection may take to stand.
CONNECT_SECONDS = 10.0
#: How long what was made may take to be taken away again, when a call was cancelled.
TEARDOWN_SECONDS = 30.0
#: How long a program that nobody waits for any more may take to be killed.
KILL_SECONDS = 10.0
#: How long a piece of a file or an archive may stand still on its way.
PIECE_SECONDS = 60.0

#: Attempts behind the first of a call that may be made again.
RETRIES = 3
#: The pause before the first of them; each further one is twice as long.
RETRY_PAUSE_SECONDS = 0.1
#: The longest pause, and the longest that a server's `Retry-After` is heeded.
RETRY_PAUSE_SECONDS_MAX = 5.0

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
#: What is read of a refusal.
PROBLEM_BYTES_MAX = 1024 * 1024
#: What is read or sent at once.
CHUNK_BYTES = 64 * 1024

#: What `files.read` takes into memory unless told otherwise.
READ_BYTES_MAX = 64 * 1024 * 1024
#: What `files.download` writes unless told otherwise, and how many entries.
DOWNLOAD_BYTES_MAX = 4 * 1024 * 1024 * 1024
DOWNLOAD_ENTRIES_MAX = 1_000_000
#: An archive that is larger waits on disk instead of in memory.
ARCHIVE_MEMORY_BYTES = 8 * 1024 * 1024

#: How long a log is waited for that does not know the end of the last command yet, and how often it
#: is looked at meanwhile.
LOG_SETTLE_SECONDS = 2.0
LOG_SETTLE_PAUSE_SECONDS = 0.02
