"""The surface that agents program against, independent of the server: a sandbox's specification, a
command's result, and the two abstract classes. It knows nothing about Burrow's server.

Names, signatures and defaults here are a contract with other runtimes; what Burrow offers beyond it
is in `burrow.client` and what that leads to.
"""

from __future__ import annotations

import asyncio
import builtins
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .limits import TEARDOWN_SECONDS
from .waiting import in_time


@dataclass(frozen=True)
class ExecResult:
    """A command's output, and how it ended."""

    stdout: str
    stderr: str = ""
    exit_code: int = 0
    #: True exactly when a limit cut output off.
    truncated: bool = False

    @property
    def output(self) -> str:
        """Both outputs, stdout first."""
        return self.stdout + (self.stderr or "")

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


class _UsualText(str):
    """A default that nobody has given."""


class _UsualNumber(int):
    """A default that nobody has given."""


class _UsualNames(tuple[str, ...]):
    """A default that nobody has given."""


def is_given(value: Any) -> bool:
    """Whether a field of a specification was set explicitly, even to its default."""
    return not isinstance(value, (_UsualText, _UsualNumber, _UsualNames))


#: The default image, in runtimes that have no default of their own.
USUAL_IMAGE: str = _UsualText("python:3.11-slim")


@dataclass(frozen=True)
class SandboxSpec:
    """The specification of a sandbox. A server that has its own defaults is sent only the fields that
    were given."""

    name: str
    image: str = USUAL_IMAGE
    memory_mib: int = _UsualNumber(512)
    cpus: int = _UsualNumber(1)
    #: What is mounted at `/workspace`, if anything.
    workspace: str | None = None
    #: Logical names; the values stay at the server and are never seen here.
    secrets: tuple[str, ...] = ()
    #: Host names that may be reached. An empty list allows none.
    egress: tuple[str, ...] = _UsualNames()
    #: For lists, audit and billing.
    labels: dict[str, str] = field(default_factory=dict)


class SandboxHandle(ABC):
    """A sandbox that runs."""

    name: str

    @abstractmethod
    async def exec(
        self,
        cmd: str,
        args: Sequence[str] | None = None,
        *,
        timeout: float | None = None,
    ) -> ExecResult:
        """Run a program; no shell sees its arguments."""

    @abstractmethod
    async def shell(self, script: str, *, timeout: float | None = None) -> ExecResult:
        """Run a script."""

    @abstractmethod
    async def stop(self) -> None:
        """Stop the sandbox gracefully. Does nothing if it has ended."""

    @abstractmethod
    async def kill(self) -> None:
        """Kill the sandbox. Does nothing if it has ended."""

    @abstractmethod
    async def logs(self, *, tail: int | None = None) -> str:
        """Return what its commands have written, or the last lines of it, even after its end."""


class SandboxClient(ABC):
    """Makes, finds and removes sandboxes."""

    @abstractmethod
    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Make a sandbox and start it."""

    @abstractmethod
    async def get(self, name: str) -> SandboxHandle:
        """Return the sandbox with this name."""

    @abstractmethod
    async def list(self) -> list[str]:
        """Return the names of all sandboxes."""

    @abstractmethod
    async def remove(self, name: str) -> None:
        """Remove a sandbox, and stop it first if it runs."""

    async def run_python(self, code: str, *, image: str = USUAL_IMAGE, **kwargs: Any) -> ExecResult:
        """Run Python code in a new sandbox, which is removed afterwards.

        `kwargs` are further fields of `SandboxSpec`.
        """
        spec = SandboxSpec(name=f"py-{uuid.uuid4().hex[:8]}", image=image, **kwargs)
        sandbox = await self.create(spec)
        try:
            return await sandbox.exec("python", ["-c", code])
        finally:
            await torn_down(self, sandbox)

    async def run_shell(
        self,
        script: str,
        *,
        image: str = USUAL_IMAGE,
        **kwargs: Any,
    ) -> ExecResult:
        """Run a script in a new sandbox, which is removed afterwards.

        `kwargs` are further fields of `SandboxSpec`.
        """
        spec = SandboxSpec(name=f"sh-{uuid.uuid4().hex[:8]}", image=image, **kwargs)
        sandbox = await self.create(spec)
        try:
            return await sandbox.shell(script)
        finally:
            await torn_down(self, sandbox)


async def torn_down(client: SandboxClient, sandbox: SandboxHandle) -> None:
    """Stops and removes a sandbox, even if its caller is cancelled. A failure here must not hide the
    result of the sandbox's use."""

    async def tear_down() -> None:
        for step in (sandbox.stop, lambda: client.remove(sandbox.name)):
            try:
                await step()
            except Exception:  # noqa: BLE001, S110 (said above)
                pass

    await regardless(tear_down(), TEARDOWN_SECONDS)


async def regardless(work: Awaitable[Any], seconds: float) -> None:
    """Runs something to its end although the caller is being cancelled: it finishes, or its time is
    over, before the cancellation continues."""
    task = asyncio.ensure_future(in_time(work, seconds))
    cancelled: builtins.list[asyncio.CancelledError] = []
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled.append(error)
    if not task.cancelled():
        # Retrieved, so that asyncio does not report it as never retrieved.
        task.exception()
    if cancelled:
        raise cancelled[-1]
