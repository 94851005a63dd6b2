"""The client without `await`: each client has a thread with an event loop, which runs the asynchronous
one. An interrupt of the caller (ctrl-c) cancels the call that it waits for, and waits for its clean-up.
Everything else is the same.

A client may be used from several threads at once, but not from a coroutine, because it would block
the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections.abc import (
    AsyncIterable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any

from . import client as _client
from . import commands as _commands
from . import contexts as _contexts
from . import files as _files
from .archive import Transfer
from .errors import BurrowError
from .limits import (
    DOWNLOAD_BYTES_MAX,
    DOWNLOAD_ENTRIES_MAX,
    READ_BYTES_MAX,
    RETRIES,
    RUN_SECONDS,
)
from .portal import Portal
from .results import (
    CommandResult,
    Event,
    FileInfo,
    Metrics,
    RunEvent,
    RunResult,
    SandboxInfo,
    SnapshotInfo,
    StreamEvent,
    Synced,
    TemplateInfo,
)
from .surface import USUAL_IMAGE, ExecResult, SandboxSpec

if TYPE_CHECKING:
    import builtins

    from typing_extensions import Self

__all__ = ["Context", "Files", "Notebook", "SandboxClient", "SandboxHandle", "Stream"]


class Stream:
    """A command that is streamed while it runs; iterating yields its events. Leaving before its end
    kills it."""

    def __init__(self, loop: Portal, stream: _commands.Stream) -> None:
        self._loop = loop
        self._stream = stream

    @property
    def session(self) -> str:
        return self._stream.session

    @property
    def result(self) -> CommandResult | None:
        return self._stream.result

    def start(self) -> Stream:
        self._loop.run(self._stream.start())
        return self

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[StreamEvent]:
        try:
            while (event := self.next()) is not None:
                yield event
        finally:
            self.close()

    def next(self) -> StreamEvent | None:
        return self._loop.run(self._stream.next())

    def wait(self) -> CommandResult:
        return self._loop.run(self._stream.wait())

    def write(self, data: bytes | str) -> None:
        self._loop.run(self._stream.write(data))

    def close_stdin(self) -> None:
        self._loop.run(self._stream.close_stdin())

    def signal(self, signal: str) -> None:
        self._loop.run(self._stream.signal(signal))

    def kill(self) -> None:
        self._loop.run(self._stream.kill())

    def close(self) -> None:
        self._loop.run(self._stream.close())


class _Interpreter:
    def __init__(self, loop: Portal, inner: _contexts.Context | _contexts.Notebook) -> None:
        self._loop = loop
        self._running = inner
        self.name = inner.name

    def run(
        self,
        code: str,
        *,
        timeout: float | None = None,
        stdin: str | None = None,
        artifacts: bool = False,
    ) -> RunResult:
        return self._loop.run(
            self._running.run(code, timeout=timeout, stdin=stdin, artifacts=artifacts)
        )

    def stream(
        self,
        code: str,
        *,
        timeout: float | None = None,
        stdin: str | None = None,
        artifacts: bool = False,
    ) -> Generator[RunEvent, None, None]:
        return self._loop.iterate(
            self._running.stream(code, timeout=timeout, stdin=stdin, artifacts=artifacts)
        )

    def interrupt(self) -> None:
        self._loop.run(self._running.interrupt())

    def info(self) -> Mapping[str, Any]:
        return self._loop.run(self._running.info())


class Context(_Interpreter):
    def __init__(self, loop: Portal, inner: _contexts.Context) -> None:
        super().__init__(loop, inner)
        self._inner = inner

    def restart(self) -> None:
        self._loop.run(self._inner.restart())

    def close(self) -> None:
        self._loop.run(self._inner.close())


class Notebook(_Interpreter):
    def __init__(self, loop: Portal, inner: _contexts.Notebook) -> None:
        super().__init__(loop, inner)
        self._inner = inner

    def save(self) -> Mapping[str, Any]:
        return self._loop.run(self._inner.save())

    def reset(self) -> None:
        self._loop.run(self._inner.reset())

    def remove(self) -> None:
        self._loop.run(self._inner.remove())


class Files:
    def __init__(self, loop: Portal, inner: _files.Files) -> None:
        self._loop = loop
        self._inner = inner

    def read(self, path: str, *, bytes_max: int = READ_BYTES_MAX) -> bytes:
        return self._loop.run(self._inner.read(path, bytes_max=bytes_max))

    def read_text(self, path: str, *, encoding: str = "utf-8") -> str:
        return self._loop.run(self._inner.read_text(path, encoding=encoding))

    def read_stream(self, path: str) -> Generator[bytes, None, None]:
        return self._loop.iterate(self._inner.read_stream(path))

    def write(
        self,
        path: str,
        data: bytes | str | Iterable[bytes],
        *,
        parents: bool = True,
        append: bool = False,
        permissions: int | None = None,
    ) -> int:
        pieces = data if isinstance(data, (bytes, str)) else _pieces(iter(data))
        return self._loop.run(
            self._inner.write(path, pieces, parents=parents, append=append, permissions=permissions)
        )

    def list(self, path: str) -> builtins.list[FileInfo]:
        return self._loop.run(self._inner.list(path))

    def stat(self, path: str, *, follow: bool = False) -> FileInfo:
        return self._loop.run(self._inner.stat(path, follow=follow))

    def exists(self, path: str) -> bool:
        return self._loop.run(self._inner.exists(path))

    def mkdir(self, path: str, *, parents: bool = True) -> None:
        self._loop.run(self._inner.mkdir(path, parents=parents))

    def move(self, source: str, target: str, *, replace: bool = False) -> None:
        self._loop.run(self._inner.move(source, target, replace=replace))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        self._loop.run(self._inner.remove(path, recursive=recursive))

    def upload(self, local: str | os.PathLike[str], remote: str) -> Transfer:
        return self._loop.run(self._inner.upload(local, remote))

    def download(
        self,
        remote: str,
        local: str | os.PathLike[str],
        *,
        bytes_max: int = DOWNLOAD_BYTES_MAX,
        entries_max: int = DOWNLOAD_ENTRIES_MAX,
    ) -> Transfer:
        return self._loop.run(
            self._inner.download(remote, local, bytes_max=bytes_max, entries_max=entries_max)
        )


async def _pieces(source: Iterator[bytes]) -> AsyncIterable[bytes]:
    # The caller's iterator may block, and must not block the loop.
    while (piece := await asyncio.to_thread(next, source, None)) is not None:
        yield piece


class SandboxHandle:
    """A sandbox. Used as a context manager, it is removed at the end of the block."""

    def __init__(self, loop: Portal, inner: _client.Sandbox) -> None:
        self._loop = loop
        self._inner = inner
        self.name = inner.name
        self.namespace = inner.namespace
        self.id = inner.id
        self.files = Files(loop, inner.files)

    def __repr__(self) -> str:
        return f"SandboxHandle({self.namespace}/{self.name})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.run(self._inner.__aexit__(*error))

    def exec(
        self,
        cmd: str,
        args: Sequence[str] | None = None,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bytes | str | None = None,
        output_bytes_max: int | None = None,
    ) -> CommandResult:
        return self._loop.run(
            self._inner.exec(
                cmd,
                args,
                timeout=timeout,
                cwd=cwd,
                env=env,
                user=user,
                stdin=stdin,
                output_bytes_max=output_bytes_max,
            )
        )

    def shell(
        self,
        script: str,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bytes | str | None = None,
        output_bytes_max: int | None = None,
    ) -> CommandResult:
        return self._loop.run(
            self._inner.shell(
                script,
                timeout=timeout,
                cwd=cwd,
                env=env,
                user=user,
                stdin=stdin,
                output_bytes_max=output_bytes_max,
            )
        )

    def stream(
        self,
        cmd: str,
        args: Sequence[str] | None = None,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bytes | str | bool | None = None,
    ) -> Stream:
        stream = self._inner.stream(
            cmd, args, timeout=timeout, cwd=cwd, env=env, user=user, stdin=stdin
        )
        return Stream(self._loop, stream)

    def stream_shell(
        self,
        script: str,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bytes | str | bool | None = None,
    ) -> Stream:
        stream = self._inner.stream_shell(
            script, timeout=timeout, cwd=cwd, env=env, user=user, stdin=stdin
        )
        return Stream(self._loop, stream)

    def context(
        self,
        name: str = "python",
        *,
        language: str | None = None,
        program: str | None = None,
        venv: str | None = None,
    ) -> Context:
        inner = self._inner.context(name, language=language, program=program, venv=venv)
        return Context(self._loop, inner)

    def stop(self, *, grace: float | None = None) -> None:
        self._loop.run(self._inner.stop(grace=grace))

    def kill(self) -> None:
        self._loop.run(self._inner.kill())

    def logs(self, *, tail: int | None = None) -> str:
        return self._loop.run(self._inner.logs(tail=tail))

    def info(self) -> SandboxInfo:
        return self._loop.run(self._inner.info())

    def metrics(self) -> Metrics:
        return self._loop.run(self._inner.metrics())

    def sync(self) -> Synced:
        return self._loop.run(self._inner.sync())

    def extend(self, *, ttl: float | None = None, idle_ttl: float | None = None) -> SandboxInfo:
        return self._loop.run(self._inner.extend(ttl=ttl, idle_ttl=idle_ttl))

    def set_egress(self, rules: Sequence[str]) -> SandboxInfo:
        return self._loop.run(self._inner.set_egress(rules))

    def wait(self, until: str = "stopped", *, timeout: float | None = None) -> SandboxInfo:
        return self._loop.run(self._inner.wait(until, timeout=timeout))

    def preview_url(self, port: int, *, ttl: float | None = None) -> str:
        return self._loop.run(self._inner.preview_url(port, ttl=ttl))

    def pause(self) -> None:
        self._loop.run(self._inner.pause())

    def resume(self) -> None:
        self._loop.run(self._inner.resume())

    def snapshot(self, name: str) -> SnapshotInfo:
        return self._loop.run(self._inner.snapshot(name))

    def verify(self, session: str | None = None) -> builtins.list[Mapping[str, Any]]:
        return self._loop.run(self._inner.verify(session))

    def receipt(self, session: str) -> Mapping[str, Any]:
        return self._loop.run(self._inner.receipt(session))

    def run_receipt(self, context: str, run: int | None = None) -> Mapping[str, Any]:
        return self._loop.run(self._inner.run_receipt(context, run))

    def fork(
        self, count: int = 1, *, names: Sequence[str] = (), ttl: float | None = None
    ) -> tuple[builtins.list[SandboxHandle], Mapping[str, Any]]:
        forks, report = self._loop.run(self._inner.fork(count, names=names, ttl=ttl))
        return [SandboxHandle(self._loop, fork) for fork in forks], report

    def remove(self) -> None:
        self._loop.run(self._inner.remove())


class SandboxClient:
    """The sandboxes of one namespace of a server, with the arguments of `burrow.BurrowClient`."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        api_key_file: str | os.PathLike[str] | None = None,
        namespace: str | None = None,
        ca_file: str | os.PathLike[str] | None = None,
        ssl_context: ssl.SSLContext | None = None,
        run_timeout: float | None = RUN_SECONDS,
        retries: int = RETRIES,
    ) -> None:
        self._loop = Portal()
        self._inner = _client.BurrowClient(
            url,
            api_key=api_key,
            api_key_file=api_key_file,
            namespace=namespace,
            ca_file=ca_file,
            ssl_context=ssl_context,
            run_timeout=run_timeout,
            retries=retries,
        )
        self.namespace = self._inner.namespace
        self.run_timeout = run_timeout

    def __repr__(self) -> str:
        return "Sync" + repr(self._inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections and ends the thread. Sandboxes stay."""
        with contextlib.suppress(BurrowError):
            self._loop.run(self._inner.close())
        self._loop.close()

    def create(
        self,
        spec: SandboxSpec | str,
        *,
        machine: str | None = None,
        env: Mapping[str, str] | None = None,
        workdir: str | None = None,
        user: str | None = None,
        hostname: str | None = None,
        scratch_bytes: int | None = None,
        pull: str | None = None,
        packages: Mapping[str, Sequence[str]] | None = None,
        template: str | None = None,
        ttl: float | None = None,
        idle_ttl: float | None = None,
        on_idle: str | None = None,
        node_labels: Mapping[str, str] | None = None,
        durability: str | None = None,
        record: str | None = None,
        on_lost: str | None = None,
        keep_stopped: float | None = None,
        idempotency_key: str | None = None,
    ) -> SandboxHandle:
        made = self._inner.create(
            spec,
            machine=machine,
            env=env,
            workdir=workdir,
            user=user,
            hostname=hostname,
            scratch_bytes=scratch_bytes,
            pull=pull,
            packages=packages,
            template=template,
            ttl=ttl,
            idle_ttl=idle_ttl,
            on_idle=on_idle,
            node_labels=node_labels,
            durability=durability,
            record=record,
            on_lost=on_lost,
            keep_stopped=keep_stopped,
            idempotency_key=idempotency_key,
        )
        return SandboxHandle(self._loop, self._loop.run(made))

    def restore(
        self,
        snapshot: str,
        name: str,
        *,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        ttl: float | None = None,
        idle_ttl: float | None = None,
        on_idle: str | None = None,
    ) -> SandboxHandle:
        made = self._inner.restore(
            snapshot,
            name,
            env=env,
            labels=labels,
            ttl=ttl,
            idle_ttl=idle_ttl,
            on_idle=on_idle,
        )
        return SandboxHandle(self._loop, self._loop.run(made))

    @contextlib.contextmanager
    def sandbox(self, name: str | None = None, **fields: Any) -> Iterator[SandboxHandle]:
        """A sandbox for a block, removed at its end. `fields` are those of `SandboxSpec`."""
        with self.create(_client.drawn_spec(name, fields)) as sandbox:
            yield sandbox

    def get(self, name: str) -> SandboxHandle:
        return SandboxHandle(self._loop, self._loop.run(self._inner.get(name)))

    def list(self) -> builtins.list[str]:
        return self._loop.run(self._inner.list())

    def sandboxes(
        self,
        *,
        labels: Mapping[str, str | None] | None = None,
        states: Sequence[str] = (),
    ) -> builtins.list[SandboxInfo]:
        return self._loop.run(self._inner.sandboxes(labels=labels, states=states))

    def remove(self, name: str) -> None:
        self._loop.run(self._inner.remove(name))

    def run_python(self, code: str, *, image: str = USUAL_IMAGE, **kwargs: Any) -> ExecResult:
        return self._loop.run(self._inner.run_python(code, image=image, **kwargs))

    def run_shell(self, script: str, *, image: str = USUAL_IMAGE, **kwargs: Any) -> ExecResult:
        return self._loop.run(self._inner.run_shell(script, image=image, **kwargs))

    def events(
        self,
        *,
        since: int | None = None,
        since_ms: int | None = None,
        sandboxes: Sequence[str] = (),
        kinds: Sequence[str] = (),
        follow: bool = True,
    ) -> Generator[Event, None, None]:
        found = self._inner.events(
            since=since, since_ms=since_ms, sandboxes=sandboxes, kinds=kinds, follow=follow
        )
        return self._loop.iterate(found)

    def snapshots(self) -> builtins.list[SnapshotInfo]:
        return self._loop.run(self._inner.snapshots())

    def remove_snapshot(self, name: str) -> None:
        self._loop.run(self._inner.remove_snapshot(name))

    def put_template(self, name: str, **options: Any) -> TemplateInfo:
        return self._loop.run(self._inner.put_template(name, **options))

    def templates(self) -> builtins.list[TemplateInfo]:
        return self._loop.run(self._inner.templates())

    def template(self, name: str) -> TemplateInfo:
        return self._loop.run(self._inner.template(name))

    def remove_template(self, name: str) -> None:
        self._loop.run(self._inner.remove_template(name))

    def notebook(self, name: str, *, language: str | None = None) -> Notebook:
        return Notebook(self._loop, self._inner.notebook(name, language=language))

    def notebooks(self) -> builtins.list[str]:
        return self._loop.run(self._inner.notebooks())

    def health(self) -> None:
        self._loop.run(self._inner.health())
