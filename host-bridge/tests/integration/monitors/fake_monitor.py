#!/usr/bin/env python3
"""Firecracker and Cloud Hypervisor as far as the bridge can see them, without a hypervisor.

`tests/monitors.rs` puts this on the PATH under the name of either. It serves that program's API on
its Unix socket as its published description says, and as Firecracker 1.16.1 and Cloud Hypervisor 53.0
answered: each body is checked against the documented fields, and wrong order is refused in that
program's own words. Unknown fields are refused for both, although Cloud Hypervisor ignores them. Memory is
refused by neither, however much it is. Where the real one
would run a guest, it runs a real guest-agent as an ordinary sandbox of this host, whose first
connection is the call of a guest (`<uds>_1024`) and whose door is reached by the hybrid handshake.

A snapshot holds no memory: what is restored from it is a new agent with the old one's configuration, which
calls nobody. As with the real Firecracker, a snapshot cuts the guest's links, which the host's ends do not
notice, and a machine that was paused without one takes no new connection afterwards.

It never runs a kernel: what a guest does before its agent serves is not tested here.

FAKE_AGENT is the agent, FAKE_LOG takes a line for each request, a file FAKE_FULL says that there is no room
for snapshots, FAKE_FAULT asks for a fault:
`mute` never answers, `dies-at-start` ends when the machine is started, `dies-at-once` before it
listens, `panic` lets the guest's kernel die, `flood` makes its console chatter.
"""

import json
import os
import signal
import socket
import sys
import threading

# What is imported is part of the tests, and leaves nothing beside them.
sys.dont_write_bytecode = True

from fake_guest import FAULT, Guest  # noqa: E402


class Refusal(Exception):
    """A request that the real program would refuse, with its status and its words, the outermost first."""

    def __init__(self, status, *words):
        super().__init__(": ".join(words))
        self.status = status
        self.words = words


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


def require_file(path, status, *words, write=False):
    if not os.access(path, os.R_OK | (os.W_OK if write else 0)):
        raise Refusal(status, *words)


def require_room(status, *words):
    if os.path.exists(os.environ.get("FAKE_FULL", "")):
        raise Refusal(status, *words, "No space left on device (os error 28)")


def require_kernel(path, status, *words):
    with open(path, "rb") as kernel:
        if kernel.read(4) != b"\x7fELF":
            raise Refusal(status, *words)


class Firecracker:
    """`src/firecracker/swagger/firecracker.yaml`, release 1.16."""

    RATE = {"rate_limiter": dict}

    def __init__(self, arguments):
        options = dict(zip(arguments[::2], arguments[1::2]))
        levels = ("Error", "Warning", "Info", "Debug", "Trace", "Off")
        if set(options) != {"--api-sock", "--id", "--level"} or options["--level"] not in levels:
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
        self.was_saved = False

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
        return json.dumps({"fault_message": ": ".join(words)})

    def handle(self, method, path, body):
        match (method, path.split("/")[1:]):
            case ("GET", [""]):
                return {"app_name": "Firecracker", "id": self.id, "state": self.state,
                        "vmm_version": "1.16.1"}
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
                missing = "cannot be opened: No such file or directory (os error 2)"
                require_file(body["kernel_image_path"], 400, "Boot source error",
                             f"The kernel file {missing}")
                if "initrd_path" in body:
                    require_file(body["initrd_path"], 400, "Boot source error",
                                 f"The initrd file {missing}")
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
                self.open_drive("Drive config error", body)
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
                    raise Refusal(400, "Create snapshot error", "Cannot save the microVM state",
                                  "Operation not allowed", "save/restore unavailable while running")
                # The state of the devices comes first, and the memory after it.
                self.guest.reset()
                self.was_saved = True
                require_room(400, "Create snapshot error", "Cannot perform set_length on the memory backing file")
                with open(body["snapshot_path"], "w") as state:
                    boot = self.guest.configuration().hex()
                    json.dump({"vsock": self.vsock, "drives": self.drives, "boot": boot}, state)
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
            raise Refusal(400, "Start microvm error",
                          "Cannot start microvm without kernel configuration.")
        require_kernel(self.boot["kernel_image_path"], 400, "Start microvm error",
                       "System configuration error",
                       "Cannot load kernel due to invalid memory configuration or invalid kernel image",
                       "Kernel Loader: failed to load ELF kernel image",
                       "Kernel Loader: Unable to read elf header")
        self.start()

    def open_drive(self, action, drive):
        path = drive["path_on_host"]
        require_file(path, 400, action, "Unable to create the virtio block device",
                     "Virtio backend error", "Error manipulating the backing file",
                     f"No such file or directory (os error 2) {path}",
                     write=not drive["is_read_only"])

    def start(self, boot_frame=None):
        self.guest = Guest(self.vsock["uds_path"], self.say)
        self.guest.boot(boot_frame)
        self.state = "Running"

    def change(self, state):
        if self.guest is None:
            raise Refusal(400, "The requested operation is not supported before starting the microVM.")
        if state == "Paused":
            self.was_saved = False
            self.guest.freeze(signal.SIGSTOP)
        elif state == "Resumed":
            # Issue 6100 of 1.16.1.
            self.guest.is_deaf |= self.state == "Paused" and not self.was_saved
            self.guest.freeze(signal.SIGCONT)
        else:
            raise Refusal(400, "unknown variant of state")
        self.state = "Running" if state == "Resumed" else state

    def load(self, body):
        if self.boot or self.drives or self.vsock or self.guest:
            raise Refusal(400, "Load snapshot error", "Loading a microVM snapshot not allowed after configuring boot-specific resources.")
        if ("mem_backend" in body) == ("mem_file_path" in body):
            raise Refusal(400, "either `mem_backend` or `mem_file_path` must be specified")
        check(body["mem_backend"], {"backend_type": str, "backend_path": str}, where="mem_backend")
        require_file(body["mem_backend"]["backend_path"], 400, "Load snapshot error",
                     "Cannot open the memory file")
        with open(body["snapshot_path"]) as file:
            state = json.load(file)
        self.vsock, self.drives = state["vsock"], state["drives"]
        if "vsock_override" in body:
            check(body["vsock_override"], {"uds_path": str}, where="vsock_override")
            self.vsock["uds_path"] = body["vsock_override"]["uds_path"]
        for drive in self.drives.values():
            self.open_drive("Load snapshot error", drive)
        self.start(bytes.fromhex(state["boot"]))
        if not body.get("resume_vm", False):
            self.change("Paused")


API_ERROR = "Error from API"


def api_error(status, *words):
    return Refusal(status, API_ERROR, *words)


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
        return json.dumps(words)

    def handle(self, method, path, body):
        if not path.startswith("/api/v1/"):
            raise Refusal(404, "Not Found")
        verb = path.removeprefix("/api/v1/")
        if (method, verb) == ("GET", "vmm.ping"):
            return {"version": "53.0.0", "build_version": "v53.0.0", "pid": os.getpid(), "features": ["kvm"]}
        if (method, verb) == ("GET", "vm.info"):
            if self.config is None:
                raise api_error(404, "The VM info is not available", "VM is not created")
            return {"config": self.config, "state": self.state}
        if method != "PUT":
            raise Refusal(400, "Bad Request")
        match verb:
            case "vm.create":
                if self.config is not None:
                    raise api_error(500, "The VM could not be created", "VM is already created")
                self.config, self.state = self.validated(body), "Created"
            case "vm.boot":
                if self.config is None:
                    raise api_error(404, "The VM could not boot", "VM config is missing")
                self.open_disks("The VM could not boot")
                require_kernel(self.config["payload"]["kernel"], 500, API_ERROR, "The VM could not boot",
                               "Cannot load the kernel into memory",
                               "Kernel Loader: failed to load bzImage kernel image",
                               "Kernel Loader: Invalid bzImage")
                self.start()
            case "vm.pause":
                self.alive("The VM could not be paused", "Running")
                self.guest.freeze(signal.SIGSTOP)
                self.state = "Paused"
            case "vm.resume":
                self.alive("The VM could not resume", "Paused")
                self.guest.freeze(signal.SIGCONT)
                self.state = "Running"
            case "vm.snapshot":
                check(body, {}, {"destination_url": str})
                if self.guest is None:
                    raise api_error(500, "The VM could not be snapshotted", "VM is not running")
                if self.state == "Running":
                    raise api_error(500, "The VM could not be snapshotted",
                                    "Trying to snapshot while VM is running")
                require_room(500, API_ERROR, "The VM could not be snapshotted")
                into = self.url(body["destination_url"])
                state = {"boot": self.guest.configuration().hex()}
                for name, value in (("config.json", self.config), ("state.json", state)):
                    with open(os.path.join(into, name), "w") as file:
                        json.dump(value, file)
                with open(os.path.join(into, "memory-ranges"), "wb") as memory:
                    memory.truncate(self.config["memory"]["size"])
            case "vm.restore":
                check(body, {"source_url": str},
                      {"prefault": bool, "memory_restore_mode": str, "resume": bool})
                failed = "The VM could not be restored"
                if body.get("memory_restore_mode", "Copy") not in ("Copy", "OnDemand"):
                    raise Refusal(400, "Failed to deserialize JSON")
                if self.config is not None:
                    raise api_error(500, failed, "VM is already created")
                found = self.url(body["source_url"])
                require_file(os.path.join(found, "memory-ranges"), 500, API_ERROR, failed)
                with open(os.path.join(found, "config.json")) as file:
                    self.config = self.validated(json.load(file))
                with open(os.path.join(found, "state.json")) as file:
                    boot_frame = bytes.fromhex(json.load(file)["boot"])
                self.open_disks(failed)
                self.start(boot_frame)
                self.guest.freeze(signal.SIGSTOP)
                self.state = "Paused"
            case "vm.shutdown":
                self.alive("The VM could not be shut down", "Running")
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

    def alive(self, failed, wanted):
        if self.guest is None:
            raise api_error(500, failed, "VM is not running")
        if self.state != wanted:
            raise api_error(500, failed, f"Invalid transition: it is {self.state}, not {wanted}")

    def open_disks(self, failed):
        for disk in self.config.get("disks", []):
            path = disk["path"]
            require_file(path, 500, API_ERROR, failed, "Error from device manager",
                         "Cannot open disk path", f"I/O error (path={path} op=open)",
                         "No such file or directory (os error 2)",
                         write=not disk.get("readonly", False))

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
        for device in ("serial", "console"):
            if body[device]["mode"] not in self.MODES:
                raise Refusal(400, "unknown variant of mode")
        if body["cpus"]["boot_vcpus"] > body["cpus"]["max_vcpus"]:
            raise Refusal(400, "Max CPUs lower than boot CPUs")
        return body

    def start(self, boot_frame=None):
        if self.config["serial"]["mode"] == "Socket":
            self.serial = Serial(self.config["serial"]["socket"])
        self.guest = Guest(self.config["vsock"]["socket"], self.say)
        self.guest.boot(boot_frame)
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
            status, reply = refusal.status, monitor.refuse(refusal.words)
        except (OSError, KeyError, TypeError) as error:
            status, reply = 500, monitor.refuse([repr(error)])
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
        print({"firecracker": "Firecracker v1.16.1", "cloud-hypervisor": "cloud-hypervisor v53.0.0"}[name])
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
