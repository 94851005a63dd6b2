#!/usr/bin/env python3
"""Firecracker and Cloud Hypervisor as far as the bridge can see them, without a hypervisor.

`tests/monitors.rs` puts this on the PATH under the name of either. It serves that program's API on
its Unix socket as its published description says: each body is checked against the documented
fields, unknown ones and wrong order are refused in that program's own shape. Where the real one
would run a guest, it runs a real guest-agent as an ordinary sandbox of this host, whose first
connection is the call of a guest (`<uds>_1024`) and whose door is reached by the hybrid handshake.

It never runs a kernel: what a guest does before its agent serves is not tested here.

FAKE_AGENT is the agent, FAKE_LOG takes a line for each request, FAKE_FAULT asks for a fault:
`mute` never answers, `dies-at-start` ends when the machine is started, `dies-at-once` before it
listens, `panic` lets the guest's kernel die, `flood` makes its console chatter.
"""

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import threading

PORT = 1024
MEMORY_MIB_MAX = 64 * 1024
FAULT = os.environ.get("FAKE_FAULT", "")
PR_SET_PDEATHSIG = 1


class Refusal(Exception):
    """A request that the real program would refuse, with its status."""

    def __init__(self, status, words):
        super().__init__(words)
        self.status = status


def check(body, required, optional=(), where="body"):
    """Refuses a body that is no object of these fields; each is given with its type."""
    if not isinstance(body, dict):
        raise Refusal(400, f"{where} is not an object")
    known = dict(required) | dict(optional)
    for name in body:
        if name not in known:
            raise Refusal(400, f"unknown field `{name}` in {where}")
    for name in dict(required):
        if name not in body:
            raise Refusal(400, f"missing field `{name}` in {where}")
    for name, value in body.items():
        kind = known[name]
        fits = isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
        if not fits:
            raise Refusal(400, f"invalid type of `{name}` in {where}")


class Guest:
    """The agent, and the vsock that leads to it."""

    def __init__(self, uds, console):
        self.uds = uds
        self.console = console
        self.door = None
        self.process = None

    def boot(self):
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
        call = socket.socket(socket.AF_UNIX)
        call.connect(f"{self.uds}_{PORT}")
        self.door = self.uds + "_door"
        door = socket.socket(socket.AF_UNIX)
        door.bind(self.door)
        door.listen(128)

        def die_with_us():
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)

        self.process = subprocess.Popen(
            [os.environ["FAKE_AGENT"], "launch"],
            stdin=call.fileno(),
            stdout=door.fileno(),
            stderr=2,
            preexec_fn=die_with_us,
        )
        call.close()
        door.close()
        threading.Thread(target=self.serve, args=(listener,), daemon=True).start()
        threading.Thread(target=self.outlive, daemon=True).start()

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
        for source, sink in ((connection, inside), (inside, connection)):
            threading.Thread(target=pump, args=(source, sink), daemon=True).start()

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


def pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    for end in (source, sink):
        try:
            end.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


def require_file(path, words, write=False):
    if not os.access(path, os.R_OK | (os.W_OK if write else 0)):
        raise Refusal(400, words)


def require_kernel(path, words):
    require_file(path, words)
    with open(path, "rb") as kernel:
        if kernel.read(4) != b"\x7fELF":
            raise Refusal(400, words)


class Firecracker:
    """`src/firecracker/swagger/firecracker.yaml`, release 1.16."""

    RATE = {"rate_limiter": dict}

    def __init__(self, arguments):
        options = dict(zip(arguments[::2], arguments[1::2]))
        if set(options) != {"--api-sock", "--id"}:
            print(f"Arguments parsing error: {arguments}", file=sys.stderr)
            sys.exit(153)
        self.socket = options["--api-sock"]
        if not all(c.isalnum() or c == "-" for c in options["--id"]):
            sys.exit(153)
        self.id = options["--id"]
        self.state = "Not started"
        self.machine = {"vcpu_count": 1, "mem_size_mib": 128}
        self.boot = None
        self.drives = {}
        self.vsock = None
        self.guest = None

    def say(self, line):
        # The serial line of a guest is the program's stdout. A full pipe loses it.
        try:
            os.write(1, (line + "\r\n").encode())
        except BlockingIOError:
            pass

    def fresh(self):
        if self.state != "Not started":
            raise Refusal(400, "The requested operation is not supported after starting the microVM.")

    def refuse(self, words):
        return json.dumps({"fault_message": words})

    def handle(self, method, path, body):
        match (method, path.split("/")[1:]):
            case ("GET", [""]):
                return {"app_name": "Firecracker", "id": self.id, "state": self.state,
                        "vmm_version": "1.16.2"}
            case ("GET", ["vm", "config"]):
                return {"boot-source": self.boot, "machine-config": self.machine,
                        "drives": list(self.drives.values()), "vsock": self.vsock}
            case ("PUT", ["machine-config"]):
                self.fresh()
                check(body, {"vcpu_count": int, "mem_size_mib": int},
                      {"smt": bool, "cpu_template": str, "track_dirty_pages": bool, "huge_pages": str})
                if not 1 <= body["vcpu_count"] <= 32:
                    raise Refusal(400, "The vCPU number is invalid!")
                if not 1 <= body["mem_size_mib"]:
                    raise Refusal(400, "The memory size (MiB) is invalid.")
                self.machine = body
            case ("PUT", ["boot-source"]):
                self.fresh()
                check(body, {"kernel_image_path": str}, {"initrd_path": str, "boot_args": str})
                require_file(body["kernel_image_path"],
                             "The kernel file cannot be opened: No such file or directory (os error 2)")
                if "initrd_path" in body:
                    require_file(body["initrd_path"], "The initrd file cannot be opened")
                self.boot = body
            case ("PUT", ["drives", name]):
                self.fresh()
                check(body, {"drive_id": str, "is_root_device": bool},
                      {"path_on_host": str, "is_read_only": bool, "partuuid": str, "cache_type": str,
                       "io_engine": str, "socket": str} | self.RATE)
                if body["drive_id"] != name:
                    raise Refusal(400, "The id from the path does not match the id from the body!")
                if body.get("cache_type", "Unsafe") not in ("Unsafe", "Writeback"):
                    raise Refusal(400, "unknown variant of cache_type")
                require_file(body["path_on_host"], "Unable to create the virtio block device",
                             not body["is_read_only"])
                self.drives[name] = body
            case ("PUT", ["vsock"]):
                self.fresh()
                check(body, {"guest_cid": int, "uds_path": str}, {"vsock_id": str})
                if body["guest_cid"] < 3:
                    raise Refusal(400, "invalid guest_cid")
                self.vsock = body
            case ("PUT", ["actions"]):
                check(body, {"action_type": str})
                self.act(body["action_type"])
            case ("PATCH", ["vm"]):
                check(body, {"state": str})
                self.change(body["state"])
            case ("PUT", ["snapshot", "create"]):
                check(body, {"snapshot_path": str, "mem_file_path": str}, {"snapshot_type": str})
                if body.get("snapshot_type", "Full") not in ("Full", "Diff"):
                    raise Refusal(400, "unknown variant of snapshot_type")
                if self.state != "Paused":
                    raise Refusal(400, "Create snapshot error: The microVM is not paused")
                with open(body["snapshot_path"], "w") as state:
                    json.dump({"vsock": self.vsock, "drives": self.drives}, state)
                with open(body["mem_file_path"], "wb") as memory:
                    memory.truncate(self.machine["mem_size_mib"] << 20)
            case ("PUT", ["snapshot", "load"]):
                check(body, {"snapshot_path": str},
                      {"mem_backend": dict, "mem_file_path": str, "resume_vm": bool,
                       "track_dirty_pages": bool, "enable_diff_snapshots": bool,
                       "network_overrides": list, "vsock_override": dict})
                self.load(body)
            case _:
                raise Refusal(400, f"Invalid request method and/or path: {method} {path}.")
        return None

    def act(self, action):
        if action != "InstanceStart":
            raise Refusal(400, "unknown variant of action_type")
        self.fresh()
        if self.boot is None:
            raise Refusal(400, "Cannot start microvm without kernel configuration.")
        if self.machine["mem_size_mib"] > MEMORY_MIB_MAX:
            raise Refusal(400, "Cannot create guest memory: Cannot allocate memory (os error 12)")
        require_kernel(self.boot["kernel_image_path"],
                       "Cannot load kernel due to invalid memory configuration or invalid kernel "
                       "image: Kernel Loader: failed to load ELF kernel image: Invalid Elf magic number")
        self.start()

    def start(self):
        self.guest = Guest(self.vsock["uds_path"], self.say)
        self.guest.boot()
        self.state = "Running"

    def change(self, state):
        if self.guest is None:
            raise Refusal(400, "The requested operation is not supported before starting the microVM.")
        if state == "Paused":
            self.guest.freeze(signal.SIGSTOP)
        elif state == "Resumed":
            self.guest.freeze(signal.SIGCONT)
        else:
            raise Refusal(400, "unknown variant of state")
        self.state = "Running" if state == "Resumed" else state

    def load(self, body):
        if self.boot or self.drives or self.vsock or self.guest:
            raise Refusal(400, "Loading a microVM snapshot not allowed after configuring boot-specific resources.")
        if ("mem_backend" in body) == ("mem_file_path" in body):
            raise Refusal(400, "either `mem_backend` or `mem_file_path` must be specified")
        check(body["mem_backend"], {"backend_type": str, "backend_path": str}, where="mem_backend")
        require_file(body["mem_backend"]["backend_path"], "Cannot open the memory file")
        with open(body["snapshot_path"]) as file:
            state = json.load(file)
        self.vsock, self.drives = state["vsock"], state["drives"]
        if "vsock_override" in body:
            check(body["vsock_override"], {"uds_path": str}, where="vsock_override")
            self.vsock["uds_path"] = body["vsock_override"]["uds_path"]
        self.start()
        if not body.get("resume_vm", False):
            self.change("Paused")


class CloudHypervisor:
    """`vmm/src/api/openapi/cloud-hypervisor.yaml`, version 0.3.0 of it."""

    FIELDS = {
        "payload": ({}, {"kernel": str, "initramfs": str, "cmdline": str, "firmware": str}),
        "cpus": ({"boot_vcpus": int, "max_vcpus": int}, {"nested": bool, "max_phys_bits": int}),
        "memory": ({"size": int}, {"shared": bool, "mergeable": bool, "hugepages": bool,
                                   "prefault": bool, "thp": bool}),
        "rng": ({"src": str}, {"iommu": bool}),
        "serial": ({"mode": str}, {"file": str, "socket": str}),
        "console": ({"mode": str}, {"file": str, "socket": str, "iommu": bool}),
        "vsock": ({"cid": int, "socket": str}, {"iommu": bool, "id": str}),
    }
    DISK = {"path": str, "readonly": bool, "direct": bool, "id": str, "serial": str, "sparse": bool,
            "image_type": str, "num_queues": int, "queue_size": int}
    MODES = ("Off", "Pty", "Tty", "File", "Socket", "Null")

    def __init__(self, arguments):
        if len(arguments) != 2 or arguments[0] != "--api-socket" or not arguments[1].startswith("path="):
            print(f"error: unexpected argument in {arguments}", file=sys.stderr)
            sys.exit(2)
        self.socket = arguments[1].removeprefix("path=")
        self.config = None
        self.state = None
        self.guest = None
        self.serial = None

    def say(self, line):
        if self.serial is not None:
            self.serial.put((line + "\r\n").encode())

    def refuse(self, words):
        return json.dumps(["Error from API", words])

    def handle(self, method, path, body):
        if not path.startswith("/api/v1/"):
            raise Refusal(404, "Not Found")
        verb = path.removeprefix("/api/v1/")
        if (method, verb) == ("GET", "vmm.ping"):
            return {"version": "v48.0", "build_version": "v48.0", "pid": os.getpid(), "features": []}
        if (method, verb) == ("GET", "vm.info"):
            if self.config is None:
                raise Refusal(404, "VM is not created")
            return {"config": self.config, "state": self.state}
        if method != "PUT":
            raise Refusal(400, "Bad Request")
        match verb:
            case "vm.create":
                if self.config is not None:
                    raise Refusal(500, "VM is already created")
                self.config, self.state = self.validated(body), "Created"
            case "vm.boot":
                self.created()
                if self.config["memory"]["size"] > MEMORY_MIB_MAX << 20:
                    raise Refusal(500, "Cannot allocate memory")
                require_kernel(self.config["payload"]["kernel"], "Cannot load the kernel into memory")
                self.start()
            case "vm.pause":
                self.in_state("Running")
                self.guest.freeze(signal.SIGSTOP)
                self.state = "Paused"
            case "vm.resume":
                self.in_state("Paused")
                self.guest.freeze(signal.SIGCONT)
                self.state = "Running"
            case "vm.snapshot":
                check(body, {}, {"destination_url": str})
                self.in_state("Paused")
                into = self.url(body["destination_url"])
                for name, value in (("config.json", self.config), ("state.json", {})):
                    with open(os.path.join(into, name), "w") as file:
                        json.dump(value, file)
                with open(os.path.join(into, "memory-ranges"), "wb") as memory:
                    memory.truncate(self.config["memory"]["size"])
            case "vm.restore":
                check(body, {"source_url": str},
                      {"prefault": bool, "memory_restore_mode": str, "resume": bool})
                if self.config is not None:
                    raise Refusal(404, "VM is already created")
                found = self.url(body["source_url"])
                for name in ("state.json", "memory-ranges"):
                    require_file(os.path.join(found, name), f"cannot open {name}")
                with open(os.path.join(found, "config.json")) as file:
                    self.config = self.validated(json.load(file))
                self.start()
                self.guest.freeze(signal.SIGSTOP)
                self.state = "Paused"
            case "vm.shutdown":
                self.created()
                self.guest.process.kill()
                self.state = "Shutdown"
            case "vmm.shutdown":
                threading.Timer(0.05, os._exit, (0,)).start()
            case _:
                raise Refusal(404, "Not Found")
        return None

    def url(self, url):
        if not url.startswith("file:///"):
            raise Refusal(400, "Failed to parse the URL")
        return url.removeprefix("file://")

    def created(self):
        if self.config is None:
            raise Refusal(404, "VM is not created")

    def in_state(self, wanted):
        self.created()
        if self.state != wanted:
            raise Refusal(405, f"Invalid transition: it is {self.state}, not {wanted}")

    def validated(self, body):
        check(body, {"payload": dict},
              {name: dict for name in self.FIELDS} | {"disks": list, "iommu": bool, "watchdog": bool})
        for name, (required, optional) in self.FIELDS.items():
            if name in body:
                check(body[name], required, optional, name)
        for disk in body.get("disks", []):
            check(disk, {}, self.DISK, "disk")
            if disk["image_type"] not in ("FlatVmdk", "FixedVhd", "Qcow2", "Raw", "Vhdx"):
                raise Refusal(400, "unknown variant of image_type")
            require_file(disk["path"], "Failed to open the disk", not disk.get("readonly", False))
        for device in ("serial", "console"):
            if body[device]["mode"] not in self.MODES:
                raise Refusal(400, "unknown variant of mode")
        require_file(body["payload"]["kernel"], "Error opening the kernel: No such file or directory")
        require_file(body["payload"]["initramfs"], "Error opening the initramfs")
        if body["cpus"]["boot_vcpus"] > body["cpus"]["max_vcpus"]:
            raise Refusal(400, "Max CPUs lower than boot CPUs")
        return body

    def start(self):
        if self.config["serial"]["mode"] == "Socket":
            self.serial = Serial(self.config["serial"]["socket"])
        self.guest = Guest(self.config["vsock"]["socket"], self.say)
        self.guest.boot()
        self.state = "Running"


class Serial:
    """A serial line at a socket: kept for whoever comes, one at a time, and never waited for."""

    def __init__(self, path):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1)
        self.kept = b""
        self.reader = None
        self.lock = threading.Lock()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            reader, _ = self.listener.accept()
            with self.lock:
                self.reader = reader
                kept, self.kept = self.kept, b""
            self.put(kept)

    def put(self, data):
        with self.lock:
            try:
                if self.reader is None:
                    raise BrokenPipeError
                self.reader.sendall(data)
            except OSError:
                self.reader = None
                self.kept = (self.kept + data)[-(1 << 20):]


def answer(monitor, connection):
    """One request after another on a connection, as both programs serve them."""
    stream = connection.makefile("rb")
    while line := stream.readline():
        method, path, version = line.decode().split()
        length = 0
        while (field := stream.readline().decode().strip()) != "":
            name, value = field.split(":", 1)
            if name.lower() == "content-length":
                length = int(value)
        text = stream.read(length)
        if FAULT == "mute":
            threading.Event().wait()
        status, reply = 204, ""
        try:
            got = monitor.handle(method, path, json.loads(text) if text else None)
            if got is not None:
                status, reply = 200, json.dumps(got)
        except Refusal as refusal:
            status, reply = refusal.status, monitor.refuse(str(refusal))
        except (OSError, KeyError, TypeError) as error:
            status, reply = 500, monitor.refuse(repr(error))
        if log := os.environ.get("FAKE_LOG"):
            with open(log, "a") as file:
                file.write(json.dumps([method, path, status]) + "\n")
        head = f"HTTP/1.1 {status} \r\nServer: fake\r\nConnection: keep-alive\r\n"
        if reply:
            head += f"Content-Type: application/json\r\nContent-Length: {len(reply)}\r\n"
        connection.sendall(f"{head}\r\n{reply}".encode())


def main():
    name = os.path.basename(sys.argv[1])
    kinds = {"firecracker": Firecracker, "cloud-hypervisor": CloudHypervisor}
    if sys.argv[2:] == ["--version"]:
        print({"firecracker": "Firecracker v1.16.2", "cloud-hypervisor": "cloud-hypervisor v48.0.0"}[name])
        return
    if FAULT == "dies-at-once":
        print("the fake was told to fail", file=sys.stderr)
        sys.exit(1)
    monitor = kinds[name](sys.argv[2:])
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(monitor.socket)
    listener.listen(16)
    while True:
        connection, _ = listener.accept()
        try:
            answer(monitor, connection)
        except (BrokenPipeError, ConnectionResetError):
            pass
        connection.close()


main()
