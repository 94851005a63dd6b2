"""Keys: every call is made with a key of another namespace, and none gets anything."""

import json
import os
import re
import subprocess
import urllib.error
import urllib.request

import daytona
from daytona import CreateSandboxFromSnapshotParams, DaytonaConfig, SessionExecuteRequest
from wire import refused, until

URL = os.environ["DAYTONA_API_URL"]


def _key(*options):
    command = [os.environ["BURROW_TEST_BRIDGE"], "keygen", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def _client(key):
    return daytona.Daytona(DaytonaConfig(api_key=key, api_url=URL, target="us"))


def _ask(method, path, key, body=None):
    ask = urllib.request.Request(URL + path, method=method, data=body)
    ask.add_header("Content-Type", "application/json")
    if key:
        ask.add_header("Authorization", f"Bearer {key}")
    try:
        return urllib.request.urlopen(ask).status
    except urllib.error.HTTPError as error:
        json.load(error)
        return error.code


def _paths():
    """Every path that is served, from the source of the door: a new one is walked without a word here."""
    directory = os.environ["BURROW_TEST_DAYTONA_SOURCES"]
    paths = set()
    for place, _, names in os.walk(directory):
        for name in names:
            text = open(os.path.join(place, name)).read()
            paths |= set(re.findall(r'"/daytona(/(?:sandbox|toolbox)/\{sandbox\}[^"]*)"', text))
    return sorted(paths)


def a_key_of_another_namespace_gets_no_volume():
    own, other = _key("--namespace", "own"), _key("--namespace", "other")
    client, stranger = _client(own), _client(other)
    volume = client.volume.create("data")
    refused(lambda: stranger.volume.get("data"), daytona.DaytonaNotFoundError)
    assert [one.id for one in stranger.volume.list()] == []
    refused(lambda: stranger.volume.delete(volume), daytona.DaytonaNotFoundError)
    mounts = [daytona.VolumeMount(volume_id=volume.id, mount_path="/mnt/data")]
    ask = CreateSandboxFromSnapshotParams(volumes=mounts)
    refused(lambda: stranger.create(ask), daytona.DaytonaNotFoundError)
    # The native API says no more of it.
    base = URL.removesuffix("/daytona")
    for key, expected in [(other, 403), (own, 200)]:
        ask = urllib.request.Request(base + "/v1/volumes/own/data")
        ask.add_header("Authorization", f"Bearer {key}")
        try:
            status = urllib.request.urlopen(ask).status
        except urllib.error.HTTPError as error:
            status = error.code
        assert status == expected, status
    assert client.volume.get("data").id == volume.id


def a_key_of_another_namespace_gets_nothing_of_a_sandbox():
    own, other = _key("--namespace", "own"), _key("--namespace", "other")
    client, stranger = _client(own), _client(other)
    made = client.create(CreateSandboxFromSnapshotParams(name="mine"))
    made.fs.upload_file(b"secret", "/tmp/secret")
    made.process.create_session("s")
    command = made.process.execute_session_command("s", SessionExecuteRequest(command="echo secret"))
    for name in [made.id, "mine"]:
        refused(lambda: stranger.get(name), daytona.DaytonaNotFoundError)
    assert [one.id for one in stranger.list()] == []
    assert [one.id for one in client.list()] == [made.id]
    assert _client(own).get("mine").id == made.id
    paths = _paths()
    assert len(paths) > 60, paths
    fill = {
        "session": "s", "command": command.cmd_id, "pty": "t", "context": "python", "port": "80",
        "minutes": "1", "value": "false", "token": "x", "what": "mouse", "which": "click",
    }
    bodies = {
        "execute": {"command": "true"}, "code-run": {"code": "1", "language": "python"},
        "session": {"sessionId": "x"}, "exec": {"command": "true"}, "input": {"data": "x"},
        "pty": {"id": "x"}, "resize": {"rows": 1, "cols": 1}, "context": {},
        "bulk-download": {"paths": ["/tmp/secret"]},
        "replace": {"files": ["/tmp/secret"], "pattern": "s", "newValue": "x"},
        "snapshot": {"name": "x"}, "fork": {},
    }
    git = {
        "path": "/tmp", "url": "/x", "files": ["a"], "message": "m", "author": "a", "email": "e",
        "name": "n", "branch": "b", "key": "k", "value": "v", "username": "u", "password": "p",
    }
    query = "?path=/tmp&pattern=x&mode=755&source=/a&destination=/b&key=user.name&id=x&cols=1&rows=1"
    walked = 0
    for path in paths:
        last = path.rsplit("/", 1)[1]
        body = json.dumps(git if "/git/" in path else bodies.get(last, {})).encode()
        filled = path.replace("{sandbox}", made.id)
        for name, value in fill.items():
            filled = filled.replace("{%s}" % name, value)
        for method in ["GET", "POST", "PUT", "DELETE"]:
            status = _ask(method, filled + query, other, None if method == "GET" else body)
            # A path says which methods it has; of the sandbox nothing is said but that it is not there. A
            # body or a query that is wrong says nothing of it either.
            assert status in (400, 404, 405), (method, path, status)
            walked += status == 404
            assert _ask(method, filled, None) in (401, 405), (method, path)
    assert walked > 60, walked
    assert made.fs.download_file("/tmp/secret") == b"secret"
    assert made.process.get_session("s").commands[0].exit_code == 0
    assert client.get("mine").state == "started"
    # The same name in another namespace is another sandbox.
    theirs = stranger.create(CreateSandboxFromSnapshotParams(name="mine"))
    assert stranger.get("mine").id == theirs.id != made.id
    theirs.delete()
    made.delete()


def a_key_is_needed_and_must_be_good_and_may_be_for_reading_alone():
    refused(lambda: _client("nonsense").create(), daytona.DaytonaAuthenticationError)
    own, reader = _key("--namespace", "own"), _key("--namespace", "own", "--scope", "read")
    made = _client(own).create(CreateSandboxFromSnapshotParams(name="read"))
    made.fs.upload_file(b"1", "/tmp/one")
    looked = _client(reader).get("read")
    assert looked.fs.download_file("/tmp/one") == b"1"
    refused(lambda: looked.fs.list_files("relative"), status=403, says="absolute path")
    assert [one.name for one in _client(reader).list()] == ["read"]
    for call in [
        lambda: _client(reader).create(),
        lambda: looked.process.exec("true"),
        lambda: looked.fs.upload_file(b"2", "/tmp/one"),
        lambda: looked.fs.delete_file("/tmp/one"),
        lambda: looked.code_interpreter.create_context(),
        lambda: looked.git.status("/tmp"),
        lambda: looked.process.create_session("x"),
        lambda: looked.get_preview_link(80),
        lambda: looked.stop(),
        lambda: looked.delete(),
    ]:
        refused(call, status=403)
    made.delete()


def a_link_is_for_its_port_and_its_sandbox():
    own = _key("--namespace", "own")
    one, two = _client(own).create(), _client(own).create()
    for made in [one, two]:
        made.fs.upload_file(made.id.encode(), "/tmp/www/id")
        made.process.create_session("w")
        serve = "python3 -m http.server 8000 --bind 127.0.0.1 --directory /tmp/www"
        made.process.execute_session_command("w", SessionExecuteRequest(command=serve, run_async=True))
    address = URL.removesuffix("/daytona")

    def ask(url, token):
        host, _, path = url.removeprefix("http://").partition("/")
        asked = urllib.request.Request(f"{address}/{path}/id" if path else f"{address}/id")
        asked.add_header("Host", host)
        asked.add_header("x-daytona-preview-token", token)
        try:
            return urllib.request.urlopen(asked).read().decode()
        except urllib.error.HTTPError as error:
            return error.code

    links = [made.get_preview_link(8000) for made in [one, two]]
    until(lambda: ask(links[0].url, links[0].token) == one.id)
    until(lambda: ask(links[1].url, links[1].token) == two.id)
    assert ask(links[0].url, links[1].token) == 401
    assert ask(links[0].url, one.get_preview_link(8001).token) == 401
    assert ask(links[0].url, "") == 401
    one.delete()
    two.delete()
