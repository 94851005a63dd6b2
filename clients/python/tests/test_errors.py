"""Refusals as exceptions, bad servers, keys, and what is done when a caller is cancelled."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from conftest import PATIENCE, Bridge, Make, eventually

import burrow
import burrow.sync
from burrow import errors, settings


def test_every_code_of_the_server_has_a_class(bridge: Bridge) -> None:
    with urllib.request.urlopen(f"{bridge.url}/openapi.json", timeout=PATIENCE) as answer:
        document = json.load(answer)
    code = document["components"]["schemas"]["Code"]
    known = set(code.get("enum", ())) | {one["const"] for one in code.get("oneOf", ())}
    assert len(known) > 20
    assert known - set(errors._BY_CODE) == set()


def test_a_code_that_is_not_known_is_an_api_error_that_carries_it() -> None:
    problem = {"code": "newer", "message": "m", "hint": "h", "details": {"a": 1}}
    error = errors.from_problem(problem, status=422)
    assert type(error) is burrow.ApiError
    assert (error.code, error.status, error.details, str(error)) == (
        "newer",
        422,
        {"a": 1},
        "m (h)",
    )
    assert isinstance(errors.from_problem(problem, status=404), burrow.NotFound)
    assert isinstance(errors.from_problem(problem, status=599), burrow.ServerError)


@pytest.mark.parametrize(
    "problem",
    [
        {},
        {"code": 1, "message": [], "details": "x"},
        {"details": {"reason": {}}, "code": "conflict"},
    ],
)
def test_a_refusal_of_any_shape_is_an_exception(problem: Any) -> None:
    assert str(errors.from_problem(problem, status=409))


def test_a_limit_says_what_is_used_and_what_is_allowed() -> None:
    details = {"used": 4, "allowed": 5, "what": "sandboxes"}
    error = errors.from_problem({"code": "limit_reached", "message": "m", "details": details})
    assert isinstance(error, burrow.LimitReached)
    assert (error.used, error.allowed, error.what) == (4, 5, "sandboxes")
    bare = errors.from_problem({"code": "limit_reached", "message": "m"})
    assert isinstance(bare, burrow.LimitReached)
    assert (bare.used, bare.allowed, bare.what) == (None, None, None)


def test_errors_are_what_others_catch() -> None:
    for own, other in (
        (burrow.ConnectionFailed, ConnectionError),
        (burrow.ConnectionFailed, burrow.SandboxUnavailable),
        (burrow.SandboxTimeout, TimeoutError),
        (burrow.PermissionDenied, PermissionError),
        (burrow.NotFound, LookupError),
        (burrow.InvalidRequest, ValueError),
        (burrow.FileError, OSError),
    ):
        assert issubclass(own, other)
        raised = own("words", code="c", details={"a": 1})
        assert (str(raised), raised.code, raised.details) == ("words", "c", {"a": 1})


class Answers:
    """A server that says what it was told to say, one answer for each connection."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        held = []
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            answer = self.answers[min(self.asked, len(self.answers) - 1)]
            one.recv(65536)
            self.asked += 1
            one.sendall(answer)
            if answer:
                one.close()
            else:
                # Silence.
                held.append(one)


@contextmanager
def _answering(*answers: bytes) -> Iterator[Answers]:
    answers_ = Answers(*answers)
    try:
        yield answers_
    finally:
        answers_.listener.close()


def _said(status: str, body: str, *headers: str) -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"HTTP/1.1 {status}", *headers))
    return f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()


@pytest.mark.parametrize(
    "answer",
    [
        b"\n",
        b"SSH-2.0-x\r\n",
        b"HTTP/1.1 200 OK\r\n\r\nno json",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n[1]",
        b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nA: " + b"x" * 100_000 + b"\r\n\r\n",
        _said("200 OK", "[]"),
        _said("200 OK", "[" * 100_000),
    ],
    ids=range(11),
)
def test_what_is_no_answer_of_this_api_is_a_typed_error(flavour: Make, answer: bytes) -> None:
    with _answering(answer) as server:
        client = flavour(server.url, retries=0)
        with pytest.raises(burrow.SandboxUnavailable):
            client.list()


def test_a_refusal_in_other_words_is_told_by_its_status(flavour: Make) -> None:
    for status, kind in (
        ("502 Bad Gateway", burrow.SandboxUnavailable),
        ("403 Forbidden", burrow.PermissionDenied),
        ("302 Found", burrow.ApiError),
    ):
        with _answering(_said(status, "<html>", "Location: http://127.0.0.1:1/")) as server:
            client = flavour(server.url, retries=0)
            with pytest.raises(kind):
                client.list()
            assert server.asked == 1


def test_a_full_server_is_asked_again_when_it_says_so_and_not_for_ever(flavour: Make) -> None:
    busy = _said(
        "503 Service Unavailable", '{"code":"unavailable","message":"full"}', "Retry-After: 0"
    )
    page = _said("200 OK", '{"sandboxes":[]}')
    with _answering(busy, busy, page) as server:
        assert flavour(server.url).list() == []
    with _answering(busy) as server:
        with pytest.raises(burrow.SandboxUnavailable):
            flavour(server.url, retries=2).list()
        assert server.asked == 3
    limit = _said("429 Too Many Requests", '{"code":"limit_reached","message":"full"}')
    with _answering(limit) as server:
        with pytest.raises(burrow.LimitReached):
            flavour(server.url).list()
        assert server.asked == 1


def test_nobody_there_is_a_typed_error(flavour: Make, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for url in (f"http://127.0.0.1:{port}", f"unix:{tmp_path}/none"):
        with pytest.raises(burrow.ConnectionFailed) as failed:
            flavour(url, retries=1).run_python("1")
        assert isinstance(failed.value, ConnectionError)
        assert "cannot be reached" in str(failed.value)


def test_silence_ends_in_a_timeout_that_says_its_length(
    flavour: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("burrow.client.CREATE_SECONDS", 0.3)
    monkeypatch.setattr("burrow.client.TEARDOWN_SECONDS", 0.3)
    with _answering(b"") as server, pytest.raises(burrow.SandboxTimeout) as failed:
        flavour(server.url).create(burrow.SandboxSpec("x"))
    assert failed.value.seconds == 0.3


def test_a_client_that_is_closed_says_so(bridge: Bridge, flavour: Make) -> None:
    client = flavour(bridge.url)
    client.health()
    client.close()
    with pytest.raises(burrow.BurrowError, match="closed"):
        client.list()


SECRET = "canary-0123456789"


def test_a_key_shows_itself_nowhere(
    locked: Bridge, flavour: Make, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    caplog.set_level(logging.DEBUG)
    client = flavour(locked.url, api_key=SECRET)
    with pytest.raises(burrow.Unauthenticated) as refused:
        client.create(burrow.SandboxSpec("x"))
    inner: Any = getattr(client, "_inner", client)
    inner = inner if isinstance(inner, burrow.BurrowClient) else inner._inner
    shown = [
        "".join(traceback.format_exception(refused.value)),
        repr(refused.value.__dict__),
        repr(client),
        repr(inner._api.settings),
        repr(vars(inner._api.settings)),
        repr(inner._api.settings.key),
        f"{inner._api.settings.key}",
        caplog.text,
        *capfd.readouterr(),
        locked.log.read_text(),
    ]
    assert not [text for text in shown if SECRET in text]
    for copied in (pickle.dumps, copy.copy):
        with pytest.raises(TypeError):
            copied(inner._api.settings.key)


def test_keys_come_from_arguments_files_and_the_environment(
    locked: Bridge, flavour: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("BURROW_API_KEY", "BURROW_API_KEY_FILE", "MSB_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    key = locked.run("keygen", "--expire", "1h")
    file = tmp_path / "key"
    file.write_text(f"{key}\n")
    flavour(locked.url, api_key=key).health()
    flavour(locked.url, api_key_file=file).health()
    with pytest.raises(burrow.Unauthenticated):
        flavour(locked.url).health()
    monkeypatch.setenv("BURROW_URL", locked.url)
    monkeypatch.setenv("MSB_API_KEY", key)
    flavour().health()
    monkeypatch.setenv("MSB_API_KEY", "wrong")
    monkeypatch.setenv("BURROW_API_KEY_FILE", str(file))
    assert flavour().run_shell("echo in").stdout == "in\n"
    monkeypatch.setenv("BURROW_API_KEY", "wrong-too")
    with pytest.raises(burrow.Unauthenticated):
        flavour().health()
    with pytest.raises(burrow.Unauthenticated):
        flavour(api_key="").health()
    with pytest.raises(burrow.SandboxUnavailable):
        flavour(api_key_file=tmp_path / "none")
    with pytest.raises(burrow.InvalidRequest) as refused:
        flavour(api_key=f"{SECRET}\n{SECRET}")
    assert SECRET not in str(refused.value)


def test_a_key_reaches_no_further_than_it_may(locked: Bridge, flavour: Make) -> None:
    key = locked.run("keygen", "--namespace", "own", "--expire", "1h")
    client = flavour(locked.url, api_key=key, namespace="own")
    assert client.run_shell("echo in").ok
    with pytest.raises(burrow.PermissionDenied) as refused:
        flavour(locked.url, api_key=key).list()
    assert not isinstance(refused.value, burrow.Unauthenticated)


@pytest.mark.parametrize(
    ("url", "shown", "authority"),
    [
        ("http://h", "http://h", "h"),
        ("https://h:8443/pre/", "https://h:8443/pre", "h:8443"),
        ("http://[::1]:5555", "http://[::1]:5555", "[::1]:5555"),
        ("unix:/run/x", "unix:/run/x", "localhost"),
        ("unix:///run/x", "unix:/run/x", "localhost"),
    ],
)
def test_urls_are_understood(url: str, shown: str, authority: str) -> None:
    address = settings.parse_address(url)
    assert (str(address), address.authority) == (shown, authority)


@pytest.mark.parametrize(
    "url",
    ["", "h:1", "ftp://h", "http://", "http://u:p@h", "http://h?q", "http://h:x", "unix:x",
     "http://h/a b", "http://h/\r\nX: y"],
)  # fmt: skip
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(burrow.InvalidRequest):
        settings.parse_address(url)


def _nothing_runs(bridge: Bridge, box: str, marker: str) -> bool:
    with burrow.sync.SandboxClient(bridge.url) as client:
        find = f"cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'slee[p] {marker}'"
        return client.get(box).shell(find).stdout == "0\n"


def test_a_cancelled_command_is_killed_before_the_cancellation_goes_on(bridge: Bridge) -> None:
    async def test() -> None:
        async with burrow.BurrowClient(bridge.url) as client, client.sandbox() as box:
            running = asyncio.ensure_future(box.shell("touch /tmp/on; sleep 71; true"))
            while not await box.files.exists("/tmp/on"):
                await asyncio.sleep(0.01)
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert await asyncio.to_thread(_nothing_runs, bridge, box.name, "71")
            # The client is good for more.
            assert (await box.exec("true")).ok

    asyncio.run(test())


def test_a_one_shot_that_is_cancelled_anywhere_leaves_nothing(bridge: Bridge) -> None:
    async def test() -> None:
        async with burrow.BurrowClient(bridge.url) as client:
            for step in range(12):
                running = asyncio.ensure_future(client.run_shell("sleep 72; true"))
                await asyncio.sleep(step * 0.015)
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
                assert await client.list() == [], f"after {step} steps"
                # Twice is no way around it.
                running = asyncio.ensure_future(client.run_shell("sleep 72; true"))
                await asyncio.sleep(step * 0.015)
                running.cancel()
                await asyncio.sleep(0)
                running.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await running
                assert await client.list() == [], f"twice after {step} steps"

    asyncio.run(test())


ONE_SHOT = {
    "sync": """
import burrow.sync, sys
with burrow.sync.SandboxClient(sys.argv[1]) as client:
    client.run_shell("sleep 73; true")
""",
    "async": """
import asyncio, burrow, sys
async def main():
    async with burrow.BurrowClient(sys.argv[1]) as client:
        await client.run_shell("sleep 73; true")
asyncio.run(main())
""",
}


@pytest.mark.parametrize("kind", ONE_SHOT)
def test_ctrl_c_leaves_nothing(bridge: Bridge, kind: str) -> None:
    source = str(Path(burrow.__file__).parents[1])
    program = subprocess.Popen(
        [sys.executable, "-c", ONE_SHOT[kind], bridge.url],
        env={**os.environ, "PYTHONPATH": source},
        stderr=subprocess.PIPE,
        text=True,
    )
    with burrow.sync.SandboxClient(bridge.url) as client:
        eventually("the sandbox runs", lambda: client.sandboxes(states=["running"]))
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=PATIENCE)
        assert "KeyboardInterrupt" in said
        assert program.returncode != 0
        assert client.list() == []


def test_many_calls_at_once_share_a_client(bridge: Bridge) -> None:
    async def test() -> None:
        async with burrow.BurrowClient(bridge.url) as client, client.sandbox() as box:
            results = await asyncio.gather(*(box.exec("echo", [str(n)]) for n in range(40)))
            assert [one.stdout for one in results] == [f"{n}\n" for n in range(40)]

    asyncio.run(test())
    with burrow.sync.SandboxClient(bridge.url) as client, client.sandbox() as box:
        said: dict[int, str] = {}

        def work(n: int) -> None:
            said[n] = box.exec("echo", [str(n)]).stdout

        threads = [threading.Thread(target=work, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE)
        assert said == {n: f"{n}\n" for n in range(16)}


def test_a_client_outlives_its_event_loop(bridge: Bridge) -> None:
    client = burrow.BurrowClient(bridge.url)
    for _ in range(2):
        asyncio.run(client.health())
    asyncio.run(client.close())


def test_a_client_goes_on_in_a_child_of_its_process(bridge: Bridge) -> None:
    client = burrow.sync.SandboxClient(bridge.url)
    client.health()
    child = os.fork()
    if child == 0:
        try:
            client.health()
            os._exit(0)
        finally:
            os._exit(1)
    deadline = time.monotonic() + PATIENCE
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended[0] == child
    assert os.waitstatus_to_exitcode(ended[1]) == 0
    client.health()
    client.close()


def test_the_plain_flavour_refuses_to_hold_a_coroutine_up(bridge: Bridge) -> None:
    async def test() -> None:
        client = burrow.sync.SandboxClient(bridge.url)
        with pytest.raises(burrow.BurrowError, match="BurrowClient"):
            client.list()

    asyncio.run(test())
