# The Python driver: what lives in the interpreter of a context and speaks with the agent. The file
# `python.boot` is the program that the interpreter is started with; it reads this one from
# descriptor 3. docs/reference/drivers.md says what is spoken.
#
# The code of a run shares this process, so all that the driver uses is held by names of its own:
# its builtins are a copy, and nothing is looked up in a module when a run is over. What is dear to
# import (traceback, asyncio, ctypes) is imported when it is first wanted.
#
# Who runs when: `serve` takes one message after another. Code of the user's runs inside of `guard`
# and nowhere else, but for the tasks that live on between runs (`idle`). The handlers of signals
# raise KeyboardInterrupt while `state.phase` is ARMED, which only `guard` makes it.
#
# The file has three parts, so that the interpreter starts quickly: the others are compiled when a
# name of them is first wanted. `rest.name` is how the first part calls them. The third is what
# notebooks write beside Python.
import _signal
import _socket
import _thread
import builtins
import gc
import io
import os
import posix
import sys
import time
import warnings
from _ast import Expression
from codecs import register_error
from _contextvars import Context, ContextVar, copy_context
from _weakref import ref

try:
    from resource import getrusage
except ImportError:
    getrusage = None

# A copy of a module's names: its own are the code's to break.
def hold(module):
    copy = type(sys)(module.__name__)
    copy.__dict__.update(module.__dict__)
    return copy


posix, _signal = hold(posix), hold(_signal)
DRIVER = globals()
MODULES = sys.modules
MAIN = MODULES["__main__"]
SPACE = MAIN.__dict__
BUILTINS = builtins.__dict__
ESSENTIAL = dict(MODULES)
INTACT = dict(BUILTINS)
PID = posix.getpid()
MAIN_THREAD = _thread.get_ident()
getpid, getrefcount, get_ident = posix.getpid, sys.getrefcount, _thread.get_ident
dup2, write_bytes, close_fd, leave = posix.dup2, posix.write, posix.close, posix._exit
fstat, wait_id, thread_count = posix.fstat, posix.waitid, _thread._count
cpu_ns, pause = time.process_time_ns, time.sleep
get_signal, set_signal, set_mask = _signal.getsignal, _signal.signal, _signal.pthread_sigmask
get_trace, set_trace = sys.gettrace, sys.settrace
get_profile, set_profile = sys.getprofile, sys.setprofile
get_limit, set_limit = sys.getrecursionlimit, sys.setrecursionlimit
get_frame, print_error = sys._getframe, sys.__excepthook__
VERSION, BYTE_ORDER = sys.version_info, sys.byteorder
set_blocking, StringIO, collect = posix.set_blocking, io.StringIO, gc.collect

SIGINT, SIGURG, FIRM = 2, 23, 40
PART_BYTES = 65000
# The agent takes 17 MiB; a display leaves room for the words around it.
SENT_BYTES_MAX = 17 << 20
DISPLAY_BYTES_MAX = 15 << 20
TEXT_CHARS_MAX = 65536
WORD_CHARS_MAX = 1000
PLAIN_CHARS_MAX = 1 << 20
SOURCES_BYTES_MAX = 32 << 20
SOURCES_MAX = 1000
EAGER_BYTES_MAX = 1 << 20
CODES_MAX = 128
CODE_BYTES_MAX = 1 << 14
# A tree takes hundreds of times the memory of its source.
TREE_BYTES_MAX = 1 << 18
TAIL_LINES_MAX = 1000
ASIDES_MAX = 64
FRAMES_MAX = 100
MATCHES_MAX = 200
# What the driver may fail at before its process is worth nothing.
FAILURES_MAX = 100
# Below this the driver itself could not work.
RECURSION_MIN = 300
# Ends the process when the control channel is gone: EX_SOFTWARE.
EXIT_LOST = 70
# For how long nobody must want anything before things are made ready for later.
LEISURE_SECONDS = 0.02
# What an interrupted task is given to clean up in, before it goes on in the background.
CANCEL_SECONDS = 0.5
# Of the compiler: await is allowed anywhere; a tree is wanted; the code is a coroutine's.
FLAGS, ONLY_AST, COROUTINE = 0x2000, 0x400, 0x80

# Where the main thread is: outside of any run, before a run's code, in it, or after it. A run
# starts with its outputs: an interrupt that is noticed before them was meant for the one before.
IDLE, STARTING, ARMED, OVER = range(4)

# What is let go when memory is used up, so that this can be told. Nobody touches it, so it is no more
# than addresses.
RESERVE_BYTES = 16 << 20


class State:
    reserve = None
    failures = 0
    # The second part has been compiled.
    whole = False
    phase = IDLE
    # An interrupt waits for the next `checkpoint`.
    pending = False
    # A firm interrupt is being pressed.
    pressed = False
    prefix = bytes(17)
    run = None
    # The run whose `done` has not been sent.
    unfinished = 0
    job = None
    input = False
    requests = 0
    answer = None
    # Messages that wait for `seen`, and those that have got it, in this run.
    awaited = 0
    seen = 0
    loop = None
    # What an interrupt cancels.
    task = None
    asyncio = None
    # From 3.13 on the interpreter has loaded it already.
    linecache = MODULES.get("linecache")
    sources_bytes = 0
    last_value = None
    displays = 0
    failure = None
    exit_code = 0
    cached = None
    cpu_began_ns = 0
    children_us = 0
    children_faults = 0
    # What 1 and 2 are, and whether the run has changed what signals do.
    pipes = None
    disturbed = False
    modules_count = len(MODULES)
    flush_c = None
    closing = False

class Rest:
    def __getattr__(self, name):
        if not state.whole:
            exec(compile(SECOND, "<burrow>", "exec", 0, True), DRIVER)
        if name not in DRIVER:
            exec(compile(THIRD, "<burrow>", "exec", 0, True), DRIVER)
        self.__dict__[name] = DRIVER[name]
        return DRIVER[name]

state, rest = State(), Rest()
SECOND, _, THIRD = SECOND.partition(b'\n"third part"\n')

# MessagePack, as much of it as the channel speaks.
def pack(value, out):
    kind = type(value)
    if kind is str:
        data = value.encode("utf-8", "backslashreplace")
        size = len(data)
        out += bytes((0xA0 | size,)) if size < 32 else b"\xdb" + size.to_bytes(4, "big")
        out += data
    elif value is None:
        out += b"\xc0"
    elif kind is bool:
        out += b"\xc3" if value else b"\xc2"
    elif kind is int:
        if 0 <= value < 128:
            out.append(value)
        else:
            out += b"\xd3" + value.to_bytes(8, "big", signed=True)
    elif kind is bytes:
        out += b"\xc6" + len(value).to_bytes(4, "big")
        out += value
    elif kind is dict:
        out += b"\xdf" + len(value).to_bytes(4, "big")
        for key, item in value.items():
            pack(key, out)
            pack(item, out)
    else:
        out += b"\xdd" + len(value).to_bytes(4, "big")
        for item in value:
            pack(item, out)

# The kinds with a length field: its width, and what is made of what follows it.
LONG = {
    0xC4: (1, bytes), 0xC5: (2, bytes), 0xC6: (4, bytes),
    0xD9: (1, str), 0xDA: (2, str), 0xDB: (4, str),
    0xDE: (2, dict), 0xDF: (4, dict),
}
FIXED = {0xC0: None, 0xC2: False, 0xC3: True}

def unpack(data, at):
    head = data[at]
    at += 1
    if head < 0x80:
        return head, at
    if head < 0x90:
        return unpack_map(data, at, head & 15)
    if 0xA0 <= head < 0xC0:
        end = at + (head & 31)
        return data[at:end].decode(), end
    if head in FIXED:
        return FIXED[head], at
    if head in LONG:
        width, kind = LONG[head]
        size = int.from_bytes(data[at : at + width], "big")
        at += width
        if kind is dict:
            return unpack_map(data, at, size)
        end = at + size
        return (data[at:end] if kind is bytes else data[at:end].decode("utf-8", "replace")), end
    end = at + (1 << (head & 3))
    return int.from_bytes(data[at:end], "big", signed=head >= 0xD0), end

def unpack_map(data, at, count):
    items = {}
    for _ in range(count):
        key, at = unpack(data, at)
        items[key], at = unpack(data, at)
    return items, at

# The control channel. It moves to a high number, out of the way of code that counts descriptors.
def move_channel():
    for fd in (1000, 200, 20):
        try:
            dup2(3, fd, False)
            close_fd(3)
            return fd
        except OSError:
            pass
    return 3

CHANNEL = move_channel()
channel = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, CHANNEL)
receive_packet, peek_packet = channel.recvmsg, channel.recv
PEEK, AT_ONCE = _socket.MSG_PEEK, _socket.MSG_PEEK | _socket.MSG_DONTWAIT
sending = _thread.RLock()
unsent = []

def lost():
    leave(EXIT_LOST)

# The next message: its name, its content, and the descriptors that came with it.
def receive():
    parts, fds = [], ()
    while True:
        try:
            packet, extra, _, _ = receive_packet(65536, 64)
        except BlockingIOError:
            set_blocking(CHANNEL, True)
            continue
        except OSError:
            lost()
        if not packet:
            lost()
        if extra:
            raw = extra[0][2]
            fds = [int.from_bytes(raw[i : i + 4], BYTE_ORDER) for i in range(0, len(raw), 4)]
        if packet[0] == 0:
            break
        parts.append(packet[1:])
    if parts:
        packet = b"".join([b"\0", *parts, packet[1:]])
    message = unpack(packet, 1)[0]
    if type(message) is str:
        return message, {}, fds
    for name, content in message.items():
        return name, content or {}, fds

# Waits for a packet and leaves it there, so that an interrupt here loses nothing.
def await_packet():
    try:
        if not peek_packet(1, PEEK):
            lost()
    except BlockingIOError:
        # Code has found the descriptor; whoever waits asks again.
        set_blocking(CHANNEL, True)
    except OSError:
        lost()

def packet_waits():
    try:
        return bool(peek_packet(1, AT_ONCE))
    except BlockingIOError:
        return False
    except OSError:
        lost()

def send(name, content):
    out = bytearray(b"\x81")
    pack(name, out)
    pack(content, out)
    if len(out) > SENT_BYTES_MAX:
        raise ValueError("a message of %d bytes cannot be sent" % len(out))
    send_raw(out)

def send_raw(out):
    if getpid() != PID:
        return
    with sending:
        if unsent or len(out) > PART_BYTES:
            rest.send_long(out)
        else:
            send_packet(state.prefix + out)

def send_packet(packet):
    while True:
        try:
            write_bytes(CHANNEL, packet)
            return
        except BlockingIOError:
            pause(0.001)
        except OSError:
            lost()

# A run as its output knows it: into which descriptors it goes. The object is referred to by the
# contexts of its tasks and by its threads, so that it lives, and its pipes with it, as long as
# somebody may write into them.
class Run:
    __slots__ = ("number", "fds", "aside", "owned", "__weakref__")

    def __init__(self, number, fds=(1, 2), owned=False):
        self.number = number
        self.fds = fds
        self.owned = owned
        self.aside = None

    # The same run for threads: descriptors that stay when 1 and 2 become the next run's.
    def apart(self):
        if self.aside is None and not self.owned:
            rest.set_aside(self)
        return self.aside or self

    def close(self):
        fds, self.fds = self.fds, None
        if self.owned:
            self.owned = False
            for fd in fds:
                close_fd(fd)

    __del__ = close

RUN = ContextVar("burrow_run")
# Threads whose context was replaced by an empty one are known by their identity.
run_of_thread = {}

# The run that the caller belongs to.
def own_run():
    return RUN.get(None) or run_of_thread.get(get_ident()) or state.run

state.run = Run(0)
RUN.set(state.run)

# How often a run is referred to if nobody but a function does.
def count_alone():
    run = Run(0)
    return getrefcount(run)

ALONE = count_alone()

# The run before this one loses 1 and 2 here; whoever still writes for it refers to it.
def take_outputs(fds):
    before = state.run
    state.run = Run(before.number)
    RUN.set(state.run)
    state.pending = False
    state.phase = STARTING
    if getrefcount(before) > ALONE:
        aside = before.apart()
        before.fds = None if aside is before else aside.fds
    state.pipes = None
    if len(fds) != 2:
        # There was no room for them, so the run speaks over the channel.
        state.run.fds = None
        for fd in fds:
            close_fd(fd)
        return
    out, err = fds
    # Numbers this low mean that the code has closed its standard descriptors.
    if out <= 2 or err <= 2:
        out, err = rest.renew_standard(out, err)
    dup2(out, 1)
    dup2(err, 2)
    close_fd(out)
    close_fd(err)
    state.pipes = fstat(1).st_ino, fstat(2).st_ino

# Whether nobody else can write into the pipes of the run that ends. Of children, the kernel knows
# those that live or were not waited for, and has charged us for the others.
def is_alone(children):
    faults, state.children_faults = state.children_faults, children.ru_minflt
    disturbed, state.disturbed = state.disturbed, False
    if disturbed or faults != children.ru_minflt or state.loop is not None or thread_count():
        return False
    if getrefcount(state.run) > ALONE + 1:
        return False
    try:
        wait_id(posix.P_ALL, 0, posix.WEXITED | posix.WNOHANG | posix.WNOWAIT)
    except ChildProcessError:
        pass
    else:
        return False
    try:
        return (fstat(1).st_ino, fstat(2).st_ino) == state.pipes
    except OSError:
        return False

def run_thread(run, function, args, kwargs):
    RUN.set(run)
    ident = get_ident()
    run_of_thread[ident] = run
    try:
        function(*args, **kwargs)
    finally:
        run_of_thread.pop(ident, None)

# Stand for the functions of `_thread`, so that a thread belongs to the run that starts it.
def start_new_thread(function, args, kwargs={}):
    return first_start(run_thread, (own_run().apart(), function, args, kwargs))

def start_joinable_thread(function, *args, **kwargs):
    run = own_run().apart()
    return first_joinable(lambda: run_thread(run, function, (), {}), *args, **kwargs)

first_start = _thread.start_new_thread
_thread.start_new_thread = _thread.start_new = start_new_thread
first_joinable = getattr(_thread, "start_joinable_thread", None)
if first_joinable:
    _thread.start_joinable_thread = start_joinable_thread
if "threading" in MODULES:
    for name in ("start_new_thread", "start_joinable_thread"):
        if hasattr(MODULES["threading"], "_" + name):
            setattr(MODULES["threading"], "_" + name, getattr(_thread, name))

# What becomes of text that is not UTF-8: the bytes that it came from, or else a description.
def write_faulty(error):
    if isinstance(error, UnicodeEncodeError):
        at = error.start
        char = error.object[at]
        errors = "surrogateescape" if "\udc80" <= char <= "\udcff" else "backslashreplace"
        return char.encode("utf-8", errors), at + 1
    raise error

register_error("burrow", write_faulty)

# `sys.stdout.buffer`: every write is made at once, into the pipe of the run that makes it.
class Pipe(io.RawIOBase):
    mode = "wb"
    closed = False

    def __init__(self, fd):
        self.fd = fd
        self.name = "<stdout>" if fd == 1 else "<stderr>"

    def write(self, data):
        fds = (RUN.get(None) or own_run()).fds
        if fds is None:
            return rest.write_late(self.fd, bytes(data))
        fd = fds[self.fd - 1]
        try:
            written = write_bytes(fd, data)
        except BlockingIOError:
            written = 0
        view = data
        while written != len(view):
            view = memoryview(data).cast("B")
            try:
                written += write_bytes(fd, view[written:])
            except BlockingIOError:
                pause(0.001)
        return written

    @property
    def raw(self):
        return self

    def fileno(self):
        return self.fd

    def writable(self):
        return True

    def close(self):
        pass

# `sys.stdout`, the same object in all runs, which code cannot close.
class Output(io.TextIOWrapper):
    mode = "w"

    def close(self):
        self.flush()

    def detach(self):
        raise io.UnsupportedOperation("detach")

# What `sys.stdin` reads from: the caller, a line at a time.
class Lines(io.RawIOBase):
    name = "<stdin>"
    mode = "rb"
    closed = False
    rest = b""

    def readinto(self, into):
        if not self.rest:
            self.rest = rest.ask_line("", False) or b""
        count = min(len(into), len(self.rest))
        into[:count] = self.rest[:count]
        self.rest = self.rest[count:]
        return count

    def fileno(self):
        return 0

    def readable(self):
        return True

    def close(self):
        pass

class Input(io.TextIOWrapper):
    mode = "r"

    def close(self):
        pass

    detach = Output.detach

def make_output(fd):
    return Output(Pipe(fd), "utf-8", "burrow", "\n", write_through=True)

STDOUT, STDERR = make_output(1), make_output(2)
STDIN = Input(io.BufferedReader(Lines()), "utf-8", "surrogateescape")

def ask(prompt="", *more):
    return rest.answer(prompt, *more)

ask.__name__ = ask.__qualname__ = "input"
first_input = builtins.input
builtins.input = ask

# One write for all of a line, where the interpreter makes one for each value and each separator.
def say(*values, sep=" ", end="\n", file=None, flush=False):
    to = sys.__dict__.get("stdout") if file is None else file
    if (to is STDOUT or to is STDERR) and type(sep) is str and type(end) is str:
        to.write(sep.join(map(str, values)) + end)
    else:
        first_print(*values, sep=sep, end=end, file=file, flush=flush)

say.__name__ = say.__qualname__ = "print"
say.__module__, say.__doc__ = "builtins", print.__doc__
first_print = print
builtins.print = say

def display(*values, **options):
    return rest.display_all(*values, **options)

# What a line of a notebook is compiled to that is not Python.
def magic(*words):
    return rest.run_notation(get_frame(1), *words)

def show(value):
    if value is not None:
        rest.show_value(value)

show.__name__ = show.__qualname__ = "displayhook"

# Raises the interrupt that came while nothing could be raised.
def checkpoint():
    if state.pending and state.phase == ARMED:
        state.pending = False
        raise KeyboardInterrupt

# Interrupts. A handler may be called between any two steps of the main thread, so what must not be
# cut short is named in `CLOSED`: the interrupt waits there for the next `checkpoint`.
def may_raise(frame):
    while frame is not None and frame.f_code is not GUARD:
        if frame.f_code in CLOSED:
            return False
        frame = frame.f_back
    return True

# In the loop's own code an exception could leave a task that nobody wakes, so that an interrupt
# cancels the run's task instead.
def is_of_loop(frame):
    name = str(frame.f_globals.get("__name__"))
    return name == "selectors" or name.startswith("asyncio.")

def interrupt(signum, frame):
    if state.phase == ARMED:
        if state.task is not None and is_of_loop(frame):
            state.task, task = None, state.task
            state.loop.call_soon_threadsafe(task.cancel)
            return
        if may_raise(frame):
            raise KeyboardInterrupt
        state.pending = True
    elif state.phase == STARTING:
        state.pending = True

def interrupt_firmly(signum, frame):
    if state.phase == ARMED:
        set_signal(SIGINT, interrupt)
        if may_raise(frame):
            rest.press(frame)
    interrupt(signum, frame)

# Comes after an interrupt: a signal that arrives just before a wait is only noticed when the wait is
# cut short.
def wake(signum, frame):
    pass

# The only place where the user's code runs in. What it raises is returned.
def guard(work):
    failure = None
    try:
        state.phase = ARMED
        checkpoint()
        work()
        state.phase = OVER
    except BaseException as error:
        state.phase = OVER
        failure = error
    return failure

def guarded(work):
    try:
        return guard(work)
    except BaseException as error:
        state.phase = OVER
        return error

GUARD = guard.__code__
CLOSED = {
    function.__code__
    for function in (receive, send_raw, take_outputs, Run.apart, Run.close, Rest.__getattr__)
}
MODULES["_signal"].default_int_handler = interrupt
if "signal" in MODULES:
    MODULES["signal"].default_int_handler = interrupt
set_signal(SIGINT, interrupt)
set_signal(SIGURG, wake)
set_signal(FIRM, interrupt_firmly)
HANDLERS = {number: get_signal(number) for number in _signal.valid_signals()}
USUAL = list(HANDLERS.values())
MASK = set_mask(_signal.SIG_BLOCK, ())

def restore_signals():
    if "signal" not in MODULES:
        if get_signal(SIGINT) is not interrupt:
            set_signal(SIGINT, interrupt)
        return
    _signal.setitimer(_signal.ITIMER_REAL, 0)
    if list(map(get_signal, HANDLERS)) != USUAL:
        state.disturbed = True
        for number, handler in HANDLERS.items():
            if get_signal(number) is not handler and handler is not None:
                # What is pending is dropped: its default may be the end of the process.
                set_signal(number, _signal.SIG_IGN)
                set_signal(number, handler)
    _signal.set_wakeup_fd(-1)
    if set_mask(_signal.SIG_BLOCK, ()) != MASK:
        set_mask(_signal.SIG_SETMASK, MASK)

# Takes back what a run has left behind that would wedge the next one. Everything else is state.
def restore():
    if get_trace() is not None:
        set_trace(None)
    if get_profile() is not None:
        set_profile(None)
    if get_limit() < RECURSION_MIN:
        set_limit(1000)
    state.pressed = False
    restore_signals()
    if sys.__dict__.get("modules") is not MODULES:
        sys.modules = MODULES
    if MODULES.get("__main__") is not MAIN or "sys" not in MODULES or "builtins" not in MODULES:
        MODULES.update(ESSENTIAL)
    for name in ("print", "input", "__import__", "__build_class__", "len", "repr", "open"):
        if not callable(BUILTINS.get(name)):
            BUILTINS[name] = INTACT[name]
    if len(BUILTINS) < len(INTACT):
        for name, value in INTACT.items():
            BUILTINS.setdefault(name, value)

# A handler of the user's may raise in the midst of it.
def settle():
    for _ in range(1000):
        try:
            return restore()
        except BaseException:
            state.phase = OVER

# The code of a run.
sources = {}
# Those that `linecache` does not know of yet.
untold = {}
codes = {}

def keep_source(name, source):
    state.sources_bytes += len(source) - len(sources.pop(name, b""))
    sources[name] = source
    while state.sources_bytes > SOURCES_BYTES_MAX or len(sources) > SOURCES_MAX:
        oldest = next(iter(sources))
        state.sources_bytes -= len(sources.pop(oldest))
        if not untold.pop(oldest, None) and state.linecache:
            rest.withdraw_source(oldest)
    if state.linecache and len(source) <= EAGER_BYTES_MAX:
        offer_source(name, source)
    else:
        untold[name] = source

# Gives a run's lines to whoever looks for them: tracebacks, warnings, `inspect`. The cache is the
# user's to break.
def offer_source(name, source):
    try:
        is_declared = b"coding" in source[:400]
        text = rest.decode_declared(source) if is_declared else source.decode("utf-8-sig")
    except Exception:
        text = source.decode("utf-8", "replace")
    try:
        lines = StringIO(text, newline=None).readlines()
        if lines and not lines[-1].endswith("\n"):
            lines[-1] += "\n"
        state.linecache.cache[name] = len(source), None, lines, name
    except Exception:
        pass

def compile_run(source, name):
    known = codes.pop(source, None)
    try:
        made = [rename(code, name) for code in known] if known else None
    except RecursionError:
        made = None
    state.cached = made is not None
    if made is None:
        made = compile_any(source, name)
    if len(source) < CODE_BYTES_MAX:
        if len(codes) >= CODES_MAX:
            del codes[next(iter(codes))]
        codes[source] = made
    return made

# Code within code has the run's name too.
def rename(code, name):
    kind = type(code)
    items = [rename(item, name) if type(item) is kind else item for item in code.co_consts]
    return code.replace(co_filename=name, co_consts=tuple(items))

# Python, or what notebooks write beside it.
def compile_any(source, name):
    try:
        return compile_parts(source, name)
    except SyntaxError as error:
        failure = error
    # What the code has broken must not stand in the place of what is wrong with it.
    if any(mark in source for mark in (b"%", b"!", b"?", b"pip")):
        try:
            return rest.compile_notation(source, name, failure)
        except SyntaxError as error:
            failure = error
        except Exception:
            pass
    raise failure

# The statements, and the expression at their end, whose value is the run's. Mostly the last lines
# are an expression by themselves; a tree of the code is dear, and only made where they are not.
def compile_parts(source, name):
    if b"\0" in source:
        raise SyntaxError("source code cannot contain null bytes", (name, 1, None, None))
    at = find_tail(source)
    if at is not None:
        tail = b"\n" * source.count(b"\n", 0, at) + source[at:]
        try:
            made = [compile(tail, name, "eval", FLAGS, True)]
            if at:
                made.insert(0, compile(source[:at], name, "exec", FLAGS, True))
            return made
        except SyntaxError:
            if len(source) > TREE_BYTES_MAX and ends_in_statement(tail, name):
                return [compile(source, name, "exec", FLAGS, True)]
    try:
        return compile_tree(source, name)
    except RecursionError:
        # The compiler goes deeper than the way from a tree to code.
        return [compile(source, name, "exec", FLAGS, True)]

# Where the last line that is not a continuation begins, if the encoding and the features of the
# lines before it do not matter to it.
def find_tail(source):
    if b"coding" in source[:400] or b"__future__" in source or source.startswith(b"\xef\xbb\xbf"):
        return None
    at = len(source)
    for _ in range(TAIL_LINES_MAX):
        at = source.rfind(b"\n", 0, max(at - 1, 0)) + 1
        if at == 0 or source[at] not in b" \t#\r\n)]}":
            return at if at < len(source) else None
    return None

def ends_in_statement(tail, name):
    try:
        body = compile(tail, name, "exec", FLAGS | ONLY_AST, True).body
        return type(body[-1]).__name__ != "Expr"
    except (SyntaxError, IndexError):
        return False

def compile_tree(source, name):
    tree = compile(source, name, "exec", FLAGS | ONLY_AST, True)
    last = tree.body[-1] if tree.body else None
    if type(last).__name__ != "Expr":
        return [compile(tree, name, "exec", FLAGS, True)]
    del tree.body[-1]
    made, flags = [], FLAGS
    if tree.body:
        made.append(compile(tree, name, "exec", FLAGS, True))
        flags |= future_flags(source, made[0])
    made.append(compile(Expression(last.value), name, "eval", flags, True))
    return made

# What the statements have imported from `__future__` holds for the expression too.
def future_flags(source, code):
    if b"__future__" not in source:
        return 0
    import __future__ as future

    names = future.all_feature_names
    return sum(code.co_flags & getattr(future, name).compiler_flag for name in names)

def execute():
    source, name = state.job
    state.job = None
    if source[:1] == b"{" and b'"nbformat"' in source and rest.run_notebook(source, name):
        return
    parts = compile_run(source, name)
    if any(part.co_flags & COROUTINE for part in parts):
        value = rest.run_in_loop(parts)
    else:
        for part in parts:
            value = eval(part, SPACE)
    if value is not None:
        rest.show_last(value)

# Whether the loop has anything to do between runs.
def is_busy(loop):
    try:
        if loop.is_closed():
            return False
        if getattr(loop, "_ready", None) or getattr(loop, "_scheduled", None):
            return True
        selector = getattr(loop, "_selector", None)
        # One reader is the loop's own.
        return bool(state.asyncio.all_tasks(loop) or selector and len(selector.get_map()) > 1)
    except Exception:
        return False

# Only extensions that are not Python's own are worth the price of ctypes.
def find_flush_c():
    if "_ctypes" in MODULES or any(map(is_foreign, list(MODULES.values()))):
        try:
            import ctypes

            state.flush_c = ctypes.CDLL(None).fflush
        except Exception:
            state.flush_c = False

def is_foreign(module):
    path = getattr(module, "__file__", None)
    return type(path) is str and path.endswith(".so") and "lib-dynload" not in path

# What C code has printed and the C library still keeps.
def flush():
    for name, own in ("stdout", STDOUT), ("stderr", STDERR):
        own.flush()
        stream = sys.__dict__.get(name)
        if stream is not own and hasattr(stream, "flush"):
            stream.flush()
    if len(MODULES) != state.modules_count:
        state.modules_count = len(MODULES)
        if state.flush_c is None:
            find_flush_c()
    if state.flush_c:
        state.flush_c(None)

# Libraries that need a word when they are loaded, and modules that are made here.
HOOKED = {
    "asyncio",
    "threading",
    "linecache",
    "getpass",
    "concurrent.futures.thread",
    "matplotlib",
    "PIL.ImageShow",
    "plotly.io._renderers",
    "IPython.core.display_functions",
}
MADE = {"burrow", "burrow_matplotlib", "IPython", "IPython.display"}

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in HOOKED or name in MADE:
            return rest.find_hooked(name, path, target)

# One message after another.
def begin(content):
    number, code, name = content["run"], content["code"], content["name"]
    code = code.encode() if type(code) is str else code
    state.run.number = state.unfinished = number
    state.input = content.get("input", False)
    state.requests = state.awaited = state.seen = 0
    state.job = code, name
    state.cached = None
    if not content.get("aside"):
        keep_source(name, code)
    module = sys.__dict__
    if module.get("stdout") is not STDOUT:
        sys.stdout = STDOUT
    if module.get("stderr") is not STDERR:
        sys.stderr = STDERR
    if module.get("stdin") is not STDIN:
        sys.stdin = STDIN
    if SPACE.get("__builtins__") is not builtins:
        SPACE["__builtins__"] = builtins
    SPACE.pop("__warningregistry__", None)
    if state.loop is not None and not state.loop.is_closed():
        state.asyncio.set_event_loop(state.loop)
    if get_signal(FIRM) is not interrupt_firmly:
        set_signal(FIRM, interrupt_firmly)
    state.cpu_began_ns = cpu_ns()


def set_reserve():
    state.reserve = bytes(RESERVE_BYTES)


# Gives back what the code held when memory was used up, or nobody could be told.
def make_room(failure):
    state.reserve = None
    trace = failure.__traceback__
    while trace is not None:
        try:
            trace.tb_frame.clear()
        except RuntimeError:
            pass
        trace = trace.tb_next
    collect()


def run(content):
    begin(content)
    is_aside = content.get("aside")
    failure = guarded(rest.execute_aside if is_aside else execute)
    if isinstance(failure, MemoryError):
        make_room(failure)
    if "matplotlib._pylab_helpers" in MODULES and not is_aside:
        failure = guarded(rest.show_figures) or failure
    settle()
    if getpid() != PID:
        rest.leave_child(failure)
    done = {"status": "ok"} if failure is None else rest.conclude(failure)
    failure = None
    guarded(flush)
    if state.pressed:
        # A firm interrupt came after the code had ended.
        settle()
    if state.reserve is None:
        guarded(set_reserve)
    state.phase = IDLE
    send_done(done)

# The usual end of a run is made by hand, because it is sent the most often.
DONE = b"\x81\xa4done\x86\xa6cached%b\xa5alone%b\xa3run\xd3%b\xa6status\xa2ok\xa6cpu_us\xd3%b\xb1memory_bytes_peak\xd3%b"

FLAG = {None: b"\xc0", False: b"\xc2", True: b"\xc3"}

def send_done(done):
    number, cpu_us, peak = state.run.number, (cpu_ns() - state.cpu_began_ns) // 1000, 0
    alone = False
    if getrusage is not None:
        peak = getrusage(0).ru_maxrss * 1024
        children = getrusage(-1)
        children_us = int((children.ru_utime + children.ru_stime) * 1e6)
        cpu_us += children_us - state.children_us
        state.children_us = children_us
        alone = is_alone(children)
    state.unfinished = 0
    if len(done) == 1:
        numbers = (n.to_bytes(8, "big") for n in (number, cpu_us, peak))
        send_raw(DONE % (FLAG[state.cached], FLAG[alone], *numbers))
    else:
        told = {"run": number, "cpu_us": cpu_us, "memory_bytes_peak": peak, "alone": alone}
        told["cached"] = state.cached
        send("done", {**told, **done})

# Takes the messages; returns when there is nothing more to do.
def serve():
    while not state.closing:
        loop = state.loop
        if loop is not None and is_busy(loop):
            rest.idle(loop)
        name, content, fds = receive()
        if name == "run":
            run(content)
        elif name == "outputs":
            take_outputs(fds)
        elif name == "open":
            state.prefix = content["token"] + b"\0"
            version = sys.version.split()[0]
            send("ready", {"version": version, "program": sys.executable or "python"})
            rest_at_leisure()
        elif name == "complete":
            rest.complete(content)
        elif name == "check":
            rest.check(content)
        elif name == "close":
            state.closing = True

# Makes ready for later while nobody wants anything.
def rest_at_leisure():
    channel.settimeout(LEISURE_SECONDS)
    try:
        peek_packet(1, PEEK)
    except OSError:
        rest.prepare()
    channel.settimeout(None)

# Nothing that goes wrong ends the driver, or leaves a run without its end.
def main():
    while not state.closing:
        try:
            if state.unfinished:
                rest.send_error("SystemError", "the driver failed", "", [])
                send_done({"status": "error", "code": None})
            serve()
        except BaseException:
            state.failures += 1
            if state.failures > FAILURES_MAX:
                lost()
            settle()
            state.phase = IDLE
    state.phase = OVER
    if state.loop is not None and not state.loop.is_closed():
        guarded(lambda: rest.end_loop())
    guarded(flush)

def leave_channel():
    try:
        close_fd(CHANNEL)
    except OSError:
        pass

posix.register_at_fork(after_in_child=leave_channel)
sys.meta_path.insert(0, Finder)
if not HOOKED.isdisjoint(MODULES.keys() - {"linecache"}):
    rest.hook_loaded()
# A virtual environment is entered whole: its programs are found first.
if sys.prefix != sys.base_prefix and "VIRTUAL_ENV" not in os.environ:
    os.environ["VIRTUAL_ENV"] = sys.prefix
    os.environ["PATH"] = sys.prefix + "/bin:" + os.environ.get("PATH", os.defpath)
sys.argv[:] = [""]
sys.stdin = sys.__stdin__ = STDIN
sys.stdout = sys.__stdout__ = STDOUT
sys.stderr = sys.__stderr__ = STDERR
sys.displayhook = sys.__displayhook__ = show
set_reserve()
BUILTINS.setdefault("display", display)
BUILTINS.setdefault("__magic__", magic)
INTACT.update(BUILTINS)
main()

"second part"

# Where the host's own code runs: beside the user's names, for as long as the interpreter lives.
ASIDE = {"__builtins__": INTACT, "space": SPACE, "say": STDOUT.write, "codes": codes}

def execute_aside():
    source, name = state.job
    state.job = None
    exec(compile(source, name, "exec", 0, True), ASIDE)

# Imports what an interrupt must not leave half done.
def fetch(name):
    return __import__(name)

# Compiles and imports what the first error would have to wait for otherwise.
def prepare():
    fetch("traceback")

# Of messages and outputs, what is rare. A message of several packets must not be cut short by an
# exception of a signal's handler, nor by another message, which a finalizer may send within it.
def send_long(out):
    unsent.append(out)
    if len(unsent) > 1:
        return
    mask = set_mask(_signal.SIG_BLOCK, HANDLERS)
    try:
        while unsent:
            out = unsent[0]
            for at in range(0, len(out), PART_BYTES):
                flag = b"\1" if at + PART_BYTES < len(out) else b"\0"
                send_packet(state.prefix[:-1] + flag + out[at : at + PART_BYTES])
            del unsent[0]
    finally:
        set_mask(_signal.SIG_SETMASK, mask)

def move_up(fd):
    try:
        from fcntl import F_DUPFD_CLOEXEC, fcntl
    except ImportError:
        return posix.dup(fd)
    for lowest in (1000, 200, 20):
        try:
            return fcntl(fd, F_DUPFD_CLOEXEC, lowest)
        except OSError:
            pass
    raise OSError("no descriptor is free")

# Descriptor 0, and the outputs where 1 and 2 can be made from them.
def renew_standard(out, err):
    moved = []
    for fd in (out, err):
        while fd <= 2:
            fd = move_up(fd)
        moved.append(fd)
    try:
        null = posix.open("/dev/null", posix.O_RDONLY)
    except OSError:
        null, into = posix.pipe()
        close_fd(into)
    if null != 0:
        dup2(null, 0)
        close_fd(null)
    return moved

# Descriptors that earlier runs hold. Of too many the oldest are closed; what is still said there
# goes over the channel, which needs none.
asides = []

def set_aside(run):
    fds = []
    try:
        for fd in (1, 2):
            fds.append(move_up(fd))
    except OSError:
        for fd in fds:
            close_fd(fd)
        return
    run.aside = Run(run.number, tuple(fds), True)
    asides.append((ref(run.aside), ref(run)))
    if len(asides) > ASIDES_MAX:
        asides[:] = [pair for pair in asides if pair[0]()]
    if len(asides) > ASIDES_MAX:
        for old in asides.pop(0):
            if old() is not None:
                old().close()

def write_late(fd, data):
    for at in range(0, len(data), 1 << 20):
        part = data[at : at + (1 << 20)]
        send("late", {"run": own_run().number, "stderr": fd == 2, "bytes": part})
    return len(data)

# Takes one message in the midst of a run.
def hear():
    name, content, _ = receive()
    if name == "seen":
        state.seen += 1
    elif name == "input":
        state.answer = content["request"], content.get("line")
    elif name == "close":
        state.closing = True

def may_wait():
    return state.phase == ARMED and get_ident() == MAIN_THREAD and getpid() == PID

# A line that the caller gives, with its newline; None at the end of the input, or if nobody can
# be asked.
def ask_line(prompt, secret):
    if not (state.input and may_wait()):
        return None
    state.requests += 1
    request = state.requests
    content = {"run": state.run.number, "request": request, "secret": secret}
    send("input", {**content, "prompt": clip(prompt)})
    state.answer = None
    while not state.closing:
        await_packet()
        hear()
        checkpoint()
        if state.answer and state.answer[0] == request:
            line = state.answer[1]
            if line is None:
                return None
            line = line.encode() if isinstance(line, str) else line
            return line if line.endswith(b"\n") else line + b"\n"
    return None

def read_answer(prompt, secret):
    line = ask_line(str(prompt), secret)
    if line is None:
        raise EOFError("EOF when reading a line")
    return line[:-1].decode("utf-8", "surrogateescape")

def answer(prompt="", *more):
    if more:
        raise TypeError("input expected at most 1 argument, got %d" % (1 + len(more)))
    if sys.__dict__.get("stdin") is not STDIN:
        return first_input(prompt)
    return read_answer(prompt, False)

def ask_secret(prompt="Password: ", stream=None, **_):
    return read_answer(prompt, True)

# What a firm interrupt raises after the first: whoever swallows it meets the next one at once.
class Pressed(KeyboardInterrupt):
    def __del__(self):
        if state.pressed and state.phase == ARMED and get_ident() == MAIN_THREAD:
            press(get_frame(1))

Pressed.__name__ = Pressed.__qualname__ = "KeyboardInterrupt"
Pressed.__module__ = "builtins"

# Raises at the next line of whatever code of the user's comes to run, which is outside of the
# `try` that has caught the last one. Python ends the tracing when a tracer raises.
def trace_pressed(frame, event, _):
    if not state.pressed or frame.f_globals is DRIVER:
        return None
    if event == "line" or event == "call":
        raise Pressed
    return trace_pressed

def press(frame):
    while frame is not None and frame.f_code is not GUARD:
        if frame.f_globals is not DRIVER:
            frame.f_trace = trace_pressed
        frame = frame.f_back
    state.pressed = True
    set_trace(trace_pressed)

CLOSED.update(function.__code__ for function in (hear, fetch, send_long, set_aside, write_late))

# The lines of large code are given when they are wanted, and those of all again that were lost.
def offer_sources():
    try:
        if next(iter(sources)) not in state.linecache.cache:
            untold.update(sources)
    except Exception:
        return
    while untold:
        offer_source(*untold.popitem())

def withdraw_source(name):
    try:
        state.linecache.cache.pop(name, None)
    except Exception:
        pass

def decode_declared(source):
    import tokenize

    encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
    return source.decode(encoding)

# asyncio: one loop that lives as long as the interpreter. It is not running while a run without
# top-level await is on, so that `asyncio.run` works there; its tasks go on between runs.
def own_loop():
    loop = state.loop
    if loop is None or loop.is_closed():
        # In a context of its own, for the loop would keep the pipes of this run otherwise.
        loop = state.loop = Context().run(state.asyncio.new_event_loop)
        state.asyncio.set_event_loop(loop)
    return loop

# The parts of a run in one task, and what they have set in their context.
async def run_parts(parts):
    for part in parts:
        value = eval(part, SPACE)
        if part.co_flags & COROUTINE:
            value = await value
    return value, copy_context()

# Kept, because the collection of a coroutine that swallows everything would never end.
torn = []

def run_in_loop(parts):
    asyncio = state.asyncio or hold_asyncio(fetch("asyncio"))
    loop = own_loop()
    # Code may have stopped it while it was not running, which would end it at its next start.
    if getattr(loop, "_stopping", False):
        loop._stopping = False
    # What was put off while things were loaded.
    checkpoint()
    task = state.task = loop.create_task(run_parts(parts))
    try:
        value, context = loop.run_until_complete(task)
    except asyncio.CancelledError as error:
        if state.task is not None:
            raise
        raise KeyboardInterrupt().with_traceback(error.__traceback__) from None
    finally:
        state.task = None
        # A task that is done must not be run again, for the loop would wait for ever; and one that
        # an interrupt has torn from the loop never will be done.
        if not task.done():
            torn[:] = [old for old in torn if not old.done()] + [task]
            task.cancel()
            loop.run_until_complete(asyncio.wait({task}, timeout=CANCEL_SECONDS))
    for variable, item in context.items():
        if variable is not RUN and variable.get(RUN) is not item:
            variable.set(item)
    return value

# Lets the tasks go on until the agent says something.
def idle(loop):
    try:
        while is_busy(loop) and not packet_waits():
            loop.add_reader(CHANNEL, loop.stop)
            try:
                loop.run_forever()
            finally:
                loop.remove_reader(CHANNEL)
    except BaseException as error:
        print_error(type(error), error, error.__traceback__)
    if getpid() != PID:
        leave(0)

def end_loop():
    loop = state.loop
    tasks = state.asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        loop.run_until_complete(state.asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()

# Displays.
REPRS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
    ("_repr_pdf_", "application/pdf"),
)
PLAIN = (int, str, float, list, dict, tuple, bool, set, bytes)

def warn(words):
    stream = sys.__dict__.get("stderr")
    (stream if hasattr(stream, "write") else STDERR).write(words + "\n")

# What one method of an object offers: the data, and the metadata that may come with it.
def offer(value, method, **options):
    try:
        found = getattr(value, method)(**options)
    except Exception as error:
        warn("%s of %s: %s" % (method, type(value).__name__, describe(error)))
        return None, {}
    if isinstance(found, tuple) and len(found) == 2 and isinstance(found[1], dict):
        return found
    return found, {}

# All forms that a value has, and the metadata of them.
def forms_of(value, include=None, exclude=None):
    data, metadata = {}, {}
    kind = type(value)
    if kind not in PLAIN and not isinstance(value, type):
        if hasattr(kind, "_repr_mimebundle_"):
            found, extra = offer(value, "_repr_mimebundle_", include=include, exclude=exclude)
            data.update(found or {})
            metadata.update(extra)
        for method, mime in REPRS:
            if mime in data or not hasattr(kind, method):
                continue
            # One picture is enough.
            if mime == "image/jpeg" and "image/png" in data:
                continue
            found, extra = offer(value, method)
            if found is not None:
                data[mime] = found
                if extra:
                    metadata[mime] = extra
        figure = getattr(MODULES.get("matplotlib.figure"), "Figure", None)
        if figure is not None and isinstance(value, figure):
            data["image/png"] = picture(value)
    if "text/plain" not in data:
        data["text/plain"] = repr(value)
    if include:
        data = {mime: item for mime, item in data.items() if mime in include}
    if exclude:
        data = {mime: item for mime, item in data.items() if mime not in exclude}
    return data, metadata

def picture(figure):
    out = io.BytesIO()
    figure.savefig(out, format="png", bbox_inches="tight")
    return out.getvalue()

# A form as it is sent. Pictures may come as base64.
def encode_form(mime, item):
    if isinstance(item, (bytes, bytearray, memoryview)):
        return bytes(item)
    if isinstance(item, str):
        is_binary = mime.startswith(("image/", "audio/", "video/")) and "svg" not in mime
        if is_binary or mime == "application/pdf":
            try:
                from binascii import a2b_base64

                return a2b_base64(item)
            except (ImportError, ValueError):
                pass
        return item
    import json

    return json.dumps(item, default=str)

def size_of(item):
    if isinstance(item, bytes) or item.isascii():
        return len(item)
    return len(item.encode("utf-8", "backslashreplace"))

def publish(role, data, metadata=None, name=None):
    forms = {}
    for mime, item in data.items():
        forms[clip(str(mime), WORD_CHARS_MAX)] = encode_form(str(mime), item)
    if isinstance(forms.get("text/plain"), str):
        forms["text/plain"] = clip(forms["text/plain"], PLAIN_CHARS_MAX)
    if metadata:
        import json

        metadata = json.dumps(metadata, default=str)
    sizes = {mime: size_of(item) for mime, item in forms.items()}
    while sum(sizes.values()) + len(metadata or "") > DISPLAY_BYTES_MAX and sizes:
        mime = max(sizes, key=sizes.get)
        warn("[%s of %d bytes is too large to be shown]" % (mime, sizes.pop(mime)))
    content = {
        "run": own_run().number,
        "role": role,
        "id": name,
        "data": [{"mime": mime, "data": forms[mime]} for mime in sizes],
        "metadata": metadata or None,
    }
    if sizes:
        send_in_order("display", content, role != "value")

# Sends what must stand in its place between what was written before it and what comes after.
def send_in_order(name, content, sync):
    STDOUT.flush()
    STDERR.flush()
    sync = sync and may_wait() and own_run() is state.run
    if sync:
        content["sync"] = True
        state.awaited += 1
    send(name, content)
    while sync and state.seen < state.awaited and not state.closing:
        await_packet()
        hear()
        checkpoint()
    checkpoint()

# What `sys.displayhook` does with a value.
def show_value(value):
    if BUILTINS.get("_", state.last_value) is state.last_value:
        BUILTINS["_"] = state.last_value = value
    publish("value", *forms_of(value))
    figure = getattr(MODULES.get("matplotlib.figure"), "Figure", None)
    if figure is not None and isinstance(value, figure) and "matplotlib.pyplot" in MODULES:
        MODULES["matplotlib.pyplot"].close(value)

def show_last(value):
    hook = sys.__dict__.get("displayhook")
    (hook if callable(hook) else show)(value)

# What `display` returns for a display that can be updated.
class DisplayHandle:
    def __init__(self, display_id=None):
        state.displays += 1
        name = str(display_id or "display-%d" % state.displays)
        self.display_id = clip(name, WORD_CHARS_MAX)

    def display(self, value, **options):
        display(value, display_id=self.display_id, **options)

    def update(self, value, **options):
        update_display(value, display_id=self.display_id, **options)

    def __repr__(self):
        return "<DisplayHandle display_id=%s>" % self.display_id

# Shows values to whoever looks at the run.
def display_all(*values, display_id=None, metadata=None, raw=False, role="shown", **options):
    include, exclude = options.get("include"), options.get("exclude")
    handle = None
    if display_id is not None and display_id is not False:
        handle = DisplayHandle(None if display_id is True else display_id)
    for value in values:
        data, extra = (value, {}) if raw else forms_of(value, include, exclude)
        publish(role, data, {**extra, **(metadata or {})}, handle and handle.display_id)
    return handle

# Shows a value in the place of what was shown under this id.
def update_display(value, *, display_id, **options):
    display(value, display_id=display_id, role="update", **options)

# Offers a file to whoever started the run.
def artifact(path, name=None, mime=None):
    raw = os.path.abspath(os.fsencode(path))
    size = posix.stat(raw).st_size
    content = {"run": own_run().number, "path": raw, "name": name, "mime": mime, "size": size}
    send_in_order("artifact", content, True)

# Shows the figures that are open, and closes them.
def show_figures():
    backend = MODULES["matplotlib"].get_backend()
    if backend.split("://")[-1] != "burrow_matplotlib":
        return
    register = MODULES["matplotlib._pylab_helpers"].Gcf
    for manager in register.get_all_fig_managers():
        figure = manager.canvas.figure
        register.destroy(manager.num)
        publish("shown", *forms_of(figure))

# Errors.
def clip(text, most=TEXT_CHARS_MAX):
    if len(text) <= most:
        return text
    half = most // 2
    notice = "\n[... %d characters left out ...]\n" % (len(text) - most)
    return text[:half] + notice + text[-half:]

def describe(error):
    try:
        return "%s: %s" % (type(error).__name__, error)
    except BaseException:
        return "%s: <its description failed>" % type(error).__name__

# Takes the driver's own frames, and those of asyncio that lead to the run, out of a traceback.
def strip(trace):
    kept = []
    while trace is not None:
        space = trace.tb_frame.f_globals
        leads = not kept and str(space.get("__name__")).startswith("asyncio.")
        if space is not DRIVER and not leads:
            kept.append(trace)
        trace = trace.tb_next
    for this, after in zip(kept, kept[1:] + [None]):
        if this.tb_next is not after:
            this.tb_next = after
    return kept[0] if kept else None

def strip_all(failure):
    seen, rest = set(), [failure]
    while rest and len(seen) < 1000:
        error = rest.pop()
        if isinstance(error, BaseException) and id(error) not in seen:
            seen.add(id(error))
            error.__traceback__ = strip(error.__traceback__)
            rest += [error.__cause__, error.__context__]
            inner = getattr(error, "exceptions", ())
            rest += inner if isinstance(inner, (list, tuple)) else ()

def format_failure(failure):
    traceback = fetch("traceback")
    offer_sources()
    shown = traceback.TracebackException(type(failure), failure, failure.__traceback__)
    frames = shown.stack
    if len(frames) > FRAMES_MAX:
        frames = frames[: FRAMES_MAX // 2] + frames[-FRAMES_MAX // 2 :]
    frames = [
        {
            "file": clip(frame.filename, WORD_CHARS_MAX),
            "line": frame.lineno or 0,
            "function": clip(frame.name, WORD_CHARS_MAX),
            "source": clip(frame.line or "", WORD_CHARS_MAX),
        }
        for frame in frames
    ]
    text = "".join(shown.format())
    return interpreter_text(failure, text) if VERSION < (3, 13) else text, frames

# Takes what the interpreter itself prints of an error, and hands on what other threads print.
class Words(StringIO):
    def write(self, text):
        if get_ident() != MAIN_THREAD:
            return STDERR.write(text)
        return StringIO.write(self, text)

# Until 3.13 the interpreter says more than the module `traceback` does: what a name may have been
# meant to be, and where exactly a syntax error is. It cannot know the lines of a run, though.
def interpreter_text(failure, text):
    is_own = type(failure).__module__ == "__main__"
    if not (is_own or isinstance(failure, (NameError, AttributeError, SyntaxError))):
        return text
    before, sys.stderr = sys.__dict__.get("stderr"), Words()
    try:
        print_error(type(failure), failure, failure.__traceback__)
        own = sys.stderr.getvalue()
    finally:
        sys.stderr = before
    if isinstance(failure, SyntaxError) and not failure.__traceback__:
        return text if failure.__cause__ or failure.__context__ else own or text
    last = own.rstrip("\n").rpartition("\n")[2]
    ending = text.rstrip("\n").rpartition("\n")[2]
    return text[: -len(ending) - 1] + last + "\n" if ending in last else text

def report():
    failure = state.failure
    kind = type(failure).__name__
    strip_all(failure)
    sys.last_type, sys.last_value = type(failure), failure
    sys.last_traceback = failure.__traceback__
    if VERSION >= (3, 12):
        sys.last_exc = failure
    try:
        message = failure.msg if isinstance(failure, SyntaxError) else str(failure)
    except Exception:
        message = "<exception str() failed>"
    try:
        text, frames = format_failure(failure)
    except Exception as error:
        text, frames = "%s: %s\n[its traceback failed: %s]\n" % (kind, message, describe(error)), []
    send_error(kind, str(message), text, frames)

def send_error(kind, message, text, frames):
    content = {
        "run": state.run.number,
        "kind": clip(kind, WORD_CHARS_MAX),
        "message": clip(message),
        "traceback": clip(text),
        "frames": frames,
    }
    send("error", content)

# The status that the interpreter would exit with.
def find_exit_code():
    code = state.failure.code
    if isinstance(code, int):
        state.exit_code = code & 0xFF
    elif code is None:
        state.exit_code = 0
    else:
        state.exit_code = 1
        warn(str(code))

# Ends a child that came back from the user's code: the driver is not its business.
def leave_child(failure):
    state.failure, state.exit_code = failure, 1 if failure else 0
    try:
        if isinstance(failure, SystemExit):
            find_exit_code()
        elif failure is not None:
            strip_all(failure)
            STDERR.write(format_failure(failure)[0])
        STDOUT.flush()
        STDERR.flush()
    finally:
        leave(state.exit_code)

# Libraries that need a word when they are loaded.
def hold_asyncio(module):
    if state.asyncio is None:
        state.asyncio = hold(module)
    return state.asyncio


def hook_asyncio(module):
    hold_asyncio(module)
    if get_ident() == MAIN_THREAD and getpid() == PID:
        own_loop()

# Before 3.13 the interpreter's own words on a thread's error lack the lines of runs.
def hook_threading(module):
    if VERSION < (3, 13):
        module.excepthook = module.__excepthook__ = tell_thread


def tell_thread(args):
    if args.exc_type is SystemExit:
        return
    name = args.thread.name if args.thread is not None else get_ident()
    failure = args.exc_value or args.exc_type()
    failure.__traceback__ = args.exc_traceback
    warn("Exception in thread %s:\n%s" % (name, format_failure(failure)[0].rstrip("\n")))


def hook_linecache(module):
    state.linecache = module
    untold.update(sources)
    offer_sources()

def hook_getpass(module):
    module.getpass = ask_secret

# A work item belongs to the run that submits it, not to the one that has started the thread.
def hook_pool(module):
    item = module._WorkItem
    first_init, first_run = item.__init__, item.run

    def init(self, *args, **kwargs):
        first_init(self, *args, **kwargs)
        self.burrow_run = own_run().apart()

    def run(self, *args, **kwargs):
        before = RUN.set(self.burrow_run)
        try:
            return first_run(self, *args, **kwargs)
        finally:
            RUN.reset(before)

    item.__init__, item.run = init, run

def hook_matplotlib(module):
    if "MPLBACKEND" not in os.environ:
        module.use("module://burrow_matplotlib")

class Viewer:
    def show(self, image, **_):
        publish("shown", *forms_of(image))
        return True

def hook_image_show(module):
    module._viewers.insert(0, Viewer())

def hook_plotly(module):
    first_show = module.show

    def show_plot(figure, renderer=None, *args, **options):
        if renderer is not None or module.renderers.default != "plotly_mimetype":
            return first_show(figure, renderer, *args, **options)
        publish("shown", *forms_of(figure))

    if "PLOTLY_RENDERER" not in os.environ:
        module.renderers.default = "plotly_mimetype"
    module.show = show_plot

# Without a shell of its own, IPython would print displays as text.
def hook_ipython(module):
    make_names(module)
    module.publish_display_data = publish_bundle

def publish_bundle(data, metadata=None, **_):
    publish("shown", data, metadata)

def make_backend(module):
    from matplotlib.backends import backend_agg

    module.__dict__.update(vars(backend_agg))
    module.__name__ = "burrow_matplotlib"
    module.FigureCanvas = backend_agg.FigureCanvasAgg
    module.show = lambda *_, **__: show_figures()

def make_names(module):
    module.display, module.update_display = display, update_display
    module.artifact, module.DisplayHandle = artifact, DisplayHandle

# As much of IPython.display as code commonly uses, where IPython is not installed.
def make_ipython(module):
    module.version_info = (0, 0)
    module.get_ipython = lambda: None
    module.__path__ = []

def make_ipython_display(module):
    make_names(module)
    module.clear_output = lambda wait=False: None
    module.publish_display_data = publish_bundle
    for name, mime in (
        ("HTML", "text/html"),
        ("Markdown", "text/markdown"),
        ("SVG", "image/svg+xml"),
        ("Latex", "text/latex"),
        ("Math", "text/latex"),
        ("JSON", "application/json"),
        ("Javascript", "application/javascript"),
        ("Pretty", "text/plain"),
        ("Image", "image/png"),
    ):
        own = {"mime": mime, "__module__": "IPython.core.display"}
        setattr(module, name, type(name, (Shown,), own))

class Shown:
    def __init__(self, data=None, url=None, filename=None, **_):
        if filename is None and url is None and self.mime == "image/png" and isinstance(data, str):
            filename, data = (None, data) if "://" in data else (data, None)
            url = data
        if filename is not None:
            with open(filename, "rb") as file:
                data = file.read()
        self.data, self.url = data, url

    def _repr_mimebundle_(self, include=None, exclude=None):
        if self.url is not None:
            return {"text/html": '<img src="%s"/>' % self.url}
        mime, data = self.mime, self.data
        if mime == "image/png" and isinstance(data, bytes):
            mime = "image/jpeg" if data[:2] == b"\xff\xd8" else mime
        elif isinstance(data, bytes):
            data = data.decode("utf-8", "replace")
        return {mime: data}

HOOKS = {
    "asyncio": hook_asyncio,
    "threading": hook_threading,
    "linecache": hook_linecache,
    "getpass": hook_getpass,
    "concurrent.futures.thread": hook_pool,
    "matplotlib": hook_matplotlib,
    "PIL.ImageShow": hook_image_show,
    "plotly.io._renderers": hook_plotly,
    "IPython.core.display_functions": hook_ipython,
}
# Modules that stand where there is none of that name.
MAKERS = {
    "burrow": make_names,
    "burrow_matplotlib": make_backend,
    "IPython": make_ipython,
    "IPython.display": make_ipython_display,
}

def find_hooked(name, path, target):
    spec = find_elsewhere(name, path, target)
    if spec is None and name in MAKERS:
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, Maker, is_package=name == "IPython")
    if spec is not None and name in HOOKS and hasattr(spec.loader, "exec_module"):
        watch_loader(spec.loader, name)
    return spec

class Maker:
    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        MAKERS[module.__name__](module)

def find_elsewhere(name, path, target):
    for finder in sys.meta_path:
        if finder is not Finder and hasattr(finder, "find_spec"):
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                return spec
    return None

def watch_loader(loader, name):
    first = loader.exec_module

    def exec_module(module):
        first(module)
        if module.__name__ == name:
            run_hook(name, module)

    loader.exec_module = exec_module

def run_hook(name, module):
    try:
        HOOKS[name](module)
    except Exception as error:
        warn("[%s could not be prepared: %s]" % (name, describe(error)))

def hook_loaded():
    for name in HOOKS:
        if name in MODULES:
            run_hook(name, MODULES[name])

# Reports what has ended the code; returns what `done` says of it.
def conclude(failure):
    state.failure = failure
    done = {"status": "error", "interrupted": isinstance(failure, KeyboardInterrupt)}
    if isinstance(failure, SystemExit):
        state.exit_code = 1
        guarded(find_exit_code)
        done = {"status": "exit", "code": state.exit_code}
    else:
        again = guarded(report)
        if again is not None:
            words = "%s\n[it could not be described: %s]\n"
            kind = type(failure).__name__
            send_error(kind, "", words % (kind, type(again).__name__), [])
    state.failure = None
    settle()
    return done

# What could be completed. Nothing of the user's is called but `__dir__`, and that not for long.
def complete(content):
    code, cursor = content["code"], content["cursor"]
    before = code.encode()[:cursor].decode("utf-8", "ignore")
    start, matches = bounded(lambda: find_matches(before)) or (len(before), [])
    content = {"ask": content["ask"], "start": len(before[:start].encode()), "end": cursor}
    send("completions", {**content, "matches": sorted(matches)[:MATCHES_MAX]})

def bounded(work):
    def stop(*_):
        raise TimeoutError

    set_signal(_signal.SIGALRM, stop)
    try:
        _signal.setitimer(_signal.ITIMER_REAL, 1, 0.05)
        return work()
    except BaseException:
        return None
    finally:
        _signal.setitimer(_signal.ITIMER_REAL, 0)
        set_signal(_signal.SIGALRM, _signal.SIG_IGN)
        set_signal(_signal.SIGALRM, _signal.SIG_DFL)

# Where the name begins that the text ends with, dots included.
def name_start(text):
    at = len(text)
    while at and (text[at - 1].isalnum() or text[at - 1] in "_."):
        at -= 1
    return at

def find_matches(before):
    line = before[before.rfind("\n") + 1 :]
    words = line.replace(",", " ").split()
    word = before[name_start(before) :]
    path, _, stem = word.rpartition(".")
    bracket = before.rfind("[")
    key = before[bracket + 1 :] if bracket >= 0 else ""
    if words and words[0] in ("import", "from"):
        if words[0] == "from" and "import" in words[1:]:
            names = module_members(words[1])
        else:
            names = module_names(path)
    elif key[:1] in ("'", '"') and key[0] not in key[1:]:
        stem = key[1:]
        value = resolve(before[name_start(before[:bracket]) : bracket])
        names = [name for name in value if isinstance(name, str)] if isinstance(value, dict) else []
    elif "." in word:
        names = dir(resolve(path))
    else:
        from keyword import kwlist

        names = [*kwlist, *SPACE, *BUILTINS]
    hidden = not stem.startswith("_")
    found = set()
    for name in names:
        if name.startswith(stem) and len(name) <= WORD_CHARS_MAX:
            if key or not (hidden and name.startswith("_")):
                found.add(name)
    return len(before) - len(stem), found

def module_members(name):
    module = MODULES.get(name)
    return [*(dir(module) if module else ()), *module_names(name)]

def module_names(path):
    import pkgutil

    if not path:
        return [*sys.builtin_module_names, *(found.name for found in pkgutil.iter_modules())]
    from importlib.util import find_spec

    module = MODULES.get(path)
    found = module or find_spec(path)
    where = getattr(found, "__path__", getattr(found, "submodule_search_locations", None))
    return [found.name for found in pkgutil.iter_modules(where or [])]

# What a dotted name means, without calling properties.
def resolve(path):
    first, *names = path.split(".")
    value = SPACE[first] if first in SPACE else BUILTINS[first]
    for name in names:
        for kind in type(value).__mro__:
            if isinstance(kind.__dict__.get(name), property):
                raise LookupError(name)
        inherited = name in dir(type(value))
        value = getattr(value, name) if inherited else object.__getattribute__(value, name)
    return value

# Whether some code is all there, by the rules of the interactive interpreter: what is indented
# goes on until there is an empty line.
def check(content):
    code = content["code"]
    state_of, indent = "complete", ""
    lines = code.split("\n")
    last = lines[-1]
    try:
        import codeop

        compiler = codeop.CommandCompiler()
        compiler.compiler.flags |= FLAGS
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = compiler(code, "<check>", "exec")
        is_open = found is None or (len(lines) > 1 and last.strip() and last[0] in " \t")
        if is_open or last.rstrip().endswith(":"):
            state_of, indent = "incomplete", next_indent(lines)
    except SyntaxError as error:
        state_of = check_notation(code, error)
    except Exception:
        state_of = "invalid"
    send("checked", {"ask": content["ask"], "state": state_of, "indent": indent})

def check_notation(code, error):
    is_cell = code.lstrip().startswith("%%")
    last = code.rpartition("\n")[2]
    if (is_cell and last.strip()) or ("\n" in code and last[:1] in (" ", "\t")):
        return "incomplete"
    try:
        return "complete" if rest.compile_notation(code.encode(), "<check>", error) else "invalid"
    except Exception:
        return "invalid"

def next_indent(lines):
    last = next((line for line in reversed(lines) if line.strip()), "")
    indent = last[: len(last) - len(last.lstrip())]
    words = last.split("#")[0].split()
    if words and words[-1].endswith(":"):
        return indent + ("\t" if indent.endswith("\t") else "    ")
    if words and words[0] in ("return", "pass", "raise", "break", "continue"):
        return indent[:-4] if indent.endswith("    ") else indent[:-1]
    return indent

state.whole = True

"third part"

# What notebooks write that is not Python: `%magic`, `!command`, `name?`, cells that begin with `%%`,
# and whole notebooks. It is only looked for where the compiler refuses a line, so that no line of
# Python is ever misread, but for a whole notebook, which is a literal of Python as well.
re, split_words = fetch("re"), fetch("shlex").split

MAGICS_MAX = 1000
BEGINS_CELL = re.compile(r"\s*(%%\w+)[ \t]*(.*)")
BEGINS_LINE = re.compile(r"(\s*)(?:([^=!%#]*[^=!%#<>\s])\s*=\s*)?(!!|!(?!=)|%%?(?=[A-Za-z]))\s*(.*)")
ASKS_HELP = re.compile(r"(\s*)\?{0,2}([A-Za-z_][\w.]*)\?{0,2}\s*$")
IS_FILLED_IN = re.compile(r"(?<![{$])\{([^{}]+)\}|\$([A-Za-z_]\w*)")


# What an author of code reads who has written what is not to be had here.
class UsageError(Exception):
    pass

UsageError.__module__ = "builtins"

# Puts Python in the place of a line; the number of lines stays.
def replace_line(lines, at):
    line, end = lines[at], at + 1
    words = line.strip()
    if words.startswith(("pip install ", "pip3 install ")):
        line = re.sub("pip3?", "%pip", line, count=1)
    found = BEGINS_LINE.match(line)
    if found is None:
        asked = ASKS_HELP.match(line) if "?" in line else None
        if asked is None:
            return False
        lines[at] = "%shelp(%s)" % (asked[1], asked[2])
        return True
    indent, target, mark, rest_of = found.groups()
    while rest_of.endswith("\\") and end < len(lines):
        rest_of = rest_of[:-1] + lines[end].strip()
        lines[end] = ""
        end += 1
    if mark[0] == "%":
        word, _, rest_of = rest_of.partition(" ")
        mark += word
    elif target:
        mark = "!!"
    target = target + " = " if target else ""
    lines[at] = "%s%s__magic__(%r, %r)" % (indent, target, mark, rest_of.strip())
    return True

INSTEAD = {
    "debug": "read the traceback, or call the function with print() in it",
    "pdb": "read the traceback, or call the function with print() in it",
    "prun": "use cProfile: import cProfile; cProfile.run('f()')",
    "lprun": "use cProfile: import cProfile; cProfile.run('f()')",
    "memit": "use tracemalloc, or resource.getrusage",
    "load": "read the file with open(path).read()",
    "history": "the caller of the runs has their history",
    "reset": "delete names with del, or use a new context",
    "store": "keep values in files, with pickle or json",
    "sql": "use sqlite3, or the client of the database",
}

def explain_unknown(mark, name, table):
    if name in CELL_MAGICS:
        return "%s takes a cell: write %%%s as the first line of the code" % (mark, mark)
    if name in LINE_MAGICS:
        return "%s takes a line: write %s with its arguments" % (mark, mark[1:])
    if name in INSTEAD:
        return "%s is not here: %s" % (mark, INSTEAD[name])
    known = (mark.replace(name, one) for one in sorted(table))
    return "%s is not here; these are: %s" % (mark, ", ".join(known))

# Python's values in a line: `{expression}` and `$name`. What is neither stays, for the shell.
def fill_in(frame, text):
    def value(found):
        try:
            if found[2]:
                spaces = frame.f_locals, frame.f_globals
                return next(str(space[found[2]]) for space in spaces if found[2] in space)
            return str(eval(found[1], frame.f_globals, frame.f_locals))
        except Exception:
            return found[0]
        except StopIteration:
            return found[0]

    return IS_FILLED_IN.sub(value, text)

def shell_words(frame, line):
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    return [shell, "-c", fill_in(frame, line)]

# Runs a program whose output is the run's; its exit code, or what it has printed if that is kept.
def spawn(argv, text=None, keep=False, env=None):
    subprocess = fetch("subprocess")
    stream = sys.__dict__.get("stdout")
    is_own = stream is STDOUT and not keep
    fds = own_run().fds or (1, 2)
    out, err = fds if is_own else (subprocess.PIPE, subprocess.STDOUT)
    given = {"input": text.encode()} if text is not None else {"stdin": subprocess.DEVNULL}
    ended = subprocess.run(argv, stdout=out, stderr=err, env=env, **given)
    if is_own:
        return ended.returncode
    printed = ended.stdout.decode("utf-8", "replace")
    if keep:
        SPACE["_exit_code"] = ended.returncode
        return printed
    stream.write(printed)
    return ended.returncode

def line_of_pip(frame, words):
    if find_elsewhere("pip", None, None) is None:
        raise UsageError("%pip: this Python has no pip; use an image that has it")
    # The sandbox is this interpreter's alone, so that its own packages are nobody else's.
    env = {"PIP_BREAK_SYSTEM_PACKAGES": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    env = {**env, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", **os.environ}
    argv = [sys.executable, "-m", "pip", *split_words(fill_in(frame, words))]
    code = spawn(argv, env=env)
    fetch("importlib").invalidate_caches()
    own = fetch("site").getusersitepackages()
    if own not in sys.path and os.path.isdir(own):
        # Who may not write the image's packages gets a directory of its own.
        MODULES["site"].addsitedir(own)
    if code:
        warn("[pip failed with %d; if it reached no index, the sandbox needs --egress @pypi]" % code)

def line_of_cd(frame, words):
    wanted = fill_in(frame, words).strip("\"'") or "~"
    before = os.getcwd()
    os.chdir(SPACE.get("_cd_before", before) if wanted == "-" else os.path.expanduser(wanted))
    SPACE["_cd_before"] = before
    print(os.getcwd())

def line_of_env(frame, words):
    words = fill_in(frame, words)
    if not words:
        return dict(os.environ)
    name, mark, value = words.partition("=" if "=" in words else " ")
    if not mark:
        return os.environ.get(name)
    os.environ[name.strip()] = value.strip()
    print("env: %s=%s" % (name.strip(), value.strip()))

def line_of_matplotlib(frame, words):
    if words not in ("", "inline", "agg", "Agg"):
        warn("[%%matplotlib %s: figures are always shown inline here]" % words)

def line_of_extension(frame, words):
    warn("[IPython's extensions are not here; importlib.reload(module) reads a changed module again]")

def line_of_who(frame, words):
    hidden = (type(sys), type(fill_in))
    names = [name for name, value in SPACE.items() if name[0] != "_" and type(value) not in hidden]
    print("  ".join(names))

def line_of_run(frame, words):
    import runpy

    path, *arguments = split_words(fill_in(frame, words)) or [""]
    if path.endswith(".ipynb"):
        with open(path, "rb") as file:
            run_notebook(file.read(), path)
        return
    before, sys.argv = sys.argv, [path, *arguments]
    try:
        made = runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv = before
    SPACE.update((name, value) for name, value in made.items() if name[:2] != "__")

def line_of_list(frame, words):
    print("  ".join("%" + name for name in sorted(LINE_MAGICS)))
    print("  ".join("%%" + name for name in sorted(CELL_MAGICS)))

# Code of a line or a cell, with magics of its own; the value of its last expression.
def evaluate(frame, text, line=0):
    parts = compile_any(("\n" * line + text).encode(), frame.f_code.co_filename)
    if any(part.co_flags & COROUTINE for part in parts):
        return run_in_loop(parts)
    value = None
    for part in parts:
        value = eval(part, frame.f_globals, frame.f_locals)
    return value

UNITS = (1, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")

def seconds(value):
    size, unit = next((pair for pair in UNITS if value >= pair[0]), UNITS[-1])
    return "%.3g %s" % (value / size, unit)

def cell_of_time(frame, words, body, line):
    clock = time.perf_counter
    cpu_before, before = cpu_ns(), clock()
    try:
        return evaluate(frame, (words + "\n" if words else "") + body, line - bool(words))
    finally:
        wall, cpu = clock() - before, (cpu_ns() - cpu_before) / 1e9
        print("CPU times: total: %s\nWall time: %s" % (seconds(cpu), seconds(wall)))

def line_of_time(frame, words):
    return cell_of_time(frame, "", words, 0)

def cell_of_timeit(frame, words, body, line):
    timeit = fetch("timeit")
    options, code = {}, words
    # `-n 10` and `-n10`.
    while code.startswith("-"):
        option, _, after = code.partition(" ")
        if len(option) == 2 and option[1] in "nrp":
            value, _, after = after.lstrip().partition(" ")
            option += value
        options[option[1:2]], code = option[2:], after.lstrip()
    setup, code = (code, body) if body is not None else ("", code)
    space = {**frame.f_globals, **frame.f_locals}
    timer = timeit.Timer(code.strip("\n") or "pass", setup or "pass", globals=space)
    try:
        number, repeat = int(options.get("n") or 0), int(options.get("r") or 7)
    except ValueError:
        raise UsageError("%timeit: -n and -r take a number") from None
    number = number or timer.autorange()[0]
    taken = [one / number for one in timer.repeat(repeat, number)]
    mean = sum(taken) / len(taken)
    spread = (sum((one - mean) ** 2 for one in taken) / len(taken)) ** 0.5
    words = "%s ± %s per loop (mean ± std. dev. of %d runs, %s loops each)"
    print(words % (seconds(mean), seconds(spread), len(taken), format(number, ",")))

def line_of_timeit(frame, words):
    return cell_of_timeit(frame, words, None, 0)

def cell_of_capture(frame, words, body, line):
    from contextlib import redirect_stderr, redirect_stdout

    out, err = StringIO(), StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        evaluate(frame, body, line)
    names = [word for word in words.split() if word[0] != "-"]
    if names:
        kept = type("Captured", (), {"__str__": lambda self: self.stdout})()
        kept.stdout, kept.stderr = out.getvalue(), err.getvalue()
        SPACE[names[0]] = kept

def cell_of_file(frame, words, body, line):
    *options, path = split_words(fill_in(frame, words)) or [""]
    with open(os.path.expanduser(path), "a" if "-a" in options else "w") as file:
        file.write(body)
    print("Wrote %s" % path)

# A cell in another language, as the standard input of its program.
def script(*program):
    def cell(frame, words, body, line):
        from subprocess import CalledProcessError

        argv = [*program, *split_words(fill_in(frame, words))]
        code = spawn(argv, text=body)
        if code:
            raise CalledProcessError(code, " ".join(argv))

    return cell

def shown_as(mime):
    def cell(frame, words, body, line):
        publish("shown", {mime: body})

    return cell

def command(name):
    def line(frame, words):
        SPACE["_exit_code"] = spawn(shell_words(frame, name + " " + words))

    return line

def nothing(frame, words, *cell):
    return None

LINE_MAGICS = {
    "alias_magic": nothing,
    "autoreload": line_of_extension,
    "cd": line_of_cd,
    "config": nothing,
    "env": line_of_env,
    "load_ext": line_of_extension,
    "lsmagic": line_of_list,
    "matplotlib": line_of_matplotlib,
    "pip": line_of_pip,
    "pwd": lambda frame, words: os.getcwd(),
    "pylab": line_of_matplotlib,
    "reload_ext": line_of_extension,
    "run": line_of_run,
    "set_env": line_of_env,
    "sx": lambda frame, words: run_notation(frame, "!!", words),
    "system": lambda frame, words: run_notation(frame, "!!", words),
    "time": line_of_time,
    "timeit": line_of_timeit,
    "who": line_of_who,
    "whos": line_of_who,
}
for name in ("cat", "conda", "cp", "git", "head", "ls", "mamba", "mkdir", "mv", "rm", "rmdir", "uv"):
    LINE_MAGICS[name] = command(name)
CELL_MAGICS = {
    "capture": cell_of_capture,
    "file": cell_of_file,
    "html": shown_as("text/html"),
    "HTML": shown_as("text/html"),
    "javascript": shown_as("application/javascript"),
    "js": shown_as("application/javascript"),
    "latex": shown_as("text/latex"),
    "markdown": shown_as("text/markdown"),
    "script": script(),
    "svg": shown_as("image/svg+xml"),
    "time": cell_of_time,
    "timeit": cell_of_timeit,
    "writefile": cell_of_file,
}
for name in ("bash", "node", "perl", "python3", "ruby", "sh"):
    CELL_MAGICS[name] = script(name)
CELL_MAGICS["python"] = script(sys.executable or "python3")

# A notebook's cells of code, one after the other, until one fails. False if it is no notebook.
def run_notebook(source, name):
    try:
        notebook = fetch("json").loads(source)
        # What is no notebook but has some of these words is Python.
        cells, about, _ = notebook["cells"], notebook["metadata"], notebook["nbformat_minor"]
        spec, info = about.get("kernelspec", {}), about.get("language_info", {})
        language = spec.get("language") or info.get("name") or "python"
        codes = [
            (number, "".join(cell["source"]))
            for number, cell in enumerate(cells, 1)
            if cell["cell_type"] == "code"
        ]
    except (ValueError, LookupError, TypeError, AttributeError):
        return False
    if language.lower() not in ("python", "python3", "ipython"):
        raise UsageError("this is a notebook of %s, and this interpreter runs Python" % language)
    for number, code in codes:
        state.job = code.encode("utf-8", "backslashreplace"), "%s[%d]" % (name, number)
        keep_source(state.job[1], state.job[0])
        execute()
    return True

# A run whose code is not Python as it stands.
def compile_notation(source, name, error):
    text = source.decode("utf-8-sig", "replace")
    found = BEGINS_CELL.match(text)
    if found:
        line = text.count("\n", 0, found.end()) + 1
        body = text[found.end() :].partition("\n")[2]
        call = "__magic__(%r, %r, %r, %d)" % (found[1], found[2].strip(), body, line)
        return [compile(call, name, "eval", FLAGS, True)]
    lines = text.split("\n")
    for _ in range(MAGICS_MAX):
        at = (error.lineno or 0) - 1
        if not 0 <= at < len(lines) or not replace_line(lines, at):
            break
        try:
            return compile_parts("\n".join(lines).encode(), name)
        except SyntaxError as again:
            error = again
    raise error

# Calls what a line or a cell has named. `body` is a cell's, which begins at `line` of its run.
def run_notation(frame, mark, words, body=None, line=0):
    if mark == "!":
        SPACE["_exit_code"] = spawn(shell_words(frame, words))
        return None
    if mark == "!!":
        return spawn(shell_words(frame, words), keep=True).splitlines()
    name = mark.lstrip("%")
    if body is None:
        if mark[:2] == "%%":
            raise UsageError("%s must be the first line of the code" % mark)
        if name not in LINE_MAGICS:
            raise UsageError(explain_unknown(mark, name, LINE_MAGICS))
        return LINE_MAGICS[name](frame, words)
    if name not in CELL_MAGICS:
        raise UsageError(explain_unknown(mark, name, CELL_MAGICS))
    return CELL_MAGICS[name](frame, words, body, line)
