"""The guest of the monitors' stand-in: an agent as an ordinary sandbox of this host, behind the handshake of the
hybrid vsock. `fake_monitor.py` calls it, and says what it plays."""

import ctypes
import os
import signal
import socket
import subprocess
import threading

PORT = 1024
FRAME_BYTES_MAX = 1 << 20
FAULT = os.environ.get("FAKE_FAULT", "")
PR_SET_PDEATHSIG = 1


class Link:
    """A connection between the host and the guest, and a copy of the first bytes from the host."""

    def __init__(self, host, guest):
        self.host = host
        self.guest = guest
        self.first = b""
        self.was_reset = False
        threading.Thread(target=self.pump, args=(host, guest), daemon=True).start()
        threading.Thread(target=self.pump, args=(guest, host), daemon=True).start()

    def pump(self, source, sink):
        try:
            while data := source.recv(FRAME_BYTES_MAX):
                if source is self.host and not self.first:
                    self.first = data
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            # The host's end does not notice that the guest was reset.
            if not (self.was_reset and end is self.host):
                shut(end)

    def reset(self):
        self.was_reset = True
        shut(self.guest)


def shut(end):
    try:
        end.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass


class Guest:
    """The agent, and the vsock that leads to it."""

    def __init__(self, uds, console):
        self.uds = uds
        self.console = console
        self.door = None
        self.process = None
        self.links = []
        self.boot_frame = b""
        self.is_deaf = False

    def boot(self, boot_frame=None):
        """Starts the agent: it calls, or, if it is restored, has this frame already."""
        if FAULT == "dies-at-start":
            self.console("about to fail")
            os.kill(os.getpid(), signal.SIGSEGV)
        self.console("Linux version 0.0.0-fake")
        if FAULT == "flood":
            for number in range(20000):
                self.console(f"chatter {number} " + "x" * 60)
        if FAULT == "panic":
            self.console("Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000000")
            os._exit(0)
        listener = socket.socket(socket.AF_UNIX)
        # The real ones refuse to start when somebody has left a socket there.
        listener.bind(self.uds)
        listener.listen(128)
        inside, outside = socket.socketpair()
        if boot_frame is None:
            call = socket.socket(socket.AF_UNIX)
            call.connect(f"{self.uds}_{PORT}")
            self.links.append(Link(call, outside))
        else:
            self.boot_frame = boot_frame
            outside.sendall(boot_frame)
            # What it says to the host that it had is read by nobody.
            threading.Thread(target=drain, args=(outside,), daemon=True).start()
        self.door = self.uds + "_door"
        door = socket.socket(socket.AF_UNIX)
        door.bind(self.door)
        door.listen(128)

        def die_with_us():
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        self.process = subprocess.Popen(
            [os.environ["FAKE_AGENT"], "launch"],
            stdin=inside.fileno(),
            stdout=door.fileno(),
            stderr=2,
            preexec_fn=die_with_us,
            # A stopped process would have the kernel hang up its group when the bridge ends.
            start_new_session=True,
        )
        inside.close()
        door.close()
        threading.Thread(target=self.serve, args=(listener,), daemon=True).start()
        threading.Thread(target=self.outlive, daemon=True).start()

    def configuration(self):
        """What the agent was configured with: the first that the host has said to it."""
        return self.boot_frame or self.links[0].first

    def outlive(self):
        """A guest that has switched itself off ends its monitor."""
        self.process.wait()
        self.console("reboot: machine restart")
        for path in (self.uds, self.door):
            os.unlink(path)
        os._exit(0)

    def serve(self, listener):
        while True:
            connection, _ = listener.accept()
            threading.Thread(target=self.connect, args=(connection,), daemon=True).start()

    def connect(self, connection):
        """`CONNECT <port>\\n`, read byte by byte; `OK <number>\\n`; then bytes both ways."""
        line = b""
        while not line.endswith(b"\n"):
            byte = connection.recv(1)
            if not byte or len(line) > 32:
                connection.close()
                return
            line += byte
        if self.is_deaf:
            threading.Event().wait()
        if line != f"CONNECT {PORT}\n".encode():
            connection.close()
            return
        inside = socket.socket(socket.AF_UNIX)
        try:
            inside.connect(self.door)
        except OSError:
            connection.close()
            return
        connection.sendall(b"OK 1073741824\n")
        self.links.append(Link(connection, inside))

    def reset(self):
        """Cuts all links, and makes new ones possible."""
        for link in self.links:
            link.reset()
        self.is_deaf = False

    def family(self):
        """The agent and everything below it."""
        found, waiting = [], [self.process.pid]
        while waiting:
            pid = waiting.pop()
            found.append(pid)
            try:
                with open(f"/proc/{pid}/task/{pid}/children") as children:
                    waiting.extend(int(child) for child in children.read().split())
            except OSError:
                pass
        return found

    def freeze(self, number):
        for pid in self.family():
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                pass


def drain(source):
    while source.recv(65536):
        pass
