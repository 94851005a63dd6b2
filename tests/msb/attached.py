"""Programs on the client's own terminal, and the package's SSH, whose connection is the agent's."""

import os
import pty
import select
import sys
import time

from wire import refused, sandbox

ATTACHED = """
import asyncio
from microsandbox import Sandbox

async def main():
    made = await Sandbox.create("terminal", image="python")
    try:
        program = "test -t 0 && stty size; read word; echo got-$word; exit 3"
        print("attach", await made.attach("sh", ["-c", program]), flush=True)
        print("attach_shell", await made.attach_shell(), flush=True)
        client = await made.ssh().open_client()
        print("SshClient", await client.attach(), flush=True)
    finally:
        await Sandbox.remove("terminal")

asyncio.run(main())
"""


def _until(terminal, text, said, seconds=60):
    """Reads until the text has come, and returns all."""
    give_up_at = time.monotonic() + seconds
    while text not in said:
        assert time.monotonic() < give_up_at, said
        if select.select([terminal], [], [], 1)[0]:
            said += os.read(terminal, 4096)
    return said


async def a_terminal_is_attached_to_programs_shells_and_ssh():
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, "-c", ATTACHED])
    said = b""
    for awaited, typed in [
        # What attach shows; then the prompts of attach_shell, and of attach over SSH.
        (b"24 80", b"word\n"),
        (b"attach 3\r\n", b"echo in-$((40 + 2)); exit 5\n"),
        (b"in-42", b""),
        (b"attach_shell 5\r\n", b"echo over-$((40 + 2)); exit 6\n"),
        (b"over-42", b""),
        (b"SshClient 6\r\n", b""),
    ]:
        said = _until(terminal, awaited, said)
        os.write(terminal, typed)
    assert b"got-word" in said, said
    assert os.waitpid(pid, 0)[1] == 0, said
    os.close(terminal)


async def ssh_runs_commands():
    async with sandbox("ssh") as made:
        client = await made.ssh().open_client()
        ran = await client.exec("echo out; echo err >&2; exit 4")
        assert (ran.status, ran.stdout_text, ran.stderr_text) == (4, "out\n", "err\n"), vars(ran)
        assert (await client.exec("test -t 0", tty=True)).status == 0
        await client.close()
        # A server for the clients of others is for machines of the package's own: SshServer.
        await refused(lambda: made.ssh().prepare_server())


async def ssh_carries_files():
    async with sandbox("sftp") as made:
        client = await made.ssh().open_client()
        files = await client.sftp()
        content = bytes(range(256)) * 4000
        await files.write("/tmp/a", content)
        assert await files.read("/tmp/a") == content
        await files.mkdir("/tmp/d")
        await files.rename("/tmp/a", "/tmp/d/b")
        assert await made.fs.read("/tmp/d/b") == content
        await files.remove_file("/tmp/d/b")
        await files.remove_dir("/tmp/d")
        assert not await made.fs.exists("/tmp/d")
        await made.exec("ln", ["-s", "target", "/tmp/link"])
        assert await files.read_link("/tmp/link") == "target"
        for call in [lambda: files.real_path("/tmp"), lambda: files.symlink("/tmp/x", "/tmp/y")]:
            await refused(call, kind=RuntimeError)
        await files.close()
        await client.close()
