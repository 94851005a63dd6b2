"""A sandbox environment of Inspect: each sample of an evaluation has a sandbox of its own."""

from __future__ import annotations

import errno
import posixpath
import shlex
from pathlib import Path
from typing import Any, Literal, overload

import yaml
from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from typing_extensions import override

from ..client import BurrowClient, Sandbox
from ..errors import (
    BurrowError,
    NotFound,
    NotRunning,
    SandboxUnavailable,
    SpawnFailed,
    TooLarge,
    Unsupported,
)
from ..limits import EXEC_OUTPUT_BYTES_MAX
from .options import SandboxOptions, os_error, spawn_exit_code

#: Sandboxes of evaluations have it, with the task's name.
_LABEL = "inspect-task"


@sandboxenv(name="burrow")
class BurrowSandboxEnvironment(SandboxEnvironment):
    """The sandbox of one sample. `SandboxEnvironmentSpec("burrow", SandboxOptions(…))` or a file
    `burrow.yaml` says what it is made of. The server and the key are those of the environment."""

    @classmethod
    @override
    def config_files(cls) -> list[str]:
        return ["burrow.yaml"]

    @classmethod
    @override
    def config_deserialize(cls, config: dict[str, Any]) -> SandboxOptions:
        return SandboxOptions(**config)

    @classmethod
    @override
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],
    ) -> dict[str, SandboxEnvironment]:
        if isinstance(config, str):
            config = cls.config_deserialize(yaml.safe_load(Path(config).read_text()) or {})
        options = config or SandboxOptions()
        if not isinstance(options, SandboxOptions):
            raise TypeError(f"the configuration is no SandboxOptions but {type(options).__name__}")
        client = BurrowClient()
        try:
            sandbox = await options.create(client, labels={_LABEL: task_name[:63]})
            try:
                directory = (await sandbox.exec("pwd")).check().stdout.rstrip("\n")
            except BaseException:
                await sandbox.__aexit__()
                raise
        except BaseException:
            await client.close()
            raise
        return {"default": cls(client, sandbox, directory)}

    @classmethod
    @override
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            mine = environment.as_type(cls)
            await mine.sandbox.__aexit__()
            await mine._client.close()

    @classmethod
    @override
    async def cli_cleanup(cls, id: str | None) -> None:
        async with BurrowClient() as client:
            for info in await client.sandboxes(labels={_LABEL: None}):
                if id in (None, info.name):
                    await client.remove(info.name)

    def __init__(self, client: BurrowClient, sandbox: Sandbox, directory: str) -> None:
        super().__init__()
        self._client = client
        self._directory = directory
        #: The sandbox itself, for what Inspect has no words for.
        self.sandbox = sandbox

    @override
    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """A command that overran its time is killed with all that it started, so that it is not tried
        again; `timeout_retry` and `concurrency` are for providers that need them."""
        try:
            result = await self.sandbox.exec(
                cmd[0],
                cmd[1:],
                stdin=input,
                cwd=self._path(cwd or ""),
                env=env,
                user=user,
                timeout=timeout,
                output_bytes_max=min(
                    SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE, EXEC_OUTPUT_BYTES_MAX
                ),
            )
        except SpawnFailed as error:
            if error.errno == errno.EACCES:
                raise PermissionError(str(error)) from error
            return ExecResult(False, spawn_exit_code(error), "", f"{error}\n")
        except Unsupported as error:
            if error.field != "user":
                raise
            raise SandboxUserUnsupportedError(str(error)) from error
        except (NotFound, NotRunning, SandboxUnavailable) as error:
            raise SandboxUnavailableError(str(error)) from error
        if result.timed_out:
            late = TimeoutError(f"the command took longer than {timeout} s")
            late.truncated_output = result.output  # type: ignore[attr-defined]
            raise late
        if result.truncated:
            raise OutputLimitExceededError(
                SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, result.output
            )
        return ExecResult(result.ok, result.exit_code, result.stdout, result.stderr)

    @override
    async def write_file(self, file: str, contents: str | bytes) -> None:
        try:
            await self.sandbox.files.write(self._path(file), contents)
        except BurrowError as error:
            raise os_error(error, file) from error

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    @override
    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            data = await self.sandbox.files.read(self._path(file), bytes_max=limit)
        except TooLarge as error:
            said = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR
            raise OutputLimitExceededError(said, None) from error
        except BurrowError as error:
            raise os_error(error, file) from error
        return data.decode() if text else data

    @override
    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        if not (await self.sandbox.info()).is_running:
            raise ConnectionError(f"{self.sandbox.name} does not run")
        name = shlex.quote(f"{self.sandbox.namespace}/{self.sandbox.name}")
        if user is not None:
            raise NotImplementedError("a shell of another user: host-bridge attach has none")
        return SandboxConnection(type="burrow", command=f"host-bridge attach {name}")

    @override
    def default_polling_interval(self) -> float:
        return 0.2

    def _path(self, path: str) -> str:
        return posixpath.join(self._directory, path)
