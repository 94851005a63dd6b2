"""The remote classes of sandbox-mcp, which read a result of another shape."""

import asyncio
import os

from sandbox.sdk.node_sandbox import NodeSandbox
from sandbox.sdk.python_sandbox import PythonSandbox
from sandbox.sdk.remote_sandbox import RemoteSandbox


async def code_runs_and_keeps_its_state():
    async with RemoteSandbox.create() as sandbox:
        await sandbox.run("x = 42")
        ran = await sandbox.run("print(x * 2)\nx")
        assert await ran.output() == "84\n42" and ran.has_error() is False
        ran = await sandbox.run("1/0")
        assert ran.has_error() and "ZeroDivisionError" in await ran.error()


async def the_factory_makes_a_remote_sandbox():
    async with await PythonSandbox.create_remote(server_url=os.environ["MSB_SERVER_URL"]) as sandbox:
        assert await (await sandbox.run("print('made')")).output() == "made"


async def node_runs():
    async with await NodeSandbox.create() as sandbox:
        assert await (await sandbox.run("console.log(6 * 7)")).output() == "42"


async def a_command_is_read_in_its_own_shape():
    async with RemoteSandbox.create() as sandbox:
        done = await sandbox.command.run("sh", ["-c", "echo out; echo err >&2; exit 3"])
        assert (await done.output(), await done.error()) == ("out\n", "err\n")
        assert (done.exit_code, done.timeout, done.command) == (3, False, "sh"), done.to_dict()
        assert done.has_error()
        done = await sandbox.command.run("true")
        assert done.to_dict() == {
            "stdout": "", "stderr": "", "exit_code": 0, "command": "true", "timeout": False, "has_error": False
        }  # fmt: skip


async def a_command_runs_in_its_working_directory():
    async with RemoteSandbox.create() as sandbox:
        done = await sandbox.command.run("pwd", working_directory="/usr/bin")
        assert await done.output() == "/usr/bin\n"


async def a_command_that_runs_out_of_time_raises_and_the_sandbox_works_on():
    async with RemoteSandbox.create() as sandbox:
        try:
            await sandbox.command.run("sleep", ["60"], timeout=1)
        except RuntimeError as error:
            assert "1" in str(error), error
        else:
            raise AssertionError("it did not raise")
        assert await (await sandbox.command.run("echo", ["on"])).output() == "on\n"


async def figures_are_read():
    async with RemoteSandbox.create(name="measured") as sandbox:
        await asyncio.sleep(1.1)
        figures = await sandbox.metrics.all()
        assert figures["name"] == "measured" and figures["running"] is True, figures
        assert figures["memory_usage"] > 0 and figures["cpu_usage"] is not None, figures
