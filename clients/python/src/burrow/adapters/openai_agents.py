"""A sandbox client of the OpenAI Agents SDK: the workspace and the commands of a `SandboxAgent` are in a
sandbox."""

from __future__ import annotations

import io
import tempfile
import uuid
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Literal, cast
from urllib.parse import urlsplit

from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    MountConfigError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
    WorkspaceWriteTypeError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.bounded_read import collect_bounded
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.runtime_helpers import (
    RESOLVE_WORKSPACE_PATH_HELPER,
    RuntimeHelperScript,
)
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, ExposedPortEndpoint, User

from ..client import BurrowClient, Sandbox
from ..errors import BurrowError, NotFound, SpawnFailed
from ..limits import CHUNK_BYTES, EXEC_OUTPUT_BYTES_MAX
from .options import SandboxOptions, spawn_exit_code

#: The user of the command that is being run.
_USER: ContextVar[str | None] = ContextVar("user", default=None)


class BurrowSandboxClientOptions(BaseSandboxClientOptions):
    type: Literal["burrow"] = "burrow"
    #: What the sandbox is made of.
    sandbox: SandboxOptions = SandboxOptions()
    exposed_ports: tuple[int, ...] = ()
    #: What the end of a session does with the sandbox. One that is kept is found by `resume`; its
    #: `ttl` or `idle_ttl` ends it.
    on_exit: Literal["remove", "keep"] = "remove"


class BurrowSandboxSessionState(SandboxSessionState):
    type: Literal["burrow"] = "burrow"
    name: str
    #: Names are used again; this is not.
    sandbox_id: str
    options: BurrowSandboxClientOptions


class BurrowSandboxSession(BaseSandboxSession):
    """The workspace of an agent, in one sandbox."""

    state: BurrowSandboxSessionState

    def __init__(self, state: BurrowSandboxSessionState, sandbox: Sandbox) -> None:
        self.state = state
        #: The sandbox itself, for what the SDK has no words for.
        self.sandbox = sandbox

    async def _prepare_backend_workspace(self) -> None:
        root = self._workspace_root_path()
        try:
            await self.sandbox.files.mkdir(root.as_posix())
        except BurrowError as error:
            raise WorkspaceStartError(path=root, cause=error, message=str(error)) from error

    async def _shutdown_backend(self) -> None:
        if self.state.options.on_exit == "remove":
            await self.sandbox.__aexit__()

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        # Links in the sandbox may lead out of the workspace.
        return await self._validate_remote_path_access(path, for_write=for_write)

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    async def exec(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: str | User | None = None,
    ) -> ExecResult:
        # The SDK would use sudo, which the sandbox may not have. The server knows users.
        token = _USER.set(user.name if isinstance(user, User) else user)
        try:
            return await super().exec(*command, timeout=timeout, shell=shell)
        finally:
            _USER.reset(token)

    async def _exec_internal(
        self, *command: str | Path, timeout: float | None = None
    ) -> ExecResult:
        words = [str(word) for word in command]
        try:
            result = await self.sandbox.exec(
                words[0],
                words[1:],
                cwd=self._workspace_root_path().as_posix(),
                env=await self.state.manifest.environment.resolve(),
                user=_USER.get(),
                timeout=timeout,
                output_bytes_max=EXEC_OUTPUT_BYTES_MAX,
            )
        except SpawnFailed as error:
            return ExecResult(
                stdout=b"", stderr=f"{error}\n".encode(), exit_code=spawn_exit_code(error)
            )
        except BurrowError as error:
            raise ExecTransportError(command=command, cause=error, message=str(error)) from error
        if result.timed_out:
            raise ExecTimeoutError(command=command, timeout_s=timeout)
        if result.truncated:
            message = f"the command has written more than {EXEC_OUTPUT_BYTES_MAX} bytes"
            raise ExecTransportError(command=command, message=message, retryable=False)
        return ExecResult(
            stdout=result.stdout_bytes, stderr=result.stderr_bytes, exit_code=result.exit_code
        )

    async def read(self, path: Path | str, *, user: str | User | None = None) -> io.IOBase:
        checked = await (
            self._validate_path_access(path)
            if user is None
            else self._check_read_with_exec(path, user=user)
        )
        try:
            return io.BytesIO(await self.sandbox.files.read(checked.as_posix()))
        except BurrowError as error:
            raise _read_error(path, error) from error

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        checked = await self._validate_path_access(path)
        stream = self.sandbox.files.read_stream(checked.as_posix())
        try:
            return await collect_bounded(stream, max_bytes)
        except BurrowError as error:
            raise _read_error(path, error) from error
        finally:
            await stream.aclose()

    async def write(
        self, path: Path | str, data: io.IOBase, *, user: str | User | None = None
    ) -> None:
        checked = await (
            self._validate_path_access(path, for_write=True)
            if user is None
            else self._check_write_with_exec(path, user=user)
        )
        await self._write(checked, data)

    async def _write(self, path: Path, data: io.IOBase) -> None:
        payload = data.read()
        if isinstance(payload, str):
            payload = payload.encode()
        if not isinstance(payload, (bytes, bytearray)):
            raise WorkspaceWriteTypeError(path=path, actual_type=type(payload).__name__)
        try:
            await self.sandbox.files.write(path.as_posix(), bytes(payload))
        except BurrowError as error:
            raise WorkspaceArchiveWriteError(path=path, cause=error, message=str(error)) from error

    async def running(self) -> bool:
        try:
            return (await self.sandbox.info()).is_running
        except NotFound:
            return False

    async def persist_workspace(self) -> io.IOBase:
        skipped = self._persist_workspace_skip_relpaths()
        left_out = [f"--exclude=./{path.as_posix()}" for path in sorted(skipped)]
        file = tempfile.TemporaryFile()  # noqa: SIM115 (handed on)
        try:
            async with self._archive() as archive:
                await self._tar("-cf", archive, *left_out, ".")
                async for piece in self.sandbox.files.read_stream(archive):
                    file.write(piece)
        except BaseException as error:
            file.close()
            if isinstance(error, BurrowError):
                raise _read_error(self._workspace_root_path(), error) from error
            raise
        file.seek(0)
        return cast(io.IOBase, file)

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        try:
            await self.sandbox.files.mkdir(root.as_posix())
            async with self._archive() as archive:
                await self.sandbox.files.write(archive, _pieces(data))
                await self._tar("-xf", archive)
        except BurrowError as error:
            raise WorkspaceArchiveWriteError(path=root, cause=error, message=str(error)) from error

    @asynccontextmanager
    async def _archive(self) -> AsyncGenerator[str, None]:
        """A path in the sandbox, outside of the workspace."""
        path = f"/tmp/burrow-{uuid.uuid4().hex}.tar"
        try:
            yield path
        finally:
            await self.sandbox.exec("rm", ["-f", path])

    async def _tar(self, *arguments: str) -> None:
        root = self._workspace_root_path().as_posix()
        (await self.sandbox.exec("tar", ["-C", root, *arguments])).check()

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        try:
            link = urlsplit(await self.sandbox.preview_url(port))
        except BurrowError as error:
            raise ExposedPortUnavailableError(
                port=port,
                exposed_ports=self.state.exposed_ports,
                reason="backend_unavailable",
                cause=error,
            ) from error
        tls = link.scheme == "https"
        number = link.port or (443 if tls else 80)
        return ExposedPortEndpoint(host=link.hostname or "", port=number, tls=tls, query=link.query)


class BurrowSandboxClient(BaseSandboxClient[BurrowSandboxClientOptions]):
    """Makes the sandboxes of agents: `SandboxRunConfig(client=BurrowSandboxClient())`. The server and the
    key are those of the environment, if no client is given."""

    backend_id = "burrow"
    supports_default_options = True

    def __init__(
        self,
        client: BurrowClient | None = None,
        *,
        instrumentation: Instrumentation | None = None,
    ) -> None:
        self._client = client or BurrowClient()
        self._instrumentation = instrumentation or Instrumentation()

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: BurrowSandboxClientOptions | None = None,
    ) -> SandboxSession:
        manifest = self._validate_manifest_for_create(manifest or Manifest())
        if manifest.mount_targets():
            raise MountConfigError(
                message="a sandbox cannot mount buckets, for it has no FUSE: share the bucket as a"
                " workspace of the server, and give its name in SandboxOptions(workspace=…)"
            )
        options = options or BurrowSandboxClientOptions()
        session_id = uuid.uuid4()
        sandbox = await self._made(options)
        state = BurrowSandboxSessionState(
            session_id=session_id,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            name=sandbox.name,
            sandbox_id=sandbox.id,
            options=options,
            exposed_ports=options.exposed_ports,
        )
        return self._session(state, sandbox)

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner
        if not isinstance(inner, BurrowSandboxSession):
            raise TypeError(f"a session of {type(inner).__name__} is not this client's")
        await inner.sandbox.__aexit__()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, BurrowSandboxSessionState):
            raise TypeError(f"a {type(state).__name__} is not this client's")
        state.assert_path_grants_rebound()
        sandbox = await self._found(state)
        is_found = sandbox is not None
        if sandbox is None:
            sandbox = await self._made(state.options)
            state.name, state.sandbox_id = sandbox.name, sandbox.id
            state.workspace_root_ready = False
        session = self._session(state, sandbox)
        session._inner._set_start_state_preserved(is_found)
        return session

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        return self._deserialize_session_state_payload(payload, BurrowSandboxSessionState)

    async def close(self) -> None:
        """Closes the connections. Sandboxes that are kept stay."""
        await self._client.close()

    async def _made(self, options: BurrowSandboxClientOptions) -> Sandbox:
        return await options.sandbox.create(self._client, labels={"openai-agents": "session"})

    async def _found(self, state: BurrowSandboxSessionState) -> Sandbox | None:
        """The sandbox of a session, if it lives."""
        try:
            sandbox = await self._client.get(state.name)
            if sandbox.id != state.sandbox_id:
                return None
            found = await sandbox.info()
            if found.state == "paused":
                await sandbox.resume()
        except NotFound:
            return None
        return sandbox if found.state in ("running", "paused") else None

    def _session(self, state: BurrowSandboxSessionState, sandbox: Sandbox) -> SandboxSession:
        inner = BurrowSandboxSession(state, sandbox)
        return self._wrap_session(inner, instrumentation=self._instrumentation)


def _read_error(path: Path | str, error: BurrowError) -> Exception:
    if isinstance(error, NotFound):
        return WorkspaceReadNotFoundError(path=Path(path), cause=error)
    return WorkspaceArchiveReadError(path=Path(path), cause=error, context={"reason": str(error)})


async def _pieces(data: io.IOBase) -> AsyncIterable[bytes]:
    while piece := data.read(CHUNK_BYTES):
        yield piece
