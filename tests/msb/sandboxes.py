"""Sandboxes: made, found, listed, stopped and started, removed, and what of a creation is refused."""

import asyncio
import contextlib

import microsandbox
from microsandbox import Image, Network, Sandbox, Snapshot, Volume
from wire import IMAGE, ask, refused, sandbox


async def a_sandbox_is_made_found_and_removed():
    async with sandbox("one", labels={"team": "a"}, env={"A": "b"}, memory=256, cpus=1) as made:
        assert await made.name == "one" if not callable(made.name) else await made.name() == "one"
        found = await Sandbox.get("one")
        assert found.name == "one" and found.status == "running", found.status
        await refused(
            lambda: Sandbox.create("one", image=IMAGE), microsandbox.SandboxAlreadyExistsError
        )
    await refused(lambda: Sandbox.get("one"), microsandbox.SandboxNotFoundError)
    await refused(lambda: Sandbox.remove("one"), microsandbox.SandboxNotFoundError)


async def sandboxes_are_listed_by_labels_and_on_pages():
    async with sandbox("l1", labels={"list": "yes"}), sandbox("l2", labels={"list": "yes"}):
        async with sandbox("l3"):
            listed = await Sandbox.list()
            assert {one.name for one in listed.sandboxes} == {"l1", "l2", "l3"}
            of_label = await Sandbox.list_with(labels={"list": "yes"})
            assert [one.name for one in of_label.sandboxes] == ["l1", "l2"]
            first = await Sandbox.list_with(limit=2)
            assert len(first.sandboxes) == 2 and first.next_cursor
            rest = await Sandbox.list_with(limit=2, cursor=first.next_cursor)
            assert [one.name for one in rest.sandboxes] == ["l3"] and rest.next_cursor is None


async def a_stop_ends_what_runs_and_keeps_the_files():
    async with sandbox("stops") as made:
        await made.fs.write("/tmp/kept", b"kept")
        running = await made.exec_stream("sleep", ["1000"])
        await made.stop()
        assert (await Sandbox.get("stops")).status == "stopped"
        await refused(lambda: made.exec("true", []))
        again = await Sandbox.start("stops")
        assert await again.fs.read("/tmp/kept") == b"kept"
        shown = await again.shell("for p in /proc/[0-9]*; do cat $p/comm; done")
        assert "sleep" not in shown.stdout_text.split(), shown.stdout_text
        del running


async def a_stop_of_an_ephemeral_sandbox_removes_it():
    made = await Sandbox.create("short", image=IMAGE, ephemeral=True)
    assert (await made.exec("true", [])).exit_code == 0
    await made.stop()
    assert (await Sandbox.get("short")).status == "stopped"
    await refused(lambda: Sandbox.start("short"))
    for _ in range(300):
        if not (await Sandbox.list()).sandboxes:
            break
        await asyncio.sleep(0.1)
    await refused(lambda: Sandbox.get("short"), microsandbox.SandboxNotFoundError)


async def what_a_sandbox_reaches_is_said_with_it():
    async with sandbox("none", network=Network.none()):
        pass
    body = {"name": "rules", "source": "oci", "reference": IMAGE, "network": {"policy": {
        "default_egress": "deny", "rules": [{
            "direction": "egress", "action": "allow", "destination": {"cidr": "10.0.0.0/8"},
        }]}}}
    status, answer = ask("POST", "/v1/sandboxes", body=body)
    assert status == 501 and "network rules" in answer["error"]["message"], answer


async def what_has_no_counterpart_is_refused_in_words():
    made = {"name": "no", "source": "oci", "reference": IMAGE}
    for field, words in [
        ({"mounts": [{"type": "named"}]}, "volumes"),
        ({"rlimits": [{"resource": "nofile", "soft": 1, "hard": 1}]}, "rlimits"),
        ({"patches": [{"type": "text"}]}, "patches"),
        ({"security_profile": "restricted"}, "security profiles"),
        ({"source": "bind", "path": "/"}, "bind"),
    ]:
        status, answer = ask("POST", "/v1/sandboxes", body=made | field)
        assert status == 501 and words in answer["error"]["message"], (field, status, answer)
    status, answer = ask("POST", "/v1/sandboxes", body=made | {"name": "No Name"})
    assert status == 400 and answer["error"]["code"] == "invalid_request", answer
    for method, path in [
        ("GET", "/v1/volumes"), ("POST", "/v1/snapshots"), ("GET", "/v1/snapshots/by-name/x"),
    ]:
        status, answer = ask(method, path)
        assert status == 501 and "not supported by this server" in answer["error"]["message"], answer
    await refused(lambda: Sandbox.create("no", image="no/such"), says="no/such")
    await refused(lambda: Sandbox.get("no"), microsandbox.SandboxNotFoundError)


async def a_handle_finds_stops_and_starts_its_sandbox():
    async with sandbox("handle") as made:
        handle = await Sandbox.get("handle")
        assert (await handle.refresh()).status == "running"
        again = await handle.connect()
        assert (await again.exec("echo", ["hi"])).stdout_text == "hi\n"
        await handle.stop()
        stopped = await (await Sandbox.get("handle")).wait_until_stopped()
        assert stopped.status == "stopped", stopped.status
        handle = await Sandbox.get("handle")
        await refused(lambda: handle.connect(), microsandbox.SandboxNotRunningError)
        started = await handle.start()
        assert (await started.exec("true", [])).exit_code == 0
        await made.detach()
        await (await Sandbox.get("handle")).remove()
        await refused(lambda: Sandbox.get("handle"), microsandbox.SandboxNotFoundError)


async def a_creation_is_followed():
    session = Sandbox.create_with_progress("followed", image=IMAGE)
    made = await session.result()
    assert (await made.exec("true", [])).exit_code == 0
    await Sandbox.remove("followed")
    other = Sandbox.create_with_progress("cancelled", image=IMAGE)
    if hasattr(other, "cancel"):
        other.cancel()
    # It may have been made already.
    with contextlib.suppress(microsandbox.MicrosandboxError, RuntimeError):
        await other.result()
        await Sandbox.remove("cancelled")


async def a_stop_is_asked_for_and_waited_for():
    async with sandbox("asked") as made:
        config = (await Sandbox.get("asked")).config()
        assert config is None or await config is None
        await made.request_stop()
        await made.wait_until_stopped()
        assert (await Sandbox.get("asked")).status == "stopped"
        await Sandbox.start("asked")
        handle = await Sandbox.get("asked")
        await handle.request_stop()
        assert (await handle.wait_until_stopped()).status == "stopped"


async def what_releases_of_0_7_have_more_works():
    if not hasattr(Sandbox, "connect_or_create"):
        return
    made = await Sandbox.connect_or_create("more", image=IMAGE)
    await made.fs.write("/tmp/kept", b"kept")
    found = await Sandbox.connect_or_create("more", image=IMAGE)
    assert await found.fs.read("/tmp/kept") == b"kept"
    restarted = await found.restart()
    assert await restarted.fs.read("/tmp/kept") == b"kept"
    assert (await restarted.wait_for_status("running")).status == "running"
    await restarted.stop_with_timeout(10.0)
    handle = await Sandbox.get("more")
    started = await handle.connect_or_start()
    assert await started.fs.read("/tmp/kept") == b"kept"
    handle = await Sandbox.get("more")
    assert (await handle.wait_for_status("running")).status == "running"
    again = await handle.restart()
    assert await again.fs.read("/tmp/kept") == b"kept"
    await (await Sandbox.get("more")).stop_with_timeout(10.0)
    await (await Sandbox.connect_or_create("more", image=IMAGE)).destroy()
    await refused(lambda: Sandbox.get("more"), microsandbox.SandboxNotFoundError)
    await Sandbox.create("more", image=IMAGE)
    await (await Sandbox.get("more")).destroy()
    await refused(lambda: Sandbox.get("more"), microsandbox.SandboxNotFoundError)


async def what_the_package_does_with_its_own_machines_alone_is_refused_by_it():
    """Nothing of it reaches the server, so it has no `Job`, `JobAttachment` or `JobLogStream` either."""
    job = "job_" + "0" * 32
    of_both = {
        "ping": [], "touch": [], "metrics": [], "pause": [], "resume": [], "modify": [], "kill": [],
        "request_kill": [], "request_drain": [], "compact": [], "fork": ["x"], "fork_many": [["x"]],
        "branch": ["x"], "branch_many": [["x"]], "list_jobs": [], "get_job": [job],
    }
    of_one = {"drain": [], "exec_detached": ["true"], "restore_warnings": []}
    of_handle = {"storage_usage": [], "logs": [], "log_stream": []}
    async with sandbox("local") as made:
        handle = await Sandbox.get("local")
        for place, calls in [(made, of_both | of_one), (handle, of_both | of_handle)]:
            for name, arguments in calls.items():
                if hasattr(place, name):
                    await refused(lambda: getattr(place, name)(*arguments))
        figures = await made.metrics_stream()
        await refused(figures.__anext__)
        for name in ["restore", "restore_with_progress"]:
            if hasattr(Sandbox, name):
                made_of = getattr(Sandbox, name)("none", name="other")
                is_session = isinstance(made_of, microsandbox.PullSession)
                await refused(made_of.result if is_session else lambda: made_of)
        for call in [Image.list, lambda: Image.get("x"), lambda: Image.inspect("x"), lambda: Image.remove("x")]:
            # Without an `Image` there is no ImageHandle.
            await refused(call)
        if hasattr(microsandbox, "Storage"):
            await refused(microsandbox.Storage.usage)
        # AgentClient, and AgentStream with it, is for a socket on this host.
        await refused(lambda: microsandbox.AgentClient.connect_sandbox("local"), kind=Exception)
        assert (await made.exec("true", [])).exit_code == 0
        for name in ["stop_and_wait", "wait", "remove_persisted"]:
            # Each uses its object up.
            own = await handle.connect()
            if hasattr(own, name):
                await refused(getattr(own, name))


async def volumes_and_snapshots_are_refused():
    """So there is no VolumeHandle, no SnapshotHandle and no SnapshotCopyBuilder."""
    async with sandbox("kept") as made:
        for call in [
            lambda: Volume.create("v"), lambda: Volume.get("v"), Volume.get_default, Volume.list,
            lambda: Volume.remove("v"), lambda: Snapshot.create("s", from_sandbox="kept"),
            lambda: Snapshot.open("s"), lambda: Snapshot.get("s"), Snapshot.list,
        ]:
            error = await refused(call)
            assert "not supported by" in str(error), error
        handle = await Sandbox.get("kept")
        await refused(lambda: handle.snapshot("s"))
        assert (await made.exec("true", [])).exit_code == 0
