"""Sandboxes: made, found by their ids, names, labels and on pages, stopped and started, copied, removed."""

import datetime
import json
import os
import urllib.error
import urllib.request

import daytona
from daytona import CreateSandboxFromImageParams, CreateSandboxFromSnapshotParams, ListSandboxesQuery
from wire import refused, sandbox, until


def a_sandbox_is_made_found_and_removed():
    client = daytona.Daytona()
    made = client.create(
        CreateSandboxFromSnapshotParams(
            name="named", labels={"team": "a", "step": "1"}, env_vars={"A": "it's"}, ttl_minutes=60
        )
    )
    assert made.state == "started" and made.name == "named", made
    assert made.labels["team"] == "a" and made.auto_stop_interval == 15, made
    assert made.process.exec("echo $A").result == "it's\n"
    for found in [client.get(made.id), client.get("named")]:
        assert (found.id, found.labels, found.state) == (made.id, made.labels, "started"), found
        assert found.auto_destroy_at is not None
    made.refresh_data()
    made.refresh_activity()
    refused(
        lambda: client.create(CreateSandboxFromSnapshotParams(name="named")),
        daytona.DaytonaConflictError,
    )
    client.delete(made, wait=True)
    assert made.state == "destroyed"
    for name in [made.id, "named", "never", "no/name"]:
        refused(lambda: client.get(name), daytona.DaytonaNotFoundError)
    refused(made.refresh_data, daytona.DaytonaNotFoundError)


def sandboxes_are_listed_by_labels_and_on_pages():
    client = daytona.Daytona()
    made = [
        client.create(CreateSandboxFromSnapshotParams(labels={"list": "yes", "n": str(n)}))
        for n in range(3)
    ]
    ids = [one.id for one in made]
    listed = lambda **query: [one.id for one in client.list(ListSandboxesQuery(**query))]
    assert listed(labels={"list": "yes"}) == ids[::-1]
    assert listed(labels={"list": "yes"}, limit=1, order="asc") == ids
    assert listed(labels={"list": "yes", "n": "1"}) == [ids[1]]
    assert listed(labels={"list": "no"}) == []
    assert listed(id=ids[2]) == [ids[2]] and listed(name=made[0].name) == [ids[0]]
    assert listed(labels={"list": "yes"}, states=["stopped"]) == []
    made[0].stop()
    assert listed(labels={"list": "yes"}, states=["stopped", "error"]) == [ids[0]]
    now = datetime.datetime.now(datetime.timezone.utc)
    hour = datetime.timedelta(hours=1)
    assert set(ids) <= set(listed(created_at_after=now - hour, created_at_before=now + hour))
    assert listed(created_at_after=now + hour) == []
    refused(lambda: listed(is_recoverable=True), status=501, says="isRecoverable")
    refused(lambda: listed(limit=1000), says="limit")
    for one in made:
        one.delete()


def a_stop_ends_what_runs_and_keeps_the_files():
    with sandbox() as made:
        made.fs.upload_file(b"kept", "/tmp/kept")
        made.process.create_session("s")
        request = daytona.SessionExecuteRequest(command="sleep 1000", run_async=True)
        made.process.execute_session_command("s", request)
        made.code_interpreter.run_code("x = 1")
        made.stop()
        assert made.state == "stopped", made.state
        refused(lambda: made.process.exec("true"), daytona.DaytonaConflictError)
        made.stop()
        made.start()
        assert made.state == "started"
        made.start()
        assert made.fs.download_file("/tmp/kept") == b"kept"
        assert made.process.exec("pgrep -x sleep").exit_code == 1
        assert made.code_interpreter.run_code("print(x)").error.name == "NameError"


def a_pause_keeps_what_runs():
    with sandbox() as made:
        made.code_interpreter.run_code("x = 7")
        made.pause()
        made.start()
        assert made.code_interpreter.run_code("print(x)").stdout == "7\n"


def intervals_are_minutes_and_an_ephemeral_sandbox_goes_when_it_stops():
    with sandbox(auto_stop_interval=0) as made:
        assert made.auto_stop_interval == 0 and made.auto_delete_interval == -1
        made.set_autostop_interval(30)
        made.refresh_data()
        assert made.auto_stop_interval == 30
        made.set_auto_pause_interval(0)
        made.refresh_data()
        assert made.auto_stop_interval == 0
        made.set_auto_delete_interval(-1)
        refused(lambda: made.set_auto_delete_interval(0), status=501, says="auto_delete_interval")
        refused(lambda: made.set_auto_delete_interval(5), status=501, says="ttl_minutes")
        made.set_ttl(10)
        made.set_public(False)
        refused(lambda: made.set_public(True), status=501, says="operator")
    client = daytona.Daytona()
    brief = client.create(CreateSandboxFromSnapshotParams(ephemeral=True))
    assert brief.auto_delete_interval == 0
    brief.set_auto_delete_interval(0)
    brief.stop()
    assert brief.state == "destroyed"
    refused(lambda: client.get(brief.id), daytona.DaytonaNotFoundError)


def an_idle_sandbox_stops_and_the_next_call_wakes_it():
    with sandbox(auto_stop_interval=0) as made:
        made.process.exec("echo 1 >/tmp/one")
        # Daytona counts in minutes; the native API counts the same time in milliseconds.
        url = f"{os.environ['DAYTONA_API_URL'].removesuffix('/daytona')}/v1/sandboxes/default/"
        ask = urllib.request.Request(url + made.name, method="PATCH", data=b'{"idle_ttl_ms":1000}')
        ask.add_header("Content-Type", "application/json")
        urllib.request.urlopen(ask).read()
        until(lambda: made.refresh_data() or made.state == "stopped")
        assert made.process.exec("cat /tmp/one").result == "1\n"
        made.refresh_data()
        assert made.state == "started"
        # One that is stopped while it sleeps is not woken by a call.
        until(lambda: made.refresh_data() or made.state == "stopped")
        made.stop()
        refused(lambda: made.process.exec("true"), daytona.DaytonaConflictError)
        made.start()
        assert made.process.exec("cat /tmp/one").result == "1\n"


def a_size_is_taken_when_it_is_made_and_never_changed():
    client = daytona.Daytona()
    resources = daytona.Resources(cpu=1, memory=1, disk=1)
    refused(
        lambda: client.create(CreateSandboxFromImageParams(image="no-such/image", resources=resources)),
        daytona.DaytonaNotFoundError,
        says="no-such/image",
    )
    with sandbox() as made:
        refused(lambda: made.resize(daytona.Resources(cpu=2)), status=501, says="size")


def what_is_lacking_is_refused_with_the_reason():
    client = daytona.Daytona()
    for options, says in [
        ({"public": True}, "public"),
        ({"volumes": [daytona.VolumeMount(volume_id="v", mount_path="/v", subpath="x")]}, "part"),
        ({"volumes": [daytona.VolumeMount(volume_id="none-of-ours", mount_path="/v")]}, "volume"),
        ({"auto_delete_interval": 5}, "ttl_minutes"),
        ({"labels": {"daytona.own": "x"}}, "daytona.own"),
        ({"name": "No Name"}, "name"),
    ]:
        refused(lambda: client.create(CreateSandboxFromSnapshotParams(**options)), says=says)
    steps = daytona.Image.base("python:3.12").run_commands("true")
    refused(
        lambda: client.create(CreateSandboxFromImageParams(image=steps)), status=501, says="steps"
    )
    with sandbox() as made:
        for call in [
            lambda: made.set_labels({"a": "b"}),
            made.archive,
            lambda: made.set_auto_archive_interval(1),
            made.recover,
            lambda: made.update_secrets({"A": "a"}),
            lambda: made.update_env({"A": "a"}),
            lambda: made.download_url("/a"),
            lambda: made.upload_url("/a"),
            made.rotate_signing_key,
            made.create_ssh_access,
            lambda: made.revoke_ssh_access("t"),
            lambda: made.validate_ssh_access("t"),
            lambda: made.create_lsp_server("python", "/").start(),
            made.computer_use.start,
            made.process.get_entrypoint_session,
            made.process.get_entrypoint_logs,
            client.snapshot.list,
            lambda: client.snapshot.get("a"),
            client.secret.list,
        ]:
            error = refused(call, Exception)
            # The clients make no exception of their own of some.
            status = getattr(error, "status_code", None) or error.status
            assert status == 501 and "not supported by this server" in str(error), error


def sandboxes_share_a_volume_that_outlives_them():
    client = daytona.Daytona()
    missing = daytona.DaytonaNotFoundError
    refused(lambda: client.volume.get("shared"), missing)
    volume = client.volume.get("shared", create=True)
    assert volume.name == "shared" and volume.state == "ready", volume
    refused(lambda: client.volume.create("shared"), daytona.DaytonaConflictError)
    assert client.volume.get("shared").id == volume.id
    assert [one.id for one in client.volume.list()] == [volume.id]
    by_id = daytona.VolumeMount(volume_id=volume.id, mount_path="/mnt/data")
    by_name = daytona.VolumeMount(volume_id="shared", mount_path="/srv/data")
    with sandbox(volumes=[by_id]) as one, sandbox(volumes=[by_name]) as two:
        assert one.volumes[0].mount_path == "/mnt/data", one.volumes
        one.process.exec("echo here > /mnt/data/f")
        assert two.process.exec("cat /srv/data/f").result == "here\n"
        refused(lambda: client.volume.delete(volume), daytona.DaytonaConflictError)
    with sandbox(volumes=[by_id]) as three:
        assert three.process.exec("cat /mnt/data/f").result == "here\n"
    client.volume.delete(volume)
    refused(lambda: client.volume.get("shared"), missing)


def metrics_and_directories_are_those_of_the_sandbox():
    with sandbox() as made:
        assert made.get_work_dir() == made.process.exec("pwd").result.strip()
        assert made.get_user_home_dir() == made.process.exec("echo $HOME").result.strip()
        metrics = until(lambda: _maybe(made.get_metrics_latest))
        assert metrics.mem_used > 0, metrics
        kept = until(made.get_metrics)
        assert kept[-1].mem_used > 0 and kept[-1].mem_total > 0 and kept[-1].cpu_count > 0, kept
        begin = datetime.datetime.fromisoformat(made.created_at.replace("Z", "+00:00"))
        assert all(begin <= one.timestamp for one in kept), kept
        # Before it was there it used nothing.
        assert made.get_metrics(begin - datetime.timedelta(days=2), begin - datetime.timedelta(days=1)) == []


def _maybe(call):
    try:
        return call()
    except daytona.DaytonaServiceUnavailableError:
        return None


def a_fork_has_the_files_of_its_original_and_a_snapshot_makes_others():
    with sandbox() as made:
        made.fs.upload_file(b"1", "/tmp/one")
        try:
            copy = made.fork()
        except daytona.DaytonaError as error:
            # Not every machine can; then it says so.
            assert error.status_code in (501, 422), repr(error)
        else:
            assert copy.fs.download_file("/tmp/one") == b"1"
            copy.fs.upload_file(b"2", "/tmp/one")
            assert made.fs.download_file("/tmp/one") == b"1"
            copy.delete()
        try:
            made.create_snapshot("shot")
        except daytona.DaytonaError as error:
            assert error.status_code in (501, 422), repr(error)
        else:
            with sandbox(snapshot="shot") as other:
                assert other.fs.download_file("/tmp/one") == b"1"


def what_a_sandbox_may_reach_is_set_and_changed():
    probe = "python3 -c \"import socket; socket.create_connection(('192.0.2.1', 80), 2)\""
    with sandbox(network_block_all=True) as made:
        assert made.network_block_all is True
        assert made.process.exec(probe).exit_code != 0
    with sandbox(domain_allow_list="a.example, b.example") as made:
        assert made.network_block_all is False
        made.update_network_settings(network_block_all=True)
        assert made.network_block_all is True
        made.refresh_data()
        assert made.network_block_all is True
        made.update_network_settings(domain_allow_list="c.example")
        assert made.network_block_all is False
        refused(lambda: made.update_network_settings(network_allow_list="10.0.0.0/8"), says="10.0.0.0/8")
        # The operator allows nothing.
        made.update_network_settings(network_block_all=False)
        assert made.network_block_all is True


def a_port_is_reached_by_a_link():
    with sandbox() as made:
        made.fs.upload_file(b"hello", "/tmp/www/index.html")
        made.process.create_session("web")
        command = "python3 -m http.server 8000 --bind 127.0.0.1 --directory /tmp/www"
        request = daytona.SessionExecuteRequest(command=command, run_async=True)
        made.process.execute_session_command("web", request)
        probe = "import socket; socket.create_connection(('127.0.0.1', 8000))"
        until(lambda: made.process.exec(f'python3 -c "{probe}"').exit_code == 0)

        def ask(url, token=None):
            # Not every resolver knows the names below localhost; the server is asked by its address.
            address = os.environ["DAYTONA_API_URL"].removesuffix("/daytona")
            host, _, path = url.removeprefix("http://").partition("/")
            asked = urllib.request.Request(f"{address}/{path}")
            asked.add_header("Host", host)
            if token:
                asked.add_header("x-daytona-preview-token", token)
            return urllib.request.urlopen(asked).read()

        link = made.get_preview_link(8000)
        assert ask(link.url + "/index.html", link.token) == b"hello"
        signed = made.create_signed_preview_url(8000, 60)
        assert ask(signed.url) == b"hello"
        made.expire_signed_preview_url(8000, signed.token)
        refused(lambda: made.expire_signed_preview_url(8000, signed.token), status=404)


def a_refusal_has_the_form_of_daytonas():
    ask = urllib.request.Request(os.environ["DAYTONA_API_URL"] + "/sandbox/none")
    ask.add_header("Authorization", f"Bearer {os.environ['DAYTONA_API_KEY']}")
    try:
        urllib.request.urlopen(ask)
        raise AssertionError("it was not refused")
    except urllib.error.HTTPError as error:
        said = json.load(error)
        assert said["statusCode"] == 404 and said["error"] == "Not Found", said
        assert said["source"] == "DAYTONA_API" and said["code"] == "NOT_FOUND", said
        assert "none" in said["message"], said
