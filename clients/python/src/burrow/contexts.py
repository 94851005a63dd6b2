"""Contexts and notebooks: interpreters that keep their state between runs of code."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from .api import Api, path_of
from .commands import Commands, milliseconds
from .errors import ConnectionFailed, SandboxTimeout
from .limits import RUN_MARGIN_SECONDS
from .results import RunEvent, RunResult, run_event, run_result
from .waiting import in_time


class _Interpreter:
    """Something that runs code: a context or a notebook."""

    def __init__(self, api: Api, path: str, language: str | None, seconds: float | None) -> None:
        self._api = api
        self._path = path
        self.language = language
        self._seconds = seconds

    async def run(
        self,
        code: str,
        *,
        timeout: float | None = None,
        stdin: str | None = None,
        artifacts: bool = False,
    ) -> RunResult:
        """Runs code to its end. An exception in the code, a timeout and a crash are results. When the
        caller is cancelled, the run is interrupted."""
        await self._opened()
        seconds = self._seconds if timeout is None else timeout
        answer = await self._api.call(
            "POST",
            f"{self._path}/run",
            body=self._body(code, seconds, stdin, artifacts),
            seconds=None if seconds is None else seconds + RUN_MARGIN_SECONDS,
        )
        return run_result(answer)

    async def stream(
        self,
        code: str,
        *,
        timeout: float | None = None,
        stdin: str | None = None,
        artifacts: bool = False,
    ) -> AsyncGenerator[RunEvent, None]:
        """Runs code and streams its events. Leaving before the end interrupts the run."""
        await self._opened()
        seconds = self._seconds if timeout is None else timeout
        body = self._body(code, seconds, stdin, artifacts)
        patience = None if seconds is None else seconds + RUN_MARGIN_SECONDS
        deadline = None if patience is None else asyncio.get_running_loop().time() + patience
        events = self._api.events("POST", f"{self._path}/run", body=body, seconds=patience)
        try:
            async for reply in _before(deadline, events, patience):
                event = run_event(reply)
                yield event
                if event.result is not None:
                    return
        finally:
            await events.aclose()
        raise ConnectionFailed("the connection was cut before the end of the run")

    async def _opened(self) -> None:
        """Creates it, if its first run would not create it as requested."""

    async def interrupt(self) -> None:
        """Interrupts the current run."""
        await self._api.call("POST", f"{self._path}/interrupt")

    def _body(
        self, code: str, seconds: float | None, stdin: str | None, artifacts: bool
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"code": code}
        if self.language is not None:
            body["language"] = self.language
        if seconds is not None:
            body["timeout_ms"] = milliseconds(seconds)
        if stdin is not None:
            body["stdin"] = stdin
        if artifacts:
            body["artifacts"] = True
        return body


async def _before(
    deadline: float | None,
    events: AsyncGenerator[dict[str, Any], None],
    seconds: float | None,
) -> AsyncGenerator[dict[str, Any], None]:

    while True:
        left = None
        if deadline is not None:
            left = max(0.0, deadline - asyncio.get_running_loop().time())
        try:
            yield await in_time(events.__anext__(), left)
        except StopAsyncIteration:
            return
        except asyncio.TimeoutError:
            message = f"the run did not end within {seconds:g} s"
            raise SandboxTimeout(message, seconds=seconds) from None


class Context(_Interpreter):
    """A named interpreter in a sandbox. It starts with its first run, and lives until it is closed or
    its sandbox ends. All who use the same name share its variables."""

    def __init__(
        self,
        commands: Commands,
        name: str,
        language: str | None,
        seconds: float | None,
        made: Mapping[str, str | None],
    ) -> None:
        super().__init__(commands.api, commands.path("contexts", name), language, seconds)
        self.name = name
        self._made = {option: value for option, value in made.items() if value is not None}
        self._contexts = commands.path("contexts")

    async def _opened(self) -> None:
        if not self._made:
            return
        body = {"context": self.name, "language": self.language or self.name, **self._made}
        await self._api.call("POST", self._contexts, body=body)
        # It exists now, and a run finds it by its name.
        self._made = {}

    async def info(self) -> Mapping[str, Any]:
        """Returns its state. Raises `NotFound` before its first run."""
        return await self._api.call("GET", self._path)

    async def restart(self) -> None:
        """Restarts the interpreter. Its variables are lost."""
        await self._api.call("POST", f"{self._path}/restart")

    async def close(self) -> None:
        """Ends the interpreter and all that it has started."""
        await self._api.call("DELETE", self._path)


class Notebook(_Interpreter):
    """A context whose variables outlive its interpreter, its sandbox and the server. It starts with
    its first run."""

    def __init__(
        self,
        api: Api,
        namespace: str,
        name: str,
        language: str | None,
        seconds: float | None,
    ) -> None:
        super().__init__(api, path_of("notebooks", namespace, name), language, seconds)
        self.name = name

    async def info(self) -> Mapping[str, Any]:
        """Returns its state, with each variable that is kept and the reason for each that is
        not."""
        return await self._api.call("GET", self._path)

    async def save(self) -> Mapping[str, Any]:
        """Waits until all variables are on disk."""
        return await self._api.call("POST", f"{self._path}/save", is_repeatable=True)

    async def reset(self) -> None:
        """Deletes all variables."""
        await self._api.call("POST", f"{self._path}/reset", is_repeatable=True)

    async def remove(self) -> None:
        """Removes the notebook, its variables, its history and its own sandbox."""
        await self._api.call("DELETE", self._path)
