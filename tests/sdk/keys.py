"""Keys, on a server that wants one."""

import asyncio
import base64
import hashlib
import hmac
import http.client
import json
import os
import pathlib
import time

from microsandbox import PythonSandbox

import wire
from wire import Sandbox, bridge, eventually, key_id, post

_LIST = {"jsonrpc": "2.0", "method": "sandbox.metrics.get", "params": {"namespace": "default"}, "id": "1"}


def _keygen(*options):
    key = bridge("keygen", *options).strip()
    assert key.startswith("msb_") and key.count(".") == 2 and len(key.split()) == 1, "it is no key"
    return key


def _asked_with(key):
    """Status and words of the answer to somebody with this key."""
    status, headers, body = post(json.dumps(_LIST).encode(), key=key)
    assert headers["Content-Type"].startswith("application/json"), headers["Content-Type"]
    json.loads(body)
    return status, body.decode()


def _is_refused(key):
    status, words = _asked_with(key)
    assert status == 401, (status, words)
    assert "key" in words and len(words.split()) > 3, words
    assert not key or key not in words, "the key is told"
    return words


def a_client_without_a_key_is_told_that_it_needs_one():
    _is_refused(None)


def a_key_that_is_none_is_refused_in_words():
    good = _keygen()
    head, claims, signature = good.split(".")
    flipped = ("B" if signature[0] == "A" else "A") + signature[1:]
    wrong = ["msb_", "x", "msb_a.b.c", good[4:], good[:-4], good + "AA", f"{head}.{claims}.{flipped}", f"{head}.{claims}."]
    for key in wrong:
        _is_refused(key)
    assert _asked_with(good)[0] == 200


def a_key_without_a_signature_or_with_another_secret_is_refused():
    encode = lambda raw: base64.urlsafe_b64encode(raw).rstrip(b"=")
    now = int(time.time())
    claims = encode(json.dumps({"iat": now, "exp": now + 3600, "namespace": "*"}).encode())
    for algorithm, secret in (("none", None), ("HS256", b""), ("HS256", b"secret"), ("HS512", b"secret")):
        signed = encode(json.dumps({"alg": algorithm, "typ": "JWT"}).encode()) + b"." + claims
        signature = b"" if secret is None else encode(hmac.digest(secret, signed, hashlib.sha256))
        _is_refused("msb_" + (signed + b"." + signature).decode())


def an_expired_key_is_refused_as_such():
    key = _keygen("--expire", "3s")
    assert _asked_with(key)[0] == 200
    eventually("it expires", lambda: _asked_with(key)[0] == 401)
    assert "expired" in _is_refused(key)


def a_revoked_key_is_refused_as_such_within_a_second():
    key = _keygen()
    assert _asked_with(key)[0] == 200
    bridge("keys", "revoke", key_id(key))
    begun = time.monotonic()
    eventually("it is refused", lambda: _asked_with(key)[0] == 401)
    assert time.monotonic() - begun < 2
    assert "revoked" in _is_refused(key)


def a_key_of_another_namespace_is_refused_with_403():
    key = _keygen("--namespace", "east")
    with Sandbox("mine", "east", key=key) as mine, Sandbox("theirs", "west", key=_keygen("--namespace", "*")):
        assert wire.text(mine.run("print('mine')")) == "mine\n"
        which = {"namespace": "west", "sandbox": "theirs"}
        for method, more in (
            ("sandbox.start", {"config": {}}),
            ("sandbox.stop", {}),
            ("sandbox.repl.run", {"language": "python", "code": "1"}),
            ("sandbox.command.run", {"command": "true"}),
            ("sandbox.metrics.get", {}),
        ):
            request = {"jsonrpc": "2.0", "method": method, "params": {**which, **more}, "id": "1"}
            status, _, body = post(json.dumps(request).encode(), key=key)
            assert status == 403 and b"namespace" in body, (method, status, body)


def a_star_of_a_namespaces_key_shows_no_other_namespace():
    key = _keygen("--namespace", "east")
    with Sandbox("mine", "east", key=key), Sandbox("theirs", "west", key=_keygen("--namespace", "*")):
        request = {"jsonrpc": "2.0", "method": "sandbox.metrics.get", "params": {"namespace": "*"}, "id": "1"}
        status, _, body = post(json.dumps(request).encode(), key=key)
        assert b"theirs" not in body and (status == 403 or b"mine" in body), (status, body)


def a_batch_reaches_no_further_than_its_key():
    key = _keygen("--namespace", "east")
    with Sandbox("theirs", "west", key=_keygen("--namespace", "*")):
        request = lambda namespace: _LIST | {"params": {"namespace": namespace}, "id": namespace}
        status, _, body = post(json.dumps([request("east"), request("west")]).encode(), key=key)
        assert b"theirs" not in body, body
        assert status == 403 or b"error" in body, (status, body)


def a_key_that_may_only_read_runs_nothing():
    key = _keygen("--scope", "read")
    assert _asked_with(key)[0] == 200
    with Sandbox("readable", key=_keygen("--namespace", "*")) as sandbox:
        request = {"jsonrpc": "2.0", "method": "sandbox.repl.run", "id": "1"}
        request["params"] = {**sandbox.which, "language": "python", "code": "1"}
        status, _, body = post(json.dumps(request).encode(), key=key)
        assert status == 403 and len(body.split()) > 3, (status, body)


async def the_sdk_takes_a_key_as_an_argument_and_from_the_environment():
    key = _keygen()
    async with PythonSandbox.create(api_key=key) as sandbox:
        assert await (await sandbox.run("print('let in')")).output() == "let in"
    os.environ["MSB_API_KEY"] = key
    async with PythonSandbox.create() as sandbox:
        assert await (await sandbox.run("print('let in')")).output() == "let in"


async def the_sdk_raises_in_words_without_a_good_key():
    for key in (None, "msb_wrong"):
        try:
            async with PythonSandbox.create(api_key=key):
                raise AssertionError("let in")
        except RuntimeError as error:
            assert "key" in str(error), error


def a_key_is_never_logged():
    good, bad = _keygen(), _keygen() + "x"
    assert _asked_with(good)[0] == 200
    _is_refused(bad)
    log = pathlib.Path(os.environ["BURROW_TEST_LOG"]).read_text()
    for key in (good, bad):
        for part in key.split("."):
            # All keys begin with the same header.
            assert part == key.split(".")[0] or part not in log, "it is in the log"


def health_wants_no_key():
    connection = http.client.HTTPConnection(wire.HOST, wire.PORT, timeout=wire.PATIENCE_SECS)
    connection.request("GET", "/api/v1/health")
    assert connection.getresponse().status == 200


async def a_flood_of_bad_keys_holds_nobody_with_a_good_one_up():
    key = _keygen()
    async with PythonSandbox.create(api_key=key) as sandbox:
        loop = asyncio.get_running_loop()
        flood = [loop.run_in_executor(None, _knock) for _ in range(4)]
        for _ in range(20):
            begun = time.monotonic()
            assert await (await sandbox.run("print('on')")).output() == "on"
            assert time.monotonic() - begun < 1
        for statuses in await asyncio.gather(*flood):
            assert statuses <= {401, 429}, statuses


def _knock():
    statuses = set()
    for _ in range(100):
        status, headers, body = post(json.dumps(_LIST).encode(), key="msb_bad.bad.bad")
        assert status != 429 or int(headers["Retry-After"]) >= 1, headers
        statuses.add(status)
    return statuses
