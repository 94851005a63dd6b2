"""The files of a sandbox: streams of bytes both ways, listings, and whole directories."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Union

from .archive import Transfer, packed, unpacked
from .errors import ConnectionFailed, NotFound, TooLarge
from .limits import (
    ANSWER_BYTES_MAX,
    ARCHIVE_MEMORY_BYTES,
    CALL_SECONDS,
    CHUNK_BYTES,
    DOWNLOAD_BYTES_MAX,
    DOWNLOAD_ENTRIES_MAX,
    PIECE_SECONDS,
    READ_BYTES_MAX,
)
from .results import FileInfo, file_info
from .wire import within

if TYPE_CHECKING:
    from .commands import Commands

Data = Union[bytes, str, AsyncIterable[bytes]]
Local = Union[str, "os.PathLike[str]"]


class Files:
    """The files of one sandbox. Paths in the sandbox are absolute."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._api = commands.api

    def _path(self, *parts: str) -> str:
        return self._commands.path("files", *parts)

    async def read(self, path: str, *, bytes_max: int = READ_BYTES_MAX) -> bytes:
        """Reads a whole file. Raises `TooLarge` if it has more bytes than the limit."""
        pieces: list[bytes] = []
        length = 0
        stream = self.read_stream(path)
        try:
            async for piece in stream:
                length += len(piece)
                if length > bytes_max:
                    raise TooLarge(f"{path!r} has more than {bytes_max} bytes")
                pieces.append(piece)
        finally:
            await stream.aclose()
        return b"".join(pieces)

    async def read_text(self, path: str, *, encoding: str = "utf-8") -> str:
        return (await self.read(path)).decode(encoding)

    async def read_stream(self, path: str) -> AsyncGenerator[bytes, None]:
        """Yields the bytes of a file of any size as they arrive."""
        answer = await self._api.open("GET", self._path("content"), query={"path": path})
        chunks = answer.chunks()
        try:
            while (piece := await within(PIECE_SECONDS, _next(chunks))) is not None:
                yield piece
        finally:
            await chunks.aclose()

    async def write(
        self,
        path: str,
        data: Data,
        *,
        parents: bool = True,
        append: bool = False,
        permissions: int | None = None,
    ) -> int:
        """Writes a file atomically: readers see the old content or the new. Returns the number of
        bytes written."""
        query = {
            "path": path,
            "parents": parents,
            "append": append or None,
            "permissions": None if permissions is None else f"{permissions:o}",
        }
        reply = await self._put("content", query, "application/octet-stream", data)
        return int(reply.get("bytes", 0))

    async def list(self, path: str) -> list[FileInfo]:
        """Lists a directory, by name."""
        found: list[FileInfo] = []
        after: str | None = None
        while True:
            page = await self._api.call("GET", self._path(), query={"path": path, "after": after})
            found += [file_info(entry) for entry in page.get("entries", ())]
            after = page.get("next")
            if after is None:
                return found

    async def stat(self, path: str, *, follow: bool = False) -> FileInfo:
        query = {"path": path, "follow": follow}
        return file_info(await self._api.call("GET", self._path("stat"), query=query))

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except NotFound:
            return False
        return True

    async def mkdir(self, path: str, *, parents: bool = True) -> None:
        body = {"path": path, "parents": parents}
        await self._api.call("POST", self._path("directories"), body=body)

    async def move(self, source: str, target: str, *, replace: bool = False) -> None:
        body = {"from": source, "to": target, "replace": replace}
        await self._api.call("POST", self._path("move"), body=body)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        query = {"path": path, "recursive": recursive}
        await self._api.call("DELETE", self._path(), query=query)

    async def upload(self, local: Local, remote: str) -> Transfer:
        """Copies the content of a local directory into one of the sandbox; a file keeps its
        name."""
        archive = await asyncio.to_thread(packed, Path(local))
        try:
            query = {"path": remote, "parents": True}
            reply = await self._put("archive", query, "application/x-tar", _pieces(archive))
        finally:
            archive.close()
        return Transfer(int(reply.get("entries", 0)), int(reply.get("bytes", 0)))

    async def download(
        self,
        remote: str,
        local: Local,
        *,
        bytes_max: int = DOWNLOAD_BYTES_MAX,
        entries_max: int = DOWNLOAD_ENTRIES_MAX,
    ) -> Transfer:
        """Copies a file or directory of the sandbox to a local path that must not exist: completely or
        not at all. The sandbox is not trusted: links that lead out of the directory and devices
        are `skipped`."""
        with tempfile.SpooledTemporaryFile(max_size=ARCHIVE_MEMORY_BYTES) as archive:
            answer = await self._api.open("GET", self._path("archive"), query={"path": remote})
            chunks = answer.chunks()
            length = 0
            try:
                while (piece := await within(PIECE_SECONDS, _next(chunks))) is not None:
                    length += len(piece)
                    # Each entry has a header and padding in addition to its content.
                    if length > bytes_max + entries_max * 4096:
                        raise TooLarge(f"the archive of {remote!r} is larger than is allowed")
                    archive.write(piece)
            finally:
                await chunks.aclose()
            archive.seek(0)
            return await asyncio.to_thread(
                lambda: unpacked(archive, Path(local), bytes_max=bytes_max, entries_max=entries_max)
            )

    async def _put(self, what: str, query: dict[str, Any], kind: str, data: Data) -> dict[str, Any]:
        body = data.encode() if isinstance(data, str) else data
        answer = await self._api.open(
            "PUT",
            self._path(what),
            query=query,
            headers={"Content-Type": kind},
            body=body,
            # No deadline: the server ends a connection that stalls.
            seconds=None,
        )
        text = await within(CALL_SECONDS, answer.read(ANSWER_BYTES_MAX))
        try:
            reply = json.loads(text)
        except ValueError:
            raise ConnectionFailed("what answers does not speak this API") from None
        return reply if isinstance(reply, dict) else {}


async def _next(chunks: AsyncGenerator[bytes, None]) -> bytes | None:
    try:
        return await chunks.__anext__()
    except StopAsyncIteration:
        return None


async def _pieces(file: IO[bytes]) -> AsyncGenerator[bytes, None]:
    while piece := await asyncio.to_thread(file.read, CHUNK_BYTES):
        yield piece
