"""HTTP/1.1 as this server speaks it, over asyncio's streams: kept connections, TLS, Unix sockets,
streamed bodies both ways. It knows nothing about the content, retries nothing, and follows no redirect,
so that a key goes nowhere else. The reader of an answer limits its size.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterable, Coroutine
from dataclasses import dataclass, field
from typing import (
    Any,
    TypeVar,
    Union,
)

from .errors import ConnectionFailed, SandboxTimeout, TooLarge
from .limits import (
    CHUNK_BYTES,
    CONNECT_SECONDS,
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    IDLE_CONNECTIONS_MAX,
    IDLE_SECONDS,
)
from .settings import Settings
from .waiting import in_time

_T = TypeVar("_T")

Body = Union[bytes, AsyncIterable[bytes], None]

#: TCP keep-alive, which detects a peer that has vanished: seconds until the first probe, seconds
#: between probes, and their number.
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))


class NotSent(ConnectionFailed):
    """The call cannot have reached the server, so any call can be repeated."""


@dataclass
class Request:
    method: str
    #: The path with its query, quoted.
    target: str
    headers: dict[str, str] = field(default_factory=dict)
    body: Body = None


class Connection:
    """One connection and its state."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.idle_since = 0.0

    def is_fresh(self) -> bool:
        """Whether the connection can take another call."""
        is_open = not self.reader.at_eof() and not self.writer.is_closing()
        return is_open and time.monotonic() - self.idle_since < IDLE_SECONDS

    def close(self) -> None:
        # Its event loop may be closed already.
        with contextlib.suppress(Exception):
            self.writer.close()


class Wire:
    """Connections to one server. They belong to the event loop that made them; those of another loop
    are dropped."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._idle: list[Connection] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._process = os.getpid()
        self._foreign: list[Connection] = []
        self._is_closed = False

    async def ask(self, request: Request) -> Answer:
        """Makes a call, and returns when the head of the answer has arrived."""
        if self._is_closed:
            raise NotSent("this client is closed")
        connection = self._kept() or await self._connect()
        sending: asyncio.Task[None] | None = None
        try:
            if isinstance(request.body, bytes) or request.body is None:
                connection.writer.write(self._head(request) + (request.body or b""))
                sending = asyncio.ensure_future(_drain(connection))
            else:
                connection.writer.write(self._head(request))
                sending = asyncio.ensure_future(_send_pieces(connection, request.body))
            answer = await self._answer(connection, request, sending)
        except BaseException:
            if sending is not None:
                await _ended(sending)
            connection.close()
            raise
        return answer

    def keep(self, connection: Connection) -> None:
        """Takes back a connection whose answer was read completely."""
        is_room = len(self._idle) < IDLE_CONNECTIONS_MAX
        is_ours = asyncio.get_running_loop() is self._loop
        if self._is_closed or not is_room or not is_ours:
            connection.close()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)

    async def close(self) -> None:
        self._is_closed = True
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()
        for connection in idle:
            with contextlib.suppress(Exception):
                await connection.writer.wait_closed()

    def _kept(self) -> Connection | None:
        loop = asyncio.get_running_loop()
        if self._process != os.getpid():
            # Closing a parent's connections would remove them from its event loop.
            self._foreign, self._idle, self._process = self._idle, [], os.getpid()
        if loop is not self._loop:
            for connection in self._idle:
                connection.close()
            self._idle, self._loop = [], loop
        while self._idle:
            connection = self._idle.pop()
            if connection.is_fresh():
                return connection
            connection.close()
        return None

    async def _connect(self) -> Connection:
        address, tls = self._settings.address, self._settings.tls
        if address.socket is not None:
            opening = asyncio.open_unix_connection(address.socket, limit=HEAD_BYTES_MAX)
        else:
            opening = asyncio.open_connection(
                address.host, address.port, ssl=tls, limit=HEAD_BYTES_MAX
            )
        try:
            reader, writer = await in_time(
                opening, CONNECT_SECONDS, lambda opened: opened[1].close()
            )
        except asyncio.TimeoutError:
            message = f"{address} did not answer within {CONNECT_SECONDS:g} s"
            raise NotSent(message) from None
        except OSError as error:
            raise NotSent(f"{address} cannot be reached: {error}") from error
        connected = writer.get_extra_info("socket")
        if connected is not None and connected.family != socket.AF_UNIX:
            with contextlib.suppress(OSError):
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for name, value in _KEEPALIVE:
                    if hasattr(socket, name):
                        connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        return Connection(reader, writer)

    def _head(self, request: Request) -> bytes:
        address, key = self._settings.address, self._settings.key
        headers = {
            "Host": address.authority,
            "Accept": "application/json",
            **request.headers,
        }
        if key is not None:
            headers["Authorization"] = key.header()
        if isinstance(request.body, bytes):
            headers["Content-Length"] = str(len(request.body))
        elif request.body is not None:
            headers["Transfer-Encoding"] = "chunked"
        elif request.method in ("POST", "PUT", "PATCH"):
            headers["Content-Length"] = "0"
        lines = [f"{request.method} {address.prefix}{request.target} HTTP/1.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        if any("\r" in line or "\n" in line for line in lines):
            raise ValueError("a header has a line break in it")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def _answer(
        self,
        connection: Connection,
        request: Request,
        sending: asyncio.Task[None],
    ) -> Answer:
        reading = asyncio.ensure_future(_read_head(connection.reader))
        try:
            # A refusal may arrive before the whole body is sent, and producing the body may fail.
            await asyncio.wait({reading, sending}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done() and sending.done() and sending.exception() is not None:
                error = sending.exception()
                if not isinstance(error, OSError):
                    assert error is not None
                    raise error
            status, headers = await reading
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
            if isinstance(error, ConnectionFailed) or error is _failure(sending):
                raise
            what = "before its answer" if isinstance(error, EOFError) else f": {error}"
            message = f"the connection to {self._settings.address} was cut {what}"
            # The other end may have closed a kept connection before the call arrived. This is no
            # proof, so it is no `NotSent`.
            raise ConnectionFailed(message) from None
        finally:
            await _ended(reading)
        return Answer(self, connection, request.method, status, headers, sending)


class Answer:
    """The head of an answer, and its body, which can be read once."""

    def __init__(
        self,
        wire: Wire,
        connection: Connection,
        method: str,
        status: int,
        headers: dict[str, str],
        sending: asyncio.Task[None],
    ) -> None:
        self.status = status
        self.headers = headers
        self._wire = wire
        self._connection: Connection | None = connection
        self._sending = sending
        self._has_body = method != "HEAD" and status not in (204, 304)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yields the body as it arrives. The connection is reused if all of it was read, and closed
        otherwise."""
        connection = self._connection
        if connection is None:
            return
        self._connection = None
        is_whole = False
        try:
            async for piece in self._pieces(connection.reader):
                yield piece
            is_whole = True
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
            if isinstance(error, ConnectionFailed):
                raise
            raise ConnectionFailed("the connection was cut within an answer") from None
        finally:
            is_sent = self._sending.done() and _failure(self._sending) is None
            is_kept = self.headers.get("connection", "").lower() != "close"
            if is_whole and is_sent and is_kept:
                self._wire.keep(connection)
            else:
                connection.close()
                self._sending.cancel()

    async def read(self, bytes_max: int) -> bytes:
        """Reads the whole body."""
        pieces: list[bytes] = []
        length = 0
        chunks = self.chunks()
        try:
            async for piece in chunks:
                length += len(piece)
                if length > bytes_max:
                    raise TooLarge(f"the answer is larger than {bytes_max} bytes")
                pieces.append(piece)
        finally:
            await chunks.aclose()
        return b"".join(pieces)

    async def lines(self, bytes_max: int) -> AsyncGenerator[bytes, None]:
        """Yields the lines of a stream. An unfinished last line means that it was cut."""
        rest = bytearray()
        chunks = self.chunks()
        try:
            async for piece in chunks:
                at = len(rest)
                rest += piece
                begin = 0
                while (end := rest.find(b"\n", max(at, begin))) >= 0:
                    line = bytes(rest[begin:end])
                    begin = end + 1
                    if line.strip():
                        yield line
                del rest[:begin]
                if len(rest) > bytes_max:
                    raise TooLarge(f"a line of the answer is larger than {bytes_max} bytes")
        finally:
            await chunks.aclose()
        if rest.strip():
            raise ConnectionFailed("the connection was cut within a line")

    def discard(self) -> None:
        """Discards the part that was not read."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
            self._sending.cancel()

    async def _pieces(self, reader: asyncio.StreamReader) -> AsyncGenerator[bytes, None]:
        if not self._has_body:
            return
        if "chunked" in self.headers.get("transfer-encoding", "").lower():
            while length := int((await _line(reader)).split(b";")[0], 16):
                async for piece in _exactly(reader, length):
                    yield piece
                if await reader.readexactly(2) != b"\r\n":
                    raise ValueError("a chunk without its end")
            while await _line(reader):
                pass
            return
        if "content-length" in self.headers:
            async for piece in _exactly(reader, int(self.headers["content-length"])):
                yield piece
            return
        self.headers["connection"] = "close"
        while piece := await reader.read(CHUNK_BYTES):
            yield piece


async def within(seconds: float | None, work: Coroutine[Any, Any, _T]) -> _T:
    """Runs something with a timeout."""
    if seconds is None:
        return await work
    try:
        return await in_time(work, seconds)
    except SandboxTimeout:
        raise
    except asyncio.TimeoutError:
        message = f"there was no answer within {seconds:g} s"
        raise SandboxTimeout(message, seconds=seconds) from None


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    while True:
        version, status, *_ = (await _line(reader)).split(b" ", 2)
        if not version.startswith(b"HTTP/1."):
            raise ValueError("what answers does not speak HTTP/1.1")
        headers: dict[str, str] = {}
        for _ in range(HEADERS_MAX):
            line = await _line(reader)
            if not line:
                break
            name, colon, value = line.partition(b":")
            if not colon:
                raise ValueError("a header without a name")
            headers[name.decode("latin-1").strip().lower()] = value.decode("latin-1").strip()
        else:
            raise ValueError(f"more than {HEADERS_MAX} headers")
        # Interim answers (1xx) carry nothing that is needed here.
        if int(status) >= 200:
            return int(status), headers


async def _line(reader: asyncio.StreamReader) -> bytes:
    return (await reader.readuntil(b"\r\n"))[:-2]


async def _exactly(reader: asyncio.StreamReader, length: int) -> AsyncGenerator[bytes, None]:
    if length < 0:
        raise ValueError("a length below nothing")
    while length > 0:
        piece = await reader.read(min(length, CHUNK_BYTES))
        if not piece:
            raise EOFError
        length -= len(piece)
        yield piece


async def _drain(connection: Connection) -> None:
    await connection.writer.drain()


async def _send_pieces(connection: Connection, pieces: AsyncIterable[bytes]) -> None:
    writer = connection.writer
    async for piece in pieces:
        if piece:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
    writer.write(b"0\r\n\r\n")
    await writer.drain()


def _failure(task: asyncio.Task[None]) -> BaseException | None:
    return task.exception() if task.done() and not task.cancelled() else None


async def _ended(task: asyncio.Task[Any]) -> None:
    """Cancels a task and retrieves its result, so that asyncio does not report it as never
    retrieved."""
    task.cancel()
    with contextlib.suppress(BaseException):
        await asyncio.wait({task})
    if task.done() and not task.cancelled():
        task.exception()
