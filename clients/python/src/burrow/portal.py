"""A thread with an event loop that runs asynchronous code for synchronous callers. It knows nothing
about that code."""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import AsyncGenerator, Coroutine, Generator
from typing import Any, TypeVar

from .errors import BurrowError
from .limits import TEARDOWN_SECONDS

_T = TypeVar("_T")


class Portal:
    """A thread with an event loop. It starts with the first call."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._is_closed = False

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            pass
        else:
            work.close()
            raise BurrowError(
                "burrow.sync would hold a coroutine up: use burrow.BurrowClient there"
            )
        try:
            loop = self._started()
        except BaseException:
            work.close()
            raise
        # The thread's own future, and not the one of `run_coroutine_threadsafe`, which is done as
        # soon as it is cancelled: before what was cancelled has tidied up.
        done: concurrent.futures.Future[_T] = concurrent.futures.Future()
        tasks: list[asyncio.Task[_T]] = []

        def begin() -> None:
            task = loop.create_task(work)
            tasks.append(task)
            task.add_done_callback(lambda task: _hand_over(task, done))

        loop.call_soon_threadsafe(begin)
        try:
            return done.result()
        except concurrent.futures.CancelledError:
            raise BurrowError("this client was closed meanwhile") from None
        except BaseException:
            if not done.done():
                loop.call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
                concurrent.futures.wait([done], 2 * TEARDOWN_SECONDS)
            raise

    async def awaited(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Waits in a coroutine of another loop. When that is cancelled, so is the work."""
        try:
            loop = self._started()
        except BaseException:
            work.close()
            raise
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))

    def iterate(self, source: AsyncGenerator[_T, None]) -> Generator[_T, None, None]:
        async def following() -> tuple[bool, _T | None]:
            try:
                return True, await source.__anext__()
            except StopAsyncIteration:
                return False, None

        try:
            while True:
                is_more, value = self.run(following())
                if not is_more:
                    return
                yield value  # type: ignore[misc]
        finally:
            if not self._is_closed:
                self.run(_ended(source))

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None or self._process != os.getpid():
            return

        def end() -> None:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.call_soon(loop.stop)

        loop.call_soon_threadsafe(end)
        thread.join(TEARDOWN_SECONDS)

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._is_closed:
                raise BurrowError("this client is closed")
            # A forked child does not have its parent's thread.
            if self._loop is None or self._process != os.getpid():
                self._process = os.getpid()
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_live, args=(self._loop,), name="burrow", daemon=True
                )
                self._thread.start()
            return self._loop


def _live(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()


def _hand_over(task: asyncio.Task[_T], done: concurrent.futures.Future[_T]) -> None:
    if task.cancelled():
        done.set_exception(concurrent.futures.CancelledError())
        return
    error = task.exception()
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(task.result())


async def _ended(source: AsyncGenerator[Any, None]) -> None:
    await source.aclose()
