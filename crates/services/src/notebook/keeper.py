"""Persistent contexts, the guest's side: what the variables of a living interpreter are is written
into a directory after runs, and read into a fresh interpreter later.

The host's bridge calls `save`, `restore`, `report` and `forget` between runs. All that is dear is
done by a forked child; the interpreter pays for one fork. Nothing here speaks with the agent, and
nothing but the references in the namespace is touched in the interpreter itself.

What is in the directory:

    manifest.json   what there is; replaced by rename, after all that it names has been written
    <digest>        a blob: one group of variables, as a list, in the order of the namespace
    attempt.json    who the child is that is under way, and where; what is left of one that died
    lock            held (flock) by the child, so that it is free once the child has ended anyhow

Exact first, incremental second. Each variable is pickled by itself. What it has in common with
others is either the value of another variable (a function, a class, an instance) and then becomes
a reference by name, or is nobody's own (a list within two others) and then makes one group of all
that have it. References by name that lead back make one group too. So a group is the least that
can be loaded by itself after what it `needs`, and within it pickle's memo keeps all identities.
Several names of one object are one member of a group. Only groups whose digest is new are written.

Digests are the same in every process, but where identity is not: what is shared by interned
strings may change once at the first save after a restore, sets of other things than strings, bytes
and ints have the order of their hashes, and before Python 3.11 so has the literal in
`x in {"a", "b"}`. Such groups are written again, which costs time and nothing else.

A blob begins with references to what is outside of it: the namespace, the builtins, sys.modules,
sys.path, the standard streams, and the makers in `Blob`. They are persistent ids that are put into
the memo, so that any object can be meant, a plain dict too, and no module must be found by name.

What cannot be kept is told, with a reason and the path to it; a variable is never half there. Code
that cannot be loaded at a restore (a module is missing) is *unavailable*: it stays in the store,
and each save carries it on, until its name is assigned, or `forget` is called. Names that have been
assigned and deleted within the same run are not noticed.

Lost by design: running generators, coroutines, frames, threads, locks, processes, files, sockets,
weak references, memoryviews, ctypes; tracebacks and contexts of exceptions; what an `lru_cache` has
kept; the state of modules, environment variables, and the source text of functions.
"""
import _frozen_importlib_external
import _signal
import _thread
import builtins

# The builtins as they are now, for all functions below: code may delete its own.
__builtins__ = BUILTINS = dict(vars(builtins))

import abc
import copyreg
import dataclasses
import functools
import gc
import io
import json
import marshal
import os
import pickle
import sys
import types
import typing
import warnings
import weakref
from _blake2 import blake2b
from fcntl import F_DUPFD_CLOEXEC, LOCK_EX, LOCK_NB, LOCK_SH, fcntl, flock
from importlib import import_module, invalidate_caches
from resource import RLIMIT_CORE, RLIMIT_STACK, getrlimit, setrlimit
from sys import intern
from time import monotonic

# Names of their own: those of the modules are the code's to break.
set_signal, get_signal, set_mask = _signal.signal, _signal.getsignal, _signal.pthread_sigmask
set_timer, await_signal, SIGCHLD = _signal.setitimer, _signal.sigtimedwait, _signal.SIGCHLD
REAL, PROFILE, SIGALRM = _signal.ITIMER_REAL, _signal.ITIMER_PROF, _signal.SIGALRM
fork, leave, wait, wait_id, kill = os.fork, os._exit, os.waitpid, os.waitid, os.kill
posix_open, write, close, rename = os.open, os.write, os.close, os.rename
fstat, stat, unlink, listdir, pwrite = os.fstat, os.stat, os.unlink, os.listdir, os.pwrite
VERSION, FUNCTION, CODE, CELL = sys.version_info, types.FunctionType, types.CodeType, types.CellType
MODULES, SYS = sys.modules, vars(sys)
Timer, load_json, dump_json = monotonic, json.loads, json.dumps

FORMAT = 1
DIGEST_BYTES = 20
JSON_BYTES_MAX = 64 << 20
REASON_CHARS_MAX = 300
# What part of its time a child may pickle for; the rest is for writing.
PICKLING_SHARE = 0.8
# What part of it a single variable may take: half of it after the first that took longer, and so
# on, so that some time is left for the others.
PATIENCE_SHARE = 0.25
# For how long after its time a child may live on. What is in C code then is killed.
GRACE_SECONDS = 5
# How long the process between the interpreter and the child may take to fork.
FORK_SECONDS = 5
# Pickling recurses: 20,000 levels need less than this, which is free below the main thread's stack.
STACK_BYTES, RECURSION, RECURSION_THREAD = 96 << 20, 20000, 3000
# Sets are put in order by a pickler that is slow, for graphs of so many objects at most.
ORDERED_MAX = 20000
# The search for the path to what cannot be kept.
STEPS_MAX = 50000
# Of a value that so many saves have died of, none is tried again.
DEATHS_MAX = 2
SUBMODULES_MAX = 1000
OWN_NAMES = {"_", "__", "___", "_i", "_ii", "_iii", "_ih", "_oh", "_dh", "In", "Out"}
PLAIN = {str, bytes, int, float, bool, complex, type(None), type(...), type(NotImplemented)}
BASIC = PLAIN | {tuple, list, dict, set, frozenset, bytearray}
MAGIC = int.from_bytes(_frozen_importlib_external.MAGIC_NUMBER[:2], "little")
HEAP_TYPE = 1 << 9

NOT_REACHED, TOOK_LONG = "no time: it was not reached", "no time: it took more than %.1f s"

REFUSED = [
    (types.GeneratorType, "a generator"),
    (types.CoroutineType, "a coroutine"),
    (types.AsyncGeneratorType, "an asynchronous generator"),
    (types.FrameType, "a frame"),
    (types.TracebackType, "a traceback"),
    (_thread.LockType, "a lock"),
    (_thread.RLock, "a lock"),
    (weakref.ReferenceType, "a weak reference"),
    (weakref.ProxyType, "a weak reference"),
    (weakref.CallableProxyType, "a weak reference"),
    (weakref.finalize, "a finalizer"),
    (memoryview, "a memoryview"),
    (io.FileIO, "an open file"),
    (io.BufferedReader, "an open file"),
    (io.BufferedWriter, "an open file"),
    (io.BufferedRandom, "an open file"),
    (io.TextIOWrapper, "an open file"),
]
# The same of modules that may not be loaded.
REFUSED_LATE = [
    ("_socket", "socket", "a socket"),
    ("threading", "Thread", "a thread"),
    ("subprocess", "Popen", "a process"),
    ("multiprocessing.process", "BaseProcess", "a process"),
    ("sqlite3", "Connection", "a database connection"),
    ("sqlite3", "Cursor", "a database cursor"),
    ("_asyncio", "Future", "a future of an event loop"),
    ("asyncio", "AbstractEventLoop", "an event loop"),
]


class Refused(Exception):
    """Cannot be kept; says why."""


class TooLarge(Exception):
    """Is over a limit; says which."""


class NoTime(BaseException):
    """The time is over."""


class State:
    # Somebody wanted a save while one was under way.
    again = False
    # What saves have died of: names, who had them, and how often.
    deadly = {}
    # What this save goes around: names, and who had them.
    around = {}
    # What could not be restored, per directory: groups, and modules by name.
    unavailable = {}
    # The alarm may raise.
    armed = False


state = State()


# What code has taken from the builtins, which the library cannot do without.
def mend():
    for name, value in BUILTINS.items():
        vars(builtins).setdefault(name, value)


# Files. All are below the directory, which is held open.
def open_directory(path):
    mend()
    try:
        return posix_open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        os.makedirs(path, 0o700, exist_ok=True)
        return posix_open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def open_file(directory, name, flags):
    return posix_open(name, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)


def read_file(directory, name, most):
    fd = open_file(directory, name, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with io.FileIO(fd, closefd=False) as file:
            if fstat(fd).st_size > most:
                raise ValueError("%s is too large" % name)
            return file.readall()
    finally:
        close(fd)


def read_json(directory, name):
    try:
        found = load_json(read_file(directory, name, JSON_BYTES_MAX))
        return found if type(found) is dict else None
    except (OSError, ValueError):
        return None


def write_file(directory, name, chunks):
    remove(directory, ".new")
    fd = open_file(directory, ".new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        os.fchmod(fd, 0o600)
        for chunk in chunks:
            with memoryview(chunk) as view:
                at = 0
                while at < len(view):
                    at += write(fd, view[at : at + (1 << 30)])
    finally:
        close(fd)
    rename(".new", name, src_dir_fd=directory, dst_dir_fd=directory)


def remove(directory, name):
    try:
        unlink(name, dir_fd=directory)
    except OSError:
        pass


# The lock, or None while a child has it.
def take_lock(directory, how=LOCK_EX):
    fd = open_file(directory, "lock", os.O_RDWR | os.O_CREAT)
    try:
        flock(fd, how | LOCK_NB)
        return fd
    except OSError:
        close(fd)
        return None


# What the interpreter calls.
def save(namespace, directory, *, time_max_s, bytes_max, value_bytes_max, mark=""):
    """Begins to keep the namespace. The answer's `state` is `started` (a child does it), `done` (no
    process could be had, so it was done here), or `again` (a child is under way; ask later). The
    manifest has the `mark`, by which it is known from that of a save before.
    `died` tells of the child before this one, if it did not come to its end."""
    fd = open_directory(directory)
    lock = None
    try:
        lock = take_lock(fd)
        died = read_json(fd, "attempt.json")
        if lock is None:
            state.again = True
            end_overdue(died)
            return {"state": "again"}
        state.again = False
        # What is told of the child before must not be taken for this one's.
        remove(fd, "attempt.json")
        state.around = go_around(died)
        limits = time_max_s, bytes_max, value_bytes_max
        carried = state.unavailable.get(directory, ([], {}))
        if start_child(lambda: (namespace, fd, lock, limits, carried, mark)):
            return {"state": "started", "died": died}
        keep(namespace, fd, limits, carried, mark, False)
        return {"state": "done", "died": died}
    finally:
        if lock is not None:
            close(lock)
        close(fd)


def report(directory):
    """The manifest, with `saving` (a child is under way), `again` (a save was refused meanwhile),
    and `died` (what is known of a child that did not come to its end)."""
    fd = open_directory(directory)
    try:
        lock = take_lock(fd, LOCK_SH)
        if lock is not None:
            close(lock)
        attempt = read_json(fd, "attempt.json")
        told = read_json(fd, "manifest.json") or {"generation": 0}
        died = attempt if lock is not None else None
        told.update(saving=lock is None, again=state.again, died=died)
        return told
    finally:
        close(fd)


def forget(directory, names):
    """Lets go what is unavailable and has one of these names."""
    groups, modules = state.unavailable.get(directory, ([], {}))
    for group in groups:
        group["names"] = [[n for n in member if n not in names] for member in group["names"]]
    for name in names:
        modules.pop(name, None)


# A child may have been ended by something else than the value it was at: the memory ran out, or somebody
# ended it. So once a save has gone around the value, it is tried again; what a save dies of again is
# given up.
def go_around(died):
    if died and died.get("at"):
        name, who = died["at"]
        known, deaths = state.deadly.get(name, (who, 0))
        state.deadly[name] = who, (deaths if known == who else 0) + 1
        return {name: who for name, (who, _) in state.deadly.items()}
    return {name: who for name, (who, deaths) in state.deadly.items() if deaths >= DEATHS_MAX}


# A child that takes too long has lost its way in C code, or in a lock that nobody will give back.
def end_overdue(attempt):
    if attempt and Timer() - attempt["began"] > 2 * attempt["time_max_s"] + GRACE_SECONDS:
        try:
            kill(attempt["pid"], _signal.SIGKILL)
        except OSError:
            pass


# Forks twice, so that the child is nobody's to wait for. No signal comes in between, and the end of
# the process between them is not told to the code.
def start_child(work):
    has_main_stack = _thread.get_native_id() == os.getpid()
    mask = set_mask(_signal.SIG_BLOCK, _signal.valid_signals())
    try:
        pid = quiet_fork()
        if pid == 0:
            # Nothing returns from here.
            code = 1
            try:
                code = 0 if quiet_fork() else run_child(has_main_stack, *work())
            finally:
                leave(code)
        return reap(pid) == 0
    except (OSError, RuntimeError):
        return False
    finally:
        set_mask(_signal.SIG_SETMASK, mask)


# From 3.12 on a fork beside threads is warned of, which code may have made an error.
def quiet_fork():
    if VERSION < (3, 12):
        return fork()
    with warnings.catch_warnings(module=warnings):
        warnings.simplefilter("ignore")
        return fork()


def reap(pid):
    until = Timer() + FORK_SECONDS
    done = status = 0
    try:
        while not done:
            done, status = wait(pid, os.WNOHANG)
            if done:
                break
            if Timer() > until:
                kill(pid, _signal.SIGKILL)
                wait(pid, 0)
                return 1
            await_signal({SIGCHLD}, 0.002)
    except ChildProcessError:
        # The code ignores its children, or one of its threads waits for any.
        pass
    await_signal({SIGCHLD}, 0)
    if callable(get_signal(SIGCHLD)):
        how = os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOHANG | os.WNOWAIT
        try:
            if wait_id(os.P_ALL, 0, how):
                kill(os.getpid(), SIGCHLD)
        except ChildProcessError:
            pass
    return status


def run_child(has_main_stack, namespace, directory, lock, limits, carried, mark):
    gc.disable()
    vars(builtins).update(BUILTINS)
    directory, lock = fcntl(directory, F_DUPFD_CLOEXEC, 10), fcntl(lock, F_DUPFD_CLOEXEC, 10)
    close_inherited({directory, lock})
    os.setsid()
    _signal.set_wakeup_fd(-1)
    for number in _signal.valid_signals():
        if callable(get_signal(number)):
            set_signal(number, _signal.SIG_IGN if number == _signal.SIGINT else _signal.SIG_DFL)
    set_mask(_signal.SIG_SETMASK, ())
    sys.settrace(None)
    sys.setprofile(None)
    sys.stdout = sys.stderr = open(os.devnull, "w")
    warnings.simplefilter("ignore")
    _, most = getrlimit(RLIMIT_STACK)
    setrlimit(RLIMIT_CORE, (0, 0))
    if has_main_stack and (most < 0 or most > STACK_BYTES):
        setrlimit(RLIMIT_STACK, (STACK_BYTES, most))
        sys.setrecursionlimit(RECURSION)
    else:
        sys.setrecursionlimit(RECURSION_THREAD)
    # When memory is short, the child is what is ended; and the interpreter goes first.
    try:
        os.nice(10)
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        pass
    # The default action ends the process, whatever it is at.
    set_signal(_signal.SIGPROF, _signal.SIG_DFL)
    set_timer(PROFILE, limits[0] + GRACE_SECONDS)
    keep(namespace, directory, limits, carried, mark, True)
    return 0


def close_inherited(kept):
    for fd in map(int, listdir("/proc/self/fd")):
        if fd not in kept:
            try:
                close(fd)
            except OSError:
                pass
    # The lowest numbers are free now.
    for _ in range(3):
        posix_open("/dev/null", os.O_RDWR)


# Loading. Its functions are the makers that blobs refer to.
OUTSIDE = {
    "builtins": lambda _: vars(builtins),
    "space": lambda space: space,
    "modules": lambda _: MODULES,
    "path": lambda _: SYS.get("path"),
    "stdin": lambda _: SYS.get("__stdin__"),
    "stdout": lambda _: SYS.get("__stdout__"),
    "stderr": lambda _: SYS.get("__stderr__"),
}
# Classes that were made here.
made_here = weakref.WeakSet()


class Blob(pickle.Unpickler):
    """One blob on its way into the namespace."""

    def __init__(self, data, space, loaded):
        self.file = io.BytesIO(data)
        super().__init__(self.file)
        self.size, self.space, self.loaded, self.classes = len(data), space, loaded, {}

    def load_all(self):
        try:
            values = self.load()
            while self.file.tell() < self.size:
                self.load()
            return values
        finally:
            self.memo.clear()

    def persistent_load(self, pid):
        return OUTSIDE[pid](self.space) if pid in OUTSIDE else getattr(self, pid)

    def make_reference(self, name):
        return self.loaded[name.decode()]

    def make_found(self, module, name):
        found = import_module(module.decode())
        for part in name.decode().split(".") if name else ():
            found = getattr(found, part)
        return found

    def make_code(self, magic, data):
        if magic != MAGIC:
            raise ImportError("compiled by another version of Python")
        return marshal.loads(data)

    def make_cell(self):
        return CELL()

    def fill_cell(self, cell, contents):
        (cell.cell_contents,) = contents

    def make_function(self, code, where, closure):
        if where is None:
            where = self.space
        elif type(where) is not dict:
            where = vars(where)
        return FUNCTION(code, where, None, None, closure)

    def fill_function(self, function, content):
        names, doc, defaults, keywords, notes, rest, parameters = content
        function.__name__, function.__qualname__, module = (intern(n.decode()) for n in names)
        function.__module__ = module or None
        function.__doc__, function.__defaults__ = doc, defaults
        function.__kwdefaults__ = unpair(keywords) if keywords else None
        if notes:
            function.__annotations__ = unpair(notes)
        function.__dict__.update(unpair(rest))
        if parameters:
            function.__type_params__ = parameters

    # The class without its content: nothing of the code's is called. What `__init_subclass__` has
    # done is in the state of whoever it was done to, if that is kept; libraries are told again.
    def make_class(self, number, meta, names, bases, content):
        if number in self.classes:
            return self.classes[number]
        name, qualname, module = (intern(n.decode()) for n in names)
        space = {"__qualname__": qualname, "__module__": module, **unpair(content)}
        maker = abc.ABCMeta if issubclass(meta, abc.ABCMeta) else type
        muted = []
        for base in {kind for base in bases for kind in base.__mro__}:
            if base in made_here and "__init_subclass__" in vars(base):
                muted.append((base, vars(base)["__init_subclass__"]))
        for base, _ in muted:
            type.__delattr__(base, "__init_subclass__")
        try:
            made = maker.__new__(meta, name, bases, space)
        finally:
            for base, hook in muted:
                type.__setattr__(base, "__init_subclass__", hook)
        self.classes[number] = made
        made_here.add(made)
        return made

    def fill_class(self, cls, content):
        items, abstract, registered = content
        for name, value in items:
            name = name.decode("utf-8", "surrogatepass")
            if name in vars(cls):
                # A hook of a library has made it, in another place.
                type.__delattr__(cls, name)
            type.__setattr__(cls, name, value)
        if abstract is not None:
            cls.__abstractmethods__ = frozenset(n.decode() for n in abstract)
        for other in registered:
            abc.ABCMeta.register(cls, other)

    def make_member(self, cls, base, args):
        return base.__new__(cls, *args)

    def fill_member(self, member, content):
        member.__dict__.update(unpair(content))

    def make_exception(self, cls, args):
        return cls.__new__(cls, *args)

    def fill_exception(self, error, content):
        rest, cause, quiet = content
        error.__dict__.update(unpair(rest))
        error.__cause__, error.__suppress_context__ = cause, quiet

    def make_cache(self, function, size, typed):
        return functools.lru_cache(size, typed)(function)

    def make_variable(self, kind, name, args, options):
        name = name.decode()
        made = getattr(typing, kind.decode())(name, *args, **dict(options))
        try:
            made.__module__ = "__main__"
        except (AttributeError, TypeError):
            pass
        return made

    def make_array(self, data, kind, shape, order, writable):
        numpy = import_module("numpy")
        made = numpy.empty(shape, kind, order)
        made.ravel("K").view("u1")[:] = numpy.frombuffer(data, "u1")
        made.flags.writeable = writable
        return made

    def make_view(self, base, at, kind, shape, strides, writable):
        numpy = import_module("numpy")
        made = numpy.ndarray(shape, kind, base.ravel("K").view("u1"), at, strides)
        made.flags.writeable = writable
        return made

    # As pickle does it.
    def set_state(self, made, content):
        setter = getattr(made, "__setstate__", None)
        if setter is not None:
            return setter(content)
        slots = None
        if type(content) is tuple and len(content) == 2:
            content, slots = content
        for name, value in (content or {}).items():
            made.__dict__[intern(name) if type(name) is str else name] = value
        for name, value in (slots or {}).items():
            setattr(made, name, value)

    def fill_instance(self, made, content):
        rest, slots = map(unpair, content)
        if rest:
            object.__getattribute__(made, "__dict__").update(rest)
        for name, value in slots.items():
            object.__setattr__(made, name, value)


MAKERS = [name for name in vars(Blob) if name.startswith(("make_", "fill_", "set_"))]
# What a blob begins with: each is put into the memo.
PRELUDE = b"\x80\x05" + b"".join(
    b"\x8c" + bytes([len(name)]) + name.encode() + b"Q\x940" for name in [*OUTSIDE, *MAKERS]
)


# Names go as bytes of their own, so that what they share with strings of the code's, which depends
# on what is interned, does not change the digest.
def pair(items):
    return [(name.encode("utf-8", "surrogatepass"), value) for name, value in items.items()]


def unpair(pairs):
    return {intern(name.decode("utf-8", "surrogatepass")): value for name, value in pairs}


# Whether a fresh interpreter finds the module again.
def is_module(name):
    module = MODULES.get(name) if type(name) is str and name != "__main__" else None
    spec = getattr(module, "__spec__", None)
    return spec is not None and spec.loader is not None


def is_found(value):
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    name = getattr(value, "__name__", None) if type(name) is not str else name
    if not is_module(module) or type(name) is not str:
        return False
    found = MODULES[module]
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


# Types that are not where they say.
NAMED_TYPES = {}
for module in (types, MODULES["_collections_abc"]):
    for name, value in vars(module).items():
        if isinstance(value, type) and not is_found(value):
            NAMED_TYPES.setdefault(value, (module.__name__.encode(), name.encode()))
for name in ("type(None)", "type(...)", "type(NotImplemented)"):
    NAMED_TYPES.pop(eval(name), None)
OWN_ATTRIBUTES = "__dict__", "__bases__", "__name__", "__qualname__", "__module__"
own = {name: type.__dict__[name].__get__ for name in OWN_ATTRIBUTES}


# Saving.
class Sink:
    """Takes what a pickler writes, as it is, until it is too much or too late."""

    def __init__(self, session, most, words):
        self.session, self.most, self.words = session, most, words
        self.chunks, self.size = [PRELUDE], len(PRELUDE)

    def write(self, data):
        self.session.check()
        if type(data) is pickle.PickleBuffer:
            data = data.raw()
        self.size += len(data)
        if self.size > self.most:
            raise TooLarge(self.words)
        self.chunks.append(data)


class Later:
    """A state that is set when all that is outside of it has been made."""

    def __init__(self, made, content):
        self.made, self.content = made, content


class Rules:
    """How things are pickled that pickle itself does not know, or knows by a name only."""

    def begin(self, session, roots, is_flat):
        self.session, self.roots, self.is_flat = session, {id(root) for root in roots}, is_flat
        self.memo = {id(value): (i, value) for i, value in enumerate(session.outside)}
        # Variables that are referred to; what is not made here; the code that sees the namespace.
        self.needs, self.named, self.codes = set(), set(), []
        self.later, self.last, self.classes = [], None, {}

    def reducer_override(self, value):
        session = self.session
        session.check()
        self.last = value
        kind = type(value)
        rule = session.rules.get(kind) or session.find_rule(kind)
        name = session.names_of.get(id(value))
        if name is not None and id(value) not in self.roots and not is_by_name(rule, value):
            self.needs.add(name)
            self.named.add(id(value))
            return Blob.make_reference, (name.encode("utf-8", "surrogatepass"),)
        return rule(self, value)

    def find(self, value, module, name):
        self.named.add(id(value))
        return Blob.make_found, (module, name)


def is_by_name(rule, value):
    return rule in (reduce_function, reduce_class, reduce_module) and is_found(value)


class Fast(Rules, pickle.Pickler):
    pass


class Ordered(Rules, pickle._Pickler):
    """Gives sets an order."""

    dispatch = dict(pickle._Pickler.dispatch)

    # The pickler that is written in Python asks for everything.
    def reducer_override(self, value):
        return NotImplemented if type(value) in BASIC else Rules.reducer_override(self, value)

    def save_set(self, value):
        self.write(pickle.EMPTY_SET)
        self.memoize(value)
        self.save_items(value)
        self.write(pickle.ADDITEMS)

    def save_frozenset(self, value):
        self.save_items(value)
        if id(value) in self.memo:
            self.write(pickle.POP_MARK + self.get(self.memo[id(value)][0]))
        else:
            self.write(pickle.FROZENSET)
            self.memoize(value)

    def save_items(self, value):
        self.write(pickle.MARK)
        for item in sorted(value, key=lambda item: (type(item).__name__, item)):
            self.save(item)

    dispatch[set], dispatch[frozenset] = save_set, save_frozenset


def refuse(words):
    def rule(pickler, value):
        raise Refused("%s cannot be kept" % words)

    return rule


def reduce_plainly(pickler, value):
    return NotImplemented


def reduce_function(pickler, function):
    if is_found(function):
        pickler.named.add(id(function))
        return NotImplemented
    name, where = function.__name__, function.__globals__
    home = where.get("__name__")
    if where is pickler.session.space:
        where = None
        pickler.codes.append(function.__code__)
    elif is_module(home) and vars(MODULES[home]) is where:
        where = MODULES[home]
    elif home == "<burrow>" or where is globals():
        if vars(builtins).get(name) is function:
            return pickler.find(function, b"builtins", name.encode())
        raise Refused("it belongs to the interpreter's driver")
    names = [name.encode(), function.__qualname__.encode(), str(function.__module__ or "").encode()]
    content = (
        names,
        function.__doc__,
        function.__defaults__,
        pair(function.__kwdefaults__ or {}),
        pair(function.__annotations__ or {}),
        pair(function.__dict__),
        getattr(function, "__type_params__", ()),
    )
    args = function.__code__, where, function.__closure__
    return Blob.make_function, args, content, None, None, Blob.fill_function


def reduce_code(pickler, code):
    # Later formats tell what else refers to a constant, which differs from time to time.
    return Blob.make_code, (MAGIC, marshal.dumps(code, 2))


def reduce_cell(pickler, cell):
    try:
        return Blob.make_cell, (), (cell.cell_contents,), None, None, Blob.fill_cell
    except ValueError:
        return Blob.make_cell, ()


def reduce_module(pickler, module):
    name = vars(module).get("__name__")
    if vars(module) is pickler.session.space:
        return pickler.find(module, b"__main__", b"")
    if is_module(name) and MODULES[name] is module:
        return pickler.find(module, name.encode(), b"")
    raise Refused("a module that cannot be imported again cannot be kept")


def reduce_class(pickler, cls):
    if cls in NAMED_TYPES:
        return pickler.find(cls, *NAMED_TYPES[cls])
    if is_found(cls) or not cls.__flags__ & HEAP_TYPE:
        pickler.named.add(id(cls))
        return NotImplemented
    for kind in type(cls).__mro__:
        if type(vars(kind).get("__new__")) is types.BuiltinFunctionType:
            if kind not in (type, object):
                raise Refused("a class of the kind %s cannot be kept" % kind.__name__)
    space, content, items = own["__dict__"](cls), {}, []
    abstract, registered = space.get("__abstractmethods__"), ()
    if issubclass(type(cls), abc.ABCMeta):
        registered = [found() for found in abc._get_dump(cls)[0]]
        registered = sorted(filter(None, registered), key=lambda other: other.__qualname__)
    for name, value in space.items():
        if type(value) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            if value.__objclass__ is cls:
                continue
        if name in ("__slots__", "__orig_bases__", "__doc__"):
            content[name] = tuple(value) if type(value) is list else value
        elif name not in ("__module__", "__slotnames__", "__abstractmethods__", "_abc_impl"):
            items.append((name.encode("utf-8", "surrogatepass"), value))
    if abstract is not None:
        abstract = sorted(name.encode() for name in abstract)
    number = pickler.classes.setdefault(id(cls), len(pickler.classes))
    names = own["__name__"](cls), cls.__qualname__, str(space.get("__module__", ""))
    names = [name.encode() for name in names]
    args = number, type(cls), names, own["__bases__"](cls), pair(content)
    return Blob.make_class, args, (items, abstract, registered), None, None, Blob.fill_class


def reduce_member(pickler, member):
    cls = type(member)
    if id(cls) in pickler.session.names_of and id(cls) not in pickler.roots:
        # The class is elsewhere, and has its members.
        if cls._member_map_.get(member._name_) is member:
            return getattr, (cls, member._name_)
        return cls, (member._value_,)
    base, args = cls._member_type_, ()
    if hasattr(base, "__getnewargs__"):
        args = base.__getnewargs__(member)
    else:
        base = object
        # Fails for types that only make themselves.
        object.__new__(cls)
    return Blob.make_member, (cls, base, args), pair(vars(member)), None, None, Blob.fill_member


def reduce_exception(pickler, error):
    content = pair(vars(error)), error.__cause__, error.__suppress_context__
    args = type(error), error.args
    return Blob.make_exception, args, content, None, None, Blob.fill_exception


def reduce_cache(pickler, cache):
    if is_found(cache):
        pickler.named.add(id(cache))
        return NotImplemented
    typed = cache.cache_parameters()["typed"] if hasattr(cache, "cache_parameters") else False
    return Blob.make_cache, (cache.__wrapped__, cache.cache_info().maxsize, typed)


def reduce_cached_property(pickler, value):
    content = {name: item for name, item in vars(value).items() if name != "lock"}
    return type(value), (value.func,), content


def reduce_variable(pickler, value):
    if is_found(value):
        pickler.named.add(id(value))
        return NotImplemented
    kind, args, options = type(value).__name__, (), []
    if kind in ("TypeVar", "ParamSpec"):
        args = getattr(value, "__constraints__", ())
        for name in ("bound", "covariant", "contravariant", "infer_variance"):
            if getattr(value, "__%s__" % name, None):
                options.append((name, getattr(value, "__%s__" % name)))
    elif kind == "NewType":
        args = (value.__supertype__,)
    elif kind == "TypeAliasType":
        args, options = (value.__value__,), [("type_params", value.__type_params__)]
    if getattr(value, "has_default", bool)():
        options.append(("default", value.__default__))
    return Blob.make_variable, (kind.encode(), value.__name__.encode(), args, options)


# Arrays own their memory, and views are views of them, so that what shares memory still does.
def reduce_array(pickler, array):
    flags, kind, base = array.flags, array.dtype, array.base
    writable = bool(flags.writeable)
    if kind.hasobject or not array.nbytes:
        return NotImplemented
    if type(base) is type(array) and base.flags.forc and not base.dtype.hasobject:
        at = array.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        return Blob.make_view, (base, at, kind, array.shape, array.strides, writable)
    if not flags.forc:
        return NotImplemented
    order = "C" if flags.c_contiguous else "F"
    data = pickle.PickleBuffer(array.ravel("K").view("u1"))
    return Blob.make_array, (data, kind, array.shape, order, writable)


def reduce_object(pickler, value):
    kind = type(value)
    name = pickler.session.find_global(kind, value)
    if name is not None:
        return pickler.find(value, kind.__module__.encode(), name.encode())
    if not pickler.is_flat and kind.__reduce_ex__ is object.__reduce_ex__:
        if kind.__reduce__ is object.__reduce__:
            return NotImplemented
    reducer = copyreg.dispatch_table.get(kind)
    reduced = reducer(value) if reducer else value.__reduce_ex__(5)
    if type(reduced) is str and not is_module(pickle.whichmodule(value, reduced)):
        raise Refused("%s is known by a name only" % kind_of(value))
    hashed = getattr(kind, "__hash__", None) not in (None, object.__hash__)
    if pickler.is_flat and type(reduced) is tuple and len(reduced) in (3, 4, 5) and not hashed:
        if reduced[2] is not None:
            pickler.later.append(Later(value, reduced[2]))
            return (*reduced[:2], None, *reduced[3:])
    return reduced


# An instance whose `__getattr__` must not be asked for anything before it has its state.
def reduce_guarded(pickler, value):
    kind, slots = type(value), {}
    for name in copyreg._slotnames(kind):
        try:
            slots[name] = object.__getattribute__(value, name)
        except AttributeError:
            pass
    try:
        rest = object.__getattribute__(value, "__dict__")
    except AttributeError:
        rest = {}
    content = pair(rest), pair(slots)
    return copyreg.__newobj__, (kind,), content, None, None, Blob.fill_instance


def is_guarded(kind):
    if getattr(kind, "__getattr__", None) is None or kind.__reduce_ex__ is not object.__reduce_ex__:
        return False
    own_ways = ("__reduce__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
    if any(getattr(kind, n, None) is not getattr(object, n, None) for n in own_ways):
        return False
    return all(base.__flags__ & HEAP_TYPE for base in kind.__mro__[:-1])


def reduce_later(pickler, later):
    return Blob.set_state, (later.made, later.content)


RULES = {
    FUNCTION: reduce_function,
    CODE: reduce_code,
    CELL: reduce_cell,
    Later: reduce_later,
    types.MethodType: lambda _, it: (types.MethodType, (it.__func__, it.__self__)),
    types.MappingProxyType: lambda _, it: (types.MappingProxyType, (gc.get_referents(it)[0],)),
    property: lambda _, it: (property, (it.fget, it.fset, it.fdel, it.__doc__)),
    staticmethod: lambda _, it: (staticmethod, (it.__func__,)),
    classmethod: lambda _, it: (classmethod, (it.__func__,)),
    super: lambda _, it: (super, (it.__thisclass__, it.__self__)),
    type({}.keys()): lambda _, it: (dict.keys, (gc.get_referents(it)[0],)),
    type({}.values()): lambda _, it: (dict.values, (gc.get_referents(it)[0],)),
    type({}.items()): lambda _, it: (dict.items, (gc.get_referents(it)[0],)),
    types.BuiltinFunctionType: reduce_plainly,
    functools._lru_cache_wrapper: reduce_cache,
    weakref.WeakSet: lambda _, it: (weakref.WeakSet, (list(it),)),
    weakref.WeakKeyDictionary: lambda _, it: (weakref.WeakKeyDictionary, (dict(it),)),
    weakref.WeakValueDictionary: lambda _, it: (weakref.WeakValueDictionary, (dict(it),)),
}


class Variable:
    """One object that has names: what it is pickled as, or why it is not."""

    def __init__(self, names, value, place):
        self.names, self.value, self.place = names, value, place
        self.packed = self.reason = self.because = None
        self.group = [self]


class Packed:
    """What some variables are together."""

    def __init__(self, sink, pickler):
        self.chunks, self.bytes = sink.chunks, sink.size
        self.needs, self.codes = pickler.needs, pickler.codes
        self.shared, self.has_sets, self.objects = {}, False, 0


class Session:
    """One save: what is known of the namespace, and until when."""

    def __init__(self, space, limits, is_child):
        self.space, self.is_child = space, is_child
        self.time_max_s, self.bytes_max, self.value_bytes_max = limits
        self.until = Timer() + self.time_max_s * PICKLING_SHARE
        self.outside = [find(space) for find in OUTSIDE.values()]
        self.outside += [vars(Blob)[name] for name in MAKERS]
        self.rules, self.by_value, self.globals_of = dict(RULES), {}, {}
        self.names_of, self.bytes, self.late = {}, 0, 0

    def check(self):
        if Timer() > self.until:
            raise NoTime

    # How values of a type are pickled; found once.
    def find_rule(self, kind):
        rule = self.rules[kind] = self.choose_rule(kind)
        return rule

    def choose_rule(self, kind):
        if issubclass(kind, type):
            return reduce_class
        if issubclass(kind, types.ModuleType):
            return reduce_module
        late = [(vars(MODULES[m]).get(n), w) for m, n, w in REFUSED_LATE if m in MODULES]
        for refused, words in REFUSED + late:
            if isinstance(refused, type) and refused in kind.__mro__:
                return refuse(words)
        if any(base.__module__ == "_ctypes" for base in kind.__mro__):
            return refuse("an object of ctypes")
        if "enum" in MODULES and issubclass(type(kind), MODULES["enum"].EnumMeta):
            return reduce_plainly if is_found(kind) else reduce_member
        if BaseException in kind.__mro__ and kind.__reduce__ is BaseException.__reduce__:
            base = next(base for base in kind.__mro__ if not base.__flags__ & HEAP_TYPE)
            if base.__basicsize__ == BaseException.__basicsize__:
                return reduce_exception
        if kind is functools.cached_property:
            return reduce_cached_property
        if kind.__module__ == "typing" and kind.__name__ in (
            "TypeVar", "ParamSpec", "TypeVarTuple", "NewType", "TypeAliasType"
        ):
            return reduce_variable
        if "numpy" in MODULES and kind is getattr(MODULES["numpy"], "ndarray", None):
            return reduce_array
        # The names of fields may be those of its slots.
        if kind is dataclasses.Field:
            return reduce_guarded
        return reduce_guarded if is_guarded(kind) else reduce_object

    # The name of what belongs to the module of its type: a sentinel, a registry.
    def find_global(self, kind, value):
        home = kind.__module__
        names = self.globals_of.get(home)
        if names is None:
            names = {}
            if is_module(home) and home not in ("builtins", "types"):
                for name, item in list(vars(MODULES[home]).items()):
                    if type(item).__module__ == home and type(name) is str:
                        names[id(item)] = name
            self.globals_of[home] = names
        return names.get(id(value))

    # Whether two of the same value are as good as one: what a library gives a hash of its own to.
    def is_value(self, kind):
        found = self.by_value.get(kind)
        if found is None:
            hashed = getattr(kind, "__hash__", None) not in (None, object.__hash__)
            whole = issubclass(kind, (tuple, frozenset, type, FUNCTION)) or not is_found(kind)
            rule = self.rules.get(kind)
            found = (hashed and not whole) or rule is reduce_member or kind in PLAIN
            found = self.by_value[kind] = found or kind is types.BuiltinFunctionType
        return found

    def pack(self, values):
        try:
            packed, is_flat = self.dump(Fast, values, False), False
        except RecursionError:
            packed, is_flat = self.dump(Fast, values, True), True
        if packed.has_sets and packed.objects <= ORDERED_MAX:
            try:
                packed = self.dump(Ordered, values, is_flat)
            except (RecursionError, TypeError):
                pass
        return packed

    def dump(self, kind, values, is_flat):
        left = self.bytes_max - self.bytes
        if left < self.value_bytes_max:
            sink = Sink(self, left, "there is no room for it: %d bytes in all" % self.bytes_max)
        else:
            sink = Sink(self, self.value_bytes_max, "larger than %d bytes" % self.value_bytes_max)
        pickler = self.pickler = kind(sink, 5)
        pickler.begin(self, values, is_flat)
        pickler.dump(list(values))
        for later in pickler.later:
            pickler.dump(later)
        packed = Packed(sink, pickler)
        memo, outside = pickler.memo, set(map(id, self.outside))
        memo = memo if type(memo) is dict else memo.copy()
        packed.objects = len(memo)
        for key, (_, value) in memo.items():
            kind = type(value)
            if kind in PLAIN or key in outside or key in pickler.named:
                continue
            if kind in (set, frozenset) and len(value) > 1:
                packed.has_sets = packed.has_sets or {str, bytes, int} >= set(map(type, value))
            if kind in BASIC or not self.is_value(kind):
                packed.shared[key] = value
        return packed

    # Packs, and tells why not.
    def attempt(self, variables):
        self.pickler = None
        alarm = Alarm(self)
        try:
            self.check()
            with alarm:
                return self.pack([variable.value for variable in variables]), None, None
        except NoTime:
            reason = NOT_REACHED
            if self.pickler is not None:
                self.late += 1
                reason = TOOK_LONG % alarm.seconds
        except (Refused, TooLarge) as error:
            reason = str(error)
        except RecursionError:
            reason = "nested too deeply"
        except BaseException as error:
            reason = describe(error)
        return None, reason, self.pickler and self.pickler.last


class Alarm:
    """Raises NoTime when a variable has had its share."""

    def __init__(self, session):
        patience = session.time_max_s * PATIENCE_SHARE / 2**session.late
        self.seconds = min(patience, session.until - Timer())
        is_main = _thread.get_native_id() == os.getpid()
        is_free = get_signal(SIGALRM) == _signal.SIG_DFL and _signal.getitimer(REAL) == (0, 0)
        self.is_set = session.is_child or (is_main and is_free)

    def __enter__(self):
        if self.is_set:
            set_signal(SIGALRM, self.ring)
            state.armed = True
            set_timer(REAL, max(self.seconds, 0.001), 0.25)

    def ring(self, *_):
        if state.armed:
            raise NoTime

    def __exit__(self, *_):
        state.armed = False
        if self.is_set:
            set_timer(REAL, 0)
            set_signal(SIGALRM, _signal.SIG_DFL)


def describe(error):
    try:
        return ("%s: %s" % (type(error).__name__, error))[:REASON_CHARS_MAX]
    except BaseException:
        return type(error).__name__


def kind_of(value):
    module, name = (own[name](type(value)) for name in ("__module__", "__qualname__"))
    return name if module in ("builtins", "__main__") else "%s.%s" % (module, name)


def is_own_name(name):
    history = name[:1] == "_" and name.lstrip("_i").isdigit()
    return (name[:2] == "__" == name[-2:]) or name in OWN_NAMES or history


# What is done in the child.
def keep(space, directory, limits, carried, mark, is_child):
    session = Session(space, limits, is_child)
    attempt = {"pid": os.getpid(), "began": Timer(), "time_max_s": limits[0], "at": None}
    remove(directory, "attempt.json")
    progress = open_file(directory, "attempt.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL)

    def tell(at):
        attempt["at"] = at
        words = dump_json(attempt).encode()
        pwrite(progress, words, 0)
        os.ftruncate(progress, len(words))

    tell(None)
    try:
        before = read_json(directory, "manifest.json") or {}
        variables, modules = sort_names(session)
        waiting, unavailable = carry(carried, space, modules)
        session.bytes = sum(group["bytes"] for group in waiting)
        slow = TOOK_LONG.partition("%")[0]
        hurried = {one["name"] for one in before.get("lost", ()) if one["reason"].startswith(slow)}
        # Those that took too long the last time must not keep the others waiting.
        for variable in sorted(variables, key=lambda one: not hurried.isdisjoint(one.names)):
            if type(variable.value) not in PLAIN:
                tell([variable.names[0], id(variable.value)])
            pack_one(session, variable)
        tell(None)
        spread(session, variables)
        made = make_groups(session, [one for one in variables if one.packed], tell)
        tell(None)
        groups = write_groups(directory, session, made) + waiting
        spread(session, variables)
        manifest = describe_all(session, variables, modules, groups, unavailable)
        manifest["generation"] = int(before.get("generation", 0)) + 1
        manifest["mark"] = mark
        write_file(directory, "manifest.json", [dump_json(manifest).encode()])
        kept = {group["digest"] for group in manifest["groups"]}
        for name in listdir(directory):
            if len(name) == 2 * DIGEST_BYTES and name not in kept:
                remove(directory, name)
        remove(directory, "attempt.json")
    except BaseException as error:
        tell(attempt["at"])
        attempt["error"] = describe(error)
        tell(attempt["at"])
    finally:
        close(progress)


def sort_names(session):
    variables, modules, by_id = [], {}, {}
    for name, value in list(session.space.items()):
        if type(name) is not str or is_own_name(name):
            continue
        if issubclass(type(value), types.ModuleType) and not is_refused_module(value):
            modules[name] = vars(value)["__name__"]
        elif id(value) in by_id and type(value) not in PLAIN:
            by_id[id(value)].names.append(name)
        else:
            variable = by_id[id(value)] = Variable([name], value, len(variables))
            variables.append(variable)
            if type(value) not in BASIC:
                session.names_of[id(value)] = name
    return variables, modules


def is_refused_module(module):
    name = vars(module).get("__name__")
    return not is_module(name) or MODULES[name] is not module


# What was not available, and still has its names free.
def carry(carried, space, modules):
    groups, missing = [], {}
    for group in carried[0]:
        names = [[name for name in member if name not in space] for member in group["names"]]
        if any(names):
            groups.append({**group, "names": names})
    for name, module in carried[1].items():
        if name not in space:
            modules[name] = missing[name] = module
    return groups, missing


def pack_one(session, variable):
    name = variable.names[0]
    if state.around.get(name) == id(variable.value):
        variable.reason = "a save died of it"
        return
    packed, variable.reason, culprit = session.attempt([variable])
    if packed is None:
        if culprit is not None and culprit is not variable.value:
            variable.because = name + (find_path(variable.value, culprit, session) or "")
        return
    session.bytes += packed.bytes
    variable.packed = packed


# Whoever refers to what is lost is lost too.
def spread(session, variables):
    by_name = {variable.names[0]: variable for variable in variables}
    changed = True
    while changed:
        changed = False
        for variable in variables:
            if variable.packed is None:
                continue
            for need in sorted(variable.packed.needs):
                lost = by_name[need]
                if lost.packed is None:
                    variable.packed, changed = None, True
                    variable.reason = "it refers to %s, which is lost: %s" % (need, lost.reason)
                    path = find_path(variable.value, lost.value, session)
                    variable.because = variable.names[0] + (path or "")
                    break


# Makes one group of those that share something, and of those that refer to each other in circles.
def make_groups(session, variables, tell):
    owners = {}
    for variable in variables:
        for key in variable.packed.shared:
            join(owners.setdefault(key, variable), variable)
        variable.packed.shared = None
    by_name = {variable.names[0]: variable for variable in variables}
    reached = {}
    for variable in variables:
        key = id(variable.group)
        if key not in reached:
            reached[key] = reach(variable, by_name)
    first = {id(variable.group): variable for variable in variables}
    for key, found in reached.items():
        for other in found:
            if other != key and key in reached[other]:
                join(first[key], first[other])
    groups = {}
    for variable in variables:
        groups[id(variable.group)] = variable.group
    for group in groups.values():
        group.sort(key=lambda variable: variable.place)
        if len(group) > 1:
            pack_group(session, group, tell)
    whole = [group for group in groups.values() if group[0].packed]
    # Who is needed comes first: what a group reaches, it reaches less of.
    depth = {id(group): (len(reach(group[0], by_name)), group[0].place) for group in whole}
    return sorted(whole, key=lambda group: depth[id(group)])


def pack_group(session, group, tell):
    tell([group[0].names[0], id(group[0].value)])
    session.bytes -= sum(variable.packed.bytes for variable in group)
    packed, reason, _ = session.attempt(group)
    if packed is not None:
        session.bytes += packed.bytes
    for variable in group:
        variable.packed = packed
        if packed is None:
            other = group[variable is group[0]]
            variable.reason = "%s, together with %s" % (reason, other.names[0])


def join(one, other):
    if one.group is other.group:
        return
    large, small = sorted((one.group, other.group), key=len, reverse=True)
    large += small
    for variable in small:
        variable.group = large


# The groups that one refers to, itself among them if there is a circle.
def reach(variable, by_name):
    found, left = set(), [variable.group]
    while left:
        for member in left.pop():
            for need in member.packed.needs if member.packed else ():
                group = by_name[need].group
                if group is not member.group and id(group) not in found:
                    found.add(id(group))
                    left.append(group)
    return found


def write_groups(directory, session, groups):
    written = []
    for group in groups:
        packed = group[0].packed
        try:
            digest = blake2b(digest_size=DIGEST_BYTES)
            for chunk in packed.chunks:
                digest.update(chunk)
            digest = digest.hexdigest()
            if not has_blob(directory, digest, packed.bytes):
                write_file(directory, digest, packed.chunks)
        except OSError as error:
            for variable in group:
                variable.packed, variable.reason = None, "it cannot be written: " + describe(error)
            continue
        packed.chunks, packed.digest = None, digest
        names = [variable.names for variable in group]
        needs = sorted(packed.needs)
        written.append({"digest": digest, "bytes": packed.bytes, "names": names, "needs": needs})
    return written


def has_blob(directory, digest, size):
    try:
        found = stat(digest, dir_fd=directory, follow_symlinks=False)
        return found.st_mode & 0o170000 == 0o100000 and found.st_size == size
    except OSError:
        return False


def describe_all(session, variables, modules, groups, unavailable):
    lost, told, depends = [], [], []
    for variable in variables:
        for name in variable.names:
            entry = {"name": name, "kind": kind_of(variable.value)}
            if variable.packed is None:
                entry = {"name": name, "type": entry["kind"], "reason": variable.reason}
                if variable.because:
                    entry["because_of"] = variable.because
                lost.append(entry)
            else:
                packed = variable.packed
                told.append({**entry, "digest": packed.digest, "bytes": packed.bytes})
    gone = {entry["name"] for entry in lost}
    for variable in variables:
        if variable.packed is not None and gone:
            used = set()
            for code in variable.packed.codes:
                used |= names_used(code, gone)
            if used:
                depends.append({"name": variable.names[0], "uses": sorted(used)})
    kept = {entry["digest"] for entry in told}
    for group in groups:
        if group["digest"] not in kept and "unavailable" in group:
            for name in sum(group["names"], []):
                rest = {"digest": group["digest"], "bytes": group["bytes"]}
                told.append({"name": name, "kind": "", "unavailable": group["unavailable"], **rest})
    # A group that lost a member when it was written is not there.
    groups = [g for g in groups if "unavailable" in g or g["digest"] in kept]
    try:
        cwd = os.getcwd()
    except OSError:
        cwd = None
    return {
        "format": FORMAT,
        "python": list(VERSION[:3]),
        "variables": told,
        "groups": groups,
        "lost": lost,
        "depends": depends,
        "modules": {n: {"module": m, "unavailable": n in unavailable} for n, m in modules.items()},
        "submodules": find_submodules(set(modules.values())),
        "path": [entry for entry in SYS.get("path") or () if type(entry) is str],
        "cwd": cwd,
    }


# What is below the packages that have a name, so that `xml.dom` is there again if it was.
def find_submodules(packages):
    found = []
    for name, module in list(MODULES.items()):
        top, _, rest = name.partition(".")
        if rest and not rest.startswith("_") and "._" not in rest and is_module(name):
            if any(name.startswith(package + ".") for package in packages):
                found.append(name)
    return found[:SUBMODULES_MAX]


# Which of these names the code, or code within it, looks up in the namespace.
def names_used(code, names):
    used = set()
    if not names.isdisjoint(code.co_names):
        import dis

        for step in dis.get_instructions(code):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in names:
                used.add(step.argval)
    for inner in code.co_consts:
        if type(inner) is CODE:
            used |= names_used(inner, names)
    return used


# How to get from a variable to what is in it.
def find_path(root, target, session):
    seen, left, steps = {id(root): root, id(session.space): None}, [(root, "")], 0
    for value, path in left:
        try:
            for label, inner in edges(value):
                steps += 1
                if inner is target:
                    return path + label
                if steps > STEPS_MAX:
                    return None
                kind = type(inner)
                if kind in PLAIN or id(inner) in seen or issubclass(kind, types.ModuleType):
                    continue
                if issubclass(kind, (type, FUNCTION)) and is_found(inner):
                    continue
                # What is made on the way must not be mistaken for what comes after it.
                seen[id(inner)] = inner
                left.append((inner, path + label))
        except Exception:
            continue
    return None


def edges(value):
    kind = type(value)
    if issubclass(kind, dict):
        for key, item in dict.items(value):
            yield "[%.60s]" % (repr(key) if type(key) in PLAIN else "..."), item
            yield ".key", key
    elif issubclass(kind, (list, tuple)):
        plain = list if issubclass(kind, list) else tuple
        for at in range(plain.__len__(value)):
            yield "[%d]" % at, plain.__getitem__(value, at)
    elif kind is CELL:
        yield "", value.cell_contents
    if kind is FUNCTION:
        for at, cell in enumerate(value.__closure__ or ()):
            yield ".__closure__[%d]" % at, cell
        for at, item in enumerate(value.__defaults__ or ()):
            yield ".__defaults__[%d]" % at, item
        for name, item in (value.__kwdefaults__ or {}).items():
            yield ".__kwdefaults__[%r]" % name, item
        for name, item in value.__dict__.items():
            yield "." + name, item
        where = value.__globals__
        if not is_module(where.get("__name__")):
            yield ".__globals__", where
    elif issubclass(kind, type):
        for name, item in own["__dict__"](value).items():
            yield "." + name, item
        for at, base in enumerate(own["__bases__"](value)):
            yield ".__bases__[%d]" % at, base
    elif kind is functools.partial or kind is types.MethodType or kind is property:
        names = ("func", "args", "keywords", "__func__", "__self__", "fget", "fset", "fdel")
        for name in names:
            if hasattr(value, name):
                yield "." + name, getattr(value, name)
    elif kind not in BASIC:
        try:
            for name, item in object.__getattribute__(value, "__dict__").items():
                yield "." + str(name), item
        except AttributeError:
            pass
        for base in kind.__mro__:
            for name, slot in vars(base).items():
                if type(slot) is types.MemberDescriptorType:
                    try:
                        yield "." + name, slot.__get__(value)
                    except AttributeError:
                        pass
        yield ".__class__", kind
        for inner in gc.get_referents(value):
            yield "...", inner


# Reading.
def restore(namespace, directory):
    """Loads what is kept. The answer's `state` is `restored`, `empty`, `foreign` (another format), or
    `saving` (a child of an interpreter before this one is under way; ask later). `unavailable` tells
    what is in the store and could not be loaded, and why; `lost` and `depends` are what the save has
    told."""
    fd = open_directory(directory)
    lock = None
    try:
        lock = take_lock(fd, LOCK_SH)
        if lock is None:
            return {"state": "saving"}
        manifest = read_json(fd, "manifest.json")
        if manifest is None:
            return {"state": "empty"}
        if manifest.get("format") != FORMAT:
            return {"state": "foreign", "format": manifest.get("format")}
        told = {"state": "restored", "generation": manifest["generation"], "restored": []}
        told.update(lost=manifest["lost"], depends=manifest["depends"], unavailable=[])
        restore_surroundings(manifest, told)
        missing = restore_modules(namespace, manifest, told)
        groups = restore_groups(namespace, fd, manifest, told)
        state.unavailable[directory] = groups, missing
        # The order that the namespace had.
        for entry in manifest["variables"]:
            if entry["name"] in namespace:
                namespace[entry["name"]] = namespace.pop(entry["name"])
        return told
    finally:
        if lock is not None:
            close(lock)
        close(fd)


def restore_surroundings(manifest, told):
    path = SYS.get("path")
    if type(path) is list:
        front = True
        for at, entry in enumerate(manifest["path"]):
            if entry in path:
                front = False
            elif front:
                path.insert(at, entry)
            else:
                path.append(entry)
        invalidate_caches()
    if manifest["cwd"] is not None:
        try:
            os.chdir(manifest["cwd"])
        except OSError as error:
            told["cwd"] = describe(error)


def restore_modules(namespace, manifest, told):
    missing = {}
    for name, entry in manifest["modules"].items():
        try:
            namespace[name] = import_module(entry["module"])
            told["restored"].append(name)
        except BaseException as error:
            missing[name] = entry["module"]
            told["unavailable"].append({"name": name, "reason": describe(error)})
    for name in manifest["submodules"]:
        if name not in MODULES:
            try:
                import_module(name)
            except BaseException:
                # Those above it have told why.
                pass
    return missing


# A group that misses a name the first time may find it when all others are there.
def restore_groups(namespace, directory, manifest, told):
    loaded, left, failures = {}, manifest["groups"], {}
    for _ in range(2):
        again = []
        for group in left:
            try:
                restore_group(namespace, directory, group, loaded)
                told["restored"] += sum(group["names"], [])
            except BaseException as error:
                failures[id(group)] = describe(error)
                again.append(group)
        left = again
    for group in left:
        group["unavailable"] = failures[id(group)]
        for name in sum(group["names"], []):
            told["unavailable"].append({"name": name, "reason": failures[id(group)]})
    return left


def restore_group(namespace, directory, group, loaded):
    for need in group["needs"]:
        if need not in loaded:
            raise LookupError("it refers to %s, which is not available" % need)
    data = read_file(directory, group["digest"], group["bytes"])
    if blake2b(data, digest_size=DIGEST_BYTES).hexdigest() != group["digest"]:
        raise ValueError("the blob is damaged")
    values = Blob(data, namespace, loaded).load_all()
    for names, value in zip(group["names"], values):
        for name in names:
            namespace[name] = loaded[name] = value
