"""The exceptions, all with one base. The code of a server's refusal selects the class; an unknown
code becomes an `ApiError` that carries it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class BurrowError(Exception):
    """The base of all exceptions of this package."""

    def __init__(
        self,
        message: str,
        *,
        code: str | None = None,
        status: int | None = None,
        hint: str | None = None,
        details: Mapping[str, Any] | None = None,
        request_id: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        #: The server's word for the kind of refusal; codes are only ever added.
        self.code = code
        #: The HTTP status.
        self.status = status
        #: What to do about it.
        self.hint = hint
        #: Facts for programs; they depend on the code.
        self.details: dict[str, Any] = dict(details or {})
        #: The id of the call in the server's log.
        self.request_id = request_id

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ApiError(BurrowError):
    """The server refused a call for a reason that has no class of its own."""


class InvalidRequest(ApiError, ValueError):
    """The call is invalid; repeating it will not help."""


class PermissionDenied(ApiError, PermissionError):
    """The key does not allow this."""


class Unauthenticated(PermissionDenied):
    """No key was given, or the key is no longer valid."""


class NotFound(ApiError, LookupError):
    """There is no such sandbox, file, context, session, snapshot or notebook."""


class Gone(NotFound):
    """It existed, and no longer does."""


class Conflict(ApiError):
    """It exists already, or is not in the state that the call needs: `reason` says which."""

    @property
    def reason(self) -> str | None:
        reason = self.details.get("reason")
        return reason if isinstance(reason, str) else None


class NameTaken(Conflict):
    """The name is in use."""


class NotRunning(Conflict):
    """The sandbox is stopped or paused."""


class TooLarge(ApiError):
    """The request or its answer exceeds a limit."""


class LimitReached(ApiError):
    """A limit is reached. `used` and `allowed` are set if the server reports them."""

    @property
    def used(self) -> float | None:
        return _number(self.details, "used")

    @property
    def allowed(self) -> float | None:
        return _number(self.details, "allowed", "limit")

    @property
    def what(self) -> str | None:
        """The resource that is used up."""
        for name in ("what", "cap", "resource", "reason"):
            if isinstance(self.details.get(name), str):
                return str(self.details[name])
        return None


class InsufficientStorage(ApiError, OSError):
    """The server's disk is full."""


class CapExceeded(LimitReached):
    """It would exceed a cap of the namespace or the key. `scope` and `name` say which."""

    @property
    def scope(self) -> str | None:
        scope = self.details.get("scope")
        return scope if isinstance(scope, str) else None

    @property
    def name(self) -> str | None:
        name = self.details.get("name")
        return name if isinstance(name, str) else None


class RateLimited(LimitReached):
    """Too many calls in too short a time, even after retries."""


class Unsupported(ApiError):
    """The machine, the host or the image cannot do this. It is refused, never ignored."""

    @property
    def field(self) -> str | None:
        """The part of the request that is not supported."""
        field = self.details.get("field")
        return field if isinstance(field, str) else None


class UnknownSecret(ApiError, LookupError):
    """The namespace may use no secret of this name."""

    @property
    def secret(self) -> str | None:
        secret = self.details.get("secret")
        return secret if isinstance(secret, str) else None


class UnknownWorkspace(ApiError, LookupError):
    """The namespace may use no workspace of this name."""

    @property
    def workspace(self) -> str | None:
        workspace = self.details.get("workspace")
        return workspace if isinstance(workspace, str) else None


class SpawnFailed(ApiError):
    """The program could not be started: it is missing or not executable."""

    @property
    def stage(self) -> str | None:
        """The step that failed."""
        stage = self.details.get("stage")
        return stage if isinstance(stage, str) else None

    @property
    def errno(self) -> int | None:
        errno = self.details.get("errno")
        return errno if isinstance(errno, int) else None


class FileError(ApiError, OSError):
    """The kernel refused an operation on a file."""


class ServerError(ApiError):
    """An internal error of the server."""


class SandboxUnavailable(BurrowError, RuntimeError):
    """No sandbox is available: nothing is attached, the server is full or shutting down, the sandbox
    did not start, or its agent does not answer."""


class StartFailed(SandboxUnavailable, ApiError):
    """The sandbox did not start."""


class ConnectionFailed(SandboxUnavailable, ConnectionError):
    """The server could not be reached, or the connection to it was cut."""


class SandboxTimeout(BurrowError, TimeoutError):
    """Something took longer than its timeout."""

    def __init__(self, message: str, *, seconds: float | None = None, **reply: Any) -> None:
        super().__init__(message, **reply)
        #: The timeout, if known.
        self.seconds = seconds


class ExecutionError(BurrowError):
    """Code or a command failed, and the caller asked for an exception."""

    def __init__(
        self,
        message: str,
        *,
        type: str,
        traceback: str = "",
        exit_code: int | None = None,
        stdout: str = "",
        stderr: str = "",
    ) -> None:
        super().__init__(message)
        #: `ZeroDivisionError` and the like; for a command, what ended it.
        self.type = type
        #: As the language's interpreter prints it; for a command, its stderr.
        self.traceback = traceback
        self.exit_code = exit_code
        self.stdout = stdout
        self.stderr = stderr


def _number(details: Mapping[str, Any], *names: str) -> float | None:
    for name in names:
        value = details.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return value
    return None


_BY_CODE: dict[str, type[BurrowError]] = {
    "invalid": InvalidRequest,
    "unauthenticated": Unauthenticated,
    "forbidden": PermissionDenied,
    "misdirected": PermissionDenied,
    "not_found": NotFound,
    "method_not_allowed": ApiError,
    "not_acceptable": ApiError,
    "conflict": Conflict,
    "idempotency_mismatch": Conflict,
    "gone": Gone,
    "too_large": TooLarge,
    "unsupported_media_type": ApiError,
    "range_not_satisfiable": InvalidRequest,
    "unsupported": Unsupported,
    "unknown_secret": UnknownSecret,
    "secret_failed": StartFailed,
    "pull_failed": StartFailed,
    "unknown_workspace": UnknownWorkspace,
    "workspace_failed": StartFailed,
    "spawn_failed": SpawnFailed,
    "app_failed": ApiError,
    "app_not_ready": ApiError,
    "module_missing": ApiError,
    "io": FileError,
    "rate_limited": RateLimited,
    "limit_reached": LimitReached,
    "cap_exceeded": CapExceeded,
    "insufficient_storage": InsufficientStorage,
    "deadline_exceeded": SandboxTimeout,
    "request_timeout": SandboxTimeout,
    "start_failed": StartFailed,
    "guest_unreachable": SandboxUnavailable,
    "port_unreachable": SandboxUnavailable,
    "unavailable": SandboxUnavailable,
    "internal": ServerError,
}

_BY_REASON: dict[str, type[BurrowError]] = {
    "name_taken": NameTaken,
    "not_running": NotRunning,
    "paused": NotRunning,
}

#: For codes that are newer than this package, and for answers from something other than the server.
_BY_STATUS: dict[int, type[BurrowError]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    410: Gone,
    413: TooLarge,
    429: LimitReached,
    502: SandboxUnavailable,
    503: SandboxUnavailable,
    504: SandboxTimeout,
    507: InsufficientStorage,
}


def from_problem(
    problem: Mapping[str, Any],
    *,
    status: int | None = None,
    request_id: str | None = None,
) -> BurrowError:
    """Builds the exception for a refusal. Never fails, whatever the server sent."""
    code = problem.get("code")
    message = problem.get("message")
    hint = problem.get("hint")
    details = problem.get("details")
    known = details if isinstance(details, dict) else {}
    kind = _BY_CODE.get(code) if isinstance(code, str) else None
    if kind is None:
        fallback = ServerError if status is not None and status >= 500 else ApiError
        kind = _BY_STATUS.get(status or 0, fallback)
    if kind is Conflict and isinstance(known.get("reason"), str):
        kind = _BY_REASON.get(known["reason"], Conflict)
    return kind(
        message if isinstance(message, str) else f"the server answered with {status}",
        code=code if isinstance(code, str) else None,
        status=status,
        hint=hint if isinstance(hint, str) else None,
        details=known,
        request_id=request_id,
    )
