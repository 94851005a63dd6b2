"""Waiting with a timeout, without losing a cancellation.

`asyncio.wait_for` does this since Python 3.12. Earlier versions lost a cancellation that came in the
same moment as the result, so that the cancelled task continued.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Callable, Optional, TypeVar

_T = TypeVar("_T")


async def in_time(
    work: Awaitable[_T],
    seconds: float | None,
    let_go: Optional[Callable[[_T], object]] = None,  # noqa: UP045 (an expression in 3.9)
) -> _T:
    """Waits for something, and cancels it when it takes longer. A result that arrives too late is
    given to `let_go`."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _end(task)
        if let_go is not None and _has_result(task):
            let_go(task.result())
        raise
    if task.done():
        return task.result()
    cancelled = await _end(task)
    if _has_result(task) and cancelled is None:
        return task.result()
    if let_go is not None and _has_result(task):
        let_go(task.result())
    raise cancelled or asyncio.TimeoutError


async def _end(task: asyncio.Future[_T]) -> asyncio.CancelledError | None:
    """Cancels something and waits for its end. Returns whether the caller was cancelled
    meanwhile."""
    task.cancel()
    cancelled = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled


def _has_result(task: asyncio.Future[_T]) -> bool:
    # Retrieved, so that asyncio does not report its exception as never retrieved.
    return not task.cancelled() and task.exception() is None
