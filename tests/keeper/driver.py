"""A context without an agent: the real driver for Node, spoken with over its control channel."""
import json
import os
import select
import socket
import struct
import tempfile
import zlib

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
REPL = os.path.join(ROOT, "guest-agent/src/repl")
KEEPER = os.path.join(ROOT, "crates/services/src/notebook/keeper.js")
# How long a run may take.
RUN_SECONDS = 60


def read(path):
    with open(path, "rb") as file:
        return file.read()


def pack(value):
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return b"\xd3" + struct.pack(">q", value)
    if isinstance(value, str):
        return b"\xdb" + struct.pack(">I", len(value.encode())) + value.encode()
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    items = b"".join(pack(key) + pack(item) for key, item in value.items())
    return b"\xdf" + struct.pack(">I", len(value)) + items


def unpack(data):
    value, _ = unpack_at(data, 0)
    return value


def unpack_at(data, at):
    tag, at = data[at], at + 1
    number = lambda width: int.from_bytes(data[at : at + width], "big")
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    if tag == 0xCF:
        return number(8), at + 8
    length, at = number(4), at + 4
    if tag in (0xDB, 0xC6):
        part = data[at : at + length]
        return (part.decode() if tag == 0xDB else part), at + length
    if tag == 0xDD:
        items = []
        for _ in range(length):
            item, at = unpack_at(data, at)
            items.append(item)
        return items, at
    assert tag == 0xDF, hex(tag)
    items = {}
    for _ in range(length):
        key, at = unpack_at(data, at)
        items[key], at = unpack_at(data, at)
    return items, at


class Context:
    def __init__(self, node, directory=None, keeper=True):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel, self.runs, self.late, self.part = ours, 0, "", b""
        ours.settimeout(RUN_SECONDS)
        self.fifos = tempfile.mkdtemp()
        boot = read(os.path.join(REPL, "node.boot")).decode()
        self.pid = os.fork()
        if self.pid == 0:
            if directory is not None:
                os.chdir(directory)
            os.dup2(theirs.fileno(), 3)
            os.execv(node, [node, "-e", boot])
        theirs.close()
        driver = zlib.compress(read(os.path.join(REPL, "node.js")))
        self.send_whole(driver)
        self.send({"open": {"token": b"t" * 16, "context": "x", "directory": self.fifos}})
        self.version = self.hear("ready")["version"]
        if keeper:
            self.aside(read(KEEPER).decode())

    def send(self, message):
        self.send_whole(pack(message))

    def send_whole(self, message):
        for at in range(0, len(message), 65000):
            last = at + 65000 >= len(message)
            self.channel.send((b"\0" if last else b"\1") + message[at : at + 65000])

    # Messages until one of this name.
    def hear(self, wanted, on=None):
        while True:
            packet = self.channel.recv(70000)
            if not packet:
                raise AssertionError("the interpreter has died")
            self.part += packet[17:]
            if packet[16]:
                continue
            message, self.part = unpack(self.part), b""
            ((name, content),) = message.items()
            if on is not None:
                on(name, content)
            if isinstance(content, dict) and content.get("sync"):
                self.send("seen")
            if name == wanted:
                return content

    def run(self, code, aside=False, expect="ok", stdin=False):
        """What a run said on its standard output, and its displays."""
        self.runs += 1
        fds = []
        for name in ("out", "err"):
            path = os.path.join(self.fifos, name)
            os.mkfifo(path)
            fds.append(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
        output = {"displays": [], "error": None}
        texts = [b"", b""]

        def drain():
            for at, fd in enumerate(fds):
                while True:
                    try:
                        data = os.read(fd, 1 << 20)
                    except BlockingIOError:
                        break
                    if not data:
                        break
                    texts[at] += data

        def on(name, content):
            if name == "display":
                output["displays"].append(content["data"])
            if name == "error":
                output["error"] = content
            if name == "late":
                self.late += content["bytes"] if isinstance(content["bytes"], str) else content["bytes"].decode()

        message = {"run": self.runs, "code": code.encode(), "name": "<run %d>" % self.runs, "input": stdin}
        if aside:
            message["aside"] = True
        self.send({"run": message})
        self.channel.settimeout(0.01)
        try:
            waited = 0
            while True:
                drain()
                ready, _, _ = select.select([self.channel], [], [], 0.01)
                waited += 0 if ready else 0.01
                if waited > RUN_SECONDS:
                    raise AssertionError("the run does not end")
                if ready:
                    done = self.hear_one(on)
                    if done is not None:
                        break
        finally:
            self.channel.settimeout(RUN_SECONDS)
        drain()
        for at, name in enumerate(("out", "err")):
            os.close(fds[at])
            os.unlink(os.path.join(self.fifos, name))
        if done["status"] != expect:
            raise AssertionError("%s: %s %s" % (done["status"], output["error"], texts[1]))
        output["err"] = texts[1].decode()
        self.output = output
        return texts[0].decode()

    def hear_one(self, on):
        packet = self.channel.recv(70000)
        if not packet:
            raise AssertionError("the interpreter has died")
        self.part += packet[17:]
        if packet[16]:
            return None
        message, self.part = unpack(self.part), b""
        ((name, content),) = message.items()
        on(name, content)
        if content.get("sync"):
            self.send("seen")
        return content if name == "done" else None

    def aside(self, code, **how):
        return self.run(code, aside=True, **how)

    def save(self, directory, **limits):
        limits = {"time_max_ms": 20000, "bytes_max": 1 << 30, "value_bytes_max": 1 << 28, **limits}
        call = "keeper.save(%s, %s)" % (json.dumps(directory), json.dumps(limits))
        told = json.loads(self.aside("aside.say(aside.kept.keeper.stringify(aside.kept.%s))" % call))
        assert told["state"] == "done", told
        return json.loads(read(os.path.join(directory, "manifest.json")))

    def restore(self, directory):
        call = "await aside.kept.keeper.restore(%s)" % json.dumps(directory)
        return json.loads(self.aside("aside.say(aside.kept.keeper.stringify(%s))" % call))

    def close(self):
        os.kill(self.pid, 9)
        os.waitpid(self.pid, 0)
        self.channel.close()
        os.rmdir(self.fifos) if not os.listdir(self.fifos) else None
