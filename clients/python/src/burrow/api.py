"""Calls of the native API: JSON both ways, refusals as exceptions, retries of calls that are safe to
repeat, streams of events. It knows no resource."""

from __future__ import annotations

import asyncio
import copy
import json
import random
from collections.abc import AsyncGenerator, Mapping
from typing import Any
from urllib.parse import quote, urlencode

from .errors import (
    BurrowError,
    ConnectionFailed,
    NotFound,
    RateLimited,
    SandboxUnavailable,
    from_problem,
)
from .limits import (
    ANSWER_BYTES_MAX,
    CALL_SECONDS,
    LINE_BYTES_MAX,
    PROBLEM_BYTES_MAX,
    RETRIES,
    RETRY_PAUSE_SECONDS,
    RETRY_PAUSE_SECONDS_MAX,
)
from .settings import Settings
from .wire import Answer, Body, NotSent, Request, Wire, within

#: A query; fields that are `None` are left out.
Query = Mapping[str, Any]

#: Methods that can be repeated without doing anything twice. `call` handles the 404 of a repeated
#: removal.
_REPEATABLE = ("GET", "HEAD", "PUT", "DELETE")


def path_of(*parts: str) -> str:
    """Builds a path of the API from parts, which may contain any characters."""
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


class Api:
    def __init__(self, settings: Settings, *, retries: int = RETRIES) -> None:
        self.settings = settings
        self.retries = retries
        self.wire = Wire(settings)
        #: What every request carries.
        self.headers: dict[str, str] = {}

    def of_sandbox(self, sandbox_id: str) -> Api:
        """The same for one sandbox alone: another one that has its name now is not meant."""
        own = copy.copy(self)
        own.headers = {"Burrow-Sandbox-Id": sandbox_id}
        return own

    async def call(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        idempotency_key: str | None = None,
        is_repeatable: bool | None = None,
        seconds: float | None = CALL_SECONDS,
    ) -> dict[str, Any]:
        """Makes a call and returns its answer. All attempts together take at most `seconds`."""
        headers = dict(self.headers)
        sent: bytes | None = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            sent = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        if idempotency_key is not None:
            headers["Idempotency-Key"] = idempotency_key
        if is_repeatable is None:
            is_repeatable = method in _REPEATABLE or idempotency_key is not None
        request = Request(method, _target(path, query), headers, sent)
        return await within(seconds, self._attempts(request, is_repeatable))

    async def _attempts(self, request: Request, is_repeatable: bool) -> dict[str, Any]:
        was_cut = False
        for attempt in range(self.retries + 1):
            try:
                answer = await self.ask(request)
                text = await answer.read(ANSWER_BYTES_MAX)
                return _parsed(text)
            except NotFound:
                # An attempt whose answer was lost has removed it.
                if was_cut and request.method == "DELETE":
                    return {}
                raise
            except (ConnectionFailed, RateLimited, SandboxUnavailable) as error:
                is_cut = isinstance(error, ConnectionFailed) and not isinstance(error, NotSent)
                if attempt == self.retries or not _may_repeat(error, is_repeatable):
                    raise
                was_cut |= is_cut
                await asyncio.sleep(retry_pause(error, attempt))
        raise AssertionError("the last attempt has returned or raised")

    async def ask(self, request: Request) -> Answer:
        """Makes one attempt. Raises a refusal."""
        answer = await self.wire.ask(request)
        if answer.status >= 300:
            raise await _refusal(answer)
        return answer

    async def open(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body = None,
        seconds: float | None = CALL_SECONDS,
    ) -> Answer:
        """Makes a call whose body is bytes, either way. The deadline covers only its beginning. It is
        never retried, because its body may be readable only once."""
        request = Request(method, _target(path, query), {**self.headers, **(headers or {})}, body)
        return await within(seconds, self.ask(request))

    async def events(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Any = None,
        seconds: float | None = None,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yields the events of a stream as they arrive. `seconds` limits the beginning. A `problem`
        event is raised."""
        headers = {"Accept": "application/x-ndjson"}
        sent: bytes | None = None
        if body is not None:
            headers["Content-Type"] = "application/json"
            sent = json.dumps(body, ensure_ascii=False, allow_nan=False).encode()
        answer = await self.open(
            method, path, query=query, headers=headers, body=sent, seconds=seconds
        )
        lines = answer.lines(LINE_BYTES_MAX)
        try:
            async for line in lines:
                event = _parsed(line)
                if event.get("type") == "problem" and isinstance(event.get("problem"), dict):
                    raise from_problem(event["problem"])
                yield event
        finally:
            await lines.aclose()

    async def close(self) -> None:
        await self.wire.close()


def _may_repeat(error: BurrowError, is_repeatable: bool) -> bool:
    if isinstance(error, NotSent):
        return True
    if isinstance(error, ConnectionFailed):
        return is_repeatable
    # Refused before anything began, with a time to retry after.
    return "retry_after" in error.details and error.code in (
        "rate_limited",
        "unavailable",
    )


def retry_pause(error: BurrowError | None, attempt: int) -> float:
    """How long to wait before another attempt."""
    asked = error.details.get("retry_after") if error is not None else None
    if isinstance(asked, (int, float)):
        return min(float(asked), RETRY_PAUSE_SECONDS_MAX)
    pause = min(RETRY_PAUSE_SECONDS * 2.0**attempt, RETRY_PAUSE_SECONDS_MAX)
    # Clients that were cut off together must not retry together.
    return pause * random.uniform(0.5, 1.0)


async def _refusal(answer: Answer) -> BurrowError:
    text = await answer.read(PROBLEM_BYTES_MAX)
    try:
        problem = _parsed(text)
    except BurrowError:
        # Something between here and the server has answered in its place.
        problem = {}
    request_id = answer.headers.get("x-request-id")
    error = from_problem(problem, status=answer.status, request_id=request_id)
    pause = answer.headers.get("retry-after", "")
    if pause.isdecimal():
        error.details.setdefault("retry_after", int(pause))
    return error


def _parsed(text: bytes) -> dict[str, Any]:
    if not text:
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise ConnectionFailed(
            "what answers does not speak this API: its answer is no JSON"
        ) from None
    if not isinstance(value, dict):
        raise ConnectionFailed("what answers does not speak this API: its answer is no object")
    return value


def _target(path: str, query: Query | None) -> str:
    pairs: list[tuple[str, str]] = []
    for name, value in (query or {}).items():
        if value is None:
            continue
        if isinstance(value, bool):
            pairs.append((name, "true" if value else "false"))
        elif isinstance(value, (str, int)):
            pairs.append((name, str(value)))
        else:
            pairs.extend((name, one) for one in value)
    return f"{path}?{urlencode(pairs, quote_via=quote)}" if pairs else path
