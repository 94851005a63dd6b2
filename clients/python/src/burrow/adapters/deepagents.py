"""A backend of Deep Agents: the files and the commands of an agent are in a sandbox."""

from __future__ import annotations

import errno

from deepagents.backends.protocol import (
    FILE_NOT_FOUND,
    INVALID_PATH,
    IS_DIRECTORY,
    PERMISSION_DENIED,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

from ..errors import ApiError, InvalidRequest
from ..limits import TOOL_RUN_SECONDS
from ..results import CommandResult
from ..sync import SandboxHandle
from .options import errno_of

#: The words for refusals that a model understands.
_WORDS = {
    errno.ENOENT: FILE_NOT_FOUND,
    errno.EISDIR: IS_DIRECTORY,
    errno.EACCES: PERMISSION_DENIED,
    errno.EPERM: PERMISSION_DENIED,
    errno.EROFS: PERMISSION_DENIED,
    errno.ENOTDIR: INVALID_PATH,
}


class BurrowBackend(BaseSandbox):
    """One sandbox, which the caller makes and removes: `create_deep_agent(…, backend=BurrowBackend(
    sandbox))`. It works with `invoke` and with `ainvoke`, whose cancellation ends what runs."""

    def __init__(self, sandbox: SandboxHandle, *, timeout: float = TOOL_RUN_SECONDS) -> None:
        self._sandbox = sandbox
        self._timeout = timeout

    @property
    def id(self) -> str:
        return self._sandbox.id

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return _response(self._sandbox.shell(command, timeout=timeout or self._timeout))

    async def aexecute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        work = self._sandbox._inner.shell(command, timeout=timeout or self._timeout)
        return _response(await self._sandbox._loop.awaited(work))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [FileUploadResponse(path, self._written(path, data)) for path, data in files]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        return [self._read(path) for path in paths]

    def _written(self, path: str, data: bytes) -> str | None:
        try:
            self._sandbox.files.write(path, data)
        except ApiError as error:
            return _word(error)
        return None

    def _read(self, path: str) -> FileDownloadResponse:
        try:
            return FileDownloadResponse(path, content=self._sandbox.files.read(path))
        except ApiError as error:
            return FileDownloadResponse(path, error=_word(error))


def _response(result: CommandResult) -> ExecuteResponse:
    return ExecuteResponse(result.output, result.exit_code, result.truncated)


def _word(error: ApiError) -> str:
    number = errno_of(error)
    if number in _WORDS:
        return _WORDS[number]
    return INVALID_PATH if isinstance(error, InvalidRequest) else str(error)
