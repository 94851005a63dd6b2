"""Receipts, by the native API of the same server: what was put in and run here is in them."""

import contextlib
import hashlib
import json
import time
import urllib.error
import urllib.request

from wire import URL, sandbox


def _native(path):
    with urllib.request.urlopen(URL.removesuffix("/msb") + path, timeout=60) as answer:
        return json.load(answer)


def _statement(name, stdout):
    """What the receipt of the newest session that has written this says."""
    digest = hashlib.sha256(stdout).hexdigest()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        base = f"/v1/sandboxes/default/{name}"
        for session in _native(f"{base}/sessions?recorded=true")["sessions"]:
            with contextlib.suppress(urllib.error.HTTPError):
                found = _native(f"{base}/sessions/{session['session']}/receipt")["statement"]
                if found["outputs"][0]["sha256"] == digest:
                    return found
        time.sleep(0.1)
    raise AssertionError(f"no receipt of {stdout!r}")


def _digested(content):
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


async def files_and_programs_are_in_a_receipt():
    async with sandbox("r1") as made:
        await made.fs.write("/tmp/whole", b"over the wire\n")
        sink = await made.fs.write_stream("/tmp/pieces")
        for piece in [b"one ", b"two\n"]:
            await sink.write(piece)
        await sink.close()
        ran = await made.exec("cat", ["/tmp/whole", "/tmp/pieces", "-"], stdin=b"typed\n")
        assert ran.stdout_bytes == b"over the wire\none two\ntyped\n"
        said = _statement("r1", ran.stdout_bytes)
        assert (said["exit_code"], said["cause"]) == (0, {"exited": {"code": 0}}), said
        assert said["command"].startswith("cat /tmp/whole"), said["command"]
        parts = said["stdin"]["listed"]
        # The client sends the bytes, and then the end.
        assert [part["closed"] for part in parts] == [False, True], parts
        assert _digested(b"typed\n").items() <= parts[0].items(), parts
        inputs = {}
        for one in said["inputs"]["listed"]:
            inputs.setdefault(one["path"], []).append(one)
        assert _digested(b"over the wire\n").items() <= inputs["/tmp/whole"][-1].items(), inputs
        pieces = sum(one["bytes"] for one in inputs["/tmp/pieces"])
        assert pieces == len(b"one two\n"), inputs
        assert not said["inputs"]["has_more"]
        # What comes after the end is not in it.
        await made.fs.write("/tmp/later", b"late")
        again = _statement("r1", ran.stdout_bytes)
        assert again == said
