"""The server as it is on the wire: JSON-RPC over `http.client`, without any SDK. Tests of all modules
use it; each call checks what holds of every answer."""

import base64
import contextlib
import http.client
import itertools
import json
import os
import subprocess
import time
import urllib.parse
import uuid

URL = os.environ["MSB_SERVER_URL"]
HOST = urllib.parse.urlsplit(URL).hostname
PORT = urllib.parse.urlsplit(URL).port
PATH = "/api/v1/rpc"
# More than any call here needs on a busy machine, less than a test may take.
PATIENCE_SECS = 60

PARSE_ERROR, INVALID_REQUEST, UNKNOWN_METHOD, BAD_PARAMS = -32700, -32600, -32601, -32602

_numbers = itertools.count(1)


class Failed(Exception):
    """A JSON-RPC error."""

    def __init__(self, error):
        super().__init__(json.dumps(error)[:2000])
        self.code = error["code"]
        self.message = error["message"]
        self.data = error.get("data")


class Connection:
    """One keep-alive connection."""

    def __init__(self, key=None, timeout=PATIENCE_SECS):
        self.http = http.client.HTTPConnection(HOST, PORT, timeout=timeout)
        self.key = key

    def post(self, body, headers=None):
        """The status, headers and bytes of the answer to these bytes."""
        all_headers = {"Content-Type": "application/json", **(headers or {})}
        if self.key:
            all_headers["Authorization"] = f"Bearer {self.key}"
        self.http.request("POST", PATH, body, all_headers)
        response = self.http.getresponse()
        return response.status, response.headers, response.read()

    def ask(self, request):
        """The answer to any JSON value."""
        status, headers, body = self.post(json.dumps(request).encode())
        assert status == 200, (status, body[:500])
        return checked(headers, body)

    def call(self, method, **params):
        """The result; raises what failed."""
        request = {"jsonrpc": "2.0", "method": method, "params": params, "id": str(uuid.uuid4())}
        answer = self.ask(request)
        assert answer["id"] == request["id"], answer
        if "error" in answer:
            raise Failed(answer["error"])
        return answer["result"]

    def close(self):
        self.http.close()


def checked(headers, body):
    """The JSON of an answer, which is one of JSON-RPC's."""
    assert headers["Content-Type"].split(";")[0] == "application/json", headers["Content-Type"]
    assert body, "the body is empty"
    answer = json.loads(body.decode("utf-8"))
    for one in answer if isinstance(answer, list) else [answer]:
        check_answer(one)
    return answer


def check_answer(answer):
    assert answer["jsonrpc"] == "2.0", answer
    assert "id" in answer, answer
    assert ("result" in answer) != ("error" in answer), answer
    if "error" in answer:
        check_error(answer["error"])
    else:
        assert answer["result"] is not None, answer


def check_error(error):
    assert isinstance(error["code"], int), error
    words = error["message"]
    assert isinstance(words, str) and len(words.split()) >= 3, error
    assert "internal server error" not in words.lower(), error


def call(method, **params):
    with contextlib.closing(Connection()) as connection:
        return connection.call(method, **params)


def ask(request):
    with contextlib.closing(Connection()) as connection:
        return connection.ask(request)


def post(body, headers=None, key=None):
    with contextlib.closing(Connection(key)) as connection:
        return connection.post(body, headers)


def failure(run, *args, **kwargs):
    """The JSON-RPC error that this raises."""
    try:
        result = run(*args, **kwargs)
    except Failed as failed:
        return failed
    raise AssertionError(f"no error, but {json.dumps(result)[:500]}")


def text(result, stream="stdout"):
    """What the SDK makes of a result's output, before it strips."""
    assert isinstance(result["output"], list), result
    for line in result["output"]:
        assert set(line) >= {"stream", "text"} and isinstance(line["text"], str), line
        assert "\n" not in line["text"], line
    return "".join(line["text"] + "\n" for line in result["output"] if line["stream"] == stream)


class Sandbox:
    """A started sandbox on a connection of its own."""

    def __init__(self, name=None, namespace="default", key=None, config=None, timeout=PATIENCE_SECS):
        self.which = {"namespace": namespace, "sandbox": name or f"wire-{next(_numbers)}"}
        self.connection = Connection(key, timeout)
        config = {"image": "microsandbox/python", "memory": 512, "cpus": 1} | (config or {})
        self.started = self.connection.call("sandbox.start", **self.which, config=config)

    def run(self, code, language="python", **more):
        asked = {"language": language, "code": code, **more}
        return self.connection.call("sandbox.repl.run", **self.which, **asked)

    def command(self, command, *args, **more):
        asked = {"command": command, "args": list(args), **more}
        return self.connection.call("sandbox.command.run", **self.which, **asked)

    def metrics(self):
        listed = self.connection.call("sandbox.metrics.get", **self.which)["sandboxes"]
        assert len(listed) <= 1, listed
        return listed[0] if listed else None

    def stop(self):
        return self.connection.call("sandbox.stop", **self.which)

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        # What went wrong in the test is not hidden by what goes wrong here.
        try:
            self.stop()
        except Exception:
            if failure[0] is None:
                raise
        finally:
            self.connection.close()


def took(run, *args, **kwargs):
    """The seconds that this took, and what it returned."""
    begun = time.monotonic()
    result = run(*args, **kwargs)
    return time.monotonic() - begun, result


def eventually(what, condition, within_secs=30):
    """What `condition` returns as soon as that is true."""
    deadline = time.monotonic() + within_secs
    while True:
        held = condition()
        if held:
            return held
        assert time.monotonic() < deadline, f"not within {within_secs} s: {what}"
        time.sleep(0.05)


def bridge(*arguments):
    """Runs the bridge's command line beside the server, and returns its stdout."""
    done = subprocess.run(
        [os.environ["BURROW_TEST_BRIDGE"], *arguments], capture_output=True, text=True, timeout=PATIENCE_SECS
    )
    assert done.returncode == 0, (arguments, done.returncode, done.stderr)
    return done.stdout


def key_id(key):
    """The id of a key, which is one of its claims."""
    claims = key.removeprefix("msb_").split(".")[1]
    return json.loads(base64.urlsafe_b64decode(claims + "=" * (-len(claims) % 4)))["jti"]
