"""Sandboxes: made, listed, looked at, given time, ended; and what is refused."""

import datetime
import time

import e2b
from e2b.api.client_sync import get_api_client
from e2b.api.client import models
from e2b.api.client.api.sandboxes import get_sandboxes_sandbox_id_logs as oldest_log
from e2b.api.client.api.sandboxes import get_v_2_sandboxes_sandbox_id_logs as newest_log
from e2b.connection_config import ConnectionConfig
from wire import name_of, native, refused, sandbox


def a_sandbox_is_made_found_and_killed():
    with sandbox(metadata={"suite": "made"}, envs={"A": "b"}, timeout=60) as sbx:
        assert sbx.is_running()
        assert sbx.commands.run("echo $A").stdout == "b\n"
        info = sbx.get_info()
        assert info.sandbox_id == sbx.sandbox_id and info.metadata == {"suite": "made"}, info
        assert info.template_id == "code-interpreter-v1" and info.state.value == "running", info
        again = e2b.Sandbox.connect(sbx.sandbox_id)
        again.files.write("x", "1")
        assert sbx.files.read("x") == "1"
        assert sbx.get_host(3000).startswith(f"3000-{sbx.sandbox_id}.")
        assert sbx.kill() is True
        assert not sbx.is_running()
        assert sbx.kill() is False
        refused(lambda: sbx.commands.run("true"), kind=e2b.TimeoutException)
        refused(lambda: sbx.files.read("x"), kind=e2b.TimeoutException)
        refused(sbx.get_info, kind=e2b.SandboxNotFoundException)
        refused(lambda: e2b.Sandbox.connect(sbx.sandbox_id), kind=e2b.SandboxNotFoundException)


def a_timeout_is_set_and_heeded():
    with sandbox(timeout=60) as sbx:
        sbx.set_timeout(1000)
        now = datetime.datetime.now(datetime.timezone.utc)
        assert 900 < (sbx.get_info().end_at - now).total_seconds() < 1100
        # Connecting moves the end later alone.
        e2b.Sandbox.connect(sbx.sandbox_id, timeout=10)
        assert (sbx.get_info().end_at - now).total_seconds() > 900
        handle = sbx.commands.run("sleep 1000", background=True, timeout=0)
        sbx.set_timeout(1)
        refused(handle.wait)
        assert not sbx.is_running()
        refused(lambda: sbx.set_timeout(5), kind=e2b.SandboxNotFoundException)


def sandboxes_are_listed_by_pages():
    made = [e2b.Sandbox.create(metadata={"page": "a b&c=d", "n": str(n)}) for n in range(3)]
    query = e2b.SandboxQuery(metadata={"page": "a b&c=d"}, state=[e2b.SandboxState.RUNNING])
    pages = e2b.Sandbox.list(query=query, limit=2)
    found = []
    while pages.has_next:
        found.append([info.sandbox_id for info in pages.next_items()])
    ids = [sbx.sandbox_id for sbx in made]
    assert [len(page) for page in found] == [2, 1] and sum(found, []) == ids[::-1], (found, ids)
    query = e2b.SandboxQuery(state=[e2b.SandboxState.PAUSED], metadata={"page": "a b&c=d"})
    assert e2b.Sandbox.list(query=query).next_items() == []
    for one in made:
        one.kill()


def metrics_have_all_their_fields():
    with sandbox() as sbx:
        samples = []
        while not samples:
            samples = sbx.get_metrics()
        last = samples[-1]
        assert last.mem_total > 0 and last.cpu_count > 0, samples
        # A file that is read is in the cache, which is counted where the kernel counts it.
        cached = native("GET", f"/v1/sandboxes/default/{name_of(sbx)}/metrics")["samples"][-1].get("cache_bytes")
        assert (last.mem_cache > 0) == bool(cached), (samples, cached)
        # The history of a part of the time, and of a time before there was a sandbox.
        begin = sbx.get_info().started_at
        again = sbx.get_metrics(start=begin, end=datetime.datetime.now(datetime.timezone.utc))
        assert again and all(begin.timestamp() - 1 <= one.timestamp.timestamp() for one in again), again
        day = datetime.timedelta(days=1)
        assert sbx.get_metrics(start=begin - 2 * day, end=begin - day) == []


def its_log_has_what_programs_wrote_and_how_they_ended():
    with sandbox() as sbx:
        sbx.commands.run("echo first; echo second >&2; exit 0")
        client = get_api_client(ConnectionConfig())
        levels, directions = models.LogLevel, models.LogsDirection

        def read(**how):
            return newest_log.sync(sbx.sandbox_id, client=client, **how).logs

        give_up_at = time.monotonic() + 30
        while not any("ended" in entry.message for entry in read()):
            # The log is written beside the answer.
            assert time.monotonic() < give_up_at, read()
        entries = read()
        said = [(entry.level.value, entry.message) for entry in entries]
        assert ("info", "first\n") in said and ("warn", "second\n") in said, said
        assert any(message.startswith("started: ") for _, message in said), said
        assert ("info", "ended with exit code 0") in said, said
        first = next(entry for entry in entries if entry.message == "first\n")
        assert first.fields["stream"] == "stdout" and first.fields["session"], first
        assert [entry.message for entry in read(search="sec")] == [m for _, m in said if "sec" in m]
        assert [entry.message for entry in read(level=levels.WARN)] == ["second\n"]
        # From its end, as many as are asked for.
        backward = [entry.message for entry in read(direction=directions.BACKWARD, limit=2)]
        assert backward == [message for _, message in said][:-3:-1], backward
        after = int(time.time() * 1000) + 60_000
        assert read(cursor=after) == [] and read(direction=directions.BACKWARD, cursor=1) == []
        old = oldest_log.sync(sbx.sandbox_id, client=client)
        assert [line.line for line in old.logs] == [entry.message for entry in old.log_entries] == [m for _, m in said]
        missing = newest_log.sync_detailed("i" + sbx.sandbox_id[1:], client=client)
        assert missing.status_code == 404, missing


def what_a_sandbox_may_reach_is_changed_while_it_runs():
    reaches = lambda sbx: sbx.get_info().allow_internet_access
    with sandbox() as sbx:
        assert not reaches(sbx)
        sbx.update_network({"allow_out": ["example.org"], "deny_out": ["0.0.0.0/0"]})
        assert reaches(sbx)
        # Names that are allowed are answered by the sandbox's own name server, whatever it finds.
        assert "198.18.0.1" in sbx.files.read("/etc/resolv.conf")
        refused(lambda: sbx.update_network({"allow_out": ["10.0.0.1"], "deny_out": ["0.0.0.0/0"]}), 400)
        refused(lambda: sbx.update_network({"allow_out": ["example.org"]}), 400)
        assert "501" in str(refused(lambda: sbx.update_network({"deny_out": ["10.0.0.0/8"]})))
        assert reaches(sbx)
        # What is left out is cleared: the operator allows nothing.
        sbx.update_network({})
        assert not reaches(sbx)
        e2b.Sandbox.update_network(sbx.sandbox_id, {"allow_internet_access": False})
        assert not reaches(sbx)
        sbx.kill()
        try:
            sbx.update_network({})
            raise AssertionError("one that is gone was changed")
        except e2b.SandboxNotFoundException:
            pass


def what_this_server_does_not_do_is_refused_with_the_reason():
    with sandbox() as sbx:
        for call in [
            lambda: sbx.create_snapshot(),
            lambda: sbx.fork(),
            lambda: e2b.Secret.create("a", "b"),
            lambda: e2b.Secret.get_info("a"),
            lambda: e2b.Secret.list().next_items(),
            lambda: e2b.Secret.update("a", "b"),
            lambda: e2b.Secret.exists("a"),
            lambda: e2b.Secret.destroy("a"),
        ]:
            error = refused(call)
            assert "501" in str(error), error
        assert list(e2b.Sandbox.list_snapshots().next_items()) == []
        assert e2b.Template.exists("base") and not e2b.Template.exists("none-of-ours")
        assert e2b.Sandbox.delete_snapshot("none-of-ours") is False
        refused(lambda: e2b.Sandbox.create(timeout=0), 400)
        refused(lambda: e2b.Sandbox.create(metadata={"e2b.x": "y"}), 400)


def a_sandbox_without_internet_reaches_nothing():
    with sandbox(allow_internet_access=False) as sbx:
        assert sbx.get_info().allow_internet_access is False


def a_template_that_is_not_there_is_refused():
    refused(lambda: e2b.Sandbox.create("none-of-ours"), 404)
    refused(lambda: e2b.Sandbox.create(mcp={}), 404)
    with sandbox() as sbx:
        assert sbx.get_mcp_url().endswith("/mcp")
        sbx.files.write("/etc/mcp-gateway/.token", "t", user="root")
        assert sbx.get_mcp_token() == "t"


def a_pause_is_done_or_refused():
    with sandbox() as sbx:
        try:
            assert sbx.pause() is True
        except e2b.SandboxException as error:
            assert error.status_code == 501, error
            return
        assert sbx.pause() is False and sbx.beta_pause() is False
        assert sbx.get_info().state.value == "paused" and not sbx.is_running()
        assert e2b.Sandbox.connect(sbx.sandbox_id).commands.run("echo 1").stdout == "1\n"


def one_whose_time_is_over_is_paused_and_a_connection_resumes_it():
    with sandbox(timeout=2, lifecycle={"on_timeout": "pause"}) as sbx:
        info = sbx.get_info()
        assert info.lifecycle == {"on_timeout": "pause", "auto_resume": False}, info
        sbx.files.write("kept", "1")
        sbx.commands.run("sleep 3")
        # What is at work keeps it awake.
        assert sbx.is_running()
        _until_paused(sbx)
        assert not sbx.is_running()
        # Nothing else wakes it.
        refused(lambda: sbx.commands.run("true"), kind=e2b.TimeoutException)
        refused(lambda: sbx.files.read("kept"), kind=e2b.TimeoutException)
        assert sbx.get_info().state.value == "paused"
        query = e2b.SandboxQuery(state=[e2b.SandboxState.PAUSED])
        ids = [info.sandbox_id for info in e2b.Sandbox.list(query=query).next_items()]
        assert sbx.sandbox_id in ids, ids
        again = e2b.Sandbox.connect(sbx.sandbox_id, timeout=60)
        assert again.files.read("kept") == "1"
        assert again.get_info().end_at > datetime.datetime.now(datetime.timezone.utc)
        again.set_timeout(1)
        _until_paused(again)
        assert again.kill() is True


def one_that_resumes_itself_is_woken_by_any_request():
    lifecycle = {"on_timeout": "pause", "auto_resume": True}
    with sandbox(timeout=1, lifecycle=lifecycle) as sbx:
        assert sbx.get_info().lifecycle["auto_resume"]
        handle = sbx.commands.run("echo $$; (while :; do sleep 0.1; done) >/dev/null 2>&1 &")
        assert handle.exit_code == 0
        for n in range(3):
            _until_paused(sbx)
            assert sbx.commands.run(f"echo {n}").stdout == f"{n}\n"
        _until_paused(sbx)
        sbx.files.write("woken", "1")
        assert sbx.files.read("woken") == "1"


def _until_paused(sbx):
    give_up_at = time.monotonic() + 60
    while sbx.get_info().state.value != "paused":
        assert time.monotonic() < give_up_at, "it is not paused"
        time.sleep(0.1)
