"""An environment of Harbor: each trial of a task has a sandbox of its own. Harbor needs Python 3.12 or newer."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

from harbor.environments.base import BaseEnvironment, ExecResult
from harbor.environments.capabilities import (
    EnvironmentCapabilities,
    EnvironmentResourceCapabilities,
)
from harbor.environments.definition import COMPOSE_FILE_NAME, DOCKERFILE_NAME
from harbor.environments.options import EnvironmentOptions
from harbor.models.task.config import NetworkMode
from pydantic import Field

from ..client import BurrowClient, Sandbox
from ..errors import BurrowError, SpawnFailed
from ..results import Output
from .options import SandboxOptions, os_error, spawn_exit_code

# The shell that tasks are written for, where there is one.
_SHELL = 'if [ -x /bin/bash ]; then exec /bin/bash -c "$1"; else exec /bin/sh -c "$1"; fi'

# What is kept of the output of one command; Harbor has the rest in files.
OUTPUT_BYTES_MAX = 16 * 1024 * 1024


class BurrowOptions(EnvironmentOptions):
    """What `--ek` or `environment.kwargs` may say."""

    url: str | None = Field(
        default=None, description="The server; by default that of the environment, BURROW_URL."
    )
    sandbox: SandboxOptions = Field(
        default=SandboxOptions(),
        description="What sandboxes are made of, where the task does not say: image, machine, egress, ttl, …",
    )


class BurrowEnvironment(BaseEnvironment):
    """A sandbox from `start` to `stop`: `environment.import_path` is
    `burrow.adapters.harbor:BurrowEnvironment`."""

    options_model = BurrowOptions
    options: BurrowOptions

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._client: BurrowClient | None = None
        self._sandbox: Sandbox | None = None
        super().__init__(*args, **kwargs)

    @staticmethod
    def type() -> str:
        return "burrow"

    @classmethod
    def resource_capabilities(cls) -> EnvironmentResourceCapabilities:
        return EnvironmentResourceCapabilities(cpu_limit=True, memory_limit=True)

    @property
    def capabilities(self) -> EnvironmentCapabilities:
        return EnvironmentCapabilities(
            disable_internet=True,
            network_allowlist=True,
            network_allowlist_hostnames=True,
            network_allowlist_wildcard_hostnames=True,
        )

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox itself, for what Harbor has no words for."""
        if self._sandbox is None:
            raise RuntimeError("the environment is not started")
        return self._sandbox

    def _validate_definition(self) -> None:
        if self._image is not None:
            return
        for name in (DOCKERFILE_NAME, COMPOSE_FILE_NAME):
            if (self.environment_dir / name).exists():
                raise ValueError(
                    f"{self.environment_dir / name}: Burrow builds no {name}; name an image that the "
                    "server has, as docker_image of the task or as the option sandbox.image"
                )

    @property
    def _image(self) -> str | None:
        """The server's usual one, if nobody names any."""
        return self.task_env_config.docker_image or self.options.sandbox.image

    def _made_of(self) -> SandboxOptions:
        config, given = self.task_env_config, self.options.sandbox
        cpus, memory_mib = self._effective_cpus, self._effective_memory_mb
        return given.model_copy(
            update={
                "image": self._image,
                "cpus": given.cpus if cpus is None else int(cpus),
                "memory_mib": given.memory_mib if memory_mib is None else memory_mib,
                "workdir": config.workdir or given.workdir,
                "egress": self._egress(),
                "env": {**given.env, **self._startup_env()},
            }
        )

    def _egress(self) -> tuple[str, ...]:
        policy = self.network_policy
        if policy.network_mode == NetworkMode.NO_NETWORK:
            return ()
        if policy.network_mode == NetworkMode.ALLOWLIST:
            return tuple(policy.allowed_hosts)
        given = self.options.sandbox.egress
        return ("public",) if given is None else given

    async def start(self, force_build: bool) -> None:
        self._client = BurrowClient(self.options.url, run_timeout=None)
        labels = {"harbor": self.environment_name[:63]}
        self._sandbox = await self._made_of().create(self._client, labels=labels)
        await self.ensure_dirs(self._mount_targets(writable_only=True))
        await self._upload_environment_dir_after_start()

    async def stop(self, delete: bool) -> None:
        sandbox, self._sandbox = self._sandbox, None
        client, self._client = self._client, None
        try:
            if sandbox is not None:
                await (sandbox.__aexit__() if delete else sandbox.stop())
        finally:
            if client is not None:
                await client.close()

    async def exec(
        self,
        command: str,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout_sec: int | None = None,
        user: str | int | None = None,
    ) -> ExecResult:
        acting = self._resolve_user(user)
        tell = self._output_callback()
        pieces: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
        left = OUTPUT_BYTES_MAX
        stream = self.sandbox.stream(
            "/bin/sh",
            ["-c", _SHELL, "sh", command],
            cwd=cwd or self.task_env_config.workdir,
            env=self._merge_env(env),
            timeout=timeout_sec,
            user=None if acting is None else str(acting),
        )
        try:
            async with stream:
                async for event in stream:
                    if not isinstance(event, Output):
                        continue
                    if tell is not None:
                        await tell(event.text, event.channel)
                    pieces[event.channel].append(event.data[:left])
                    left -= len(pieces[event.channel][-1])
        except SpawnFailed as error:
            return ExecResult(stderr=str(error), return_code=spawn_exit_code(error))
        result = await stream.wait()
        if result.timed_out:
            raise RuntimeError(f"Command timed out after {timeout_sec} seconds")
        texts = {name: b"".join(them).decode("utf-8", "replace") for name, them in pieces.items()}
        return ExecResult(**texts, return_code=result.exit_code)

    async def upload_file(self, source_path: Path | str, target_path: str) -> None:
        source = Path(source_path)
        mode = source.stat().st_mode & 0o777
        data = await asyncio.to_thread(source.read_bytes)
        try:
            await self.sandbox.files.write(target_path, data, permissions=mode)
        except BurrowError as error:
            raise os_error(error, target_path) from error

    async def upload_dir(self, source_dir: Path | str, target_dir: str) -> None:
        source = Path(source_dir)
        if not source.is_dir():
            raise NotADirectoryError(source)
        try:
            await self.sandbox.files.upload(source, target_dir)
        except BurrowError as error:
            raise os_error(error, target_dir) from error

    async def download_file(self, source_path: str, target_path: Path | str) -> None:
        target = Path(target_path)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with await asyncio.to_thread(target.open, "wb") as file:
                async for piece in self.sandbox.files.read_stream(source_path):
                    file.write(piece)
        except BurrowError as error:
            target.unlink(missing_ok=True)
            raise os_error(error, source_path) from error

    async def download_dir(self, source_dir: str, target_dir: Path | str) -> None:
        with tempfile.TemporaryDirectory() as place:
            local = Path(place) / (PurePosixPath(source_dir).name or "root")
            try:
                await self.sandbox.files.download(source_dir, local)
            except BurrowError as error:
                raise os_error(error, source_dir) from error
            shutil.copytree(local, target_dir, symlinks=True, dirs_exist_ok=True)
