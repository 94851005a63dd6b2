"""A runtime of verifiers: the programs of a rollout run in a sandbox. It is lent to runs, as
`Agent.run(task, runtime=…)`, because verifiers makes runtimes of its own kinds alone by itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

from pydantic_config import BaseConfig
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes.base import (
    SERVICE_PORT,
    BaseRuntimeInfo,
    ProgramResult,
    Runtime,
    RuntimeProcess,
    register,
)

from ..client import BurrowClient, Sandbox
from ..commands import Stream
from ..errors import BurrowError, NotFound, SpawnFailed
from ..results import Output
from ..sync import SandboxClient
from .options import SandboxOptions, spawn_exit_code

# Pieces of a process's output that wait for its reader; a slow reader slows the process down.
PIECES_WAITING_MAX = 256


class BurrowConfig(BaseConfig):
    """What a sandbox is made of. Its egress is that of its options for the whole of its life; a task with a
    network policy of its own is refused by verifiers."""

    type: Literal["burrow"] = "burrow"
    url: str | None = None
    """The server; by default that of the environment, BURROW_URL."""
    image: str | None = None
    workdir: str = "/app"
    """Where programs begin, and what paths of files are relative to."""
    sandbox: SandboxOptions = SandboxOptions()
    """What else is asked of it: memory_mib, cpus, egress, machine, ttl, …"""


class BurrowRuntimeInfo(BurrowConfig, BaseRuntimeInfo):
    pass


class BurrowRuntime(Runtime):
    """A sandbox from `start` to `stop`."""

    is_local = False
    supports_user = True

    def __init__(self, config: BurrowConfig | None = None, name: str | None = None) -> None:
        super().__init__(name)
        self.config = config or BurrowConfig()
        self.info = BurrowRuntimeInfo(**self.config.model_dump())
        self._client: BurrowClient | None = None
        self._sandbox: Sandbox | None = None
        self._background: list[Stream] = []
        register(self)

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox itself, for what verifiers has no words for."""
        if self._sandbox is None:
            raise SandboxError(f"the runtime {self.name!r} is not started")
        return self._sandbox

    async def start(self) -> None:
        self._client = BurrowClient(self.config.url, run_timeout=None)
        options = self.config.sandbox
        if self.config.image is not None:
            options = options.model_copy(update={"image": self.config.image})
        try:
            self._sandbox = await options.create(self._client, labels={"verifiers": self.name[:63]})
            await self._sandbox.files.mkdir(self.config.workdir)
        except BurrowError as error:
            raise SandboxError(f"no sandbox could be made: {error}") from error
        self.info.id = self._sandbox.name

    async def teardown(self) -> None:
        client, sandbox = self._client, self._sandbox
        for stream in self._background:
            await stream.close()
        if sandbox is not None:
            await sandbox.__aexit__()
        self._sandbox = self._client = None
        if client is not None:
            await client.close()

    def cleanup(self) -> None:
        """At the end of the interpreter, where no loop is left."""
        sandbox, self._sandbox = self._sandbox, None
        if sandbox is not None:
            with SandboxClient(self.config.url) as client:
                try:
                    client.remove(sandbox.name)
                except NotFound:
                    pass

    def _how(self, env: dict[str, str]) -> dict[str, Any]:
        return {"env": self.process_env(env), "cwd": self.config.workdir, "user": self.user}

    async def run(self, argv: list[str], env: dict[str, str]) -> ProgramResult:
        try:
            result = await self.sandbox.exec(argv[0], argv[1:], **self._how(env))
        except SpawnFailed as error:
            return ProgramResult(spawn_exit_code(error), "", str(error))
        except BurrowError as error:
            raise SandboxError(f"{argv[0]}: {error}") from error
        return ProgramResult(result.exit_code, result.stdout, result.stderr)

    async def open_process(self, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
        return await _started(self.sandbox.stream(argv[0], argv[1:], stdin=True, **self._how(env)))

    async def run_background(self, argv: list[str], env: dict[str, str], log: str) -> None:
        script = 'log=$1; shift; exec "$@" >"$log" 2>&1'
        stream = self.sandbox.stream("sh", ["-c", script, "sh", log, *argv], **self._how(env))
        try:
            self._background.append(await stream.start())
        except BurrowError as error:
            raise SandboxError(f"{argv[0]}: {error}") from error

    def _path(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.config.workdir}/{path}"

    async def _read(self, path: str, max_bytes: int | None = None) -> bytes:
        pieces: list[bytes] = []
        length = 0
        stream = self.sandbox.files.read_stream(self._path(path))
        try:
            async for piece in stream:
                pieces.append(piece)
                length += len(piece)
                if max_bytes is not None and length >= max_bytes:
                    break
        except BurrowError as error:
            raise SandboxError(f"read {path!r}: {error}") from error
        finally:
            await stream.aclose()
        return b"".join(pieces)[:max_bytes]

    async def write(self, path: str, data: bytes) -> None:
        try:
            await self.sandbox.files.write(self._path(path), data)
            if self.user is not None:
                result = await self.with_user(None).run(["chown", self.user, self._path(path)], {})
                if result.exit_code != 0:
                    raise SandboxError(f"write {path!r}: {result.stderr.strip()}")
        except BurrowError as error:
            raise SandboxError(f"write {path!r}: {error}") from error

    @property
    def published_port(self) -> int | None:
        return SERVICE_PORT

    async def expose(self, port: int) -> str:
        return await self.sandbox.preview_url(port)


@asynccontextmanager
async def provision(
    config: BurrowConfig | None = None, env: dict[str, str] | None = None
) -> AsyncIterator[BurrowRuntime]:
    """A started runtime that is stopped at the end, as `provision_runtime` has it of verifiers' own."""
    runtime = BurrowRuntime(config)
    runtime.env = dict(env or {})
    try:
        await runtime.start()
        yield runtime
    finally:
        await runtime.stop()


async def _started(stream: Stream) -> RuntimeProcess:
    try:
        await stream.start()
    except BurrowError as error:
        raise SandboxError(str(error)) from error
    return _Process(stream)


class _Process(RuntimeProcess):
    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._queues: dict[str, asyncio.Queue[bytes | None]] = {
            name: asyncio.Queue(PIECES_WAITING_MAX) for name in ("stdout", "stderr")
        }
        self.stdout, self.stderr = (_pieces(queue) for queue in self._queues.values())
        self._pump = asyncio.ensure_future(self._follow())

    async def _follow(self) -> int:
        try:
            async for event in self._stream:
                if isinstance(event, Output):
                    await self._queues[event.channel].put(event.data)
            return self._stream.result.exit_code if self._stream.result is not None else 1
        except BurrowError as error:
            raise SandboxError(str(error)) from error
        finally:
            for queue in self._queues.values():
                await queue.put(None)

    async def write(self, data: bytes) -> None:
        try:
            await self._stream.write(data)
        except BurrowError as error:
            raise SandboxError(str(error)) from error

    async def wait(self) -> int:
        return await asyncio.shield(self._pump)

    async def poll(self) -> int | None:
        return self._pump.result() if self._pump.done() else None

    async def terminate(self) -> None:
        await self._end(self._stream.signal("TERM"))

    async def kill(self) -> None:
        await self._end(self._stream.kill())

    async def _end(self, asked: Any) -> None:
        try:
            await asked
        except NotFound:
            # It has ended.
            pass


async def _pieces(queue: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
    while (piece := await queue.get()) is not None:
        yield piece
