"""Programs: their output, input, ends, signals, terminals, and what is no program."""

import asyncio

import microsandbox
from microsandbox import Stdin
from wire import refused, sandbox


async def a_program_has_its_output_its_end_and_its_surroundings():
    async with sandbox("p1", env={"A": "b"}) as made:
        ran = await made.exec("sh", ["-c", "echo out; echo err >&2; exit 3"])
        assert (ran.exit_code, ran.success) == (3, False)
        assert (ran.stdout_text, ran.stderr_text) == ("out\n", "err\n")
        assert (await made.shell("echo $A; pwd", cwd="/tmp")).stdout_text == "b\n/tmp\n"
        for code in [0, 1, 127, 255]:
            assert (await made.exec("sh", ["-c", f"exit {code}"])).exit_code == code
        assert (await made.exec("sh", ["-c", "kill -9 $$"])).exit_code == 137
        own = await made.exec("sh", ["-c", "echo $B"], env={"B": "c=d"})
        assert own.stdout_text == "c=d\n"


async def much_output_loses_no_byte():
    async with sandbox("p2") as made:
        script = "import sys; [print('x' * 99) for _ in range(50000)]; sys.stderr.write('y' * 300000)"
        ran = await made.exec("python3", ["-c", script])
        assert len(ran.stdout_bytes) == 5_000_000 and set(ran.stdout_bytes) == set(b"x\n")
        assert ran.stderr_bytes == b"y" * 300_000
        binary = await made.exec("head", ["-c", "256", "/dev/zero"])
        assert binary.stdout_bytes == bytes(256)


async def input_reaches_a_program_and_ends():
    async with sandbox("p3") as made:
        ran = await made.exec("cat", [], stdin=b"hello\x00\xff")
        assert ran.stdout_bytes == b"hello\x00\xff" and ran.exit_code == 0
        handle = await made.exec_stream("cat", [], stdin=Stdin.pipe())
        sink = handle.take_stdin()
        await sink.write(b"one ")
        await sink.write(b"two")
        await sink.close()
        assert (await handle.collect()).stdout_text == "one two"


async def a_program_is_followed_and_signalled():
    async with sandbox("p4") as made:
        handle = await made.exec_stream("sh", ["-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.1; done"])
        seen = []
        async for event in handle:
            seen.append(str(event.event_type))
            if event.data == b"up\n":
                await handle.signal(15)
            if event.code is not None:
                assert event.code in (7, 143), event.code
        assert len(seen) >= 3, seen
        shell = await made.shell_stream("echo first; sleep 0.1; echo second")
        event = await shell.recv()
        assert str(event.event_type) == "started", event.event_type
        assert (await shell.collect()).stdout_text == "first\nsecond\n"
        killed = await made.exec_stream("sleep", ["1000"])
        await killed.kill()
        assert (await killed.wait())[0] == 137
        await refused(
            lambda: made.exec("sleep", ["1000"], timeout=0.5), microsandbox.ExecTimeoutError
        )


async def a_terminal_is_one():
    async with sandbox("p5") as made:
        ran = await made.exec("sh", ["-c", "test -t 0 && test -t 1 && stty size"], tty=True)
        assert ran.exit_code == 0, ran.stdout_text
        assert ran.stdout_text.split() == ["24", "80"], ran.stdout_text
        handle = await made.exec_stream("sh", ["-c", "read go; stty size"], tty=True, stdin=Stdin.pipe())
        await handle.resize(30, 100)
        await handle.take_stdin().write(b"go\n")
        assert "30 100" in (await handle.collect()).stdout_text


async def what_is_no_program_is_refused():
    async with sandbox("p6") as made:
        error = await refused(lambda: made.exec("no-such-program", []))
        assert "no-such-program" in str(error), error
        await refused(lambda: made.exec("true", [], cwd="/no/such"))
        await refused(lambda: made.exec("true", [], user="nobody-of-that-name"))
        ended = await made.exec("true", [])
        assert ended.exit_code == 0


async def a_sandbox_has_no_command_of_its_own():
    """The package asks for the image's own command, which an image of this server does not say."""
    async with sandbox("p8") as made:
        for call in [made.exec_default, made.exec_default_stream, made.attach_default]:
            await refused(call)


async def programs_run_at_once():
    async with sandbox("p7") as made:
        ran = await asyncio.gather(
            *[made.exec("sh", ["-c", f"sleep 0.2; echo {n}"]) for n in range(12)]
        )
        assert [one.stdout_text for one in ran] == [f"{n}\n" for n in range(12)]
