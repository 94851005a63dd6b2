"""LangChain's standard tests for sandboxes of Deep Agents over our backend, and an agent over it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import Bridge
from deepagents import create_deep_agent
from deepagents.backends.protocol import SandboxBackendProtocol
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_tests.integration_tests import SandboxIntegrationTests

import burrow
import burrow.sync
from burrow.adapters.deepagents import BurrowBackend

#: What the standard tests expect and Deep Agents itself does otherwise since 0.7.
OTHERWISE = {
    "test_write_existing_file_fails": "`write` replaces a file",
    "test_glob": "`glob` returns absolute paths",
    "test_glob_basic_pattern": "`glob` returns absolute paths",
    "test_glob_hidden_files_explicitly": "`glob` returns absolute paths",
    "test_glob_with_character_class": "`glob` returns absolute paths",
    "test_glob_with_question_mark": "`glob` returns absolute paths",
    "test_glob_with_directories": "`glob` returns files only",
}


@pytest.fixture(scope="module")
def handle(bridge: Bridge) -> Iterator[burrow.sync.SandboxHandle]:
    with burrow.sync.SandboxClient(bridge.url) as client, client.sandbox() as sandbox:
        # Images of Debian have it only under the other name.
        sandbox.shell("command -v python || ln -s $(command -v python3) /usr/bin/python").check()
        yield sandbox


class TestStandard(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self, handle: burrow.sync.SandboxHandle) -> Iterator[SandboxBackendProtocol]:
        yield BurrowBackend(handle)

    @pytest.fixture(autouse=True)
    def _known(self, request: pytest.FixtureRequest) -> None:
        if why := OTHERWISE.get(request.node.originalname):
            request.applymarker(pytest.mark.xfail(reason=why, strict=True))


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **_: Any) -> Scripted:
        return self


def _calls(name: str, **arguments: Any) -> AIMessage:
    return AIMessage("", tool_calls=[{"name": name, "args": arguments, "id": name}])


def _answers(messages: list[Any]) -> dict[str, str]:
    return {one.tool_call_id: one.text for one in messages if isinstance(one, ToolMessage)}


@pytest.mark.parametrize("is_async", [False, True])
def test_an_agents_files_and_commands_are_in_the_sandbox(
    handle: burrow.sync.SandboxHandle, is_async: bool
) -> None:
    path = f"/work-{is_async}/main.py"
    script = [
        _calls("write_file", file_path=path, content="print(6 * 7)\n"),
        _calls("edit_file", file_path=path, old_string="7", new_string="8"),
        _calls("execute", command=f"python3 {path}; exit 3"),
        _calls("grep", pattern="print", path=path.rsplit("/", 1)[0]),
        AIMessage("done"),
    ]
    agent = create_deep_agent(model=Scripted(messages=iter(script)), backend=BurrowBackend(handle))
    asked: Any = {"messages": [{"role": "user", "content": "go"}]}
    result = asyncio.run(agent.ainvoke(asked)) if is_async else agent.invoke(asked)
    assert result["messages"][-1].text == "done"
    answers = _answers(result["messages"])
    assert "48" in answers["execute"] and "exit code 3" in answers["execute"]
    assert path in answers["grep"]
    assert handle.files.read_text(path) == "print(6 * 8)\n"


def test_a_slow_command_ends_with_its_output(handle: burrow.sync.SandboxHandle) -> None:
    result = BurrowBackend(handle).execute("echo begun; sleep 60", timeout=1)
    assert (result.output, result.exit_code) == ("begun\n", 124)


def test_a_cancelled_agent_ends_what_runs(handle: burrow.sync.SandboxHandle) -> None:
    async def scenario() -> None:
        command = "touch /tmp/begun; exec sleep 4321"
        task = asyncio.create_task(BurrowBackend(handle).aexecute(command))
        while not await asyncio.to_thread(handle.files.exists, "/tmp/begun"):
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    ends = "! grep -lxz 4321 /proc/[0-9]*/cmdline"
    assert handle.shell(f"for n in $(seq 100); do {ends} && exit; sleep 0.1; done; exit 1").ok


def test_what_files_refuse_has_the_words_of_the_protocol(
    handle: burrow.sync.SandboxHandle,
) -> None:
    backend = BurrowBackend(handle)
    uploads = backend.upload_files(
        [("/etc", b""), ("/etc/passwd/x", b""), ("/proc/x", b""), ("x", b""), ("/tmp/ok", b"")]
    )
    assert [one.error for one in uploads] == [
        "is_directory",
        "invalid_path",
        "permission_denied",
        "invalid_path",
        None,
    ]


def test_a_sandbox_that_has_ended_is_no_answer(bridge: Bridge) -> None:
    with burrow.sync.SandboxClient(bridge.url) as client, client.sandbox() as sandbox:
        backend = BurrowBackend(sandbox)
        sandbox.kill()
        with pytest.raises(burrow.NotRunning):
            backend.execute("true")
