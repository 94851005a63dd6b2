"""The surface that agents program against, whoever serves it: what a sandbox is asked for with, what
a command has come to, and the two abstract classes. It knows nothing of Burrow's server.

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
    """What a command has said, and how it ended."""

    stdout: str
    stderr: str = ""
    exit_code: int = 0
    #: True exactly when a bound has cut output off.
    truncated: bool = False

    @property
    def output(self) -> str:
        """Both outputs, stdout first."""
        return self.stdout + (self.stderr or "")

    @property
    def ok(self) -> bool:
        return self.exit_code == 0


@dataclass(frozen=True)
class SandboxSpec:
    """What a sandbox is asked for with."""

    name: str
    image: str = "python:3.11-slim"
    memory_mib: int = 512
    cpus: int = 1
    #: What is mounted at `/workspace`, if anything.
    workspace: str | None = None
    #: Logical names; the values are the server's and are never seen here.
    secrets: tuple[str, ...] = ()
    #: Host names that may be reached. None of them means that nothing may.
    egress: tuple[str, ...] = ()
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
        """End it in order. One that has ended stays so."""

    @abstractmethod
    async def kill(self) -> None:
        """End it at once. One that has ended stays so."""

    @abstractmethod
    async def logs(self, *, tail: int | None = None) -> str:
        """What its commands have written: all of it, or the last lines. Also when it has ended."""


class SandboxClient(ABC):
    """Makes, finds and removes sandboxes."""

    @abstractmethod
    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Make a sandbox and start it."""

    @abstractmethod
    async def get(self, name: str) -> SandboxHandle:
        """The sandbox of that name."""

    @abstractmethod
    async def list(self) -> list[str]:
        """The names of those that there are."""

    @abstractmethod
    async def remove(self, name: str) -> None:
        """Remove a sandbox, and end it if it runs."""

    async def run_python(
        self, code: str, *, image: str = "python:3.11-slim", **kwargs: Any
    ) -> ExecResult:
        """Run a piece of Python in a sandbox of its own, which is gone afterwards.

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
        image: str = "python:3.11-slim",
        **kwargs: Any,
    ) -> ExecResult:
        """Run a script in a sandbox of its own, which is gone afterwards.

        `kwargs` are further fields of `SandboxSpec`.
        """
        spec = SandboxSpec(name=f"sh-{uuid.uuid4().hex[:8]}", image=image, **kwargs)
        sandbox = await self.create(spec)
        try:
            return await sandbox.shell(script)
        finally:
            await torn_down(self, sandbox)


async def torn_down(client: SandboxClient, sandbox: SandboxHandle) -> None:
    """Ends and removes a sandbox, whatever becomes of who waits for it. That it fails is not to hide
    what the sandbox was used for."""

    async def tear_down() -> None:
        for step in (sandbox.stop, lambda: client.remove(sandbox.name)):
            try:
                await step()
            except Exception:  # noqa: BLE001, S110 (said above)
                pass

    await regardless(tear_down(), TEARDOWN_SECONDS)


async def regardless(work: Awaitable[Any], seconds: float) -> None:
    """Carries out what must be done although its caller is being cancelled: it is finished, or out of
    time, before the cancellation goes on."""
    task = asyncio.ensure_future(in_time(work, seconds))
    cancelled: builtins.list[asyncio.CancelledError] = []
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled.append(error)
    if not task.cancelled():
        # Looked at, so that nobody reports it as forgotten.
        task.exception()
    if cancelled:
        raise cancelled[-1]
