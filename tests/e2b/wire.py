"""What all suites use: a sandbox that is killed at the end, and whether something is refused."""

import contextlib
import json
import os
import urllib.request

import calls as calls
import e2b_code_interpreter as interpreter


@contextlib.contextmanager
def sandbox(**options):
    made = interpreter.Sandbox.create(**options)
    try:
        yield made
    finally:
        made.kill()


def refused(call, status=None, kind=Exception):
    """What `call` raises."""
    try:
        call()
    except kind as error:
        assert status is None or getattr(error, "status_code", None) == status, (error, vars(error))
        return error
    raise AssertionError("it was not refused")


def native(method, path, body=None):
    """A call of the native API."""
    data = body and json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    ask = urllib.request.Request(os.environ["E2B_API_URL"] + path, data, headers, method=method)
    return json.load(urllib.request.urlopen(ask))


def name_of(sbx):
    """What the native API calls a sandbox."""
    all = native("GET", "/v1/sandboxes?namespace=default")["sandboxes"]
    return next(one["name"] for one in all if one["id"] == sbx.sandbox_id)
