"""Commands in a sandbox: run to the end, or streamed while they run.

Each is a session with a random name, recorded in the sandbox's log. So an attempt that was cut off can
be repeated: it finds the program that it started and never starts a second one. A program whose caller
is cancelled is killed by its name.
"""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Union,
)

from .api import Api, path_of
from .errors import (
    BurrowError,
    Conflict,
    ConnectionFailed,
    Gone,
    InvalidRequest,
    NotFound,
    SandboxTimeout,
)
from .limits import (
    CALL_SECONDS,
    KILL_SECONDS,
    RETRIES,
    RETRY_PAUSE_SECONDS,
    RUN_MARGIN_SECONDS,
)
from .results import (
    CommandResult,
    Exited,
    Gap,
    Output,
    StreamEvent,
    command_result,
    content,
)
from .surface import regardless
from .wire import within

if TYPE_CHECKING:
    from typing_extensions import Self

Input = Union[bytes, str]

#: Output bytes that a result keeps by default; the server's own limit.
_OUTPUT_BYTES = 8 * 1024 * 1024


def milliseconds(seconds: float, what: str = "timeout") -> int:
    """Converts to the server's unit. Rounds up, so that a short time never becomes 0."""
    if not 0 < seconds < 1e10:
        raise InvalidRequest(f"{what}: {seconds} is no length of time")
    return max(1, round(seconds * 1000))


def draw(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex}"


def described(
    *,
    cwd: str | None,
    env: Mapping[str, str] | None,
    user: str | None,
    timeout: float | None,
) -> dict[str, Any]:
    """Fields that exec, shell and sessions share."""
    body: dict[str, Any] = {}
    if cwd is not None:
        body["cwd"] = cwd
    if env:
        body["env"] = dict(env)
    if user is not None:
        body["user"] = user
    if timeout is not None:
        body["timeout_ms"] = milliseconds(timeout)
    return body


def encoded(data: Input) -> dict[str, str]:
    if isinstance(data, str):
        return {"text": data}

    return {"base64": base64.b64encode(data).decode("ascii")}


class Commands:
    """The commands of one sandbox."""

    def __init__(self, api: Api, namespace: str, name: str) -> None:
        self.api = api
        self.namespace = namespace
        self.name = name
        #: The session that ended last. The log may not have its end yet.
        self.last: str | None = None

    def path(self, *parts: str) -> str:
        return path_of("sandboxes", self.namespace, self.name, *parts)

    async def run(
        self,
        what: Mapping[str, Any],
        *,
        seconds: float | None,
        stdin: Input | None,
        output_bytes_max: int | None,
        **how: Any,
    ) -> CommandResult:
        """Runs a command to its end. When the caller is cancelled, the program is killed first."""
        session = draw("c")
        body = {
            **what,
            **described(timeout=seconds, **how),
            "session": session,
            "on_disconnect": "detach",
        }
        if stdin is not None:
            body["stdin"] = encoded(stdin)
        if output_bytes_max is not None:
            body["output_bytes_max"] = output_bytes_max
        path = self.path("shell" if "script" in what else "exec")
        patience = None if seconds is None else seconds + RUN_MARGIN_SECONDS
        try:
            kept = _OUTPUT_BYTES if output_bytes_max is None else output_bytes_max
            result = await within(patience, self._attempts(path, body, session, kept))
        except BaseException as error:
            if not isinstance(error, BurrowError) or isinstance(
                error, (SandboxTimeout, ConnectionFailed)
            ):
                await regardless(self._kill(session), KILL_SECONDS)
            raise
        self.last = session
        return result

    async def _attempts(
        self, path: str, body: Mapping[str, Any], session: str, kept: int
    ) -> CommandResult:
        was_cut = False
        for attempt in range(self.api.retries + 1):
            try:
                answer = await self.api.call("POST", path, body=body, seconds=None)
                missing = answer.get("missing_bytes") or 0
                truncated = bool(answer.get("truncated")) or missing > 0
                return command_result(
                    answer,
                    str(answer.get("stdout", "")),
                    str(answer.get("stderr", "")),
                    truncated=truncated,
                )
            except ConnectionFailed:
                if attempt == self.api.retries:
                    raise
                was_cut = True
                await asyncio.sleep(RETRY_PAUSE_SECONDS * 2**attempt)
            except Conflict as error:
                # The attempt that was cut off started it.
                if not was_cut or error.reason != "session_exists":
                    raise
                return await self._collected(session, kept)
        raise AssertionError("the last attempt has returned or raised")

    async def _collected(self, session: str, kept: int) -> CommandResult:
        outputs = {"stdout": bytearray(), "stderr": bytearray()}
        truncated = False
        events = self.follow(session)
        try:
            async for event in events:
                if isinstance(event, Gap):
                    truncated = True
                elif isinstance(event, Output):
                    output = outputs["stderr" if event.channel == "stderr" else "stdout"]
                    room = max(0, kept - len(output))
                    truncated |= len(event.data) > room
                    output += event.data[:room]
                else:
                    stdout, stderr = (text.decode("utf-8", "replace") for text in outputs.values())
                    return command_result(event.result.raw, stdout, stderr, truncated=truncated)
        finally:
            await events.aclose()
        raise ConnectionFailed("the sandbox ended before the command did")

    async def follow(self, session: str) -> AsyncGenerator[StreamEvent, None]:
        """Yields all events of a session, over as many connections as needed."""
        at = {"stdout": 0, "stderr": 0, "terminal": 0}
        attempt = 0
        while True:
            query = {
                "follow": True,
                "from": at["terminal"] or at["stdout"],
                "stderr_from": at["stderr"],
            }
            events = self.api.events("GET", self._session(session, "output"), query=query)
            try:
                async for reply in events:
                    attempt = 0
                    kind = reply.get("type")
                    if kind == "output":
                        piece = Output(str(reply["channel"]), content(reply), int(reply["offset"]))
                        at[piece.channel] = piece.offset + len(piece.data)
                        yield piece
                    elif kind == "gap":
                        gap = Gap(str(reply["channel"]), int(reply["from"]), int(reply["to"]))
                        at[gap.channel] = gap.end
                        yield gap
                    elif kind == "exited":
                        exit = {**reply["exit"], "session": session}
                        self.last = session
                        yield Exited(command_result(exit, "", "", truncated=False))
                        return
                    elif kind == "over":
                        raise Gone("the sandbox ended before the command did")
            except ConnectionFailed:
                if attempt >= min(self.api.retries, RETRIES):
                    raise
            finally:
                await events.aclose()
            # A stream that ends without its last event was cut off, too.
            if attempt >= self.api.retries:
                raise ConnectionFailed("the stream was cut off again and again")
            attempt += 1
            await asyncio.sleep(RETRY_PAUSE_SECONDS * 2**attempt)

    def _session(self, session: str, *parts: str) -> str:
        return self.path("sessions", session, *parts)

    async def _kill(self, session: str) -> None:
        try:
            await self.api.call("DELETE", self._session(session), query={"kill": True})
        except NotFound:
            pass


class Stream:
    """A command that is streamed while it runs:

    ```python
    async with handle.stream("python", ["-i"], stdin=True) as stream:
        await stream.write("print(6 * 7)\\n")
        await stream.close_stdin()
        async for event in stream:
            ...
    ```

    It can be iterated without `async with` as well. Leaving before its end kills it.
    """

    def __init__(
        self,
        commands: Commands,
        what: Mapping[str, Any],
        *,
        seconds: float | None,
        stdin: Input | bool | None,
        **how: Any,
    ) -> None:
        self._commands = commands
        self._body = {**what, **described(timeout=seconds, **how)}
        self._given = stdin if isinstance(stdin, (bytes, str)) else None
        self._body["stdin"] = stdin is True or self._given is not None
        self._seconds = seconds
        self._typed = 0
        self._events: AsyncGenerator[StreamEvent, None] | None = None
        self._feeding: asyncio.Task[None] | None = None
        #: The session's name in the log.
        self.session = draw("s")
        #: How it ended, once it has.
        self.result: CommandResult | None = None
        self._is_started = False

    async def start(self) -> Stream:
        """Starts the command, if it was not started yet."""
        if self._is_started:
            return self
        self._is_started = True
        commands = self._commands
        try:
            await commands.api.call(
                "POST",
                commands.path("sessions"),
                body={**self._body, "session": self.session},
                idempotency_key=self.session,
            )
        except asyncio.CancelledError:
            await regardless(commands._kill(self.session), KILL_SECONDS)
            raise
        self._events = commands.follow(self.session)
        if self._given is not None:
            self._feeding = asyncio.ensure_future(self._feed(self._given))
        return self

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[StreamEvent]:
        return self._told()

    async def _told(self) -> AsyncGenerator[StreamEvent, None]:
        try:
            while (event := await self.next()) is not None:
                yield event
        finally:
            await self.close()

    async def next(self) -> StreamEvent | None:
        """Returns the next event, or `None` after the last."""
        await self.start()
        assert self._events is not None, "a stream that is started has events"
        try:
            event = await self._events.__anext__()
        except StopAsyncIteration:
            return None
        if isinstance(event, Exited):
            self.result = event.result
        return event

    async def wait(self) -> CommandResult:
        """Reads the remaining events and returns how the command ended."""
        while await self.next() is not None:
            pass
        if self.result is None:
            raise Gone("this stream was closed before its end")
        return self.result

    async def write(self, data: Input) -> None:
        """Writes input and waits until it is accepted. A retry never types anything twice."""
        await self.start()
        await self._type(data.encode() if isinstance(data, str) else data, is_last=False)

    async def close_stdin(self) -> None:
        """Closes the command's input."""
        await self.start()
        await self._type(b"", is_last=True)

    async def signal(self, signal: str) -> None:
        """Sends a signal such as `INT`, `TERM` or `HUP` to the command and its descendants."""
        path = self._commands._session(self.session, "signal")
        await self._commands.api.call("POST", path, body={"signal": signal})

    async def kill(self) -> None:
        """Kills the command and its descendants. The last event still reports how it ended."""
        path = self._commands._session(self.session, "signal")
        body = {"signal": "KILL", "target": "tree"}
        await self._commands.api.call("POST", path, body=body, is_repeatable=True)

    async def close(self) -> None:
        """Closes the stream, and kills the command if it has not ended."""
        if self._feeding is not None:
            self._feeding.cancel()
        if self._events is not None:
            await self._events.aclose()
        if self._is_started and self.result is None:
            await regardless(self._commands._kill(self.session), KILL_SECONDS)

    async def _feed(self, data: Input) -> None:
        try:
            await self._type(data.encode() if isinstance(data, str) else data, is_last=True)
        except BurrowError:
            # A program need not read its input; its exit shows what happened.
            pass

    async def _type(self, data: bytes, *, is_last: bool) -> None:
        begin = self._typed
        path = self._commands._session(self.session, "input")
        while True:
            rest = data[self._typed - begin :]
            query = {"offset": self._typed, "eof": is_last}
            try:
                taken = await self._put(path, query, rest)
            except Conflict as error:
                at = error.details.get("offset")
                # An earlier attempt arrived, but its answer was lost.
                if not isinstance(at, int) or not self._typed < at <= begin + len(data):
                    raise
                self._typed = at
                if at < begin + len(data) or is_last:
                    continue
                return
            self._typed = int(taken.get("offset", self._typed))
            if taken.get("complete", True):
                return

    async def _put(self, path: str, query: Mapping[str, Any], data: bytes) -> dict[str, Any]:
        for attempt in range(self._commands.api.retries + 1):
            try:
                answer = await self._commands.api.open(
                    "POST",
                    path,
                    query=query,
                    headers={"Content-Type": "application/octet-stream"},
                    body=data,
                )

                reply = json.loads(await within(CALL_SECONDS, answer.read(1024 * 1024)))
                return reply if isinstance(reply, dict) else {}
            except ConnectionFailed:
                if attempt == self._commands.api.retries:
                    raise
                await asyncio.sleep(RETRY_PAUSE_SECONDS * 2**attempt)
        raise AssertionError("the last attempt has returned or raised")


def argv(cmd: str, args: Sequence[str] | None) -> dict[str, Any]:
    if isinstance(args, str):
        # Each of its characters would be an argument.
        raise InvalidRequest("args: a list of arguments, not one text")
    return {"argv": [cmd, *(args or ())]}
