"""The log: followed from its beginning, from a place in it, and to its end."""

import asyncio

from wire import refused, sandbox


async def _until(stream, *texts):
    """The two outputs of a program come in any order."""
    found = b""
    while True:
        entry = await asyncio.wait_for(stream.__anext__(), 30)
        found += entry.data() if callable(entry.data) else entry.data
        if all(text in found for text in texts):
            return entry, found


async def what_programs_write_is_followed():
    async with sandbox("log") as made:
        await made.exec("sh", ["-c", "echo first; echo wrong >&2"])
        stream = await made.log_stream(follow=True)
        entry, found = await _until(stream, b"first", b"wrong")
        assert entry.cursor and entry.text(), found
        await made.exec("echo", ["second"])
        _, found = await _until(stream, b"second")
        assert b"first" not in found
        again = await made.log_stream(follow=True, from_cursor=entry.cursor)
        _, found = await _until(again, b"second")
        assert b"first" not in found, found


async def a_log_ends_with_its_sandbox():
    async with sandbox("ends", ephemeral=True) as made:
        await made.exec("echo", ["said"])
        stream = await made.log_stream(follow=True)
        await _until(stream, b"said")
        await made.stop()
        rest = [entry async for entry in stream]
        assert len(rest) < 10, rest


async def a_log_that_is_not_followed_is_refused_by_the_package():
    async with sandbox("page") as made:
        await refused(lambda: made.logs())
        await refused(lambda: made.log_stream())
