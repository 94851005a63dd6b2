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
    """Bytes that are `text` where they are UTF-8, and `base64` where they are not."""
    if isinstance(value.get("base64"), str):
        return base64.b64decode(value["base64"])
    text = value.get("text")
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else b""


@dataclass(frozen=True)
class CommandResult(ExecResult):
    """An `ExecResult` that also knows what ended the command."""

    #: `exited`, `signaled`, `killed`, `timeout`, `out_of_memory`, `sandbox_stopping` …
    cause: str = "exited"
    #: Under which its output is recorded in the sandbox's log.
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
        """Itself, if the command has ended well. Otherwise `SandboxTimeout` or `ExecutionError`."""
        if self.timed_out:
            length = "its time" if self.timeout is None else f"{self.timeout:g} s"
            raise SandboxTimeout(f"the command took longer than {length}", seconds=self.timeout)
        if not self.ok:
            raise ExecutionError(
                f"the command ended with code {self.exit_code} ({self.cause})",
                type=self.cause,
                traceback=self.stderr,
                exit_code=self.exit_code,
                stdout=self.stdout,
                stderr=self.stderr,
            )
        return self


def _bytes(text: str, encoded: Any) -> bytes:
    if isinstance(encoded, str):
        return base64.b64decode(encoded)
    return text.encode("utf-8", "surrogatepass")


def command_result(
    answer: Mapping[str, Any], stdout: str, stderr: str, *, truncated: bool
) -> CommandResult:
    """Of an answer that has the fields of an exit."""
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
    """Output that no longer exists: never silence."""

    channel: str
    start: int
    end: int


@dataclass(frozen=True)
class Exited:
    """The end of a command; nothing follows."""

    #: Without the outputs, which have come as events.
    result: CommandResult


StreamEvent = Union[Output, Gap, Exited]


@dataclass(frozen=True)
class Synced:
    """What has come back of a workspace when it was asked for. What came before is not named again."""

    written: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    #: Paths that both sides have changed, and where the sandbox's are on the host; `None` where the
    #: sandbox has removed them.
    conflicts: Mapping[str, str | None] = field(default_factory=dict)
    #: Paths that were not carried, and why.
    refused: Mapping[str, str] = field(default_factory=dict)
    #: How many paths are not named here.
    untold: int = 0


def synced(told: Mapping[str, Any]) -> Synced:
    return Synced(
        written=tuple(told.get("written", ())),
        deleted=tuple(told.get("deleted", ())),
        conflicts={one["path"]: one.get("kept_as") for one in told.get("conflicts", ())},
        refused={one["path"]: one.get("why", "") for one in told.get("refused", ())},
        untold=told.get("untold", 0),
    )


@dataclass(frozen=True)
class Display:
    """Something to look at, in as many forms as it offers."""

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
    """An exception that nothing in the code has caught."""

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
    #: What the code has shown.
    displays: tuple[Display, ...] = ()
    error: RunError | None = None
    exit_code: int | None = None
    truncated: bool = False
    #: Whether the next run finds the variables of this one.
    state_kept: bool = True
    #: What is gone of the runs before, and why, where the interpreter is another than theirs.
    lost: str | None = None
    #: In words, where the status alone does not tell it all.
    reason: str | None = None
    seconds: float = 0.0
    #: The deadline that it overran, in seconds.
    timeout: float | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether it came to its end by itself, and not by an exception."""
        return self.status == "ok" or (self.status == "exited" and not self.exit_code)

    @property
    def timed_out(self) -> bool:
        return self.status == "timeout"

    @property
    def result(self) -> str | None:
        """The value of the last expression as text."""
        return None if self.value is None else self.value.text

    def check(self) -> RunResult:
        """Itself, if the run has ended well. Otherwise `SandboxTimeout` or `ExecutionError`."""
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


def display(told: Mapping[str, Any]) -> Display:
    return Display(
        data={mime: content(form) for mime, form in told.get("data", {}).items()},
        role=str(told.get("role", "shown")),
        id=told.get("id"),
        metadata=told.get("metadata") or {},
    )


def run_error(told: Mapping[str, Any]) -> RunError:
    return RunError(
        type=str(told.get("type", "")),
        message=str(told.get("message", "")),
        traceback=str(told.get("traceback", "")),
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
    """One thing that happens in a run. Types that are not known are to be passed over."""

    #: `queued`, `started`, `stdout`, `stderr`, `display`, `error`, `input_request`, `finished` …
    type: str
    #: Of an output.
    data: bytes = b""
    display: Display | None = None
    error: RunError | None = None
    #: Of the last event, without what has come as events.
    result: RunResult | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


def run_event(told: Mapping[str, Any]) -> RunEvent:
    kind = str(told.get("type", ""))
    return RunEvent(
        type=kind,
        data=content(told),
        display=display(told["display"]) if "display" in told else None,
        error=run_error(told["error"]) if isinstance(told.get("error"), dict) else None,
        result=run_result(told) if kind == "finished" else None,
        raw=told,
    )


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as the server knows it."""

    #: Its own, and never another's, even when a name is used again.
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
    #: When it ends whatever it is doing then.
    expires_at_ms: int | None = None
    #: What was asked for and could not be had.
    warnings: tuple[str, ...] = ()
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_running(self) -> bool:
        return self.state == "running"


def sandbox_info(told: Mapping[str, Any]) -> SandboxInfo:
    return SandboxInfo(
        id=str(told.get("id", "")),
        namespace=str(told.get("namespace", "")),
        name=str(told.get("name", "")),
        state=str(told.get("state", "")),
        machine=str(told.get("machine", "")),
        image=told.get("image"),
        memory_mib=told.get("memory_mib"),
        cpus=told.get("cpus"),
        labels=told.get("labels") or {},
        created_at_ms=told.get("created_at_ms", 0),
        reason=told.get("reason"),
        expires_at_ms=told.get("expires_at_ms"),
        warnings=tuple(told.get("warnings") or ()),
        raw=told,
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
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


def metrics(told: Mapping[str, Any]) -> Metrics:
    return Metrics(
        at_ms=told.get("at_ms", 0),
        cpu_percent=told.get("cpu_percent"),
        memory_bytes=told.get("memory_bytes", 0),
        memory_bytes_max=told.get("memory_bytes_max"),
        disk_bytes=told.get("disk_bytes"),
        processes=told.get("processes", 0),
        uptime_seconds=told.get("uptime_ms", 0) / 1000,
        raw=told,
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
    #: What a symlink points to.
    target: str | None = None
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def is_directory(self) -> bool:
        return self.kind == "directory"


def file_info(told: Mapping[str, Any]) -> FileInfo:
    return FileInfo(
        name=str(told.get("name", "")),
        kind=str(told.get("kind", "")),
        size=told.get("bytes", 0),
        permissions=str(told.get("permissions", "")),
        modified_ms=told.get("modified_ms", 0),
        target=told.get("target"),
        raw=told,
    )


@dataclass(frozen=True)
class SnapshotInfo:
    """A machine that was written down, with all that ran in it."""

    namespace: str
    name: str
    sandbox: str
    machine: str
    size: int
    created_at_ms: int = 0
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)


def snapshot_info(told: Mapping[str, Any]) -> SnapshotInfo:
    return SnapshotInfo(
        namespace=str(told.get("namespace", "")),
        name=str(told.get("name", "")),
        sandbox=str(told.get("sandbox", "")),
        machine=str(told.get("machine", "")),
        size=told.get("bytes", 0),
        created_at_ms=told.get("created_at_ms", 0),
        raw=told,
    )
