"""A real bridge for the tests, and the two flavours of the client as one.

The bridge is what `BURROW_TEST_BRIDGE` and `BURROW_AGENT` name, or what a build has left below
`target/`.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import re
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import burrow
import burrow.sync

ROOT = Path(__file__).resolve().parents[3]
#: How long anything may take on a busy machine before a test gives it up.
PATIENCE = 30.0


def _built(variable: str, path: str) -> Path:
    found = Path(os.environ.get(variable) or ROOT / path)
    if not found.exists():
        pytest.exit(f"{found} is missing: `just _tested` builds it", returncode=3)
    return found


class Bridge:
    """A server with directories of its own."""

    def __init__(self, home: Path, *options: str) -> None:
        self.home = home
        self.socket = home / "api.sock"
        self.log = home / "serve.log"
        bridge = _built("BURROW_TEST_BRIDGE", "target/release/host-bridge")
        agent = _built("BURROW_AGENT", "target/x86_64-unknown-linux-musl/release/guest-agent")
        self.program = bridge
        self.environment = {
            **os.environ,
            "BURROW_RUNTIME_DIR": str(home / "run"),
            "BURROW_STATE_DIR": str(home / "state"),
            "BURROW_NO_DAEMON": "1",
            "BURROW_AGENT": str(agent),
            # The tests' own machine: bridges with keys give its root too.
            "BURROW_PROCESS_ROOT": "/",
        }
        listening = ["--listen", "127.0.0.1:0", "--listen", f"unix:{self.socket}"]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [bridge, "serve", *listening, *options],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        eventually("the bridge listens", lambda: len(self._said()) == 2)
        self.url = next(said for said in self._said() if said.startswith("http"))

    def _said(self) -> list[str]:
        if self.process.poll() is not None:
            raise AssertionError(f"the bridge has ended: {self.log.read_text()}")
        return re.findall(r"listening on ((?:https?|unix):\S+)\n", self.log.read_text())

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [self.program, *arguments],
            env=self.environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
        )
        return done.stdout.strip()

    def end(self) -> None:
        with burrow.sync.SandboxClient(self.url, api_key="") as client:
            try:
                for name in client.list():
                    client.remove(name)
            except burrow.BurrowError:
                # One with keys is tidied up by who has one.
                pass
        self.process.terminate()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def eventually(what: str, holds: Callable[[], Any], seconds: float = PATIENCE) -> None:
    """Polls until something holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.01)


@contextmanager
def served(*options: str) -> Iterator[Bridge]:
    # Paths of sockets are short.
    with tempfile.TemporaryDirectory(prefix="burrow-") as home:
        bridge = Bridge(Path(home), *options)
        try:
            yield bridge
        finally:
            bridge.end()


@pytest.fixture(scope="session")
def bridge() -> Iterator[Bridge]:
    """One that lets everybody in."""
    with served("--dev") as bridge:
        yield bridge


@pytest.fixture(scope="session")
def locked() -> Iterator[Bridge]:
    """One that wants a key."""
    with served() as bridge:
        yield bridge


#: What is passed through as it is when it comes out of a call.
_OWN = (
    burrow.BurrowClient,
    burrow.Sandbox,
    burrow.Stream,
    burrow.Context,
    burrow.Notebook,
    burrow.Files,
)


class Awaited:
    """An asynchronous object as the synchronous flavour would have it: each call is awaited on one
    loop. So one suite says what both flavours do."""

    def __init__(self, runner: asyncio.AbstractEventLoop, inner: Any) -> None:
        self._runner = runner
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return self._shown(getattr(self._inner, name))

    def __repr__(self) -> str:
        return repr(self._inner)

    def _shown(self, value: Any) -> Any:
        if isinstance(value, _OWN):
            return Awaited(self._runner, value)
        if inspect.iscoroutine(value):
            return self._shown(self._runner.run_until_complete(value))
        if hasattr(value, "__aenter__"):
            return Awaited(self._runner, value)
        if inspect.isasyncgen(value):
            return self._iterated(value)
        if callable(value) and not isinstance(value, type):
            return lambda *args, **named: self._shown(value(*args, **named))
        return value

    def _iterated(self, source: Any) -> Iterator[Any]:
        try:
            while True:
                try:
                    yield self._runner.run_until_complete(source.__anext__())
                except StopAsyncIteration:
                    return
        finally:
            self._runner.run_until_complete(source.aclose())

    def __iter__(self) -> Iterator[Any]:
        return self._iterated(self._inner.__aiter__())

    def __enter__(self) -> Any:
        entered = self._runner.run_until_complete(self._inner.__aenter__())
        return Awaited(self._runner, entered)

    def __exit__(self, *error: object) -> Any:
        return self._runner.run_until_complete(self._inner.__aexit__(*error))


Make = Callable[..., Any]


@pytest.fixture(params=["async", "sync"])
def flavour(request: pytest.FixtureRequest) -> Iterator[Make]:
    """Makes clients of either flavour, to be used without `await`."""
    loop = asyncio.new_event_loop()
    made: list[Any] = []

    def make(*args: Any, **named: Any) -> Any:
        if request.param == "sync":
            client: Any = burrow.sync.SandboxClient(*args, **named)
        else:
            client = Awaited(loop, burrow.BurrowClient(*args, **named))
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()
    left = asyncio.all_tasks(loop)
    assert not left, f"tasks go on after their calls: {left}"
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture
def client(bridge: Bridge, flavour: Make) -> Any:
    return flavour(bridge.url)


@pytest.fixture
def box(client: Any) -> Iterator[Any]:
    with client.sandbox() as box:
        yield box


class Scissors:
    """A way to the bridge that is cut where a test wants it: the request gets there, its answer does
    not get back."""

    def __init__(self, port: int) -> None:
        import socket

        self.port = port
        self.cuts: list[bytes] = []
        self.requests: list[bytes] = []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self, request: str, times: int = 1) -> None:
        """The answers to the next requests that begin so are lost."""
        self.cuts += [request.encode()] * times

    def close(self) -> None:
        self.listener.close()

    def _accept(self) -> None:
        import socket

        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(("127.0.0.1", self.port))
            doomed = threading.Event()
            for one, other, is_request in ((near, far, True), (far, near, False)):
                threading.Thread(
                    target=self._carry, args=(one, other, is_request, doomed), daemon=True
                ).start()

    def _carry(self, source: Any, target: Any, is_request: bool, doomed: threading.Event) -> None:
        import socket

        try:
            while data := source.recv(65536):
                if is_request:
                    self.requests.append(data)
                    found = next((cut for cut in self.cuts if data.startswith(cut)), None)
                    if found is not None:
                        self.cuts.remove(found)
                        doomed.set()
                elif doomed.is_set():
                    # The answer is there, and nobody gets it.
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            end.close()


@pytest.fixture
def scissors(bridge: Bridge) -> Iterator[Scissors]:
    scissors = Scissors(int(bridge.url.rsplit(":", 1)[1]))
    yield scissors
    scissors.close()
