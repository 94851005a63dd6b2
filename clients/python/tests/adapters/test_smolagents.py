"""smolagents' own agent over our executor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from conftest import Bridge
from smolagents import CodeAgent, Model, Tool
from smolagents.models import ChatMessage, MessageRole
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError

import burrow
import burrow.sync
from burrow.adapters.smolagents import BurrowExecutor

QUIET = AgentLogger(level=LogLevel.OFF)


class Scripted(Model):
    """A model that answers with these codes, one after another, and keeps what it was asked."""

    def __init__(self, *codes: str) -> None:
        super().__init__(model_id="scripted")
        self.codes = list(codes)
        self.asked: list[str] = []

    def generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatMessage:
        self.asked.append(str(messages[-1].content))
        text = f"Thought: so.\n<code>\n{self.codes.pop(0)}\n</code>"
        return ChatMessage(role=MessageRole.ASSISTANT, content=text)


class Doubled(Tool):
    name = "doubled"
    description = "Doubles a number."
    inputs: ClassVar = {"number": {"type": "integer", "description": "the number"}}
    output_type = "integer"

    def forward(self, number: int) -> int:
        return 2 * number


@pytest.fixture(scope="module")
def sandbox(bridge: Bridge) -> Iterator[burrow.sync.SandboxHandle]:
    with burrow.sync.SandboxClient(bridge.url) as client, client.sandbox() as sandbox:
        yield sandbox


@pytest.fixture
def executor(sandbox: burrow.sync.SandboxHandle) -> Iterator[BurrowExecutor]:
    executor = BurrowExecutor(sandbox, timeout=20, logger=QUIET)
    yield executor
    executor.cleanup()


def _agent(executor: BurrowExecutor, model: Model, **more: Any) -> CodeAgent:
    return CodeAgent(
        tools=[Doubled()], model=model, executor=executor, verbosity_level=LogLevel.OFF, **more
    )


def test_an_agent_runs_steps_with_variables_tools_and_a_final_answer(
    executor: BurrowExecutor,
) -> None:
    assert isinstance(executor, RemotePythonExecutor)
    model = Scripted("x = doubled(10) + given", "print('said')\nx + 1", "final_answer({'x': x})")
    agent = _agent(executor, model)
    assert agent.run("work", additional_args={"given": 1}) == {"x": 21}
    assert "said" in model.asked[-1] and "22" in model.asked[-1]
    # Its variables and its tools are there in the next task.
    model.codes = ["final_answer(doubled(x))"]
    assert agent.run("more", reset=False) == 42


def test_an_exception_is_an_observation_from_which_the_agent_goes_on(
    executor: BurrowExecutor,
) -> None:
    model = Scripted("1 / 0", "final_answer('done')")
    agent = _agent(executor, model)
    assert agent.run("work") == "done"
    assert "ZeroDivisionError" in model.asked[-1]


@pytest.mark.parametrize("length", [10, 64 * 1024, 1_000_000])
def test_final_answers_of_any_length_arrive_whole(executor: BurrowExecutor, length: int) -> None:
    model = Scripted(f"final_answer('é' * {length})")
    assert _agent(executor, model).run("work") == "é" * length


def test_two_executors_of_one_sandbox_share_files_and_no_variables(
    sandbox: burrow.sync.SandboxHandle, executor: BurrowExecutor
) -> None:
    executor("x = 1\nopen('/tmp/shared', 'w').write('y')")
    other = BurrowExecutor(sandbox, logger=QUIET)
    assert other("open('/tmp/shared').read()").output == "'y'"
    with pytest.raises(AgentError, match="NameError"):
        other("x")
    other.cleanup()
    other.cleanup()
    assert executor("x").output == "1"


def test_code_that_is_too_slow_or_exits_is_an_error(sandbox: burrow.sync.SandboxHandle) -> None:
    executor = BurrowExecutor(sandbox, timeout=0.5, logger=QUIET)
    with pytest.raises(AgentError, match="longer than its deadline of 500 ms"):
        executor("while True: pass")
    with pytest.raises(AgentError, match="exit"):
        executor("import sys\nsys.exit(3)")
    executor.cleanup()


def test_what_cannot_be_sent_as_json_is_refused(executor: BurrowExecutor) -> None:
    with pytest.raises(Exception, match="serialize"):
        executor.send_variables({"f": lambda: None})
    hostile = "class FinalAnswerException(BaseException): pass\nraise FinalAnswerException({!r})"
    with pytest.raises(Exception, match="[Pp]ickle"):
        executor(hostile.format("pickle:gASVHgAAAAAAAACMAm50lIwGc3lzdGVtlJOUjAZ0b3VjaCB4lIWUUpQu"))


def test_a_package_that_cannot_be_installed_is_said_at_once(
    sandbox: burrow.sync.SandboxHandle,
) -> None:
    with pytest.raises(AgentError, match="cannot install /no/such/package"):
        BurrowExecutor(sandbox, additional_imports=["/no/such/package"], logger=QUIET)


def test_an_image_is_an_image(executor: BurrowExecutor) -> None:
    code = """
import base64
class Picture:
    def _repr_png_(self):
        return base64.b64decode(
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
        )
Picture()
"""
    assert executor(code).output.size == (1, 1)
