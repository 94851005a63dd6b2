"""A client of the same surface that is not ours: the one of the published package `a2a-pack`, as it is.
First what it says and what it takes for an answer, recorded by a stand-in, which is the contract of
whoever serves it; then against a real bridge, which serves it below `/a2a`."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from a2a_pack.sandbox import (  # type: ignore[import-untyped]
    HttpSandboxClient,
    SandboxRuntimeError,
    SandboxSpec,
)
from conftest import Bridge, eventually

import burrow
import burrow.sync

#: What is answered to each call.
ANSWERS: dict[tuple[str, str], tuple[int, Any]] = {
    ("POST", "/v1/sandboxes"): (201, {"name": "work"}),
    ("GET", "/v1/sandboxes"): (200, ["work", "other"]),
    ("POST", "/v1/sandboxes/work/exec"): (
        200,
        {"stdout": "out", "stderr": "err", "exit_code": 3, "files": [{"path": "a"}]},
    ),
    ("DELETE", "/v1/sandboxes/work"): (204, None),
    ("POST", "/v1/run_python"): (200, {"stdout": "42\n", "stderr": "", "exit_code": 0}),
    ("POST", "/v1/run_shell"): (200, {"stdout": None, "exit_code": None}),
}


class Recorder(ThreadingHTTPServer):
    """Answers, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Recorder

    def _answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        text = self.rfile.read(length)
        body = json.loads(text) if text else None
        self.server.asked.append((self.command, self.path, body))
        self.server.headers.append({k.lower(): v for k, v in self.headers.items()})
        refusal = (404, {"code": "not_found", "message": "there is none"})
        status, answer = ANSWERS.get((self.command, self.path), refusal)
        told = b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        self.wfile.write(told)

    do_GET = do_POST = do_DELETE = _answer

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    with Recorder() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_it_asks_for_sandboxes_and_commands_as_written_here(recorder: Recorder) -> None:
    async def use() -> None:
        client = HttpSandboxClient(recorder.url, auth_token="key", grant_token="grant")
        spec = SandboxSpec("work", labels={"a": "b"}, secrets=("s",), egress=("h",))
        sandbox = await client.create(spec)
        assert sandbox.name == "work"
        result = await sandbox.exec("ls", ["-l"], timeout=5)
        assert (result.stdout, result.stderr, result.exit_code) == ("out", "err", 3)
        await sandbox.shell("echo")
        assert await sandbox.logs() == ""
        assert await client.list() == ["work", "other"]
        await sandbox.stop()
        await client.remove("work")

    asyncio.run(use())
    assert recorder.asked == [
        # Its secrets and its egress are not sent, and a bucket is, though none was asked for.
        (
            "POST",
            "/v1/sandboxes",
            {
                "name": "work",
                "bucket": "agent-work",
                "image": "python:3.11-slim",
                "memory_mib": 512,
                "cpus": 1,
                "labels": {"a": "b"},
            },
        ),
        (
            "POST",
            "/v1/sandboxes/work/exec",
            {"cmd": "ls", "args": ["-l"], "timeout_seconds": 5},
        ),
        ("POST", "/v1/sandboxes/work/exec", {"script": "echo", "timeout_seconds": 1200.0}),
        ("GET", "/v1/sandboxes", None),
        # A stop is a removal, and the removal behind it another one.
        ("DELETE", "/v1/sandboxes/work", None),
        ("DELETE", "/v1/sandboxes/work", None),
    ]
    for headers in recorder.headers:
        assert headers["authorization"] == "Bearer key"
        assert headers["x-a2a-grant"] == "grant"


def test_its_one_shots_are_the_servers(recorder: Recorder) -> None:
    async def use() -> None:
        client = HttpSandboxClient(recorder.url)
        assert (await client.run_python("print(42)")).stdout == "42\n"
        result = await client.run_shell("true", image="other", workspace="w", cpus=2)
        assert (result.stdout, result.exit_code) == ("", 0)

    asyncio.run(use())
    assert recorder.asked == [
        (
            "POST",
            "/v1/run_python",
            {
                "code": "print(42)",
                "image": "python:3.11-slim",
                "bucket": "agent-workspace",
                "timeout_seconds": 1200.0,
            },
        ),
        (
            "POST",
            "/v1/run_shell",
            {
                "script": "true",
                "image": "other",
                "cpus": 2,
                "bucket": "w",
                "timeout_seconds": 1200.0,
            },
        ),
    ]
    assert "authorization" not in recorder.headers[0]


def test_a_refusal_is_its_one_error_with_the_body_as_text(recorder: Recorder) -> None:
    async def use() -> None:
        client = HttpSandboxClient(recorder.url)
        sandbox = await client.get("none")
        await sandbox.exec("true")

    with pytest.raises(SandboxRuntimeError) as refused:
        asyncio.run(use())
    assert refused.value.status_code == 404
    assert "there is none" in str(refused.value)


def outside(bridge: Bridge, **named: Any) -> Any:
    """That client, unmodified, against a real bridge."""
    return HttpSandboxClient(f"{bridge.url}/a2a", **named)


def test_it_makes_uses_and_removes_real_sandboxes(bridge: Bridge) -> None:
    async def use() -> None:
        client = outside(bridge)
        sandbox = await client.create(SandboxSpec("outside", labels={"a": "b"}, memory_mib=256))
        try:
            assert await client.list() == ["outside"]
            result = await sandbox.exec("printf", ["%s|", "a b", "$HOME"])
            assert (result.stdout, result.stderr, result.exit_code) == ("a b|$HOME|", "", 0)
            result = await sandbox.shell("echo out; echo err >&2; exit 7")
            assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 7)
            result = await sandbox.shell("echo begun; sleep 60", timeout=0.4)
            assert (result.stdout, result.exit_code) == ("begun\n", 124)
            await sandbox.shell("echo kept > /tmp/kept")
            again = await client.get("outside")
            assert (await again.exec("cat", ["/tmp/kept"])).stdout == "kept\n"
        finally:
            await sandbox.stop()
            await client.remove("outside")
        assert await client.list() == []

    asyncio.run(use())


def test_its_one_shots_run_in_real_sandboxes_and_leave_nothing(bridge: Bridge) -> None:
    async def use() -> None:
        client = outside(bridge)
        result = await client.run_python("import sys; print(6 * 7); sys.exit(3)", cpus=1)
        assert (result.stdout, result.exit_code) == ("42\n", 3)
        result = await client.run_shell("echo $0; sleep 60", timeout_seconds=0.4)
        assert (result.stdout, result.exit_code) == ("/bin/sh\n", 124)
        assert await client.list() == []

    asyncio.run(use())


def test_both_clients_see_the_same_sandboxes(bridge: Bridge) -> None:
    with burrow.sync.SandboxClient(bridge.url) as own:
        with own.sandbox("shared") as box:
            box.files.write("/tmp/x", "from ours")
            seen = asyncio.run(outside(bridge).get("shared"))
            assert asyncio.run(seen.exec("cat", ["/tmp/x"])).stdout == "from ours"
        made = asyncio.run(outside(bridge).create(SandboxSpec("shared", labels={"a": "b"})))
        assert own.get(made.name).info().labels == {"a": "b"}
        asyncio.run(made.kill())
        assert own.list() == []


def test_a_client_that_leaves_its_one_shot_leaves_nothing(bridge: Bridge) -> None:
    async def use(own: burrow.BurrowClient) -> None:
        running = asyncio.ensure_future(outside(bridge).run_shell("sleep 74; true"))
        while not await own.list():
            await asyncio.sleep(0.01)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await own.close()

    asyncio.run(use(burrow.BurrowClient(bridge.url)))
    with burrow.sync.SandboxClient(bridge.url) as own:
        eventually("the sandbox is gone", lambda: own.list() == [])


def test_refusals_reach_its_error_with_their_codes(bridge: Bridge) -> None:
    def refused(status: int, code: str, work: Any) -> None:
        with pytest.raises(SandboxRuntimeError) as error:
            asyncio.run(work)
        assert error.value.status_code == status, str(error.value)
        assert json.loads(error.value.response_body)["code"] == code

    client = outside(bridge)
    none = asyncio.run(client.get("none"))
    refused(404, "not_found", none.exec("true"))
    refused(400, "invalid", none.exec("true", timeout=-1))
    refused(400, "invalid", client.run_shell("true", nonsense=1))
    refused(400, "invalid", client.create(SandboxSpec("no name")))
    # What was asked for by name is heeded or refused, never passed over.
    with pytest.raises(SandboxRuntimeError) as error:
        asyncio.run(client.create(SandboxSpec("refused", workspace="no/such/workspace")))
    assert 400 <= error.value.status_code < 500
    assert "workspace" in error.value.response_body
    sandbox = asyncio.run(client.create(SandboxSpec("refused")))
    try:
        refused(409, "conflict", client.create(SandboxSpec("refused")))
        refused(422, "spawn_failed", sandbox.exec("no-such-program"))
    finally:
        asyncio.run(sandbox.kill())
    assert asyncio.run(client.list()) == []


def test_its_token_is_a_key_like_any_other(locked: Bridge) -> None:
    for token in (None, "wrong"):
        with pytest.raises(SandboxRuntimeError) as error:
            asyncio.run(outside(locked, auth_token=token).list())
        assert error.value.status_code == 401
    own = locked.run("keygen", "--namespace", "own", "--expire", "1h")
    client = outside(locked, auth_token=own)
    sandbox = asyncio.run(client.create(SandboxSpec("mine")))
    try:
        assert asyncio.run(client.list()) == ["mine"]
        other = locked.run("keygen", "--namespace", "other", "--expire", "1h")
        assert asyncio.run(outside(locked, auth_token=other).list()) == []
    finally:
        asyncio.run(sandbox.kill())
    reader = locked.run("keygen", "--namespace", "own", "--scope", "read", "--expire", "1h")
    with pytest.raises(SandboxRuntimeError) as error:
        asyncio.run(outside(locked, auth_token=reader).run_shell("true"))
    assert error.value.status_code == 403
