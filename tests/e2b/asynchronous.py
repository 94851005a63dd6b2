"""The same clients without threads."""

import asyncio

import e2b
import e2b_code_interpreter as interpreter


async def everything_works_without_threads():
    sbx = await interpreter.AsyncSandbox.create()
    try:
        done = await sbx.commands.run("echo a; echo b >&2")
        assert (done.stdout, done.stderr) == ("a\n", "b\n"), done
        await sbx.files.write("f", "1")
        assert await sbx.files.read("f") == "1"
        assert (await sbx.run_code("1 + 1")).text == "2"
        context = await sbx.create_code_context()
        assert (await sbx.run_code("3", context=context)).text == "3"
        seen = asyncio.Event()
        await sbx.files.make_dir("w")

        def saw(event):
            if event.name == "g" and event.type.value == "write":
                seen.set()

        watch = await sbx.files.watch_dir("w", on_event=saw)
        await sbx.commands.run("echo 1 > w/g")
        await asyncio.wait_for(seen.wait(), 30)
        await watch.stop()
        handle = await sbx.commands.run("read l; echo got $l", background=True, stdin=True)
        await sbx.commands.send_stdin(handle.pid, "x\n")
        assert (await handle.wait()).stdout == "got x\n"
        pty = await sbx.pty.create(e2b.PtySize(rows=24, cols=80), on_data=lambda data: None)
        assert await pty.kill() is True
        assert await sbx.is_running()
        found = await interpreter.AsyncSandbox.list().next_items()
        assert any(info.sandbox_id == sbx.sandbox_id for info in found)
    finally:
        assert await sbx.kill() is True
    assert not await sbx.is_running()


async def many_commands_run_at_once():
    sbx = await e2b.AsyncSandbox.create()
    done = await asyncio.gather(*(sbx.commands.run(f"echo {n}", timeout=0) for n in range(100)))
    assert [one.stdout for one in done] == [f"{n}\n" for n in range(100)]
    await sbx.kill()
