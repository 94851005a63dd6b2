"""Files: written, read, listed, looked at, made, moved, copied, removed."""

import os
import tempfile

from wire import refused, sandbox


async def a_file_is_written_and_read():
    async with sandbox("f1") as made:
        fs = made.fs
        for content in [b"", b"hello", bytes(range(256)) * 40_000]:
            await fs.write("/tmp/a", content)
            assert await fs.read("/tmp/a") == content, len(content)
        await fs.write("/tmp/a", b"short")
        assert await fs.read_text("/tmp/a") == "short"
        sink = await fs.write_stream("/tmp/s")
        for piece in [b"one ", b"two"]:
            await sink.write(piece)
        await sink.close()
        stream = await fs.read_stream("/tmp/s")
        assert b"".join([piece async for piece in stream]) == b"one two"
        stream = await fs.read_stream("/tmp/s")
        assert await stream.collect() == b"one two"
        assert (await made.exec("cat", ["/tmp/s"])).stdout_text == "one two"
        await refused(lambda: fs.read("/tmp/none"), says="none")
        await refused(lambda: fs.read("/tmp"), says="directory")
        await refused(lambda: fs.write("/no/such/file", b"x"))


async def files_are_brought_from_the_host_and_back():
    async with sandbox("f2") as made:
        with tempfile.TemporaryDirectory() as place:
            content = os.urandom(3_500_000)
            with open(os.path.join(place, "up"), "wb") as file:
                file.write(content)
            await made.fs.copy_from_host(os.path.join(place, "up"), "/tmp/up")
            await made.fs.copy_to_host("/tmp/up", os.path.join(place, "down"))
            with open(os.path.join(place, "down"), "rb") as file:
                assert file.read() == content


async def directories_are_made_listed_and_removed():
    async with sandbox("f3") as made:
        fs = made.fs
        await fs.mkdir("/tmp/d/e")
        await fs.write("/tmp/d/f", b"123")
        await made.exec("ln", ["-s", "f", "/tmp/d/l"])
        listed = {one.path: one for one in await fs.list("/tmp/d")}
        assert sorted(listed) == ["/tmp/d/e", "/tmp/d/f", "/tmp/d/l"], listed
        kinds = [str(listed[name].kind).lower() for name in sorted(listed)]
        assert [kind.rsplit(".", 1)[-1] for kind in kinds] == ["directory", "file", "symlink"], kinds
        assert listed["/tmp/d/f"].size == 3
        looked = await fs.stat("/tmp/d/f")
        assert looked.size == 3 and looked.mode & 0o777 == 0o644, looked.mode
        assert await fs.exists("/tmp/d/f") and not await fs.exists("/tmp/d/none")
        await refused(lambda: fs.remove("/tmp/d"), says="directory")
        await refused(lambda: fs.remove_dir("/tmp/d/f"), says="directory")
        await fs.remove("/tmp/d/f")
        await fs.remove_dir("/tmp/d")
        assert not await fs.exists("/tmp/d")
        await refused(lambda: fs.list("/tmp/d"))


async def files_are_copied_and_moved():
    async with sandbox("f4") as made:
        fs = made.fs
        await fs.write("/tmp/a", b"content")
        await made.exec("chmod", ["750", "/tmp/a"])
        await fs.copy("/tmp/a", "/tmp/b")
        assert await fs.read("/tmp/b") == b"content"
        assert (await fs.stat("/tmp/b")).mode & 0o777 == 0o750
        await fs.rename("/tmp/b", "/tmp/c")
        assert await fs.read("/tmp/c") == b"content" and not await fs.exists("/tmp/b")
        await refused(lambda: fs.copy("/tmp", "/tmp/t"), says="directory")
        await refused(lambda: fs.rename("/tmp/b", "/tmp/x"))


async def no_path_leads_out_of_the_sandbox():
    async with sandbox("f5") as made:
        fs = made.fs
        for path in ["relative", "/proc/self/mem", "/proc/1/root/etc/passwd", "/tmp/\0"]:
            for call in [lambda: fs.write(path, b"x"), lambda: fs.read(path)]:
                try:
                    await refused(call)
                except AssertionError:
                    raise AssertionError(f"{path!r} was not refused") from None
