//! Rows of code that ruins what it shares with the driver, each in a context of its own, and what must
//! hold there afterwards.

use tests::torture::{Case, End, case};

/// What a ruined interpreter still does. Nothing of it needs what a program may take away from its own
/// names.
pub fn still() -> Vec<Case> {
    vec![
        case("hello", "import sys; sys.stdout.write('hello\\n') and None").out("hello\n"),
        case("a value", "1 + 1").value("2"),
        case("a class", "class C:\n    x = 3\nC.x").value("3"),
        case("a syntax error", "x = = 1").error("SyntaxError"),
        case("an error", "1/0").error("ZeroDivisionError"),
        case("an exit", "raise SystemExit(2)").ends(End::Exited(2)),
        case("a loop", "while True: pass").within_ms(100),
        case("a value after that", "2 + 2").value("4"),
    ]
}

/// The ruin: a name and the code.
pub const RUINS: &[(&str, &str)] = &[
    ("print is a number", "print = 5"),
    ("no print", "import builtins; builtins.print = None"),
    ("another print", "import builtins; builtins.print = lambda *a, **k: 1/0"),
    ("no input", "import builtins; builtins.input = None; input = None"),
    ("no len", "import builtins; del builtins.len"),
    ("no builtins in the module", "__builtins__ = None"),
    ("empty builtins in the module", "__builtins__ = {}"),
    ("no builtins", "import builtins\nfor n in list(vars(builtins)): delattr(builtins, n)"),
    ("no import", "import builtins; builtins.__import__ = None"),
    ("no classes", "import builtins; del builtins.__build_class__"),
    ("other exceptions", "import builtins; builtins.Exception = 5; builtins.BaseException = None"),
    (
        "builtins that fail",
        "import builtins\ndef bad(*a, **k): raise MemoryError\n\
        for n in ('repr', 'str', 'isinstance', 'getattr', 'compile', 'exec', 'eval', 'type', 'bytes'): \
        setattr(builtins, n, bad)",
    ),
    ("no standard output", "import sys; sys.stdout = sys.stderr = sys.stdin = None"),
    ("a string for an output", "import sys; sys.stdout = 'x'; sys.stderr = 5"),
    (
        "deleted outputs",
        "import sys; del sys.stdout, sys.stderr, sys.stdin, sys.__stdout__, sys.__stderr__",
    ),
    (
        "an output that fails",
        "import sys\nclass Bad:\n    def write(self, text): 1/0\n    flush = write\n\
        sys.stdout = sys.stderr = Bad()",
    ),
    (
        "a ruined class of the output",
        "import io; io.TextIOWrapper = io.RawIOBase = io.StringIO = None",
    ),
    (
        "a closed stream",
        "import sys; sys.__stdout__.close(); sys.__stdin__.close(); sys.stdout.close()",
    ),
    ("no modules", "import sys; sys.modules.clear()"),
    ("other modules", "import sys; sys.modules = {}"),
    ("deleted modules", "import sys; del sys.modules"),
    ("modules that are nothing", "import sys\nfor n in list(sys.modules): sys.modules[n] = None"),
    ("no main module", "import sys; del sys.modules['__main__']"),
    (
        "another main module",
        "import sys, types; sys.modules['__main__'] = types.ModuleType('__main__')",
    ),
    (
        "no finders",
        "import sys; sys.meta_path = []; sys.path_hooks = []; sys.path_importer_cache.clear()",
    ),
    ("no path", "import sys; sys.path = None; del sys.argv"),
    ("no names", "globals().clear()"),
    ("another name", "__name__ = 5; __spec__ = __loader__ = __doc__ = 1"),
    ("no hooks", "import sys; sys.excepthook = sys.displayhook = sys.unraisablehook = None"),
    ("deleted hooks", "import sys; del sys.excepthook, sys.__excepthook__, sys.__displayhook__"),
    ("hooks that fail", "import sys\ndef bad(*_): 1/0\nsys.excepthook = sys.unraisablehook = bad"),
    ("a display that is none", "import builtins; builtins.display = display = None"),
    (
        "a ruined os",
        "import os\nfor n in ('write', 'read', 'dup2', 'close', 'getpid', '_exit', 'fork', 'stat', 'fsencode'): \
        setattr(os, n, None)",
    ),
    (
        "a ruined posix",
        "import posix\nfor n in dir(posix):\n    if n[0] != '_': setattr(posix, n, None)",
    ),
    (
        "a ruined socket",
        "import socket, _socket; socket.socket.recvmsg = socket.socket.recv = None\n\
        for n in dir(_socket):\n    if n[0] != '_': setattr(_socket, n, None)",
    ),
    (
        "a ruined signal",
        "import signal, _signal\nfor m in signal, _signal:\n    for n in dir(m):\n        \
        if n[0] != '_': setattr(m, n, None)",
    ),
    (
        "a ruined thread",
        "import _thread, threading\nfor m in _thread, threading:\n    for n in dir(m):\n        \
        if n[0] != '_': setattr(m, n, None)",
    ),
    (
        "a ruined time",
        "import time\nfor n in dir(time):\n    if n[0] != '_': setattr(time, n, None)",
    ),
    (
        "ruined tracebacks",
        "import traceback\nfor n in dir(traceback):\n    if n[0] != '_': setattr(traceback, n, None)",
    ),
    (
        "ruined lines",
        "import linecache; linecache.cache = None; linecache.getline = linecache.checkcache = None",
    ),
    (
        "ruined lines of another kind",
        "import linecache\nclass Bad(dict):\n    def __setitem__(self, k, v): 1/0\n    \
        def get(self, *_): 1/0\nlinecache.cache = Bad()",
    ),
    (
        "ruined warnings",
        "import warnings; warnings.warn = warnings.showwarning = warnings.filters = None",
    ),
    (
        "a ruined asyncio",
        "import asyncio\nfor n in dir(asyncio):\n    if n[0] != '_': setattr(asyncio, n, None)",
    ),
    (
        "a ruined importlib",
        "import importlib, importlib.machinery, importlib.util\n\
        importlib.import_module = importlib.machinery.ModuleSpec = importlib.util.find_spec = None",
    ),
    (
        "a ruined sys",
        "import sys\nfor n in ('getrefcount', 'settrace', 'gettrace', 'getprofile', 'setprofile', '_getframe', \
        'getrecursionlimit', 'setrecursionlimit', 'exc_info', 'version_info', 'version', 'executable', 'byteorder'): setattr(sys, n, None)",
    ),
    ("a ruined resource", "import resource; resource.getrusage = None"),
    ("contextvars", "import contextvars; contextvars.ContextVar = contextvars.copy_context = None"),
    (
        "another context",
        "import contextvars\nfor v in list(contextvars.copy_context()): v.set(None)",
    ),
    (
        "a trace of everything",
        "import sys, threading\nt = lambda *a: t\nsys.settrace(t); sys.setprofile(t); threading.settrace(t)",
    ),
    (
        "a trace that fails",
        "import sys\ndef bad(*_): raise ValueError\nsys.settrace(bad); sys.setprofile(bad)",
    ),
    ("a low recursion limit", "import sys; sys.setrecursionlimit(40)"),
    ("slow switches", "import sys; sys.setswitchinterval(100)"),
    (
        "rubbish at every step",
        "import gc; gc.set_threshold(1); gc.set_debug(0)\nkept = []\nclass R:\n    \
        def __del__(self): kept.append(self)\nfor _ in range(1000): R().r = R()",
    ),
    ("no rubbish at all", "import gc; gc.disable(); gc.freeze()"),
    ("audit hooks", "import sys; sys.addaudithook(lambda *_: None)"),
    (
        "a removed directory",
        "import os, tempfile; d = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)",
    ),
    ("another root", "import os, tempfile; os.chroot(tempfile.mkdtemp())"),
    ("fewer privileges", "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)"),
    ("no environment", "import os; os.environ.clear(); os.environ['PYTHONSTARTUP'] = '/nope'"),
    ("closed 0, 1 and 2", "import os; os.closerange(0, 3)"),
    ("closed 1", "import os; os.close(1); held = open('/dev/null')"),
    (
        "other 0, 1 and 2",
        "import os; n = os.open('/dev/full', os.O_RDWR)\nfor fd in range(3): os.dup2(n, fd)",
    ),
    (
        "outputs that do not wait",
        "import os; os.set_blocking(1, False); os.set_blocking(2, False); print('x' * 200000)",
    ),
    (
        "garbage in every descriptor",
        "import os\nfor text in (b'', b'garbage', b'\\0' * 40, b'x' * 60000):\n    \
        for fd in range(3, 2000):\n        try: os.write(fd, text)\n        except OSError: pass",
    ),
    (
        "a full table of descriptors",
        "import os, resource\n\
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))\nheld = []\ntry:\n    while True: held.append(os.open('/dev/null', 0))\n\
        except OSError: pass\nfor fd in held[-8:]: os.close(fd)",
    ),
    (
        "a channel that does not wait",
        "import os\nfor fd in range(3, 2000):\n    try: os.set_blocking(fd, False)\n    \
        except OSError: pass",
    ),
    ("an umask", "import os; os.umask(0o777)"),
    ("niceness", "import os; os.nice(19) and None"),
    ("a limit of files", "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"),
    (
        "a limit of descriptors",
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (12, 12))",
    ),
    ("a session of its own", "import os\ntry: os.setsid()\nexcept OSError: os.setpgid(0, 0)"),
    (
        "a locale",
        "import locale\ntry: locale.setlocale(locale.LC_ALL, 'C')\nexcept Exception: pass",
    ),
    (
        "a thread that never ends",
        "import threading\ndef work():\n    while True: pass\nthreading.Thread(target=work, daemon=True).start()",
    ),
    (
        "a handler of all that is fatal",
        "import faulthandler; faulthandler.enable(); faulthandler.dump_traceback_later(1000)",
    ),
];

/// What ends the interpreter when the run or the next does, and never anything else.
pub const FATAL: &[(&str, &str)] = &[
    ("a closed channel", "import os\nprint('before')\nos.closerange(3, 70000)\nwhile True: pass"),
    (
        "a channel that is another",
        "import os\nprint('before')\nn = os.open('/dev/null', os.O_RDWR)\n\
        for fd in range(4, 2000):\n    try: os.fstat(fd); os.dup2(n, fd)\n    except OSError: pass",
    ),
    (
        "a channel that is shut",
        "import os, socket\nprint('before')\nfor fd in range(3, 2000):\n    \
        try: socket.socket(fileno=os.dup(fd)).shutdown(socket.SHUT_RDWR)\n    except OSError: pass",
    ),
    ("all descriptors", "import os\nprint('before')\nos.closerange(0, 70000)\nwhile True: pass"),
    (
        "all of the interpreter",
        "print('before')\nimport gc\nfor d in gc.get_objects():\n    \
        if type(d) is dict and 'CHANNEL' in d: d.clear()",
    ),
    (
        "the names of all frames",
        "print('before')\nimport sys\nf = sys._getframe()\nwhile f:\n    \
        f.f_globals.clear() if f.f_globals is not globals() else None\n    f = f.f_back",
    ),
    (
        "a stack of C code without end",
        "print('before')\nimport sys\nsys.setrecursionlimit(10**9)\n\
        class R:\n    def __getattr__(self, name): return getattr(self, name)\nR().x",
    ),
];
