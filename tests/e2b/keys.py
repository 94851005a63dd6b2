"""Keys: each call is made with a key of another namespace, and none gets anything."""

import json
import os
import pathlib
import re
import subprocess
import time
import urllib.error
import urllib.request

import e2b
import e2b_code_interpreter as interpreter
from wire import refused


def _key(*options):
    command = [os.environ["BURROW_TEST_BRIDGE"], "keygen", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def a_key_reaches_its_own_namespace_alone():
    own, other = _key("--namespace", "own"), _key("--namespace", "other")
    sbx = interpreter.Sandbox.create(api_key=own)
    sbx.files.write("secret", "1")
    assert sbx.commands.run("echo 1").stdout == "1\n" and sbx.run_code("1").text == "1"
    missing = e2b.SandboxNotFoundException
    theirs = interpreter.Sandbox.create(api_key=other)
    id = sbx.sandbox_id
    refused(lambda: e2b.Sandbox.connect(id, api_key=other), kind=missing)
    refused(lambda: e2b.Sandbox.get_info(id, api_key=other), kind=missing)
    refused(lambda: e2b.Sandbox.set_timeout(id, 5, api_key=other), kind=missing)
    refused(lambda: e2b.Sandbox.get_metrics(id, api_key=other), kind=missing)
    refused(lambda: e2b.Sandbox.pause(id, api_key=other), kind=missing)
    assert e2b.Sandbox.kill(id, api_key=other) is False
    found = e2b.Sandbox.list(api_key=other).next_items()
    assert [info.sandbox_id for info in found] == [theirs.sandbox_id]
    # Their token is for their own sandbox alone.
    token = theirs._envd_access_token
    url = os.environ["E2B_SANDBOX_URL"]
    paths = {
        "49983": [
            "/files?path=secret",
            "/process.Process/List",
            "/process.Process/Start",
            "/process.Process/Connect",
            "/process.Process/SendInput",
            "/process.Process/SendSignal",
            "/process.Process/Update",
            "/process.Process/CloseStdin",
            "/process.Process/StreamInput",
            *(
                f"/filesystem.Filesystem/{name}"
                for name in "Stat ListDir MakeDir Move Remove CreateWatcher GetWatcherEvents "
                "RemoveWatcher WatchDir".split()
            ),
        ],
        "49999": ["/execute", "/contexts", "/contexts/python/restart"],
        "80": ["/"],
    }
    for port, all in paths.items():
        for path in all:
            for header, sent in [("X-Access-Token", token), ("X-API-KEY", other), ("X-None", "")]:
                ask = urllib.request.Request(url + path, data=b"{}", method="POST")
                ask.add_header("Content-Type", "application/json")
                ask.add_header("E2b-Sandbox-Id", id)
                ask.add_header("E2b-Sandbox-Port", port)
                ask.add_header(header, sent)
                error = refused(lambda: urllib.request.urlopen(ask), kind=urllib.error.HTTPError)
                # Of a sandbox that a good key does not reach, nothing is said.
                assert error.code == (502 if header == "X-API-KEY" else 401), (path, header, error)
    # A URL that they have signed is for their sandbox, whichever one the headers name.
    theirs.files.write("secret", "2")
    query = theirs.download_url("secret").split("?", 1)[1]
    ask = urllib.request.Request(f"{url}/files?{query}")
    ask.add_header("E2b-Sandbox-Id", id)
    ask.add_header("E2b-Sandbox-Port", "49983")
    assert urllib.request.urlopen(ask).read() == b"2"
    assert sbx.files.read("secret") == "1"
    assert sbx.kill(api_key=own) is True and theirs.kill(api_key=other) is True


def every_call_about_a_sandbox_tells_another_key_nothing():
    """The calls are those of the door's source, so that one that is added is walked."""
    source = pathlib.Path(__file__).parents[2] / "crates/api/src/e2b"
    text = "".join(file.read_text() for file in source.rglob("*.rs"))
    paths = sorted(set(re.findall(r'"((?:/v2)?/sandboxes/\{sandbox\}[^"]*)"', text)))
    assert len(paths) >= 13, paths
    own, other = _key("--namespace", "own"), _key("--namespace", "other")
    sbx = e2b.Sandbox.create(api_key=own, metadata={"a": "secret"})
    bodies = {"timeout": {"timeout": 1}, "fork": {"count": 1}, "snapshots": {"name": "x"}}
    walked = 0
    for path in paths:
        body = json.dumps(bodies.get(path.rsplit("/", 1)[1], {})).encode()
        for method in ["GET", "POST", "PUT", "DELETE"]:
            ask = urllib.request.Request(
                os.environ["E2B_API_URL"] + path.replace("{sandbox}", sbx.sandbox_id), body, method=method
            )
            ask.add_header("Content-Type", "application/json")
            ask.add_header("X-API-KEY", other)
            error = refused(lambda: urllib.request.urlopen(ask), kind=urllib.error.HTTPError)
            said = error.read().decode()
            # 405 is for a method that the path does not have.
            assert error.code in (404, 405) and "secret" not in said, (method, path, error, said)
            walked += error.code == 404
    assert walked >= len(paths), (walked, paths)
    assert sbx.is_running() and sbx.get_info(api_key=own).metadata == {"a": "secret"}
    assert sbx.kill(api_key=own) is True


def a_port_is_reached_by_its_host_name_with_the_token_of_its_sandbox():
    own, other = _key("--namespace", "own"), _key("--namespace", "other")
    sbx, theirs = e2b.Sandbox.create(api_key=own), e2b.Sandbox.create(api_key=other)
    sbx.commands.run("echo hello >/tmp/index.html")
    serve = "python3 -m http.server 8000 --bind 127.0.0.1 --directory /tmp"
    server = sbx.commands.run(serve, background=True)
    address = os.environ["E2B_SANDBOX_URL"]

    def ask(port, path="/", **headers):
        # Not every resolver knows the names below localhost; the server is asked by its address.
        asked = urllib.request.Request(address + path)
        asked.add_header("Host", sbx.get_host(port))
        for name, value in headers.items():
            asked.add_header(name.replace("_", "-"), value)
        return urllib.request.urlopen(asked).read()

    assert sbx.get_host(8000).endswith(address.removeprefix("http://127.0.0.1")), sbx.get_host(8000)
    token = {"e2b_traffic_access_token": sbx.traffic_access_token}
    deadline = time.monotonic() + 30
    while True:
        try:
            assert ask(8000, **token) == b"hello\n"
            break
        except urllib.error.HTTPError as error:
            said = error.read().decode()
            assert error.code == 502 and "port is not open" in said, said
            assert time.monotonic() < deadline, said
    assert ask(8000, "/index.html", X_API_KEY=own) == b"hello\n"
    for headers, code in [
        ({}, 401),
        ({"e2b_traffic_access_token": theirs.traffic_access_token}, 401),
        ({"X_API_KEY": other}, 502),
    ]:
        error = refused(lambda: ask(8000, **headers), kind=urllib.error.HTTPError)
        assert error.code == code, (headers, error)
    server.kill()
    sbx.kill(api_key=own)
    error = refused(lambda: ask(8000, X_API_KEY=own), kind=urllib.error.HTTPError)
    assert error.code == 502 and "was not found" in error.read().decode()
    theirs.kill(api_key=other)


def a_key_is_needed_and_must_be_good():
    error = refused(lambda: e2b.Sandbox.create(api_key="e2b_00"), kind=e2b.AuthenticationException)
    assert "key" in str(error), error
    reader = _key("--namespace", "own", "--scope", "read")
    refused(lambda: e2b.Sandbox.create(api_key=reader), 403)
    assert e2b.Sandbox.list(api_key=reader).next_items() == []


def a_token_ends_with_its_key():
    before = _ids()
    key = _key("--namespace", "own")
    (id,) = _ids() - before
    sbx = e2b.Sandbox.create(api_key=key)
    sbx.commands.run("true")
    subprocess.run([os.environ["BURROW_TEST_BRIDGE"], "keys", "revoke", id], check=True)
    # The server looks at its keys at least once a second.
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            sbx.commands.run("true")
        except e2b.AuthenticationException:
            return
    raise AssertionError("the token is still good")


def _ids():
    command = [os.environ["BURROW_TEST_BRIDGE"], "keys", "ls", "--quiet"]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def volumes_are_a_namespaces_own():
    own, other = _key("--namespace", "own"), _key("--namespace", "other")
    volume = e2b.Volume.create("data", api_key=own)
    volume.write_file("/secret", "1")
    missing = e2b.VolumeNotFoundException
    assert e2b.Volume.list(api_key=other) == []
    refused(lambda: e2b.Volume.connect(volume.volume_id, api_key=other), kind=missing)
    refused(lambda: e2b.Volume.get_info(volume.volume_id, api_key=other), kind=missing)
    assert e2b.Volume.destroy(volume.volume_id, api_key=other) is False
    mounts = {"/data": "data"}
    refused(lambda: e2b.Sandbox.create(api_key=other, volume_mounts=mounts), 404)
    # The same name is another volume there.
    theirs = e2b.Volume.create("data", api_key=other)
    sbx = e2b.Sandbox.create(api_key=other, volume_mounts=mounts)
    assert sbx.commands.run("ls -A /data").stdout == ""
    sbx.kill(api_key=other)
    refused(lambda: theirs.read_file("/secret"), kind=e2b.VolumePathNotFoundException)
    # Who may only look gets no token.
    looks = _key("--namespace", "own", "--scope", "read")
    assert [one.name for one in e2b.Volume.list(api_key=looks)] == ["data"]
    for call in [
        lambda: e2b.Volume.get_info(volume.volume_id, api_key=looks),
        lambda: e2b.Volume.create("more", api_key=looks),
        lambda: e2b.Volume.destroy(volume.volume_id, api_key=looks),
    ]:
        error = refused(call, kind=e2b.VolumeException)
        assert str(error).startswith("403: "), error
    assert volume.read_file("/secret") == "1"
    assert e2b.Volume.destroy(volume.volume_id, api_key=own) is True
    assert e2b.Volume.destroy(theirs.volume_id, api_key=other) is True
