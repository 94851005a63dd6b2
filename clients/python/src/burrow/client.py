"""The client: creates, finds and removes sandboxes of a Burrow server. `BurrowClient` and `Sandbox`
implement the abstract surface and extend it."""

from __future__ import annotations

import asyncio
import builtins
import os
import ssl
import time
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from .api import Api, path_of, retry_pause
from .commands import Commands, Input, Stream, argv, draw, milliseconds
from .contexts import Context, Notebook
from .errors import (
    BurrowError,
    ConnectionFailed,
    InvalidRequest,
    NotFound,
    RateLimited,
    SandboxUnavailable,
    SpawnFailed,
)
from .files import Files
from .limits import (
    CALL_SECONDS,
    CREATE_SECONDS,
    FOLLOW_SECONDS,
    LOG_SETTLE_PAUSE_SECONDS,
    LOG_SETTLE_SECONDS,
    RETRIES,
    RUN_MARGIN_SECONDS,
    RUN_SECONDS,
    STEADY_SECONDS,
    SYNC_SECONDS,
    TEARDOWN_SECONDS,
)
from .results import (
    CommandResult,
    Event,
    Metrics,
    SandboxInfo,
    SnapshotInfo,
    Synced,
    TemplateInfo,
    content,
    event,
    metrics,
    sandbox_info,
    snapshot_info,
    synced,
    template_info,
)
from .settings import settings
from .surface import (
    USUAL_IMAGE,
    ExecResult,
    SandboxClient,
    SandboxHandle,
    SandboxSpec,
    is_given,
    regardless,
    torn_down,
)

if TYPE_CHECKING:
    from typing_extensions import Self

#: Linux's number for a missing file.
_NO_SUCH_FILE = 2


class Sandbox(SandboxHandle):
    """A sandbox. Used as a context manager, it is removed at the end of the block."""

    def __init__(self, client: BurrowClient, info: SandboxInfo) -> None:
        self._client = client
        self._api = client._api.of_sandbox(info.id)
        self._commands = Commands(self._api, info.namespace, info.name)
        self._seconds = client.run_timeout
        self.name = info.name
        self.namespace = info.namespace
        #: Unique, even when the name is used again.
        self.id = info.id
        #: Files, and whole directories.
        self.files = Files(self._commands)

    def __repr__(self) -> str:
        return f"Sandbox({self.namespace}/{self.name})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await regardless(self._gone(), TEARDOWN_SECONDS)

    async def _gone(self) -> None:
        try:
            await self.remove()
        except NotFound:
            pass

    async def exec(
        self,
        cmd: str,
        args: Sequence[str] | None = None,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: Input | None = None,
        output_bytes_max: int | None = None,
    ) -> CommandResult:
        """Runs a program to its end; no shell sees its arguments. An exit code other than 0 and a
        timeout (124, `timed_out`) are results. A program that cannot be started is `SpawnFailed`. When
        the caller is cancelled, the program is killed with all that it has started."""
        return await self._commands.run(
            argv(cmd, args),
            seconds=self._length(timeout),
            cwd=cwd,
            env=env,
            user=user,
            stdin=stdin,
            output_bytes_max=output_bytes_max,
        )

    async def shell(
        self,
        script: str,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: Input | None = None,
        output_bytes_max: int | None = None,
    ) -> CommandResult:
        """Runs a script with `/bin/sh` to its end, like `exec`."""
        return await self._commands.run(
            {"script": script},
            seconds=self._length(timeout),
            cwd=cwd,
            env=env,
            user=user,
            stdin=stdin,
            output_bytes_max=output_bytes_max,
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
        stdin: Input | bool | None = None,
    ) -> Stream:
        """Starts a program and streams its events. With `stdin=True`, `write` sends it input."""
        return Stream(
            self._commands,
            argv(cmd, args),
            seconds=self._length(timeout),
            cwd=cwd,
            env=env,
            user=user,
            stdin=stdin,
        )

    def stream_shell(
        self,
        script: str,
        *,
        timeout: float | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: Input | bool | None = None,
    ) -> Stream:
        """Starts a script with `/bin/sh` and streams its events, like `stream`."""
        return Stream(
            self._commands,
            {"script": script},
            seconds=self._length(timeout),
            cwd=cwd,
            env=env,
            user=user,
            stdin=stdin,
        )

    def context(
        self,
        name: str = "python",
        *,
        language: str | None = None,
        program: str | None = None,
        venv: str | None = None,
    ) -> Context:
        """An interpreter that keeps its state between runs. `language` may be omitted for a context
        that exists or is named after its language. `program` is the path or name of the interpreter
        to use instead of the default; `venv` is the directory of a virtual environment whose Python
        to use."""
        made = {"program": program, "venv": venv}
        return Context(self._commands, name, language, self._seconds, made)

    async def stop(self, *, grace: float | None = None) -> None:
        """Stops the sandbox: its processes are asked to end, and killed after the grace. Its record
        and logs stay until it is removed."""
        body = {} if grace is None else {"grace_ms": round(grace * 1000)}
        seconds = CREATE_SECONDS if grace is None else grace + RUN_MARGIN_SECONDS
        await self._end("stop", body, seconds)

    async def kill(self) -> None:
        await self._end("kill", None, CREATE_SECONDS)

    async def _end(self, how: str, body: dict[str, Any] | None, seconds: float) -> None:
        path = self._commands.path(how)
        try:
            await self._api.call("POST", path, body=body, is_repeatable=True, seconds=seconds)
        except NotFound:
            # It has been removed, and so it does not run.
            pass

    async def logs(self, *, tail: int | None = None) -> str:
        if tail is not None and tail < 0:
            raise InvalidRequest(f"tail: {tail} is no number of lines")
        await self._settled()
        pieces: list[bytes] = []
        events = self._api.events("GET", self._commands.path("logs"), query={"tail": tail})
        try:
            async for entry in events:
                if entry.get("type") == "output":
                    pieces.append(content(entry))
        finally:
            await events.aclose()
        return b"".join(pieces).decode("utf-8", "replace")

    async def verify(self, session: str | None = None) -> list[Mapping[str, Any]]:
        """Compares what the log has of sessions with the digests of the agent: for each session its
        `outputs`, with a `finding`: `equal`, `partial`, `damaged`, `differs` or `unknown`."""
        await self._settled()
        path = self._commands.path("verify")
        found = await self._api.call("GET", path, query={"session": session})
        return list(found["sessions"])

    async def receipt(self, session: str) -> Mapping[str, Any]:
        """The signed receipt of a session that has ended. `host-bridge receipt verify` checks it."""
        receipt: Mapping[str, Any] = await self._api.call(
            "GET", self._commands.path("sessions", session, "receipt")
        )
        return receipt

    async def run_receipt(self, context: str, run: int | None = None) -> Mapping[str, Any]:
        """The signed receipt of a run of a context: by its number, or of the last that has ended."""
        receipt: Mapping[str, Any] = await self._api.call(
            "GET", self._commands.path("contexts", context, "receipt"), query={"run": run}
        )
        return receipt

    async def _settled(self) -> None:
        """Waits until the log has the end of the last command. The log is written separately from the
        answer, so it may be a moment later."""
        last, self._commands.last = self._commands.last, None
        if last is None:
            return
        loop = asyncio.get_running_loop()
        deadline = loop.time() + LOG_SETTLE_SECONDS
        query = {"session": last, "limit": 1000, "stream": "stderr"}
        while loop.time() < deadline:
            page = await self._api.call("GET", self._commands.path("logs"), query=query)
            if any(entry.get("type") == "exited" for entry in page.get("entries", ())):
                return
            await asyncio.sleep(LOG_SETTLE_PAUSE_SECONDS)

    async def info(self) -> SandboxInfo:
        """Returns the server's description of the sandbox."""
        return sandbox_info(await self._api.call("GET", self._commands.path()))

    async def metrics(self) -> Metrics:
        """Returns what the sandbox uses at the moment."""
        page = await self._api.call("GET", self._commands.path("metrics"))
        samples = page.get("samples") or [{}]
        return metrics({**samples[-1], "cpus": page.get("cpus"), "scope": page.get("scope")})

    async def sync(self) -> Synced:
        """Copies changes in the workspace back to its origin. This also happens automatically after a
        command or run ends, and before a stop or a removal."""
        path = self._commands.path("workspace", "sync")
        return synced(await self._api.call("POST", path, seconds=SYNC_SECONDS))

    async def extend(
        self, *, ttl: float | None = None, idle_ttl: float | None = None
    ) -> SandboxInfo:
        """Sets how long the sandbox lives from now on, and how long while idle. 0 removes the
        limit."""
        body = {
            name: round(value * 1000)
            for name, value in (("ttl_ms", ttl), ("idle_ttl_ms", idle_ttl))
            if value is not None
        }
        return sandbox_info(await self._api.call("PATCH", self._commands.path(), body=body))

    async def set_egress(self, rules: Sequence[str]) -> SandboxInfo:
        """Sets what the sandbox may reach from now on, instead of what it could. Connections that
        the rules do not allow are ended; an empty list allows nothing."""
        body = {"egress": list(rules)}
        return sandbox_info(await self._api.call("PATCH", self._commands.path(), body=body))

    async def wait(self, until: str = "stopped", *, timeout: float | None = None) -> SandboxInfo:
        """Waits until the sandbox is `created`, `stopped` or `removed`, or the time is over, and
        returns its state."""
        query = {
            "until": until,
            "timeout_ms": None if timeout is None else round(timeout * 1000),
        }
        seconds = None if timeout is None else timeout + RUN_MARGIN_SECONDS
        path = self._commands.path("wait")
        return sandbox_info(await self._api.call("GET", path, query=query, seconds=seconds))

    async def pause(self) -> None:
        """Pauses the sandbox, if its machine can."""
        await self._api.call("POST", self._commands.path("pause"), is_repeatable=True)

    async def resume(self) -> None:
        await self._api.call("POST", self._commands.path("resume"), is_repeatable=True)

    async def snapshot(self, name: str) -> SnapshotInfo:
        """Takes a snapshot of the sandbox and all that runs in it, if its machine can. It continues
        to run."""
        path = self._commands.path("snapshots")
        taken = await self._api.call("POST", path, body={"name": name}, seconds=CREATE_SECONDS)
        return snapshot_info(taken)

    async def fork(
        self, count: int = 1, *, names: Sequence[str] = (), ttl: float | None = None
    ) -> tuple[builtins.list[Sandbox], Mapping[str, Any]]:
        """Makes copies of the sandbox, all or none: `count`, or one for each name. Returns them, and the
        report of what they have of it: its memory, or its files and the variables of notebooks."""
        body: dict[str, Any] = {"names": list(names)} if names else {"count": count}
        if ttl is not None:
            body["ttl_ms"] = milliseconds(ttl)
        made = await self._api.call(
            "POST",
            self._commands.path("fork"),
            body=body,
            idempotency_key=draw("fork"),
            seconds=CREATE_SECONDS,
        )
        forks = [Sandbox(self._client, sandbox_info(fork)) for fork in made["forks"]]
        return forks, made["report"]

    async def preview_url(self, port: int, *, ttl: float | None = None) -> str:
        """A link to a port of the sandbox: who has it reaches the port without a key, for an hour or for
        `ttl` seconds. Where the server has host names for ports, browsers can open it too."""
        body: dict[str, Any] = {"port": port}
        if ttl is not None:
            body["ttl_ms"] = milliseconds(ttl)
        made = await self._api.call("POST", self._commands.path("previews"), body=body)
        return str(made["url"])

    async def remove(self) -> None:
        """Removes the sandbox, and stops it first if it runs."""
        await removed(self._api, self.namespace, self.name)

    def _length(self, timeout: float | None) -> float | None:
        return self._seconds if timeout is None else timeout


async def removed(api: Api, namespace: str, name: str) -> None:
    path = path_of("sandboxes", namespace, name)
    await api.call("DELETE", path, query={"force": True}, seconds=CREATE_SECONDS)


class BurrowClient(SandboxClient):
    """The sandboxes of one namespace of a server.

    Without arguments the environment gives the server's address (`BURROW_URL`) and the key
    (`BURROW_API_KEY`, or the file that `BURROW_API_KEY_FILE` names).
    """

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
        known = settings(
            url,
            api_key=api_key,
            api_key_file=api_key_file,
            namespace=namespace,
            ca_file=ca_file,
            ssl_context=ssl_context,
        )
        self._api = Api(known, retries=retries)
        self.namespace = known.namespace
        #: The default timeout of commands and runs, in seconds.
        self.run_timeout = run_timeout

    def __repr__(self) -> str:
        return f"BurrowClient({self._api.settings.address}, namespace={self.namespace!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections. Sandboxes stay."""
        await self._api.close()

    async def create(
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
    ) -> Sandbox:
        """Creates a sandbox and starts it, with packages such as `{"pip": ["pandas"]}` on an image of
        the server's store. An attempt that was cut off is repeated under the same idempotency
        key, so it never creates a second sandbox. When the caller is cancelled, the sandbox is
        removed. A name alone creates a sandbox with the defaults. With `on_idle="pause"` it is
        paused instead of ended after `idle_ttl` seconds, until the next call; with `"snapshot"` its
        memory is written to disk and freed meanwhile. With `template` it is
        made of that instead of an image, and ready when this returns. In a fleet `node_labels`
        selects the nodes that may have it, such as `{"zone": "a"}` or `{"node": "host1"}`, and
        `durability` says whether output outlives the host: `"off"`, `"async"` or `"sync"`. `record`
        says what is kept of its sessions: `"off"`, `"on"` for output, or `"input"` also for what is
        typed, passwords included. With
        `on_lost="restart"` it is made again at another node when its own is gone, with
        `"restore"` from its snapshot that was exported last; this handle is then `Gone`, and `get`
        finds the new one."""
        if isinstance(spec, str):
            spec = drawn_spec(spec, {})
        body: dict[str, Any] = {
            "name": spec.name,
            "namespace": self.namespace,
        }
        # Fields that were not given are left to the server's defaults.
        limits = {"image": spec.image, "memory_mib": spec.memory_mib, "cpus": spec.cpus}
        body.update({what: value for what, value in limits.items() if is_given(value)})
        if spec.workspace is not None:
            body["workspace"] = spec.workspace
        for what, names in (("secrets", spec.secrets), ("egress", spec.egress)):
            if isinstance(names, str):
                raise InvalidRequest(f"{what}: names in a tuple, not one text")
            # An empty list allows nothing, whatever the server's default is.
            if names or (what == "egress" and is_given(names)):
                body[what] = list(names)
        if spec.labels:
            body["labels"] = dict(spec.labels)
        body.update(_more(machine, env, workdir, ttl, idle_ttl, on_idle, keep_stopped))
        more = {
            "user": user,
            "hostname": hostname,
            "scratch_bytes": scratch_bytes,
            "pull": pull,
            "template": template,
            "node_labels": dict(node_labels) if node_labels else None,
            "durability": durability,
            "record": record,
            "on_lost": on_lost,
        }
        body.update({name: value for name, value in more.items() if value is not None})
        if packages:
            body["packages"] = {manager: list(names) for manager, names in packages.items()}
        return await self._create(body, idempotency_key or draw("create"))

    async def restore(
        self,
        snapshot: str,
        name: str,
        *,
        env: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
        ttl: float | None = None,
        idle_ttl: float | None = None,
        on_idle: str | None = None,
    ) -> Sandbox:
        """Creates a sandbox that continues from a snapshot."""
        body: dict[str, Any] = {"name": name, "namespace": self.namespace, "snapshot": snapshot}
        if labels:
            body["labels"] = dict(labels)
        body.update(_more(None, env, None, ttl, idle_ttl, on_idle, None))
        return await self._create(body, draw("create"))

    async def _create(self, body: dict[str, Any], key: str) -> Sandbox:
        path = path_of("sandboxes")

        async def ask() -> Sandbox:
            reply = await self._api.call(
                "POST", path, body=body, idempotency_key=key, seconds=CREATE_SECONDS
            )
            return Sandbox(self, sandbox_info(reply))

        async def undo() -> None:
            # Repeated under its key, a call that is still running at the server returns its result.
            made = await ask()
            await self._removed(made.name)

        try:
            return await ask()
        except BaseException as error:
            if not isinstance(error, BurrowError) or isinstance(error, TimeoutError):
                await regardless(undo(), TEARDOWN_SECONDS)
            raise

    @asynccontextmanager
    async def sandbox(
        self, name: str | None = None, **fields: Any
    ) -> AsyncGenerator[Sandbox, None]:
        """A sandbox for a block, removed at its end. `fields` are those of `SandboxSpec`."""
        async with await self.create(drawn_spec(name, fields)) as sandbox:
            yield sandbox

    async def get(self, name: str) -> Sandbox:
        """Returns the sandbox with this name, stopped ones included. Raises `NotFound` if there is
        none."""
        reply = await self._api.call("GET", path_of("sandboxes", self.namespace, name))
        return Sandbox(self, sandbox_info(reply))

    async def list(self) -> list[str]:
        return [info.name for info in await self.sandboxes()]

    async def sandboxes(
        self,
        *,
        labels: Mapping[str, str | None] | None = None,
        states: Sequence[str] = (),
    ) -> builtins.list[SandboxInfo]:
        """Lists the sandboxes with all of these labels (`None` matches any value) and one of these
        states."""
        wanted = [
            key if value is None else f"{key}={value}" for key, value in (labels or {}).items()
        ]
        found: builtins.list[SandboxInfo] = []
        after: str | None = None
        while True:
            page = await self._api.call(
                "GET",
                path_of("sandboxes"),
                query={
                    "namespace": self.namespace,
                    "label": wanted,
                    "state": list(states),
                    "after": after,
                },
            )
            found += [sandbox_info(reply) for reply in page.get("sandboxes", ())]
            after = page.get("next")
            if after is None:
                return found

    async def remove(self, name: str) -> None:
        await self._removed(name)

    async def _removed(self, name: str) -> None:
        await removed(self._api, self.namespace, name)

    async def run_python(self, code: str, *, image: str = USUAL_IMAGE, **kwargs: Any) -> ExecResult:
        """Runs Python code in a new sandbox, which is removed afterwards. `kwargs` are
        further fields of `SandboxSpec`, and `timeout`."""
        timeout = kwargs.pop("timeout", None)
        spec = SandboxSpec(name=f"py-{uuid.uuid4().hex[:8]}", image=image, **kwargs)
        sandbox = await self.create(spec)
        try:
            try:
                return await sandbox.exec("python", ["-c", code], timeout=timeout)
            except SpawnFailed as error:
                # Debian's images have Python only under this name.
                if error.errno != _NO_SUCH_FILE:
                    raise
                return await sandbox.exec("python3", ["-c", code], timeout=timeout)
        finally:
            await torn_down(self, sandbox)

    async def run_shell(
        self, script: str, *, image: str = USUAL_IMAGE, **kwargs: Any
    ) -> ExecResult:
        """Runs a script in a new sandbox, which is removed afterwards. `kwargs` are further fields
        of `SandboxSpec`, and `timeout`."""
        timeout = kwargs.pop("timeout", None)
        spec = SandboxSpec(name=f"sh-{uuid.uuid4().hex[:8]}", image=image, **kwargs)
        sandbox = await self.create(spec)
        try:
            return await sandbox.shell(script, timeout=timeout)
        finally:
            await torn_down(self, sandbox)

    async def events(
        self,
        *,
        since: int | None = None,
        since_ms: int | None = None,
        sandboxes: Sequence[str] = (),
        kinds: Sequence[str] = (),
        follow: bool = True,
    ) -> AsyncGenerator[Event, None]:
        """Yields what has happened to sandboxes, and with `follow` what happens: from this offset or
        time on, or from the oldest event that is kept. `sandboxes` are names or ids. After a cut, and
        over a restart of the server, it goes on after the last event, so that none is missed and
        none comes twice; it raises when that fails for a minute."""
        query: dict[str, Any] = {
            "namespace": self.namespace,
            "since": since,
            "since_ms": since_ms,
            "sandbox": list(sandboxes),
            "kind": list(kinds),
            "follow": follow,
        }
        attempt = 0
        failing_since: float | None = None
        while True:
            error: BurrowError | None = None
            begun = time.monotonic()
            source = self._api.events("GET", path_of("events"), query=query, seconds=CALL_SECONDS)
            try:
                async for reply in source:
                    found = event(reply)
                    query["since"], query["since_ms"] = found.offset + 1, None
                    attempt, failing_since = 0, None
                    yield found
                if not follow:
                    return
                # The server ends, and another one may take its place.
            except (ConnectionFailed, RateLimited, SandboxUnavailable) as failed:
                error = failed
            finally:
                await source.aclose()
            now = time.monotonic()
            if now - begun > STEADY_SECONDS:
                # It was open, and nothing happened: this is its first cut.
                attempt, failing_since = 0, None
            if failing_since is None:
                failing_since = now
            if error is not None and now - failing_since > FOLLOW_SECONDS:
                raise error
            await asyncio.sleep(retry_pause(error, attempt))
            attempt += 1

    async def snapshots(self) -> builtins.list[SnapshotInfo]:
        page = await self._api.call(
            "GET", path_of("snapshots"), query={"namespace": self.namespace}
        )
        return [snapshot_info(reply) for reply in page.get("snapshots", ())]

    async def remove_snapshot(self, name: str) -> None:
        await self._api.call("DELETE", path_of("snapshots", self.namespace, name))

    async def put_template(self, name: str, **options: Any) -> TemplateInfo:
        """Keeps a template, in the place of one with its name. The options are the fields of
        `PUT /v1/templates/{namespace}/{name}`, as `image`, `env`, `start`, `ready` and `warm`."""
        path = path_of("templates", self.namespace, name)
        return template_info(await self._api.call("PUT", path, body=options))

    async def templates(self) -> builtins.list[TemplateInfo]:
        page = await self._api.call(
            "GET", path_of("templates"), query={"namespace": self.namespace}
        )
        return [template_info(reply) for reply in page.get("templates", ())]

    async def template(self, name: str) -> TemplateInfo:
        path = path_of("templates", self.namespace, name)
        return template_info(await self._api.call("GET", path))

    async def remove_template(self, name: str) -> None:
        await self._api.call("DELETE", path_of("templates", self.namespace, name))

    def notebook(self, name: str, *, language: str | None = None) -> Notebook:
        """A context whose variables outlive its interpreter, its sandbox and the server."""
        return Notebook(self._api, self.namespace, name, language, self.run_timeout)

    async def notebooks(self) -> builtins.list[str]:
        page = await self._api.call(
            "GET", path_of("notebooks"), query={"namespace": self.namespace}
        )
        return [str(reply["name"]) for reply in page.get("notebooks", ())]

    async def health(self) -> None:
        """Checks that the server answers and accepts this client. Raises `SandboxUnavailable` or
        `PermissionDenied` otherwise."""
        query = {"namespace": self.namespace, "limit": 1}
        await self._api.call("GET", path_of("sandboxes"), query=query)


def drawn_spec(name: str | None, fields: Mapping[str, Any]) -> SandboxSpec:
    """A specification for a sandbox with a random name."""
    return SandboxSpec(name=name or f"sb-{uuid.uuid4().hex[:12]}", **fields)


def _more(
    machine: str | None,
    env: Mapping[str, str] | None,
    workdir: str | None,
    ttl: float | None,
    idle_ttl: float | None,
    on_idle: str | None,
    keep_stopped: float | None,
) -> dict[str, Any]:
    """Fields that the server accepts beyond the abstract surface."""
    body: dict[str, Any] = {}
    if machine is not None:
        body["machine"] = machine
    if env:
        body["env"] = dict(env)
    if workdir is not None:
        body["workdir"] = workdir
    times = (("ttl_ms", ttl), ("idle_ttl_ms", idle_ttl))
    body.update({name: milliseconds(s, name) for name, s in times if s is not None})
    if on_idle is not None:
        body["on_idle"] = on_idle
    if keep_stopped is not None:
        body["keep_stopped_ms"] = round(keep_stopped * 1000)
    return body
