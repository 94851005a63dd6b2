"""What several adapters share: the options of a sandbox as a model, and refusals as the errors of files
that frameworks expect. It knows no framework."""

from __future__ import annotations

import dataclasses
import errno
import os

from pydantic import BaseModel

from ..client import BurrowClient, Sandbox, drawn_spec
from ..errors import BurrowError, PermissionDenied, SpawnFailed
from ..surface import SandboxSpec


class SandboxOptions(BaseModel, frozen=True, extra="forbid"):
    """What a sandbox is made of: the arguments of `SandboxSpec` and `BurrowClient.create`. What is not
    given is left to the server."""

    image: str | None = None
    memory_mib: int | None = None
    cpus: int | None = None
    workspace: str | None = None
    secrets: tuple[str, ...] = ()
    egress: tuple[str, ...] | None = None
    labels: dict[str, str] = {}
    machine: str | None = None
    env: dict[str, str] = {}
    workdir: str | None = None
    user: str | None = None
    hostname: str | None = None
    scratch_bytes: int | None = None
    pull: str | None = None
    packages: dict[str, tuple[str, ...]] = {}
    ttl: float | None = None
    idle_ttl: float | None = None
    on_idle: str | None = None

    def __hash__(self) -> int:
        return hash(self.model_dump_json())

    async def create(self, client: BurrowClient, *, labels: dict[str, str]) -> Sandbox:
        given = {name: value for name, value in self if value is not None}
        given["labels"] = {**labels, **self.labels}
        named = {one.name for one in dataclasses.fields(SandboxSpec)}
        spec = drawn_spec(None, {name: given.pop(name) for name in named & given.keys()})
        return await client.create(spec, **given)


def spawn_exit_code(error: SpawnFailed) -> int:
    """The exit code that a shell would report of a program that did not start."""
    return 127 if (error.stage, error.errno) == ("exec", errno.ENOENT) else 126


def errno_of(error: BurrowError) -> int | None:
    """The kernel's number for a refusal of the files API, where there is one."""
    if isinstance(error.details.get("errno"), int):
        return int(error.details["errno"])
    if isinstance(error, PermissionDenied):
        return errno.EACCES
    if error.code == "invalid" and error.message.endswith(" is a directory"):
        return errno.EISDIR
    return None


def os_error(error: BurrowError, path: str) -> Exception:
    """A refusal of the files API as Python's own functions would raise it: `FileNotFoundError`,
    `IsADirectoryError`, `PermissionError` and the like. Everything else stays itself."""
    number = errno_of(error)
    return error if number is None else OSError(number, os.strerror(number), path)
