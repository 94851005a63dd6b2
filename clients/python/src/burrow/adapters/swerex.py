"""A deployment of SWE-ReX: the shells of a coding agent are contexts of a sandbox."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path
from typing import Any

from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    DeploymentNotStartedError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
    SessionNotInitializedError,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    Action,
    BashInterruptAction,
    BashObservation,
    CloseBashSessionResponse,
    CloseResponse,
    CloseSessionRequest,
    CloseSessionResponse,
    Command,
    CommandResponse,
    CreateBashSessionResponse,
    CreateSessionRequest,
    CreateSessionResponse,
    IsAliveResponse,
    Observation,
    ReadFileRequest,
    ReadFileResponse,
    UploadRequest,
    UploadResponse,
    WriteFileRequest,
    WriteFileResponse,
)
from swerex.utils.log import get_logger

from ..client import BurrowClient, Sandbox
from ..contexts import Context
from ..errors import BurrowError, NotFound
from ..results import RunResult
from .options import SandboxOptions, os_error


class BurrowDeployment(AbstractDeployment):
    """A sandbox from `start` to `stop`. The server and the key are those of the environment, if no client
    is given."""

    def __init__(
        self,
        options: SandboxOptions | None = None,
        *,
        client: BurrowClient | None = None,
        logger: logging.Logger | None = None,
    ) -> None:
        self._options = options or SandboxOptions()
        self._given = client
        self._client: BurrowClient | None = None
        self._runtime: BurrowRuntime | None = None
        self._hooks = CombinedDeploymentHook()
        self.logger = logger or get_logger("rex-deploy")

    def add_hook(self, hook: DeploymentHook) -> None:
        self._hooks.add_hook(hook)

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        return await self.runtime.is_alive(timeout=timeout)

    async def start(self) -> None:
        if self._runtime is not None:
            return
        self._hooks.on_custom_step("Starting sandbox")
        self._client = self._given or BurrowClient()
        sandbox = await self._options.create(self._client, labels={"swerex": "deployment"})
        self._runtime = BurrowRuntime(sandbox, logger=self.logger)

    async def stop(self) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.sandbox.__aexit__()
        client, self._client = self._client, None
        if client is not None and client is not self._given:
            await client.close()

    @property
    def runtime(self) -> BurrowRuntime:
        if self._runtime is None:
            raise DeploymentNotStartedError
        return self._runtime


class BurrowRuntime(AbstractRuntime):
    """The shells, commands and files of one sandbox."""

    def __init__(self, sandbox: Sandbox, *, logger: logging.Logger | None = None) -> None:
        #: The sandbox itself, for what SWE-ReX has no words for.
        self.sandbox = sandbox
        self._sessions: dict[str, Context] = {}
        self.logger = logger or get_logger("rex-runtime")

    async def is_alive(self, *, timeout: float | None = None) -> IsAliveResponse:
        try:
            info = await self.sandbox.info()
        except BurrowError as error:
            return IsAliveResponse(is_alive=False, message=str(error))
        return IsAliveResponse(is_alive=info.is_running, message=info.reason or "")

    async def create_session(self, request: CreateSessionRequest) -> CreateSessionResponse:
        if request.session in self._sessions:
            raise SessionExistsError(f"session {request.session} already exists")
        context = self.sandbox.context(f"swerex-{uuid.uuid4().hex}", language="bash")
        code = "\n".join(f"source {path}" for path in request.startup_source)
        output, _ = await _ran(context, code, request.startup_timeout if code else None)
        self._sessions[request.session] = context
        return CreateBashSessionResponse(output=output)

    async def run_in_session(self, action: Action) -> Observation:
        context = self._session(action.session)
        if isinstance(action, BashInterruptAction):
            await context.interrupt()
            return BashObservation(exit_code=0)
        if action.is_interactive_command or action.is_interactive_quit or action.expect:
            raise NotImplementedError(
                "a session of Burrow has no terminal: give programs their input by a pipe or a file"
            )
        await self._checked(action.command)
        output, run = await _ran(context, action.command, action.timeout)
        code = run.exit_code or 0
        if action.check == "raise" and code != 0:
            raise NonZeroExitCodeError(_failed(action, code, output))
        return BashObservation(output=output, exit_code=None if action.check == "ignore" else code)

    async def close_session(self, request: CloseSessionRequest) -> CloseSessionResponse:
        await self._session(request.session).close()
        del self._sessions[request.session]
        return CloseBashSessionResponse()

    async def execute(self, command: Command) -> CommandResponse:
        words = [command.command] if isinstance(command.command, str) else command.command
        if command.shell:
            words = ["/bin/sh", "-c", *words]
        if command.merge_output_streams:
            words = ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *words]
        try:
            result = await self.sandbox.exec(
                words[0], words[1:], cwd=command.cwd, env=command.env, timeout=command.timeout
            )
        except BurrowError as error:
            raise os_error(error, words[0]) from error
        if result.timed_out:
            raise CommandTimeoutError(
                f"Timeout ({command.timeout}s) exceeded while running command"
            )
        if command.check and not result.ok:
            raise NonZeroExitCodeError(_failed(command, result.exit_code, result.output))
        return CommandResponse(
            stdout=result.stdout, stderr=result.stderr, exit_code=result.exit_code
        )

    async def read_file(self, request: ReadFileRequest) -> ReadFileResponse:
        try:
            data = await self.sandbox.files.read(request.path)
        except BurrowError as error:
            raise os_error(error, request.path) from error
        text = data.decode(request.encoding or "utf-8", request.errors or "strict")
        return ReadFileResponse(content=text)

    async def write_file(self, request: WriteFileRequest) -> WriteFileResponse:
        try:
            await self.sandbox.files.write(request.path, request.content)
        except BurrowError as error:
            raise os_error(error, request.path) from error
        return WriteFileResponse()

    async def upload(self, request: UploadRequest) -> UploadResponse:
        source = Path(request.source_path)
        try:
            if source.is_dir():
                await self.sandbox.files.upload(source, request.target_path)
            else:
                await self.sandbox.files.write(request.target_path, source.read_bytes())
        except BurrowError as error:
            raise os_error(error, request.target_path) from error
        return UploadResponse()

    async def close(self) -> CloseResponse:
        for context in self._sessions.values():
            try:
                await context.close()
            except NotFound:
                pass
        self._sessions.clear()
        return CloseResponse()

    def _session(self, name: str) -> Context:
        if name not in self._sessions:
            raise SessionDoesNotExistError(f"session {name!r} does not exist")
        return self._sessions[name]

    async def _checked(self, command: str) -> None:
        """SWE-ReX promises to run nothing of a command whose syntax is wrong."""
        result = await self.sandbox.exec("bash", ["-n"], stdin=command)
        if not result.ok:
            raise BashIncorrectSyntaxError(
                f"Error (exit code {result.exit_code}) while checking bash command \n{command!r}\n"
                f"{result.output}",
                extra_info={"bash_stdout": result.stdout, "bash_stderr": result.stderr},
            )


async def _ran(context: Context, code: str, timeout: float | None) -> tuple[str, RunResult]:
    """What a terminal would show of a run, and how it ended."""
    pieces: list[bytes] = []
    async for event in context.stream(code, timeout=timeout):
        if event.type in ("stdout", "stderr"):
            pieces.append(event.data)
        if event.result is not None:
            run = event.result
    output = b"".join(pieces).decode("utf-8", "backslashreplace")
    if run.timed_out:
        raise CommandTimeoutError(f"timeout after {timeout} seconds while running command {code!r}")
    if run.status not in ("ok", "error", "exited", "interrupted"):
        raise SessionNotInitializedError(f"the shell ended: {run.reason or run.status}")
    return output, run


def _failed(action: Any, code: int, output: str) -> str:
    words = (
        f"Command {action.command!r} failed with exit code {code}. Here is the output:\n{output!r}"
    )
    return f"{action.error_msg}: {words}" if action.error_msg else words
