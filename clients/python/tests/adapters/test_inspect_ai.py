"""Inspect's own checks of a sandbox provider, and evaluations that Inspect runs in sandboxes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio
import tomllib
from conftest import ROOT, Bridge
from inspect_ai import Task, eval_async
from inspect_ai.dataset import Sample
from inspect_ai.log import EvalLog
from inspect_ai.model import ModelAPI, ModelOutput, get_model
from inspect_ai.scorer import exact, includes
from inspect_ai.solver import Generate, Solver, TaskState, generate, solver, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentSpec,
    SandboxUnavailableError,
    sandbox,
)
from inspect_ai.util._sandbox import self_check
from inspect_ai.util._sandbox.limits import override_max_exec_output_size
from inspect_ai.util._sandbox.self_check import *

import burrow
from burrow.adapters.inspect_ai import BurrowSandboxEnvironment
from burrow.adapters.options import SandboxOptions

#: What Inspect checks and a sandbox does otherwise.
OTHERWISE = {
    "test_read_file_not_allowed": "files are read with root's rights",
    "test_write_text_file_without_permissions": "files are written with root's rights",
    "test_write_binary_file_without_permissions": "files are written with root's rights",
    "test_exec_large_command": "arguments and environment have at most 768 KiB",
}


#: What depends on the sandbox's root, not on the provider.
OF_THE_ROOT = {"test_exec_as_user": "adduser may not work over the root of the host"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True, scope="module")
def _server(bridge: Bridge) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BURROW_URL", bridge.url)
        patch.setenv("INSPECT_DISPLAY", "none")
        # Inspect's own counter reads its table from the internet.
        patch.setattr(ModelAPI, "count_text_tokens", _some_tokens)
        # The checks wait five seconds until what overran its time is gone. Here it is gone at once.
        patch.setattr(self_check, "anyio", SimpleNamespace(sleep=_at_once))
        yield


async def _some_tokens(_: ModelAPI, text: str) -> int:
    return len(text) // 4


async def _at_once(_: float) -> None:
    pass


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def environment(_server: None) -> AsyncIterator[SandboxEnvironment]:
    made = await BurrowSandboxEnvironment.sample_init("check", None, {})
    yield made["default"]
    await BurrowSandboxEnvironment.sample_cleanup("check", None, made, False)


@pytest.fixture
def sandbox_env(
    request: pytest.FixtureRequest, environment: SandboxEnvironment
) -> SandboxEnvironment:
    name = request.node.originalname
    if why := OTHERWISE.get(name):
        request.applymarker(pytest.mark.xfail(reason=why, strict=True))
    if why := OF_THE_ROOT.get(name):
        request.applymarker(pytest.mark.xfail(reason=why))
    return environment


async def _evaluated(tmp_path: Path, task: Task, *outputs: ModelOutput) -> EvalLog:
    [log] = await eval_async(
        task,
        model=get_model("mockllm/model", custom_outputs=list(outputs)),
        log_dir=str(tmp_path),
    )
    return log


async def _left() -> list[str]:
    async with burrow.BurrowClient() as client:
        return [info.name for info in await client.sandboxes(labels={"inspect-task": "work"})]


def _asks_for(command: str) -> ModelOutput:
    return ModelOutput.for_tool_call("mockllm/model", "bash", {"command": command})


async def test_a_models_commands_run_in_the_sandbox_of_their_sample(tmp_path: Path) -> None:
    (tmp_path / "burrow.yaml").write_text("memory_mib: 256\nenv: {GREETING: hello}\n")
    task = Task(
        name="work",
        dataset=[Sample("go", target="x", files={"given": "1\n"}, setup="echo setup >by-setup")],
        solver=[use_tools([bash(timeout=10)]), generate()],
        scorer=includes(),
        sandbox=("burrow", str(tmp_path / "burrow.yaml")),
    )
    outputs = [
        _asks_for("echo $GREETING $(cat given; cat by-setup)"),
        ModelOutput.from_content("m", "x"),
    ]
    log = await _evaluated(tmp_path, task, *outputs)
    assert log.status == "success", log.error
    assert log.samples
    [said] = [m.text for m in log.samples[0].messages if m.role == "tool"]
    assert said == "hello 1 setup\n"
    assert await _left() == []


async def test_a_failed_sample_leaves_no_sandbox(tmp_path: Path) -> None:
    names = []

    @solver
    def failing() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            names.extend(await _left())
            raise ValueError("of the solver")

        return solve

    options = SandboxOptions(user="nobody", labels={"team": "a"})
    spec = SandboxEnvironmentSpec("burrow", options)
    log = await _evaluated(
        tmp_path, Task([Sample("go")], name="work", solver=failing(), sandbox=spec)
    )
    assert log.status == "error" and log.error and "of the solver" in log.error.message
    assert len(names) == 1
    assert await _left() == []
    # What a log says of the sandbox can be read again.
    assert log.eval.sandbox
    again = SandboxEnvironmentSpec.model_validate(log.eval.sandbox.model_dump())
    assert again.config == options


async def test_tools_that_inspect_puts_into_a_sandbox_run_there(tmp_path: Path) -> None:
    @solver
    def remote() -> Solver:
        async def solve(state: TaskState, generate: Generate) -> TaskState:
            command = ["sh", "-c", "echo said; exit 3"]
            result = await sandbox().exec_remote(command, stream=False)
            state.output = ModelOutput.from_content("m", f"{result.stdout}{result.returncode}")
            return state

        return solve

    task = Task([Sample("go", target="said\n3")], solver=remote(), scorer=exact(), sandbox="burrow")
    log = await _evaluated(tmp_path, task)
    assert log.status == "success" and log.results, log.error
    assert log.results.scores[0].metrics["mean"].value == 1


async def test_programs_that_cannot_start_are_results(sandbox_env: SandboxEnvironment) -> None:
    missing = await sandbox_env.exec(["no-such-program"])
    assert (missing.success, missing.returncode) == (False, 127)
    assert "no-such-program" in missing.stderr
    nowhere = await sandbox_env.exec(["true"], cwd="/no/such/directory")
    assert nowhere.returncode == 126 and "/no/such/directory" in nowhere.stderr


async def test_output_beyond_the_limit_is_an_error_with_the_beginning(
    sandbox_env: SandboxEnvironment,
) -> None:
    with override_max_exec_output_size(1000), pytest.raises(OutputLimitExceededError) as raised:
        await sandbox_env.exec(["seq", "100000"])
    assert raised.value.truncated_output and raised.value.truncated_output.startswith("1\n2\n")


async def test_a_sandbox_that_has_ended_is_unavailable_and_can_be_removed_by_the_cli() -> None:
    made = await BurrowSandboxEnvironment.sample_init("work", None, {})
    environment = made["default"]
    connection = await environment.connection()
    assert connection.command.startswith("host-bridge attach default/sb-")
    await environment.as_type(BurrowSandboxEnvironment).sandbox.kill()
    with pytest.raises(SandboxUnavailableError, match="not running"):
        await environment.exec(["true"])
    with pytest.raises(ConnectionError):
        await environment.connection()
    await BurrowSandboxEnvironment.cli_cleanup("another")
    assert len(await _left()) == 1
    [name] = await _left()
    await BurrowSandboxEnvironment.cli_cleanup(name)
    assert await _left() == []
    with pytest.raises(SandboxUnavailableError, match="there is no sandbox"):
        await environment.exec(["true"])
    await BurrowSandboxEnvironment.sample_cleanup("work", None, made, True)


async def test_what_is_no_option_of_a_sandbox_is_refused() -> None:
    with pytest.raises(ValueError, match="memory"):
        BurrowSandboxEnvironment.config_deserialize({"memory": 1})


async def test_inspect_finds_it_when_the_package_is_installed() -> None:
    project = tomllib.loads((ROOT / "clients/python/pyproject.toml").read_text())["project"]
    points = project["entry-points"]["inspect_ai"]
    module = EntryPoint("burrow", points["burrow"], "inspect_ai").load()
    assert module.BurrowSandboxEnvironment is BurrowSandboxEnvironment
