"""The OpenAI Agents SDK's own runner and sessions over our client."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from agents import ModelResponse, RunConfig, Runner, Usage
from agents.editor import ApplyPatchOperation
from agents.models.interface import Model
from agents.run_config import SandboxRunConfig
from agents.sandbox import SandboxAgent
from agents.sandbox.entries import (
    Dir,
    File,
    InContainerMountStrategy,
    RcloneMountPattern,
    S3Mount,
)
from agents.sandbox.errors import (
    ExecTimeoutError,
    ExecTransportError,
    ExposedPortUnavailableError,
    InvalidManifestPathError,
    MountConfigError,
    WorkspaceArchiveReadError,
    WorkspaceReadNotFoundError,
)
from agents.sandbox.manifest import Environment, Manifest
from agents.sandbox.snapshot import LocalSnapshotSpec
from conftest import Bridge
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import burrow
from burrow.adapters.openai_agents import BurrowSandboxClient, BurrowSandboxClientOptions
from burrow.adapters.options import SandboxOptions


class Scripted(Model):
    """A model that calls these tools, one after another, and then says `done`."""

    def __init__(self, *calls: tuple[str, dict[str, Any]]) -> None:
        self.calls = list(calls)
        self.asked: list[Any] = []

    async def get_response(self, *args: Any, **named: Any) -> ModelResponse:
        self.asked.append(args[1] if len(args) > 1 else named["input"])
        output: list[Any]
        if self.calls:
            name, arguments = self.calls.pop(0)
            text = json.dumps(arguments)
            output = [
                ResponseFunctionToolCall(
                    type="function_call", call_id="c", name=name, arguments=text
                )
            ]
        else:
            text = ResponseOutputText(type="output_text", text="done", annotations=[])
            output = [
                ResponseOutputMessage(
                    type="message", id="m", role="assistant", status="completed", content=[text]
                )
            ]
        return ModelResponse(output=output, usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@pytest_asyncio.fixture
async def client(bridge: Bridge) -> AsyncIterator[BurrowSandboxClient]:
    client = BurrowSandboxClient(burrow.BurrowClient(bridge.url))
    yield client
    await client.close()


async def _left(client: BurrowSandboxClient) -> list[str]:
    return await client._client.list()


async def test_an_agent_works_in_a_workspace_and_leaves_no_sandbox(
    client: BurrowSandboxClient,
) -> None:
    manifest = Manifest(
        entries={"src": Dir(children={"main.py": File(content=b"print(6 * 7)\n")})},
        environment=Environment(value={"GREETING": "hello"}),
    )
    model = Scripted(("exec_command", {"cmd": "echo $GREETING $PWD; python3 src/main.py; ls /nix"}))
    agent = SandboxAgent(name="a", model=model, default_manifest=manifest)
    config = RunConfig(sandbox=SandboxRunConfig(client=client), tracing_disabled=True)
    result = await Runner.run(agent, "go", run_config=config)
    assert result.final_output == "done"
    said = str(model.asked[-1][-1]["output"])
    assert "hello /workspace\n42\n" in said and "exited with code 2" in said
    assert await _left(client) == []


async def test_commands_have_users_timeouts_and_exit_codes(client: BurrowSandboxClient) -> None:
    async with await client.create() as session:
        result = await session.exec("printf '\\377'; echo b >&2; exit 3")
        assert (result.stdout, result.stderr, result.exit_code) == (b"\xff", b"b\n", 3)
        assert (await session.exec("whoami", user="nobody")).stdout == b"nobody\n"
        assert (await session.exec("no-such", shell=False)).exit_code == 127
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep 60", timeout=0.3)
        await session._inner.sandbox.kill()
        assert not await session.running()
        with pytest.raises(ExecTransportError, match="not running"):
            await session.exec("true")
    await client.delete(session)
    assert await _left(client) == []


async def test_files_are_those_of_the_workspace(client: BurrowSandboxClient) -> None:
    async with await client.create() as session:
        data = bytes(range(256)) * 100
        await session.write(Path("a/b"), io.BytesIO(data))
        assert (await session.read(Path("/workspace/a/b"))).read() == data
        assert await session.read_bounded(Path("a/b"), max_bytes=300) == data[:300]
        await session.mkdir("c/d", parents=True)
        assert sorted(Path(entry.path).name for entry in await session.ls(".")) == ["a", "c"]
        await session.rm("a", recursive=True)
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("a/b"))
        with pytest.raises(WorkspaceArchiveReadError):
            await session.read(Path("c"))
        await session.exec("ln -s /etc out")
        for path in ("out/passwd", "../etc/passwd", "/etc/passwd"):
            with pytest.raises(InvalidManifestPathError):
                await session.read(Path(path))
        await session.exec("umask 077; echo secret >private")
        with pytest.raises(WorkspaceArchiveReadError):
            await session.read(Path("private"), user="nobody")


async def test_patches_are_applied_in_the_workspace(client: BurrowSandboxClient) -> None:
    manifest = Manifest(entries={"f": File(content=b"a\nb\n")})
    async with await client.create(manifest=manifest) as session:
        await session.apply_patch(
            [
                ApplyPatchOperation("create_file", "new/g", "+x\n"),
                ApplyPatchOperation("update_file", "f", "@@\n a\n-b\n+c\n"),
            ]
        )
        assert (await session.exec("cat f new/g")).stdout == b"a\nc\nx"


async def test_a_bucket_is_refused_before_anything_is_made(client: BurrowSandboxClient) -> None:
    mount = S3Mount(
        bucket="b", mount_strategy=InContainerMountStrategy(pattern=RcloneMountPattern())
    )
    with pytest.raises(MountConfigError, match="workspace"):
        await client.create(manifest=Manifest(entries={"data": mount}))
    assert await _left(client) == []


async def test_a_workspace_outlives_its_sandbox_by_a_snapshot(
    client: BurrowSandboxClient, tmp_path: Path
) -> None:
    manifest = Manifest(entries={"tmp": Dir(ephemeral=True)})
    snapshot = LocalSnapshotSpec(base_path=tmp_path)
    async with await client.create(snapshot=snapshot, manifest=manifest) as session:
        await session.exec("mkdir -p d; echo kept >d/f; chmod +x d/f; echo x >tmp/not-kept")
    assert await _left(client) == []
    state = client.deserialize_session_state(client.serialize_session_state(session.state))
    async with await client.resume(state) as again:
        assert (await again.exec("cat d/f; test -x d/f; ls tmp")).stdout == b"kept\n"
        assert [again.state.name] == await _left(client)
    assert await _left(client) == []


async def test_a_sandbox_that_is_kept_is_found_again(client: BurrowSandboxClient) -> None:
    options = BurrowSandboxClientOptions(
        sandbox=SandboxOptions(memory_mib=256, labels={"team": "a"}), on_exit="keep"
    )
    async with await client.create(options=options) as session:
        await session.exec("echo kept >f; (sleep 60 & echo $! >pid)")
    [name] = await _left(client)
    state = client.deserialize_session_state(client.serialize_session_state(session.state))
    async with await client.resume(state) as again:
        assert (await again.exec("cat f; kill -0 $(cat pid)")).exit_code == 0
        assert again.state.name == name
    info = await again._inner.sandbox.info()
    assert info.memory_mib == 256 and info.labels["team"] == "a"
    await client.delete(again)
    assert await _left(client) == []


async def test_an_exposed_port_is_reached_by_its_link(client: BurrowSandboxClient) -> None:
    options = BurrowSandboxClientOptions(exposed_ports=(8123,))
    async with await client.create(options=options) as session:
        endpoint = await session.resolve_exposed_port(8123)
        assert endpoint.url_for("http").startswith("http://8123-")
        assert "burrow_link=" in endpoint.query
        with pytest.raises(ExposedPortUnavailableError, match="not configured"):
            await session.resolve_exposed_port(1)
