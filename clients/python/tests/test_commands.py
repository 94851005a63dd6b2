"""The life of sandboxes, and commands in them, as both flavours have it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import pytest
from conftest import Bridge, Make, Scissors, eventually, served

import burrow
import burrow.sync


def test_one_shots_run_and_leave_nothing(client: Any) -> None:
    result = client.run_python("import sys; print(6 * 7); sys.stderr.write('e'); sys.exit(3)")
    assert (result.stdout, result.stderr, result.exit_code) == ("42\n", "e", 3)
    assert not result.ok
    assert not result.truncated
    result = client.run_shell("echo $0; exit 0", labels={"a": "b"}, memory_mib=64, cpus=2)
    assert result.ok
    assert client.list() == []


def test_a_one_shot_tears_down_when_it_fails(client: Any) -> None:
    with pytest.raises(burrow.InvalidRequest):
        client.run_shell("true", timeout=-1)
    with pytest.raises(burrow.ApiError):
        client.run_shell("true", image="no-such-image")
    with pytest.raises(TypeError):
        client.run_shell("true", nonsense=1)
    result = client.run_python("import time; time.sleep(60)", timeout=0.3)
    assert result.exit_code == 124
    assert client.list() == []


def test_arguments_are_seen_by_no_shell(box: Any) -> None:
    assert box.exec("printf", ["%s|", "a b", "$HOME", "*", ""]).stdout == "a b|$HOME|*||"
    assert box.exec("true").ok
    with pytest.raises(burrow.InvalidRequest):
        box.exec("echo", "text")


def test_a_non_zero_exit_is_a_result_that_can_be_checked(box: Any) -> None:
    result = box.shell("echo out; echo err >&2; exit 7")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 7)
    with pytest.raises(burrow.ExecutionError) as failed:
        result.check()
    assert failed.value.exit_code == 7
    assert failed.value.traceback == "err\n"
    assert box.exec("true").check().ok
    assert box.shell("kill -9 $$").exit_code == 137


def test_a_timeout_is_a_result_near_its_length_and_kills_the_tree(box: Any) -> None:
    began = time.monotonic()
    result = box.shell("echo begun; sleep 60 & sleep 60", timeout=0.5)
    assert time.monotonic() - began < 10
    assert (result.exit_code, result.timed_out, result.timeout) == (124, True, 0.5)
    assert result.stdout == "begun\n"
    with pytest.raises(burrow.SandboxTimeout) as failed:
        result.check()
    assert failed.value.seconds == 0.5
    assert isinstance(failed.value, TimeoutError)
    # The shell that looks has `sleep` in its own arguments, unless it is written otherwise.
    assert (
        box.shell("cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'slee[p] 60'").stdout == "0\n"
    )


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_that_is_none_is_refused(box: Any, timeout: float) -> None:
    with pytest.raises(burrow.InvalidRequest):
        box.exec("true", timeout=timeout)


def test_a_program_that_is_missing_is_a_typed_failure(box: Any) -> None:
    with pytest.raises(burrow.SpawnFailed) as failed:
        box.exec("no-such-program")
    assert (failed.value.errno, failed.value.stage) == (2, "exec")
    assert failed.value.code == "spawn_failed"


def test_output_counts_as_truncated_exactly_when_a_bound_has_cut_it(box: Any) -> None:
    write = "head -c {} /dev/zero | tr '\\0' x"
    for length, truncated in ((99, False), (100, False), (101, True)):
        result = box.shell(write.format(length), output_bytes_max=100)
        assert (len(result.stdout), result.truncated) == (min(length, 100), truncated)
    megabytes = box.shell(write.format(8 * 1024 * 1024))
    assert (len(megabytes.stdout), megabytes.truncated) == (8 * 1024 * 1024, False)
    more = box.shell(write.format(8 * 1024 * 1024 + 1))
    assert (len(more.stdout), more.truncated) == (8 * 1024 * 1024, True)


def test_bytes_that_are_no_text_are_there_as_they_are(box: Any) -> None:
    result = box.shell(r"printf 'a\377b'")
    assert result.stdout == "a\ufffdb"
    assert result.stdout_bytes == b"a\xffb"


def test_directory_environment_user_and_input_are_heeded(box: Any) -> None:
    result = box.shell("pwd; echo $X; cat", cwd="/usr", env={"X": "y z"}, stdin="in\n")
    assert result.stdout == "/usr\ny z\nin\n"
    assert box.exec("cat", stdin=b"\x00\xff").stdout_bytes == b"\x00\xff"
    assert box.exec("cat").stdout == ""
    assert box.exec("id", ["-u"], user="65534").stdout == "65534\n"


def test_logs_have_what_commands_wrote_also_after_the_stop(client: Any) -> None:
    with client.sandbox() as box:
        assert box.logs() == ""
        box.exec("echo", ["one"])
        box.shell("echo two; echo three >&2")
        for _ in range(20):
            box.exec("echo", ["four"])
        logs = box.logs()
        assert logs.startswith("one\n")
        assert sorted(logs.split()) == sorted(["one", "two", "three", *["four"] * 20])
        assert box.logs(tail=2) == "four\nfour\n"
        assert box.logs(tail=0) == ""
        with pytest.raises(burrow.InvalidRequest):
            box.logs(tail=-1)
        box.stop()
        assert box.logs() == logs
        assert client.get(box.name).logs(tail=1) == "four\n"


def test_stop_and_kill_are_idempotent_and_the_record_stays(client: Any) -> None:
    for first, second in (("stop", "kill"), ("kill", "stop")):
        with client.sandbox() as box:
            getattr(box, first)()
            assert box.info().state == "stopped"
            getattr(box, first)()
            getattr(box, second)()
            assert box.info().state == "stopped"
            with pytest.raises(burrow.NotRunning) as refused:
                box.exec("true")
            assert refused.value.reason == "not_running"
            box.remove()
            box.stop()
            box.kill()


def test_a_stop_lets_programs_end_in_order(client: Any) -> None:
    with client.sandbox() as box:
        stream = box.stream_shell("trap 'echo asked; exit 0' TERM; echo ready; sleep 60 & wait")
        with stream as running:
            assert running.next().text == "ready\n"
            box.stop(grace=5)
        assert "asked" in box.logs()


def test_names_are_listed_found_taken_and_freed(client: Any) -> None:
    client.create(burrow.SandboxSpec("life-one", labels={"team": "a", "x/y.z": "1"}))
    client.create(burrow.SandboxSpec("life-two", labels={"team": "b"}))
    assert client.list() == ["life-one", "life-two"]
    assert [one.name for one in client.sandboxes(labels={"team": "b"})] == ["life-two"]
    assert len(client.sandboxes(labels={"team": None})) == 2
    assert client.sandboxes(labels={"team": None}, states=["stopped"]) == []
    found = client.get("life-one")
    assert found.exec("true").ok
    info = found.info()
    assert info.labels == {"team": "a", "x/y.z": "1"}
    assert (info.memory_mib, info.cpus, info.is_running) == (512, 1, True)
    with pytest.raises(burrow.NameTaken) as taken:
        client.create(burrow.SandboxSpec("life-one"))
    assert taken.value.details["state"] == "running"
    client.remove("life-one")
    client.remove("life-two")
    for lost in (client.get, client.remove):
        with pytest.raises(burrow.NotFound):
            lost("life-one")
    assert client.list() == []


def test_more_sandboxes_than_a_page_holds_are_all_listed(client: Any) -> None:
    # The server's page is long; the client is told to go on by the same word whatever its length.
    asked: list[Any] = []
    inner = getattr(client, "_inner", client)
    inner = getattr(inner, "_inner", inner)

    async def call(method: str, path: str, *, query: Any) -> Any:
        asked.append(query["after"])
        more = {} if len(asked) == 3 else {"next": str(len(asked))}
        return {"sandboxes": [{"name": f"n{len(asked)}"}], **more}

    inner._api.call = call
    assert client.list() == ["n1", "n2", "n3"]
    assert asked == [None, "1", "2"]


@pytest.mark.parametrize(
    ("fields", "kind", "word"),
    [
        ({"egress": ("10.0.0.1",)}, burrow.InvalidRequest, "egress"),
        ({"workspace": "no-such-workspace"}, burrow.UnknownWorkspace, "no-such-workspace"),
        ({"secrets": ("no-such-secret",)}, burrow.UnknownSecret, "no-such-secret"),
    ],
)
def test_what_cannot_be_had_is_a_typed_refusal_and_nothing_is_made(
    client: Any, fields: Any, kind: Any, word: str
) -> None:
    with pytest.raises(kind) as refused:
        client.create(burrow.SandboxSpec("refused", **fields))
    assert word in str(refused.value)
    assert client.list() == []


def test_what_code_writes_into_a_workspace_comes_back_at_the_end_of_a_block(
    client: Any, tmp_path: Path
) -> None:
    (tmp_path / "given").write_text("given")
    with client.sandbox(workspace=str(tmp_path)) as box:
        box.shell("cat /workspace/given > /workspace/asked").check()
        synced = box.sync()
        assert (synced.written, synced.conflicts, synced.refused) in [
            (("asked",), {}, {}),
            ((), {}, {}),
        ]
        assert (tmp_path / "asked").read_text() == "given"
        box.shell("echo late > /workspace/late; rm /workspace/given").check()
    assert (tmp_path / "late").read_text() == "late\n"
    assert not (tmp_path / "given").exists()


def test_more_of_a_creation_is_there_than_the_specification_says(client: Any) -> None:
    spec = burrow.SandboxSpec("more")
    with client.create(spec, user="7:8", hostname="own", scratch_bytes=1 << 21) as box:
        assert box.shell("id -u; id -g; hostname").stdout == "7\n8\nown\n"
        assert box.shell("head -c 3000000 /dev/zero > /tmp/full").exit_code != 0
    with pytest.raises(burrow.InvalidRequest):
        client.create(spec, pull="sometimes")


def test_a_sandbox_has_the_way_out_that_was_asked_for(client: Any) -> None:
    with client.create(burrow.SandboxSpec("way-out", egress=("example.org",))) as box:
        assert "198.18.0.1" in box.shell("cat /etc/resolv.conf").stdout
        # Decided by the host, which asks nobody for a name that no rule allows.
        assert box.shell("getent hosts example.net").exit_code != 0


def test_what_nobody_gives_is_for_the_server_to_say() -> None:
    defaults = ["defaults.memory_mib=300", "defaults.cpus=2", "defaults.egress=good.example"]
    options = [word for one in defaults for word in ("--set", one)]
    with served("--dev", *options) as bridge, burrow.sync.SandboxClient(bridge.url) as client:
        with client.create("usual") as box:
            info = box.info()
            assert (info.memory_mib, info.cpus, info.raw["egress"]) == (300, 2, ["good.example"])
        # Given, they are sent, also where they are what the specification has by itself.
        own = burrow.SandboxSpec("own", memory_mib=512, cpus=1, egress=())
        with client.create(own) as box:
            info = box.info()
            assert (info.memory_mib, info.cpus, info.raw["egress"]) == (512, 1, [])


def test_names_in_a_text_instead_of_a_tuple_are_a_mistake_that_is_told(client: Any) -> None:
    mistakes: list[Any] = [{"egress": "example.org"}, {"secrets": "token"}]
    for fields in mistakes:
        with pytest.raises(burrow.InvalidRequest):
            client.create(burrow.SandboxSpec("refused", **fields))


def test_times_to_live_hold_and_can_be_changed(client: Any) -> None:
    box = client.create(burrow.SandboxSpec("mortal"), ttl=3600, env={"A": "b"}, workdir="/usr")
    try:
        assert box.shell("pwd; echo $A").stdout == "/usr\nb\n"
        assert box.exec("pwd", cwd="/").stdout == "/\n"
        assert [one.data for one in box.stream("pwd") if isinstance(one, burrow.Output)] == [
            b"/usr\n"
        ]
        assert box.context().run("import os; os.getcwd()").result == "'/usr'"
        before = box.info().expires_at_ms
        assert before is not None
        assert box.extend(ttl=7200).expires_at_ms > before
        assert list(box.set_egress(["example.org"]).egress) == ["example.org"]
        with pytest.raises(burrow.InvalidRequest):
            box.set_egress(["https://example.org"])
        assert list(box.set_egress([]).egress) == []
        assert box.wait(timeout=0.05).state == "running"
        box.extend(ttl=0.2)
        assert box.wait(timeout=20).state == "stopped"
    finally:
        box.remove()


def test_metrics_say_what_is_used(box: Any) -> None:
    eventually("a second sample", lambda: box.metrics().cpu_percent is not None)
    metrics = box.metrics()
    assert metrics.memory_bytes > 0
    assert metrics.processes >= 1
    assert metrics.uptime_seconds > 0


def test_a_link_leads_to_a_port_inside(box: Any, bridge: Bridge) -> None:
    serve = (
        "import http.server as h; h.test(h.SimpleHTTPRequestHandler, port=8125, bind='127.0.0.1')"
    )
    with box.stream("python3", ["-c", serve]):
        link = urlsplit(box.preview_url(8125, ttl=60))
        assert link.hostname == f"8125-{box.name}.localhost"
        # Not every resolver knows the names below localhost; by its path it is the same port.
        url = f"{bridge.url}/p/default/{box.name}/8125/?{link.query}"

        def answers() -> bool:
            try:
                with urlopen(url) as answer:
                    return bool(answer.status == 200)
            except HTTPError as error:
                assert error.code == 502
                return False

        eventually("it answers", answers)
        with pytest.raises(burrow.InvalidRequest):
            box.preview_url(8125, ttl=31 * 86_400)


def test_a_process_pauses_where_the_host_can_freeze_it(box: Any) -> None:
    try:
        box.pause()
    except burrow.Unsupported as refused:
        # Without control groups 2 nothing is paused, and it runs on.
        assert "control group" in str(refused)
    else:
        box.resume()
    assert box.exec("echo", ["on"]).stdout == "on\n"


def test_forks_have_the_files_and_part_from_there(box: Any, client: Any) -> None:
    box.files.write("/tmp/seen", "one")
    forks, report = box.fork(2)
    assert report["memory"] is False and report["entries"] > 0
    assert [fork.name for fork in forks] == [f"{box.name}-1", f"{box.name}-2"]
    own = [client.get(fork.name) for fork in forks]
    own[0].files.write("/tmp/seen", "two")
    seen = [one.exec("cat", ["/tmp/seen"]).stdout for one in [box, *own]]
    for one in own:
        one.remove()
    assert seen == ["one", "two", "one"]


def test_what_was_kept_is_compared_and_a_session_has_a_receipt(box: Any) -> None:
    box.exec("echo", ["kept"])
    session = box.verify()[-1]
    assert [output["finding"] for output in session["outputs"]] == ["equal", "equal"]
    assert box.verify(session["session"]) == [session]
    receipt = box.receipt(session["session"])
    assert receipt["statement"]["outputs"][0]["sha256"] == session["outputs"][0]["sha256"]
    assert box.receipt(session["session"]) == receipt
    with pytest.raises(burrow.NotFound):
        box.receipt("nothing")


def test_a_sandbox_of_a_template_is_ready(client: Any) -> None:
    kept = client.put_template(
        "served",
        env={"A": "1"},
        start="echo $A > /tmp/up; exec sleep 1000",
        ready="test -s /tmp/up",
    )
    assert (kept.name, kept.warm, kept.raw["env_names"]) == ("served", 0, ["A"])
    made = client.create("of-template", template="served")
    try:
        assert made.exec("cat", ["/tmp/up"]).stdout == "1\n"
    finally:
        made.remove()
    assert [one.name for one in client.templates()] == ["served"]
    assert client.template("served").revision == kept.revision
    client.remove_template("served")
    with pytest.raises(burrow.NotFound):
        client.create("of-template", template="served")


def test_a_machine_without_snapshots_says_so(box: Any, client: Any) -> None:
    with pytest.raises(burrow.Unsupported):
        box.snapshot("base")
    assert client.snapshots() == []
    with pytest.raises(burrow.NotFound):
        client.restore("no-such-snapshot", "another")
    with pytest.raises(burrow.NotFound):
        client.remove_snapshot("no-such-snapshot")


def test_a_sandbox_of_a_block_is_gone_behind_it_also_by_an_exception(client: Any) -> None:
    with pytest.raises(LookupError), client.sandbox("short"):
        assert client.list() == ["short"]
        raise LookupError
    assert client.list() == []


def test_a_name_alone_makes_a_sandbox(client: Any) -> None:
    with client.create("by-name") as box:
        assert box.name == "by-name"
        assert box.exec("echo", ["here"]).stdout == "here\n"


def test_an_answer_that_is_lost_never_makes_a_second_sandbox(
    scissors: Scissors, flavour: Make
) -> None:
    client = flavour(scissors.url)
    scissors.cut("POST /v1/sandboxes ", times=2)
    box = client.create(burrow.SandboxSpec("once"))
    try:
        made = [one for one in scissors.requests if one.startswith(b"POST /v1/sandboxes ")]
        assert len(made) == 3
        assert (
            len({one.lower().split(b"idempotency-key: ")[1].split(b"\r")[0] for one in made}) == 1
        )
        assert client.list() == ["once"]
        assert box.info().id == box.id
    finally:
        client.remove("once")


def test_an_answer_that_is_lost_never_runs_a_command_twice(
    scissors: Scissors, flavour: Make
) -> None:
    client = flavour(scissors.url)
    with client.sandbox() as box:
        path = f"POST /v1/sandboxes/default/{box.name}/"
        script = "echo run >> /tmp/runs; echo out; exit 5"
        for method, arguments in (("shell", (script,)), ("exec", ("sh", ["-c", script]))):
            scissors.cut(path + method, times=2)
            result = getattr(box, method)(*arguments)
            assert (result.stdout, result.exit_code, result.truncated) == ("out\n", 5, False)
            assert scissors.cuts == []
        assert box.exec("cat", ["/tmp/runs"]).stdout == "run\nrun\n"


def test_a_removal_whose_answer_is_lost_has_removed(scissors: Scissors, flavour: Make) -> None:
    client = flavour(scissors.url)
    client.create(burrow.SandboxSpec("gone"))
    scissors.cut("DELETE ")
    client.remove("gone")
    assert client.list() == []


def test_attempts_are_bounded(scissors: Scissors, flavour: Make) -> None:
    client = flavour(scissors.url, retries=1)
    scissors.cut("GET ", times=3)
    with pytest.raises(burrow.ConnectionFailed):
        client.list()
    assert len(scissors.requests) == 2


def test_a_unix_socket_serves_as_well(bridge: Bridge, flavour: Make) -> None:
    client = flavour(f"unix:{bridge.socket}")
    assert client.run_shell("echo here").stdout == "here\n"
