"""What verifiers asks of a runtime, over ours: its own tasks are set up, checked and scored in it."""

from __future__ import annotations

import asyncio
import importlib

import pytest
import verifiers.v1 as vf
from conftest import Bridge
from verifiers.v1.cli.validate import _gold, _score_untouched
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import TaskData

import burrow
from burrow.adapters.options import SandboxOptions
from burrow.adapters.verifiers import BurrowConfig, BurrowRuntime, provision

trace_module = importlib.import_module("verifiers.v1.trace")


def config(bridge: Bridge) -> BurrowConfig:
    return BurrowConfig(url=bridge.url, sandbox=SandboxOptions(egress=()))


class Greeting(vf.Task[TaskData]):
    """The agent is to write `hello` into a file."""

    async def setup(self, trace: vf.Trace, runtime: Runtime) -> None:
        await runtime.write("words", b"say hello")

    async def validate(self, runtime: Runtime) -> bool:
        done = await runtime.run(["sh", "-c", "echo hello > said; cat words said"], {})
        return done.exit_code == 0 and done.stdout == "say hellohello\n"

    @vf.reward
    async def said_it(self, trace: vf.Trace, runtime: Runtime) -> float:
        found = await runtime.run(["cat", "said"], {})
        return float(found.stdout == "hello\n")


def trace_of(task: vf.Task) -> vf.Trace:
    return trace_module.Trace(
        task=trace_module.TraceTask(
            type=type(task).__name__, data=task.data, key=task.key, hash=task.hash
        ),
        state=trace_module.State(),
        agent=vf.AgentInfo(config=vf.AgentConfig(), name="check", trainable=False),
    )


async def test_verifiers_checks_a_task_in_a_runtime(bridge: Bridge) -> None:
    task = Greeting(TaskData(idx=0, prompt="Say hello."), None)
    async with provision(config(bridge)) as runtime:
        trace = trace_of(task)
        await task.setup(trace, runtime)
        assert await _score_untouched(task, trace, runtime) is True
        assert await _gold(task, trace, runtime) is True
        solved = trace_of(task)
        assert await _score_untouched(task, solved, runtime) is False and solved.reward == 1.0


async def test_a_runtime_lives_from_start_to_stop(bridge: Bridge) -> None:
    async with burrow.BurrowClient(bridge.url) as client:
        async with provision(config(bridge), {"GREETING": "hé"}) as runtime:
            assert isinstance(runtime, Runtime) and runtime.supports_live_processes
            assert await client.list() == [runtime.info.id] and await runtime.alive()
            seen = await runtime.run(
                ["sh", "-c", "echo $GREETING $X; pwd; echo e >&2; exit 3"], {"X": "1"}
            )
            assert (seen.exit_code, seen.stdout, seen.stderr) == (3, "hé 1\n/app\n", "e\n")
            assert (await runtime.run(["no-such-program"], {})).exit_code == 127
            other = runtime.with_env({"GREETING": "other"})
            assert (await other.run(["sh", "-c", "echo $GREETING"], {})).stdout == "other\n"
        assert await client.list() == [] and runtime.stopped
        assert not await runtime.alive()
        left = BurrowRuntime(config(bridge))
        await left.start()
        await asyncio.to_thread(left.cleanup)
        assert await client.list() == []


async def test_files_are_bytes_and_bounded(bridge: Bridge) -> None:
    async with provision(config(bridge)) as runtime:
        await runtime.write("d/f", b"\x00\xff" * 50_000)
        assert await runtime.read("/app/d/f") == b"\x00\xff" * 50_000
        assert len(await runtime.read("d/f", max_bytes=100_000)) == 100_000
        with pytest.raises(SandboxError, match="over the 99999 byte limit"):
            await runtime.read("d/f", max_bytes=99_999)
        with pytest.raises(SandboxError):
            await runtime.read("none")


async def test_processes_are_typed_into_and_end(bridge: Bridge) -> None:
    async with provision(config(bridge)) as runtime:
        process = await runtime.open_process(
            ["sh", "-c", "read l; echo got $l; echo e >&2; exit 4"], {}
        )
        assert await process.poll() is None
        await process.write(b"x\n")
        assert b"".join([piece async for piece in process.stdout]) == b"got x\n"
        assert b"".join([piece async for piece in process.stderr]) == b"e\n"
        assert await process.wait() == 4 and await process.poll() == 4
        for end in ("terminate", "kill"):
            asleep = await runtime.open_process(["sleep", "1000"], {})
            await getattr(asleep, end)()
            assert await asleep.wait() > 128
        await runtime.run_background(["sh", "-c", "echo said; sleep 1000"], {}, "log")
        while b"said" not in (await runtime.read("log")):
            await asyncio.sleep(0.05)
