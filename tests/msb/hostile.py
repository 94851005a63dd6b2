"""Frames that the package never sends: each is refused, and the sandbox, its other connections and the server
go on."""

import struct

from wire import IMAGE, Socket, ask, cbor, frame, raw


def _sandbox():
    body = {"name": "hostile", "source": "oci", "reference": IMAGE}
    status, made = ask("POST", "/v1/sandboxes", body=body)
    assert status == 200, made
    return made["id"]


def _works(socket, number):
    socket.send(frame(number, "core.exec.request", {"cmd": "echo", "args": [f"works{number}"]}))
    socket.until(f"works{number}".encode())
    socket.until(b"core.exec.exited")


def frames_that_break_the_rules_end_their_connection_alone():
    identity = _sandbox()
    other = Socket(identity)
    assert other.status == 101
    _works(other, 1)
    huge = struct.pack(">IIB", 0xFFFFFFFF, 1, 0)
    for broken in [huge, struct.pack(">I", 4 * 1024 * 1024 + 1), b"\0\0\0\0", b"\0\0\0\x04abcd"]:
        socket = Socket(identity)
        socket.send(broken)
        assert socket.closing() == 1008, broken
    socket = Socket(identity)
    socket.send(b"text", opcode=1)
    assert socket.closing() == 1008
    _works(other, 2)
    other.close()
    assert ask("DELETE", f"/v1/sandboxes/{identity}")[0] == 200


def messages_that_mean_nothing_are_refused_and_the_connection_goes_on():
    identity = _sandbox()
    socket = Socket(identity)
    claims = [b"\x9b\x10" + bytes(7), b"\x5b\x10" + bytes(7), b"\xbb\x10" + bytes(7), b"", b"\xff"]
    for number, body in enumerate([*claims, b"\x81" * 100_000, cbor([]), cbor({"t": "x"})], 10):
        socket.send(raw(number, body))
        socket.until(b"malformed_message")
    for number, kind in enumerate(["core.shutdown", "core.bootstrap", "x" * 1000, "core.bulk.offer"], 100):
        socket.send(frame(number, kind, {}))
        assert b"core.error" in socket.until(b"unsupported_message_type")
    socket.send(frame(200, "core.exec.signal", {"signal": "nine"}))
    socket.until(b"invalid_payload")
    socket.send(frame(201, "core.fs.data", b"\x5b\x7f" + b"\xff" * 7))
    socket.until(b"invalid_payload")
    socket.send(frame(202, "core.exec.request", {"cmd": ""}))
    assert b"core.exec.failed" in socket.until(b"cmd is empty")
    socket.send(frame(203, "core.exec.request", {"cmd": "true", "args": [""] * 500_000}))
    assert b"core.exec.failed" in socket.until(b"exceeds the limit")
    socket.send(frame(204, "core.fs.request", {"op": {"Stat": {"path": 7}}}))
    assert b"core.fs.response" in socket.until(b"must be")
    socket.send(frame(205, "core.fs.request", {"op": {"Symlink": {"target": "/", "link_path": "/tmp/x"}}}))
    socket.until(b"not supported by this server")
    socket.send(frame(206, "core.fs.request", {"op": {"Read": {"handle": 99, "offset": 0}}}))
    socket.until(b"no open file 99")
    socket.send(frame(207, "core.tcp.connect", {"host": "127.0.0.1", "port": 22}))
    assert b"core.tcp.failed" in socket.until(b"not supported by this server")
    # For what was never begun, or has ended: nothing, as for what has just ended.
    socket.send(frame(208, "core.exec.stdin", {"data": b"x"}))
    socket.send(frame(209, "core.ping", {}))
    socket.until(b"core.pong")
    _works(socket, 300)
    socket.close()
    assert ask("DELETE", f"/v1/sandboxes/{identity}")[0] == 200


def a_number_is_in_use_once_and_there_are_so_many():
    identity = _sandbox()
    socket = Socket(identity)
    sleep = {"cmd": "sleep", "args": ["1000"]}
    socket.send(frame(1, "core.exec.request", sleep))
    socket.until(b"core.exec.started")
    socket.send(frame(1, "core.exec.request", sleep))
    socket.until(b"in use")
    for number in range(2, 65):
        socket.send(frame(number, "core.exec.request", {"cmd": "sleep", "args": ["1000"]}))
    socket.send(frame(65, "core.exec.request", sleep))
    socket.until(b"at most 64 requests at once")
    socket.send(frame(1, "core.exec.signal", {"signal": 9}))
    socket.until(b"core.exec.exited")
    _works(socket, 66)
    socket.close()
    assert ask("DELETE", f"/v1/sandboxes/{identity}")[0] == 200


def bytes_that_come_in_drops_are_frames_all_the_same():
    identity = _sandbox()
    socket = Socket(identity)
    sent = frame(1, "core.exec.request", {"cmd": "echo", "args": ["drops"]})
    for byte in sent:
        socket.send(bytes([byte]))
    socket.until(b"drops")
    socket.send(b"".join(frame(n, "core.ping", {}) for n in range(2, 40)))
    for _ in range(2, 40):
        socket.until(b"core.pong")
    socket.close()
    assert ask("DELETE", f"/v1/sandboxes/{identity}")[0] == 200
