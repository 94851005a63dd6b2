"""What all suites use: a sandbox that is removed at the end, whether something is refused, and the WebSocket
and the frames of an agent without the package, for what the package never sends."""

import base64
import contextlib
import json
import os
import socket
import struct
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

import microsandbox
from microsandbox import Sandbox

URL = os.environ["MSB_API_URL"]
IMAGE = "python"


@contextlib.asynccontextmanager
async def sandbox(name, **options):
    made = await Sandbox.create(name, image=IMAGE, **options)
    try:
        yield made
    finally:
        with contextlib.suppress(microsandbox.SandboxNotFoundError):
            await Sandbox.remove(name)


async def refused(call, kind=microsandbox.MicrosandboxError, says=""):
    """What the awaitable that `call` makes raises."""
    try:
        await call()
    except kind as error:
        assert says in str(error), repr(error)
        return error
    raise AssertionError("it was not refused")


def key(*options):
    command = [os.environ["BURROW_TEST_BRIDGE"], "keygen", *options]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def ask(method, path, key=None, body=None):
    """The status and the body of a call."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(URL + path, method=method, data=data)
    asked.add_header("Content-Type", "application/json")
    if key:
        asked.add_header("Authorization", f"Bearer {key}")
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def cbor(value):
    """Enough of CBOR for requests."""

    def head(major, length):
        return bytes([major << 5 | 26]) + struct.pack(">I", length)

    if value is None:
        return b"\xf6"
    if isinstance(value, bool):
        return b"\xf5" if value else b"\xf4"
    if isinstance(value, int):
        return head(0, value)
    if isinstance(value, bytes):
        return head(2, len(value)) + value
    if isinstance(value, str):
        return head(3, len(value.encode())) + value.encode()
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(map(cbor, value))
    return head(5, len(value)) + b"".join(cbor(k) + cbor(v) for k, v in value.items())


def frame(number, kind, payload, flags=0):
    if not isinstance(payload, bytes):
        payload = cbor(payload)
    return raw(number, cbor({"v": 7, "t": kind, "p": payload}), flags)


def raw(number, body, flags=0):
    return struct.pack(">IIB", len(body) + 5, number, flags) + body


class Socket:
    """A WebSocket to the agent of a sandbox."""

    def __init__(self, identity, key=None):
        place = urllib.parse.urlsplit(URL)
        self.socket = socket.create_connection((place.hostname, place.port), timeout=30)
        lines = [
            f"GET {place.path}/v1/sandboxes/{identity}/agent HTTP/1.1",
            f"Host: {place.netloc}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: " + base64.b64encode(b"0123456789abcdef").decode(),
        ]
        if key:
            lines.append(f"Authorization: Bearer {key}")
        self.socket.sendall(("\r\n".join(lines) + "\r\n\r\n").encode())
        self.bytes = b""
        while b"\r\n\r\n" not in self.bytes:
            more = self.socket.recv(4096)
            assert more, "the server has closed the connection"
            self.bytes += more
        head, self.bytes = self.bytes.split(b"\r\n\r\n", 1)
        self.status = int(head.split()[1])

    def send(self, data, opcode=2):
        mask = b"\x01\x02\x03\x04"
        masked = bytes(byte ^ mask[at % 4] for at, byte in enumerate(data))
        head = struct.pack(">BBQ", 0x80 | opcode, 0x80 | 127, len(data))
        self.socket.sendall(head + mask + masked)

    def _take(self, count):
        while len(self.bytes) < count:
            more = self.socket.recv(65536)
            if not more:
                return None
            self.bytes += more
        taken, self.bytes = self.bytes[:count], self.bytes[count:]
        return taken

    def message(self):
        """The opcode and the bytes of the next message; None at the end of the connection."""
        head = self._take(2)
        if head is None:
            return None
        length = head[1] & 127
        if length == 126:
            length = struct.unpack(">H", self._take(2))[0]
        elif length == 127:
            length = struct.unpack(">Q", self._take(8))[0]
        return head[0] & 15, self._take(length)

    def closing(self):
        """Reads on to the end, and says with which code the server has closed."""
        code = None
        while (message := self.message()) is not None:
            opcode, data = message
            if opcode == 8:
                code = struct.unpack(">H", data[:2])[0]
        return code

    def until(self, words, seconds=30):
        """Reads until a message has these bytes, and returns it."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            message = self.message()
            assert message is not None, f"the connection has ended before {words!r}"
            if words in message[1]:
                return message[1]
        raise AssertionError(f"{words!r} did not come")

    def close(self):
        self.socket.close()
