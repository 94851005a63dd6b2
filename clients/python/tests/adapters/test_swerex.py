"""What SWE-ReX promises of deployments and runtimes, over ours."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from conftest import Bridge
from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import DeploymentHook
from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    DeploymentNotStartedError,
    NonZeroExitCodeError,
    SessionDoesNotExistError,
    SessionExistsError,
)
from swerex.runtime.abstract import (
    AbstractRuntime,
    BashAction,
    BashInterruptAction,
    CloseBashSessionRequest,
    Command,
    CreateBashSessionRequest,
    ReadFileRequest,
    UploadRequest,
    WriteFileRequest,
)

import burrow
from burrow.adapters.options import SandboxOptions
from burrow.adapters.swerex import BurrowDeployment, BurrowRuntime


@pytest_asyncio.fixture
async def deployment(bridge: Bridge) -> AsyncIterator[BurrowDeployment]:
    async with burrow.BurrowClient(bridge.url) as client:
        deployment = BurrowDeployment(SandboxOptions(env={"GREETING": "hello"}), client=client)
        await deployment.start()
        yield deployment
        await deployment.stop()


@pytest.fixture
def runtime(deployment: BurrowDeployment) -> BurrowRuntime:
    return deployment.runtime


async def test_a_deployment_lives_from_start_to_stop(bridge: Bridge) -> None:
    steps: list[str] = []

    class Hook(DeploymentHook):
        def on_custom_step(self, message: str) -> None:
            steps.append(message)

    async with burrow.BurrowClient(bridge.url) as client:
        deployment = BurrowDeployment(client=client)
        deployment.add_hook(Hook())
        assert isinstance(deployment, AbstractDeployment)
        with pytest.raises(DeploymentNotStartedError):
            await deployment.is_alive()
        await deployment.start()
        runtime = deployment.runtime
        assert isinstance(runtime, AbstractRuntime)
        assert steps == ["Starting sandbox"] and await deployment.is_alive()
        await deployment.stop()
        await deployment.stop()
        assert await client.list() == []
        ended = await runtime.is_alive()
        assert not ended and "there is no sandbox" in ended.message


async def test_a_session_keeps_its_state(runtime: BurrowRuntime) -> None:
    await runtime.write_file(WriteFileRequest(path="/tmp/init", content="y=sourced; echo $y"))
    made = await runtime.create_session(CreateBashSessionRequest(startup_source=["/tmp/init"]))
    assert made.output == "sourced\n"
    with pytest.raises(SessionExistsError):
        await runtime.create_session(CreateBashSessionRequest())
    await runtime.run_in_session(BashAction(command="x=42\ncd /usr\nf() { return 3; }"))
    seen = await runtime.run_in_session(BashAction(command="echo $x $y $GREETING; pwd"))
    assert (seen.output, seen.exit_code) == ("42 sourced hello\n/usr\n", 0)
    both = await runtime.run_in_session(BashAction(command="echo a; sleep 0.1; echo b >&2"))
    assert both.output == "a\nb\n"
    await runtime.create_session(CreateBashSessionRequest(session="other"))
    other = await runtime.run_in_session(BashAction(command="echo [$x]", session="other"))
    assert other.output == "[]\n"
    await runtime.close_session(CloseBashSessionRequest(session="other"))
    with pytest.raises(SessionDoesNotExistError):
        await runtime.run_in_session(BashAction(command="true", session="other"))
    await runtime.close()


async def test_exit_codes_are_raised_returned_or_ignored(runtime: BurrowRuntime) -> None:
    await runtime.create_session(CreateBashSessionRequest())
    failing = "echo said; (exit 7)"
    with pytest.raises(NonZeroExitCodeError, match=r"(?s)of the caller: .*exit code 7.*said"):
        await runtime.run_in_session(BashAction(command=failing, error_msg="of the caller"))
    silent = await runtime.run_in_session(BashAction(command=failing, check="silent"))
    assert silent.exit_code == 7
    ignored = await runtime.run_in_session(BashAction(command=failing, check="ignore"))
    assert ignored.exit_code is None
    with pytest.raises(BashIncorrectSyntaxError) as raised:
        await runtime.run_in_session(BashAction(command="touch /tmp/ran\nif then"))
    assert "syntax error" in raised.value.extra_info["bash_stderr"]
    assert not await runtime.sandbox.files.exists("/tmp/ran")
    with pytest.raises(NotImplementedError, match="no terminal"):
        await runtime.run_in_session(BashAction(command="gdb", is_interactive_command=True))


async def test_a_command_can_be_too_slow_or_be_interrupted(runtime: BurrowRuntime) -> None:
    await runtime.create_session(CreateBashSessionRequest())
    await runtime.run_in_session(BashAction(command="x=kept"))
    with pytest.raises(CommandTimeoutError):
        await runtime.run_in_session(BashAction(command="sleep 60", timeout=0.3))
    slow = BashAction(command="touch /tmp/begun; sleep 60", check="ignore")
    running = asyncio.create_task(runtime.run_in_session(slow))
    while not await runtime.sandbox.files.exists("/tmp/begun"):
        await asyncio.sleep(0.02)
    await runtime.run_in_session(BashInterruptAction())
    await running
    seen = await runtime.run_in_session(BashAction(command="echo $x"))
    assert seen.output == "kept\n"


async def test_commands_are_as_those_of_subprocess(runtime: BurrowRuntime) -> None:
    plain = await runtime.execute(Command(command=["echo", "a  b", "*"]))
    assert (plain.stdout, plain.exit_code) == ("a  b *\n", 0)
    shell = await runtime.execute(
        Command(command="echo $X; pwd; exit 3", shell=True, env={"X": "1"}, cwd="/usr")
    )
    assert (shell.stdout, shell.exit_code) == ("1\n/usr\n", 3)
    merged = Command(command="echo a; echo b >&2", shell=True, merge_output_streams=True)
    assert (await runtime.execute(merged)).stdout == "a\nb\n"
    with pytest.raises(NonZeroExitCodeError):
        await runtime.execute(Command(command="false", check=True))
    with pytest.raises(CommandTimeoutError):
        await runtime.execute(Command(command=["sleep", "60"], timeout=0.3))
    with pytest.raises(FileNotFoundError):
        await runtime.execute(Command(command="no-such-program"))


async def test_files_are_read_written_and_uploaded(runtime: BurrowRuntime, tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "f").write_text("é")
    await runtime.upload(UploadRequest(source_path=str(tmp_path / "d"), target_path="/srv/d"))
    await runtime.upload(UploadRequest(source_path=str(tmp_path / "d/f"), target_path="/srv/f"))
    for path in ("/srv/d/f", "/srv/f"):
        assert (await runtime.read_file(ReadFileRequest(path=path))).content == "é"
    ascii_only = ReadFileRequest(path="/srv/f", encoding="ascii", errors="replace")
    assert (await runtime.read_file(ascii_only)).content == "\ufffd\ufffd"
    with pytest.raises(FileNotFoundError):
        await runtime.read_file(ReadFileRequest(path="/srv/none"))
    with pytest.raises(IsADirectoryError):
        await runtime.write_file(WriteFileRequest(path="/srv", content=""))
