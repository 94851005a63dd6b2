"""A client of the same surface that is not ours: the one of the published package `a2a-pack`, as it is.
What it says and what it takes for an answer, recorded by a stand-in: this is the contract of whoever
serves it."""

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
