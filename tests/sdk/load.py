"""The server under load, by clients on connections of their own, and what is left afterwards.
`BURROW_SERVER_RUNS` sets how often; `just soak-server` says a thousand."""

import concurrent.futures
import os
import pathlib
import re

import wire
from wire import Sandbox, eventually, text

_RUNS = int(os.environ.get("BURROW_SERVER_RUNS", "100"))
_CLIENTS = 16
_BRIDGE = int(os.environ["BURROW_TEST_PID"])
# The names of boxes that this server has had: others on this machine have control groups, too.
_boxes = set()


def sixteen_clients_lose_no_byte():
    with Sandbox("shared") as shared, concurrent.futures.ThreadPoolExecutor(_CLIENTS) as pool:
        for client in [pool.submit(_client, shared.which, number) for number in range(_CLIENTS)]:
            client.result()


def _client(which, number):
    connection = wire.Connection()
    for run in range(_RUNS):
        first = number * 1_000_000 + run * 100
        last = first + (run * 37 + number) % 997
        said = "".join(f"{n}\n" for n in range(first, last + 1))
        asked = {"command": "seq", "args": [str(first), str(last)]}
        told = connection.call("sandbox.command.run", **which, **asked)
        assert told["stdout"] == said and text(told) == said, (number, run)
        assert (told["exit_code"], told["stderr"]) == (0, ""), (number, run, told)
    connection.close()


def sixteen_clients_of_their_own_sandboxes_lose_no_line_of_code():
    with concurrent.futures.ThreadPoolExecutor(_CLIENTS) as pool:
        for client in [pool.submit(_coder, number) for number in range(_CLIENTS)]:
            client.result()


def _coder(number):
    with Sandbox(f"own-{number}") as own:
        own.run("count = 0")
        for run in range(1, _RUNS + 1):
            told = own.run(f"count += 1\nprint({number}, count)\ncount")
            assert text(told) == f"{number} {run}\n{run}\n", (number, run, told)
            assert text(told, "stderr") == "", (number, run, told)


def sandboxes_leave_nothing_behind():
    for _ in range(5):
        _one_life()
    before = _everything()
    for _ in range(_RUNS):
        _one_life()
    _nothing_new(before)


def sandboxes_that_end_in_trouble_leave_nothing_behind():
    for _ in range(2):
        _hard_life()
    before = _everything()
    for _ in range(max(_RUNS // 10, 5)):
        _hard_life()
    _nothing_new(before)


def _one_life():
    with Sandbox("one-of-many") as sandbox:
        _boxes.update(os.listdir(os.path.join(os.environ["BURROW_RUNTIME_DIR"], "boxes")))
        assert text(sandbox.command("echo", "alive")) == "alive\n"


def _hard_life():
    with Sandbox("one-in-trouble") as sandbox:
        _boxes.update(os.listdir(os.path.join(os.environ["BURROW_RUNTIME_DIR"], "boxes")))
        sandbox.run("import os, signal\nopen('/tmp/left', 'w').write('x' * 100_000)\nos.kill(os.getpid(), signal.SIGKILL)")
        sandbox.command("sh", "-c", "trap '' TERM HUP; (setsid sleep 9000 &) ; nohup sleep 9000 >/dev/null 2>&1 & exit 3")
        wire.failure(sandbox.run, "while True: pass", timeout=0.2)


def _nothing_new(before):
    def left():
        now = _everything()
        return {what: sorted(now[what] - before[what]) for what in now if now[what] - before[what]}

    left_behind = None
    try:
        eventually("all of it is gone", lambda: not left(), within_secs=15)
    except AssertionError:
        left_behind = left()
    assert left_behind is None, left_behind


# The layers that the bridge has ready for the next sandboxes: mounts without a place, two at most.
_SPARE = {"/ #1", "/ #2"}

# What was used up of the day and what it has cost, by all together: written when something was.
_OF_ALL = {
    os.path.join(os.environ.get("BURROW_STATE_DIR", ""), name)
    for name in ("usage.json", "costs", "costs/current.json")
}


def _everything():
    """What a sandbox could leave, as sets of words that tell the pieces apart."""
    processes = _ours()
    return {
        "processes": processes,
        "descriptors": _numbered(_links(f"/proc/{_BRIDGE}/fd")) - _SPARE,
        "mounts": _numbered(line.split(" ", 4)[4] for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()),
        "mounts of the bridge": _numbered(
            line.split(" ", 4)[4] for line in pathlib.Path(f"/proc/{_BRIDGE}/mountinfo").read_text().splitlines()
        ),
        "files": _files(os.environ["BURROW_RUNTIME_DIR"]) | _files(os.environ["BURROW_STATE_DIR"]) - _OF_ALL,
        "sockets": _sockets(),
        "control groups": _groups(),
    }


def _numbered(words):
    """As a set in which a second of the same is another."""
    seen, numbered = {}, set()
    for word in words:
        seen[word] = seen.get(word, 0) + 1
        numbered.add(f"{word} #{seen[word]}")
    return numbered


def _links(directory):
    for link in os.listdir(directory):
        try:
            # Which of several sockets it is changes with every connection.
            yield re.sub(r":\[\d+\]", "", os.readlink(f"{directory}/{link}"))
        except FileNotFoundError:
            pass


def _files(directory):
    return {os.path.join(path, name) for path, names, files in os.walk(directory) for name in names + files}


def _sockets():
    """Unix sockets with a name below the directories of this server."""
    lines = pathlib.Path("/proc/net/unix").read_text().splitlines()
    return {line.split()[-1] for line in lines if os.environ["BURROW_RUNTIME_DIR"] in line}


def _ours():
    """Descendants of the bridge, and who else knows its directories."""
    parents, known = {}, set()
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        pid = int(path.name)
        try:
            parents[pid] = int((path / "stat").read_text().rsplit(")", 1)[1].split()[1])
            words = (path / "cmdline").read_bytes() + (path / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if os.environ["BURROW_RUNTIME_DIR"].encode() in words:
            known.add(pid)

    def descends(pid):
        while pid in parents and pid != _BRIDGE:
            pid = parents[pid]
        return pid == _BRIDGE

    return {str(pid) for pid in parents if pid in known or descends(pid)} - {str(os.getpid())}


def _groups():
    found = set()
    for path, names, _ in os.walk("/sys/fs/cgroup"):
        found |= {os.path.join(path, name) for name in names if name.removeprefix("burrow-") in _boxes}
    return found
