"""What the SDK's documentation shows, each example run as it stands in `documented.md`, against the
installed package."""

import ast
import asyncio
import contextlib
import io
import pathlib
import re
import time

import aiohttp
import microsandbox
from microsandbox import NodeSandbox, PythonSandbox

_TEXT = pathlib.Path(__file__).with_suffix(".md").read_text()
_EXAMPLES = dict(re.findall(r"^## (\w+)\n```python\n(.*?)^```$", _TEXT, re.MULTILINE | re.DOTALL))


async def _run(example, **names):
    """Runs an example; what it has printed, and the names that it leaves."""
    names |= {"aiohttp": aiohttp, "PythonSandbox": PythonSandbox, "NodeSandbox": NodeSandbox}
    code = compile(_EXAMPLES[example], example, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        running = eval(code, names)
        if running is not None:
            await running
    return printed.getvalue(), names


async def _run_in_sandbox(example):
    """The same for an example that begins with a sandbox `sb`."""
    async with PythonSandbox.create() as sb:
        return await _run(example, sb=sb)


def quick_start():
    # The example starts an event loop of its own.
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(_EXAMPLES["quick_start"], "quick_start", "exec"), {})
    assert printed.getvalue() == "Good morning from inside\n", printed.getvalue()


async def create():
    printed, _ = await _run("create")
    assert printed == "At your service\n", printed


async def start_with_resources():
    _, names = await _run("start_with_resources")
    sandbox = names["roomy"]
    try:
        assert await (await sandbox.run("print(6 * 7)")).output() == "42"
    finally:
        await sandbox.stop()
        await sandbox._session.close()


async def simple_execution():
    printed, _ = await _run_in_sandbox("simple_execution")
    assert printed == "One line is enough\n", printed


async def multi_line_code():
    _, names = await _run_in_sandbox("multi_line_code")
    assert await names["ran"].output() == "A circle of radius 2 covers 12.57"
    assert not names["ran"].has_error(), await names["ran"].error()
    assert names["ran"].status == "success"


async def command_property():
    printed, _ = await _run_in_sandbox("command_property")
    assert printed.startswith("total ") and " tmp\n" in printed and " usr" in printed, printed


async def metrics_property():
    async with PythonSandbox.create() as sb:
        await asyncio.sleep(1.1)
        printed, _ = await _run("metrics_property", sb=sb)
    assert re.fullmatch(r"\d+(\.\d+)? % of a CPU and \d+ MiB\n", printed), printed


async def node():
    printed, _ = await _run("node")
    assert printed == "JavaScript speaking\n", printed


async def handling_execution_results():
    printed, _ = await _run_in_sandbox("handling_execution_results")
    lines = printed.splitlines()
    assert lines[0] in ("It ended as success", "It ended as error"), printed
    assert lines[1:3] == ["It was written in python", "It said Done so far"], printed
    assert lines[3] in ("It failed: False", "It failed: True"), printed


async def simple_command():
    _, names = await _run_in_sandbox("simple_command")
    result = names["listed"]
    assert isinstance(result, microsandbox.CommandExecution)
    assert (result.success, result.exit_code, result.command, result.args) == (True, 0, "ls", [])


async def command_with_arguments():
    _, names = await _run_in_sandbox("command_with_arguments")
    result = names["listed"]
    assert (result.success, result.exit_code, result.args) == (True, 0, ["-la", "/tmp"])
    assert (await result.output()).startswith("total "), await result.output()


async def command_with_timeout():
    async with PythonSandbox.create() as sb:
        begun = time.monotonic()
        try:
            await _run("command_with_timeout", sb=sb)
        except RuntimeError as error:
            seconds = time.monotonic() - begun
            assert 4.5 < seconds < 9, seconds
            assert re.search(r"\b5\b", str(error)), error
        else:
            raise AssertionError("a command that runs out of time raises")
        assert await (await sb.command.run("echo", ["on"])).output() == "on"


async def command_error_handling():
    printed, names = await _run_in_sandbox("command_error_handling")
    assert printed.startswith("Complaint: ") and "/no/such/place" in printed, printed
    assert printed.endswith("It left with 2\n"), printed
    assert names["looked"].success is False


async def metrics():
    async with PythonSandbox.create(name="measured") as sb:
        await asyncio.sleep(1.1)
        printed, names = await _run("metrics", sb=sb)
    lines = printed.splitlines()
    assert re.fullmatch(r"\d+(\.\d+)? % of a CPU", lines[0]), printed
    assert re.fullmatch(r"\d+ MiB of memory", lines[1]), printed
    assert re.fullmatch(r"\d+ bytes on disk|no word of the disk", lines[2]), printed
    assert lines[3] == "alive: True", printed
    everything = names["figures"]
    assert (everything["name"], everything["namespace"]) == ("measured", "default"), everything
    keys = {"name", "namespace", "running", "cpu_usage", "memory_usage", "disk_usage"}
    assert keys <= set(everything), everything


async def context_manager():
    printed, _ = await _run("context_manager")
    assert printed == "Nothing of this stays\n", printed


async def manual_life_cycle():
    printed, _ = await _run("manual_life_cycle")
    assert printed == "Started by hand\n", printed


async def state_persistence():
    printed, _ = await _run("state_persistence")
    assert printed == "Pears in the basket: 21\n", printed


async def error_handling():
    printed, _ = await _run("error_handling")
    assert printed.startswith("It stumbled: ") and "ZeroDivisionError" in printed, printed


async def file_operations():
    printed, _ = await _run("file_operations")
    assert printed == "The note says: Signed inside\n", printed


async def best_practices():
    printed, _ = await _run("best_practices")
    assert printed.startswith("The code failed: ") and "NameError" in printed, printed
