"""LangChain's own suite for tools over ours, and what they do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Bridge
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_tests.integration_tests import ToolsIntegrationTests
from langchain_tests.unit_tests import ToolsUnitTests

import burrow
import burrow.sync
from burrow.adapters.langchain import BurrowToolkit

#: Each tool, and arguments for it.
TOOLS = {
    "run_python": {"code": "6 * 7"},
    "run_shell": {"script": "echo $PWD", "cwd": "/"},
    "read_file": {"path": "/etc/passwd"},
    "write_file": {"path": "/tmp/a/b", "text": "x"},
}


@pytest.fixture(scope="module")
def tools(bridge: Bridge) -> Iterator[dict[str, BaseTool]]:
    with burrow.sync.SandboxClient(bridge.url) as client, client.sandbox() as sandbox:
        yield {tool.name: tool for tool in BurrowToolkit(sandbox=sandbox).get_tools()}


class _OneTool:
    """LangChain's suite has no fixtures for its subject: it is given here."""

    @pytest.fixture(params=TOOLS)
    def tool(self, request: pytest.FixtureRequest, tools: dict[str, BaseTool]) -> BaseTool:
        self.name = request.param
        return tools[self.name]

    @pytest.fixture(autouse=True)
    def _given(self, tool: BaseTool) -> None:
        self._tool = tool

    @property
    def tool_constructor(self) -> BaseTool:
        return self._tool

    @property
    def tool_invoke_params_example(self) -> dict[str, Any]:
        return TOOLS[self._tool.name]


class TestUnit(_OneTool, ToolsUnitTests):
    pass


class TestIntegration(_OneTool, ToolsIntegrationTests):
    pass


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **_: Any) -> Scripted:
        return self


def _call(tool: BaseTool, **arguments: Any) -> dict[str, Any]:
    return {"name": tool.name, "args": arguments, "id": "1", "type": "tool_call"}


def test_a_model_sees_names_descriptions_and_arguments(tools: dict[str, BaseTool]) -> None:
    assert list(tools) == list(TOOLS)
    shown = convert_to_openai_tool(tools["run_shell"])["function"]["parameters"]
    assert shown["properties"]["cwd"]["description"] == "The directory in which it runs."
    assert shown["required"] == ["script"]
    assert tools["run_shell"].description.startswith("Run a script with /bin/sh.")


def test_variables_stay_and_results_come_with_the_text(tools: dict[str, BaseTool]) -> None:
    tool = tools["run_python"]
    assert tool.invoke({"code": "x = 41\nprint('said')"}) == "said"
    message = tool.invoke(_call(tool, code="print('so')\nx + 1"))
    assert isinstance(message, ToolMessage)
    assert message.content == "so\n42"
    assert isinstance(message.artifact, burrow.RunResult)
    assert message.artifact.result == "42"


def test_an_agent_uses_them(tools: dict[str, BaseTool]) -> None:
    call = {"name": "run_python", "args": {"code": "7 * 8"}, "id": "1"}
    script = [AIMessage("", tool_calls=[call]), AIMessage("done")]
    agent = create_agent(Scripted(messages=iter(script)), list(tools.values()))
    messages = agent.invoke({"messages": [HumanMessage("go")]})["messages"]
    assert [one.text for one in messages] == ["go", "", "56", "done"]


def test_failures_of_code_are_texts_for_the_model(tools: dict[str, BaseTool]) -> None:
    assert "ZeroDivisionError" in tools["run_python"].invoke({"code": "1 / 0"})
    said = tools["run_shell"].invoke({"script": "echo a; echo b >&2; exit 3"})
    assert said == "a\nb\nexit code 3 (exited)"


def test_what_the_model_can_correct_is_a_message_with_the_status_error(
    tools: dict[str, BaseTool],
) -> None:
    tool = tools["read_file"]
    message = tool.invoke(_call(tool, path="/no/such/file"))
    assert message.status == "error"
    assert "/no/such/file" in message.content


def test_long_texts_lose_their_middle_and_artifacts_nothing(bridge: Bridge) -> None:
    with burrow.sync.SandboxClient(bridge.url) as client, client.sandbox() as sandbox:
        tool = BurrowToolkit(sandbox=sandbox, chars_max=100).get_tools()[1]
        message = tool.invoke(_call(tool, script="seq 1000"))
        assert message.content.startswith("1\n2\n") and message.content.endswith("\n1000")
        assert "characters are left out" in message.content and len(message.content) < 150
        assert message.artifact.stdout.count("\n") == 1000


def test_code_that_is_too_slow_is_interrupted(bridge: Bridge) -> None:
    with burrow.sync.SandboxClient(bridge.url) as client, client.sandbox() as sandbox:
        tool = BurrowToolkit(sandbox=sandbox, timeout=0.5).get_tools()[0]
        assert "longer than its deadline of 500 ms" in tool.invoke({"code": "while True: pass"})


def test_a_cancelled_agent_ends_what_its_tool_runs(bridge: Bridge) -> None:
    async def scenario() -> None:
        async with burrow.BurrowClient(bridge.url) as client, client.sandbox() as sandbox:
            shell = BurrowToolkit(sandbox=sandbox).get_tools()[1]
            task = asyncio.create_task(
                shell.ainvoke({"script": "touch /tmp/begun; exec sleep 4321"})
            )
            while not await sandbox.files.exists("/tmp/begun"):
                await asyncio.sleep(0.02)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            found = await sandbox.shell("grep -lx 4321 -z /proc/[0-9]*/cmdline || true")
            assert "/proc/" not in found.stdout
            assert await shell.ainvoke({"script": "echo lives"}) == "lives"
            with pytest.raises(NotImplementedError, match="sync"):
                shell.invoke({"script": "true"})

    asyncio.run(scenario())


def test_what_is_no_fault_of_the_model_is_raised(bridge: Bridge) -> None:
    with burrow.sync.SandboxClient(bridge.url) as client, client.sandbox() as sandbox:
        tool = BurrowToolkit(sandbox=sandbox).get_tools()[1]
        sandbox.kill()
        with pytest.raises(burrow.NotRunning):
            tool.invoke({"script": "true"})
