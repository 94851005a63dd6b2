"""What comes back: results, events and descriptions, read from the server's JSON. Fields that the
server does not say are left at their defaults, and those that are younger than this package are in
`raw`."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Union

from .errors import ExecutionError, SandboxTimeout
from .surface import ExecResult


def content(value: Mapping[str, Any]) -> bytes:
    """Bytes that are `text` where they are UTF-8, and `base64` where they are not, or are long and
    mostly control characters."""
    if isinstance(value.get("base64"), str):
        return base64.b64decode(value["base64"])
    text = value.get("text")
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else b""


@dataclass(frozen=True)
class CommandResult(ExecResult):
    """An `ExecResult` that also says what ended the command."""

    #: `exited`, `signaled`, `killed`, `timeout`, `out_of_memory`, `sandbox_stopping` …
    cause: str = "exited"
    #: The session's name in the sandbox's log.
    session: str = ""
    #: How long it took, by the sandbox's clock.
    seconds: float = 0.0
    #: The deadline that it overran, in seconds.
    timeout: float | None = None
    #: What was asked for and could not be had.
    warnings: tuple[str, ...] = ()
    #: The whole answer.
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def timed_out(self) -> bool:
        return self.cause == "timeout"

    @property
    def stdout_bytes(self) -> bytes:
        """Exactly what was written, where `stdout` shows what is not UTF-8 as U+FFFD."""
        return _bytes(self.stdout, self.raw.get("stdout_base64"))

    @property
    def stderr_bytes(self) -> bytes:
        return _bytes(self.stderr, self.raw.get("stderr_base64"))

    def check(self) -> CommandResult:
        """Returns itself if the command succeeded. Raises `SandboxTimeout` or `ExecutionError`
        otherwise."""
        if self.timed_out:
            length = "its time" if self.timeout is None else f"{self.timeout:g} s"
            raise SandboxTimeout(f"the command took longer than {length}", seconds=self.timeout)
        if not self.ok:
            raise ExecutionError(
                f"the command {self._ended()}",
                type=self.cause,
                traceback=self.stderr,
                exit_code=self.exit_code,
                stdout=self.stdout,
                stderr=self.stderr,
            )
        return self

    def _ended(self) -> str:
        limit = (self.raw.get("cause") or {}).get("limit_bytes")
        if self.cause == "out_of_memory" and isinstance(limit, int):
            return f"ran out of memory, with a limit of {limit / 2**20:g} MiB"
        return f"ended with code {self.exit_code} ({self.cause})"


def _bytes(text: str, encoded: Any) -> bytes:
    if isinstance(encoded, str):
        return base64.b64decode(encoded)
    return text.encode("utf-8", "surrogatepass")


def command_result(
    answer: Mapping[str, Any], stdout: str, stderr: str, *, truncated: bool
) -> CommandResult:
    """Reads an answer that has the fields of an exit."""
    cause = answer.get("cause") or {}
    limit = cause.get("limit_ms")
    return CommandResult(
        stdout=stdout,
        stderr=stderr,
        exit_code=int(answer.get("exit_code", 0)),
        truncated=truncated,
        cause=str(cause.get("type", "exited")),
        session=str(answer.get("session", "")),
        seconds=answer.get("duration_us", 0) / 1e6,
        timeout=limit / 1000 if isinstance(limit, int) else None,
        warnings=tuple(answer.get("warnings") or ()),
        raw=answer,
    )


@dataclass(frozen=True)
class Output:
    """A piece of what a command writes, in its order within its channel."""

    channel: str
    data: bytes
    #: Where in the channel it begins, in bytes.
    offset: int

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True)
class Gap:
    """Output that was lost. It is always reported."""

    channel: str
    start: int
    end: int


@dataclass(frozen=True)
class Exited:
    """The end of a command; nothing follows."""

    #: Without the outputs, which were sent as events.
    result: CommandResult


StreamEvent = Union[Output, Gap, Exited]


@dataclass(frozen=True)
class Synced:
    """The result of syncing a workspace. Earlier changes are not listed again."""

    written: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    #: Paths that both sides changed, and where the sandbox's versions are on the host; `None` where
    #: the sandbox removed them.
    conflicts: Mapping[str, str | None] = field(default_factory=dict)
    #: Paths that were not copied, and why.
    refused: Mapping[str, str] = field(default_factory=dict)
    #: How many paths are not listed here.
    untold: int = 0


def synced(reply: Mapping[str, Any]) -> Synced:
    return Synced(
        written=tuple(reply.get("written", ())),
        deleted=tuple(reply.get("deleted", ())),
        conflicts={one["path"]: one.get("kept_as") for one in reply.get("conflicts", ())},
        refused={one["path"]: one.get("why", "") for one in reply.get("refused", ())},
        untold=reply.get("untold", 0),
    )


@dataclass(frozen=True)
class Display:
    """Something to show, in each form that it offers."""

    #: From the MIME type of a form to its content.
    data: Mapping[str, bytes]
    #: `value`, `shown` or `update`.
    role: str = "shown"
    id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str | None:
        """Its form for terminals."""
        plain = self.data.get("text/plain")
        return None if plain is None else plain.decode("utf-8", "replace")

    def __repr__(self) -> str:
        forms = ", ".join(f"{mime}: {len(data)} bytes" for mime, data in self.data.items())
        return f"Display({self.role}, {forms})"


@dataclass(frozen=True)
class RunError:
    """An exception that the code did not catch."""

    type: str
    message: str
    #: As the language's own interpreter would print it.
    traceback: str


@dataclass(frozen=True)
class RunResult:
    """A run of code in a context, at its end."""

    #: `ok`, `error`, `exited`, `interrupted`, `timeout`, `died` or `cancelled`.
    status: str
    stdout: str = ""
    stderr: str = ""
    #: The value of the last expression.
    value: Display | None = None
    #: What the code displayed.
    displays: tuple[Display, ...] = ()
    error: RunError | None = None
    exit_code: int | None = None
    truncated: bool = False
    #: Whether the next run finds the variables of this one.
    state_kept: bool = True
    #: State of earlier runs that was lost, and why, if the interpreter was replaced.
    lost: str | None = None
    #: An explanation, if the status alone is not enough.
    reason: str | None = None
    seconds: float = 0.0
    #: The deadline that it overran, in seconds.
    timeout: float | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the code ended by itself and without an exception."""
        return self.status == "ok" or (self.status == "exited" and not self.exit_code)

    @property
    def timed_out(self) -> bool:
        return self.status == "timeout"

    @property
    def result(self) -> str | None:
        """The value of the last expression as text."""
        return None if self.value is None else self.value.text

    def check(self) -> RunResult:
        """Returns itself if the run succeeded. Raises `SandboxTimeout` or `ExecutionError`
        otherwise."""
        if self.timed_out:
            length = "its time" if self.timeout is None else f"{self.timeout:g} s"
            raise SandboxTimeout(f"the code took longer than {length}", seconds=self.timeout)
        if not self.ok:
            error = self.error
            words = f"{error.type}: {error.message}" if error else self.reason or self.status
            raise ExecutionError(
                words,
                type=error.type if error else self.status,
                traceback=error.traceback if error else "",
                exit_code=self.exit_code,
                stdout=self.stdout,
                stderr=self.stderr,
            )
        return self


def display(reply: Mapping[str, Any]) -> Display:
    return Display(
        data={mime: content(form) for mime, form in reply.get("data", {}).items()},
        role=str(reply.get("role", "shown")),
        id=reply.get("id"),
        metadata=reply.get("metadata") or {},
    )


def run_error(reply: Mapping[str, Any]) -> RunError:
    return RunError(
        type=str(reply.get("type", "")),
        message=str(reply.get("message", "")),
        traceback=str(reply.get("traceback", "")),
    )


def run_result(answer: Mapping[str, Any]) -> RunResult:
    value, error, limit = (
        answer.get("value"),
        answer.get("error"),
        answer.get("timeout_ms"),
    )
    return RunResult(
        status=str(answer.get("status", "")),
        stdout=str(answer.get("stdout", "")),
        stderr=str(answer.get("stderr", "")),
        value=display(value) if value else None,
        displays=tuple(display(one) for one in answer.get("displays") or ()),
        error=run_error(error) if error else None,
        exit_code=answer.get("exit_code"),
        truncated=bool(answer.get("truncated", False)),
        state_kept=bool(answer.get("state_kept", True)),
        lost=answer.get("lost"),
        reason=answer.get("reason"),
        seconds=answer.get("duration_us", 0) / 1e6,
        timeout=limit / 1000 if isinstance(limit, int) else None,
        raw=answer,
    )


@dataclass(frozen=True)
class RunEvent:
    """One thing that happens in a run. Ignore unknown types."""

    #: `queued`, `started`, `stdout`, `stderr`, `display`, `error`, `input_request`, `finished` …
    type: str
    #: The text of an output.
    data: bytes = b""
    display: Display | None = None
    error: RunError | None = None
    #: The result in the last event, without what was sent as events.
    result: RunResult | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


def run_event(reply: Mapping[str, Any]) -> RunEvent:
    kind = str(reply.get("type", ""))
    return RunEvent(
        type=kind,
        data=content(reply),
        display=display(reply["display"]) if "display" in reply else None,
        error=run_error(reply["error"]) if isinstance(reply.get("error"), dict) else None,
        result=run_result(reply) if kind == "finished" else None,
        raw=reply,
    )


@dataclass(frozen=True)
class SandboxInfo:
    """The server's description of a sandbox."""

    #: Unique, even when the name is used again.
    id: str
    namespace: str
    name: str
    #: `creating`, `running`, `paused`, `stopping`, `stopped` or `lost`.
    state: str
    machine: str
    image: str | None = None
    memory_mib: int | None = None
    cpus: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    created_at_ms: int = 0
    #: Why it has stopped, or does not answer.
    reason: str | None = None
    #: When it ends, even if it is busy.
    expires_at_ms: int | None = None
    #: What it may reach.
    egress: tuple[str, ...] = ()
    #: What was asked for and could not be had.
    warnings: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_running(self) -> bool:
        return self.state == "running"


def sandbox_info(reply: Mapping[str, Any]) -> SandboxInfo:
    return SandboxInfo(
        id=str(reply.get("id", "")),
        namespace=str(reply.get("namespace", "")),
        name=str(reply.get("name", "")),
        state=str(reply.get("state", "")),
        machine=str(reply.get("machine", "")),
        image=reply.get("image"),
        memory_mib=reply.get("memory_mib"),
        cpus=reply.get("cpus"),
        labels=reply.get("labels") or {},
        created_at_ms=reply.get("created_at_ms", 0),
        reason=reply.get("reason"),
        expires_at_ms=reply.get("expires_at_ms"),
        egress=tuple(reply.get("egress") or ()),
        warnings=tuple(reply.get("warnings") or ()),
        raw=reply,
    )


@dataclass(frozen=True)
class Event:
    """Something that has happened to a sandbox."""

    #: Its number in the namespace; each is greater than the one before.
    offset: int
    at_ms: int
    #: `created`, `ready`, `paused`, `resumed`, `out_of_memory`, `exited`, `lost`, `removed` …; `gap`
    #: stands for events that are no longer kept, up to its own offset.
    kind: str
    namespace: str
    #: The sandbox; absent if it is about the stream itself.
    sandbox: str | None = None
    #: The sandbox's own id: names are used again.
    id: str | None = None
    #: Why it happened, as text for people, and of `exited` as a word.
    cause: str | None = None
    reason: str | None = None
    #: The whole event.
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


def event(reply: Mapping[str, Any]) -> Event:
    return Event(
        offset=int(reply.get("offset", 0)),
        at_ms=int(reply.get("at_ms", 0)),
        kind=str(reply.get("kind", "")),
        namespace=str(reply.get("namespace", "")),
        sandbox=reply.get("sandbox"),
        id=reply.get("id"),
        cause=reply.get("cause"),
        reason=reply.get("reason"),
        raw=reply,
    )


@dataclass(frozen=True)
class Metrics:
    """What a sandbox uses at one moment."""

    at_ms: int
    #: Where 100 is one processor; absent in the first second.
    cpu_percent: float | None
    memory_bytes: int
    memory_bytes_max: int | None
    disk_bytes: int | None
    processes: int
    uptime_seconds: float
    #: CPU time so far in programs and in the kernel; this and what follows is None where it is not known.
    cpu_user_us: int | None = None
    cpu_system_us: int | None = None
    #: How long the limit on CPU time kept programs from running so far.
    cpu_throttled_us: int | None = None
    #: The most memory at once so far, cache included.
    memory_bytes_peak: int | None = None
    cache_bytes: int | None = None
    swap_bytes: int | None = None
    #: Processes killed because memory ran out so far.
    oom_kills: int | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


def metrics(reply: Mapping[str, Any]) -> Metrics:
    return Metrics(
        at_ms=reply.get("at_ms", 0),
        cpu_percent=reply.get("cpu_percent"),
        memory_bytes=reply.get("memory_bytes", 0),
        memory_bytes_max=reply.get("memory_bytes_max"),
        disk_bytes=reply.get("disk_bytes"),
        processes=reply.get("processes", 0),
        uptime_seconds=reply.get("uptime_ms", 0) / 1000,
        cpu_user_us=reply.get("cpu_user_us"),
        cpu_system_us=reply.get("cpu_system_us"),
        cpu_throttled_us=reply.get("cpu_throttled_us"),
        memory_bytes_peak=reply.get("memory_bytes_peak"),
        cache_bytes=reply.get("cache_bytes"),
        swap_bytes=reply.get("swap_bytes"),
        oom_kills=reply.get("oom_kills"),
        raw=reply,
    )


@dataclass(frozen=True)
class FileInfo:
    """What is at a path in a sandbox."""

    name: str
    #: `file`, `directory`, `symlink`, `fifo`, `socket`, `block_device` or `char_device`.
    kind: str
    size: int
    #: In octal.
    permissions: str
    modified_ms: int = 0
    #: The target of a symlink.
    target: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_directory(self) -> bool:
        return self.kind == "directory"


def file_info(reply: Mapping[str, Any]) -> FileInfo:
    return FileInfo(
        name=str(reply.get("name", "")),
        kind=str(reply.get("kind", "")),
        size=reply.get("bytes", 0),
        permissions=str(reply.get("permissions", "")),
        modified_ms=reply.get("modified_ms", 0),
        target=reply.get("target"),
        raw=reply,
    )


@dataclass(frozen=True)
class SnapshotInfo:
    """A saved machine, with all that ran in it."""

    namespace: str
    name: str
    sandbox: str
    machine: str
    size: int
    created_at_ms: int = 0
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True)
class TemplateInfo:
    """What sandboxes are made of under one name, with the commands that make them ready."""

    namespace: str
    name: str
    revision: str
    image: str | None = None
    start: str | None = None
    ready: str | None = None
    warm: int = 0
    warm_ready: int = 0
    created_at_ms: int = 0
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


def template_info(reply: Mapping[str, Any]) -> TemplateInfo:
    return TemplateInfo(
        namespace=str(reply.get("namespace", "")),
        name=str(reply.get("name", "")),
        revision=str(reply.get("revision", "")),
        image=reply.get("image"),
        start=reply.get("start"),
        ready=reply.get("ready"),
        warm=reply.get("warm", 0),
        warm_ready=reply.get("warm_ready", 0),
        created_at_ms=reply.get("created_at_ms", 0),
        raw=reply,
    )


def snapshot_info(reply: Mapping[str, Any]) -> SnapshotInfo:
    return SnapshotInfo(
        namespace=str(reply.get("namespace", "")),
        name=str(reply.get("name", "")),
        sandbox=str(reply.get("sandbox", "")),
        machine=str(reply.get("machine", "")),
        size=reply.get("bytes", 0),
        created_at_ms=reply.get("created_at_ms", 0),
        raw=reply,
    )
