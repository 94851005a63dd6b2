"""Keys: each route is walked with a key of another namespace, which gets nothing; and scopes."""

import json
import os
import re
import subprocess
import time

from wire import IMAGE, Socket, ask, frame, key


def _paths():
    """Every path of a sandbox, from the source of the door: a new one is walked without a word here."""
    directory = os.environ["BURROW_TEST_MSB_SOURCES"]
    paths = set()
    for place, _, names in os.walk(directory):
        for name in names:
            with open(os.path.join(place, name)) as source:
                paths |= set(re.findall(r'"/msb(/v1/sandboxes/[^"]*\{sandbox\}[^"]*)"', source.read()))
    return sorted(paths)


def _make(name, key):
    body = {"name": name, "source": "oci", "reference": IMAGE}
    status, made = ask("POST", "/v1/sandboxes?start=true&wait_for=running", key, body)
    assert status == 200 and made["status"] == "running", made
    return made["id"]


def a_key_of_another_namespace_gets_nothing_of_a_sandbox():
    own, other = key("--namespace", "own"), key("--namespace", "other")
    identity = _make("mine", own)
    paths = _paths()
    assert len(paths) >= 8, paths
    walked = 0
    for path in paths:
        for name in [identity, "mine"]:
            filled = path.replace("{sandbox}", name)
            for method in ["GET", "POST", "DELETE"]:
                status, answer = ask(method, filled, other, None if method == "GET" else {})
                assert status in (404, 405), (method, filled, status, answer)
                walked += status == 404
                status, _ = ask(method, filled, None, None if method == "GET" else {})
                assert status in (401, 405), (method, filled, status)
    assert walked >= 18, walked
    assert Socket(identity, other).status == 404
    assert Socket("mine", other).status == 404
    assert Socket(identity).status == 401
    assert ask("GET", "/v1/sandboxes", other)[1]["data"] == []
    assert [one["id"] for one in ask("GET", "/v1/sandboxes", own)[1]["data"]] == [identity]
    # The same name in another namespace is another sandbox.
    theirs = _make("mine", other)
    assert theirs != identity
    assert ask("DELETE", "/v1/sandboxes/by-name/mine", other)[0] == 200
    assert ask("GET", f"/v1/sandboxes/{identity}", own)[1]["status"] == "running"
    assert ask("DELETE", f"/v1/sandboxes/{identity}", own)[0] == 200


def a_key_for_reading_looks_and_no_more():
    own, reader = key("--namespace", "own"), key("--namespace", "own", "--scope", "read")
    identity = _make("read", own)
    assert ask("GET", "/v1/sandboxes/by-name/read", reader)[0] == 200
    assert [one["name"] for one in ask("GET", "/v1/sandboxes", reader)[1]["data"]] == ["read"]
    for method, path, body in [
        ("POST", "/v1/sandboxes", {"name": "more"}),
        ("POST", f"/v1/sandboxes/{identity}/stop", {}),
        ("POST", f"/v1/sandboxes/{identity}/start", {}),
        ("DELETE", f"/v1/sandboxes/{identity}", None),
    ]:
        status, answer = ask(method, path, reader, body)
        assert status == 403, (method, path, status, answer)
    assert Socket(identity, reader).status == 403
    socket = Socket(identity, own)
    assert socket.status == 101
    socket.send(frame(1, "core.exec.request", {"cmd": "echo", "args": ["mine"]}))
    socket.until(b"mine")
    socket.close()
    assert ask("DELETE", f"/v1/sandboxes/{identity}", own)[0] == 200


def a_revoked_key_is_good_for_nothing_more_on_an_open_socket():
    made = json.loads(key("--namespace", "own", "--json"))
    own, other = made["key"], key("--namespace", "own")
    identity = _make("revoked", own)
    socket = Socket(identity, own)
    socket.send(frame(1, "core.exec.request", {"cmd": "echo", "args": ["before"]}))
    socket.until(b"core.exec.exited")
    subprocess.run([os.environ["BURROW_TEST_BRIDGE"], "keys", "revoke", made["id"]], check=True)
    for number in range(2, 300):
        socket.send(frame(number, "core.exec.request", {"cmd": "echo", "args": ["after"]}))
        if b"core.exec.failed" in socket.until(b"core.exec."):
            break
        socket.until(b"core.exec.exited")
        time.sleep(0.1)
    else:
        raise AssertionError("the key is still good")
    socket.close()
    assert ask("DELETE", f"/v1/sandboxes/{identity}", other)[0] == 200
