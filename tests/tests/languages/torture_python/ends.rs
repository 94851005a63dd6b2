//! Rows of code that ends badly: errors, exits, crashes, endless loops.

use tests::torture::{Case, End, case};

use super::row;

/// What the signals are called by.
const SIGABRT: i32 = 6;
const SIGKILL: i32 = 9;
const SIGSEGV: i32 = 11;
const SIGTERM: i32 = 15;

/// Errors of every kind.
pub fn errors() -> Vec<Case> {
    vec![
        case("an error in the midst", "print('before')\nraise ValueError('v')\nprint('after')")
            .out("before\n")
            .error("ValueError"),
        case("an unknown name", "nope").error("NameError"),
        case("an error of one's own", "class Mine(Exception): pass\nraise Mine").error("Mine"),
        case("no exception", "raise 5").error("TypeError"),
        case("a bare raise", "raise").error("RuntimeError"),
        case("a missing module", "import no_such_module").error("ModuleNotFoundError"),
        case("a failed assertion", "assert 1 == 2, 'no'").error("AssertionError"),
        case("an error while another is handled", "try: 1/0\nexcept Exception: nope")
            .error("NameError"),
        case(
            "an error with a cause",
            "try: 1/0\nexcept Exception as e: raise KeyError('k') from e",
        )
        .error("KeyError"),
        case("an error that is its own cause", "e = ValueError(); e.__cause__ = e; raise e")
            .error("ValueError"),
        case("an interrupt of its own", "raise KeyboardInterrupt").error("KeyboardInterrupt"),
        case("the end of a generator", "next(iter([]))").error("StopIteration"),
        case("GeneratorExit", "raise GeneratorExit").error("GeneratorExit"),
        case("a base exception", "class Base(BaseException): pass\nraise Base").error("Base"),
        case(
            "an error whose text fails",
            "class E(Exception):\n    def __str__(self): 1/0\nraise E",
        )
        .error("E"),
        case(
            "an error whose text exits",
            "class E(Exception):\n    def __str__(self): exit(4)\nraise E",
        )
        .error("E"),
        case("an error of strange making", STRANGE).error("Strange"),
        case("a long message", "raise ValueError('m' * 10**7)").error("ValueError"),
        case("a long line", format!("x = {}1/0", "1 + ".repeat(2000))).error("ZeroDivisionError"),
        case("recursion", "def f(): f()\nf()").error("RecursionError"),
        case(
            "recursion in a text",
            "class R:\n    def __repr__(self): return repr(self)\nrepr(R()) and None",
        )
        .error("RecursionError"),
        case("recursion in turns", "def a(n): b(n + 1)\ndef b(n): a(n + 1)\na(0)")
            .error("RecursionError"),
        case("a low limit", "import sys; sys.setrecursionlimit(80)\ndef f(): f()\nf()")
            .error("RecursionError"),
        case("is raised again", "def g(n): return n and g(n - 1)\ng(200)").value("0"),
        case("too much at once", "x = [0] * 10**15").error("MemoryError"),
        row(
            "too much by and by",
            "
            import resource
            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, hard))
            held = []
            while True:
                held.append(bytearray(10 << 20))
            ",
        )
        .error("MemoryError"),
        case("room again", "del held; resource.setrlimit(resource.RLIMIT_AS, (soft, hard))"),
        case(
            "a warning that is an error",
            "import warnings\nwarnings.simplefilter('error')\n\
            try: warnings.warn('w')\nfinally: warnings.resetwarnings()",
        )
        .error("UserWarning"),
        case(
            "exhausted descriptors",
            "import os, resource\n\
            files = resource.getrlimit(resource.RLIMIT_NOFILE)\n\
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, files[1]))\n\
            opened = []\nwhile True: opened.append(os.dup(1))",
        )
        .error("OSError"),
        case(
            "and given back",
            "for fd in opened: os.close(fd)\n\
            resource.setrlimit(resource.RLIMIT_NOFILE, files)",
        ),
        case("a broken pipe", "r, w = os.pipe(); os.close(r); os.write(w, b'x')")
            .error("BrokenPipeError"),
        case("closed", "os.close(w)"),
    ]
}

const STRANGE: &str = "class Meta(type):\n    def __getattribute__(cls, name):\n        \
    if name == '__name__': return super().__getattribute__(name)\n        return super().__getattribute__(name)\n\
    class Strange(Exception, metaclass=Meta):\n    __cause__ = property(lambda self: 1/0)\nraise Strange";

/// Memory that is used up to the last byte, which takes a while.
pub fn memory() -> Vec<Case> {
    vec![
        row(
            "too much in small pieces",
            "
            import resource
            soft, hard = resource.getrlimit(resource.RLIMIT_AS)
            resource.setrlimit(resource.RLIMIT_AS, (400 << 20, hard))
            def fill():
                held = []
                while True:
                    held.append([held])
            fill()
            ",
        )
        .error("MemoryError"),
        row(
            "room again",
            "
            resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
            ",
        ),
        row(
            "too much that stays",
            "
            resource.setrlimit(resource.RLIMIT_AS, (400 << 20, hard))
            held = []
            while True:
                held.append([held])
            ",
        )
        .error("MemoryError"),
        case("goes on with little", "resource.setrlimit(resource.RLIMIT_AS, (soft, hard))"),
    ]
}

/// The end of a run by its own word.
pub fn exits() -> Vec<Case> {
    let exited = |name, code: &'static str, status| case(name, code).ends(End::Exited(status));
    vec![
        exited("exit", "print('before')\nexit(3)\nprint('after')", 3).out("before\n"),
        exited("exit with nothing", "exit()", 0),
        exited("quit", "quit()", 0),
        exited("quit with a number", "quit(5)", 5),
        exited("sys.exit", "import sys; sys.exit(7)", 7),
        exited("sys.exit with none", "sys.exit(None)", 0),
        exited("sys.exit with words", "sys.exit('words')", 1).err("words\n"),
        exited("sys.exit with a tuple", "sys.exit((1, 2))", 1).err("(1, 2)\n"),
        exited("sys.exit with a truth", "sys.exit(True)", 1),
        exited("sys.exit with less than nothing", "sys.exit(-1)", 255),
        exited("sys.exit with too much", "sys.exit(259)", 3),
        exited("sys.exit with far too much", "sys.exit(2**70 + 1)", 1),
        exited("a raised exit", "raise SystemExit(9)", 9),
        exited(
            "exit in a function",
            "def f():\n    try: exit(4)\n    finally: print('finally')\nf()",
            4,
        )
        .out("finally\n"),
        exited("exit in a comprehension", "[exit(6) for _ in range(3)]", 6),
        exited("exit amid output", "sys.stdout.write('x' * 10**6); exit(2)", 2)
            .out_bytes(1_000_000),
        case("exit that is caught", "try: exit(3)\nexcept SystemExit as e: print(e.code)")
            .out("3\n"),
        exited("exit in code that is run", "exec('import sys; sys.exit(8)')", 8),
        exited(
            "exit with words that fail",
            "class W:\n    def __str__(self): 1/0\nsys.exit(W())",
            1,
        )
        .err_any(),
    ]
}

/// The end of the interpreter.
pub fn crashes() -> Vec<Case> {
    let died = |name, code: &'static str, end| case(name, code).ends(end).out("before\n");
    vec![
        died("os._exit", "print('before'); import os; os._exit(3)", End::Code(3)),
        died("os._exit with zero", "print('before'); import os; os._exit(0)", End::Code(0)),
        died(
            "kill -9",
            "print('before'); import os; os.kill(os.getpid(), 9)",
            End::Signal(SIGKILL),
        ),
        died(
            "a signal that ends",
            "print('before'); import os; os.kill(os.getpid(), 15)",
            End::Signal(SIGTERM),
        ),
        died("abort", "print('before'); import os; os.abort()", End::Signal(SIGABRT)),
        died(
            "a fault",
            "print('before'); import ctypes; ctypes.string_at(0)",
            End::Signal(SIGSEGV),
        ),
        died(
            "C code that exits",
            "print('before'); import ctypes; ctypes.CDLL(None)._exit(5)",
            End::Code(5),
        ),
        died(
            "a thread that ends all",
            "print('before'); import os, threading, time\n\
            threading.Timer(0.05, os._exit, [6]).start(); time.sleep(20)",
            End::Code(6),
        ),
        died(
            "another program in its place",
            "print('before'); import os; os.execvp('sh', ['sh', '-c', 'exit 4'])",
            End::Code(4),
        ),
        case("a new interpreter", "1 + 1").value("2"),
    ]
}

/// What an interrupt as ctrl-c ends, by the deadline here.
pub fn waits() -> Vec<Case> {
    let stuck = |name, code: &'static str| case(name, code).within_ms(150);
    // A busy machine may need all of that time for one of these.
    let imports =
        "import asyncio, os, queue, re, select, signal, socket, subprocess, sys, threading, time";
    vec![
        case("what the rows use", imports),
        stuck("a loop", "while True: pass"),
        stuck("a loop that counts", "n = 0\nwhile True: n += 1"),
        stuck("sleep", "import time; time.sleep(1000)"),
        stuck("many sleeps", "while True: time.sleep(0.001)"),
        stuck("a read", "import os\nr, w = os.pipe()\nos.read(r, 1)"),
        stuck("a read of a file", "os.fdopen(r).read()"),
        stuck("a full pipe", "r, w = os.pipe()\nwhile True: os.write(w, b'x' * 65536)"),
        stuck(
            "a socket",
            "import socket\ns = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()\ns.accept()",
        ),
        stuck("select", "import select; select.select([s], [], [])"),
        stuck("poll", "p = select.poll(); p.register(s); p.poll()"),
        stuck(
            "a lock",
            "import threading\nlock = threading.Lock(); lock.acquire(); lock.acquire()",
        ),
        stuck("an event", "threading.Event().wait()"),
        stuck("a condition", "c = threading.Condition()\nwith c: c.wait()"),
        stuck("a queue", "import queue; queue.Queue().get()"),
        stuck(
            "a thread",
            "t = threading.Thread(target=time.sleep, args=(2,), daemon=True); t.start(); t.join()",
        ),
        stuck("a program", "import subprocess; subprocess.run(['sleep', '1000'])"),
        stuck("a shell's program", "subprocess.run('sleep 1000; true', shell=True)"),
        stuck(
            "a program that is listened to",
            "subprocess.check_output('sleep 1000; true', shell=True)",
        ),
        stuck("a pause", "import signal; signal.pause()"),
        stuck("a pattern", "import re; re.match('(a+)+$', 'a' * 40 + 'b')"),
        stuck("a number", "x = 3 ** 1000\nwhile True: x * x"),
        stuck("a flood", "while True: print('x' * 1000)").out_any(),
        stuck("a flood of errors", "import sys\nwhile True: sys.stderr.write('x\\n')").err_any(),
        stuck(
            "a value that is never shown",
            "class R:\n    def __repr__(self): time.sleep(1000)\nR()",
        ),
        stuck(
            "an error that is never told",
            "class E(Exception):\n    def __str__(self):\n        \
            while True: pass\nraise E",
        ),
        stuck("await", "import asyncio\nawait asyncio.sleep(1000)"),
        stuck("await for ever and ever", "while True: await asyncio.sleep(0)"),
        stuck(
            "a coroutine that never awaits",
            "async def spin():\n    while True: pass\nawait spin()",
        ),
        stuck("asyncio.run", "asyncio.run(asyncio.sleep(1000))"),
        stuck("a loop that has nothing to do", "asyncio.new_event_loop().run_forever()"),
        stuck("a future", "await asyncio.get_running_loop().create_future()"),
        stuck(
            "C code that sleeps",
            "import ctypes; ctypes.CDLL(None).sleep(1000); time.sleep(1000)",
        )
        .err_any(),
        stuck(
            "C code that sleeps and lets nobody in",
            "ctypes.PyDLL(None).sleep(1000); time.sleep(1000)",
        ),
        stuck(
            "rubbish",
            "import gc\nclass N: pass\nwhile True:\n    a, b = N(), N(); a.b, b.a = b, a; gc.collect()",
        ),
        case("no program is left", LEFT).value("[]"),
        case("await is well", "await asyncio.sleep(0, 'well')").value("'well'"),
    ]
}

const LEFT: &str = "import glob\ndef line(p):\n    try: return open(p, 'rb').read()\n    except OSError: return b''\n\
    [c for c in map(line, glob.glob('/proc/[0-9]*/cmdline')) if b'sleep\\0001000' in c]";

/// Code that only a firm interrupt ends; the state is still kept.
pub fn stubborn() -> Vec<Case> {
    let stuck = |name, code: &'static str| case(name, code).within_ms(100);
    vec![
        stuck(
            "everything is caught",
            "import time\nwhile True:\n    try: time.sleep(10)\n    \
            except BaseException: pass",
        ),
        stuck(
            "and in C code",
            "while True:\n    try: sum(range(1000))\n    except BaseException: continue",
        ),
        stuck(
            "and kept",
            "kept = []\nwhile True:\n    try: time.sleep(1)\n    \
            except BaseException as e: kept.append(e)",
        ),
        stuck(
            "and thrice",
            "while True:\n  try:\n    while True:\n      try:\n        while True:\n          \
            try: time.sleep(1)\n          except BaseException: pass\n      except BaseException: pass\n  \
            except BaseException: pass",
        ),
        stuck(
            "SIGINT is ignored",
            "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n\
            while True: pass",
        ),
        case("until the next run", "signal.getsignal(signal.SIGINT) is signal.default_int_handler")
            .value("True"),
        stuck(
            "SIGINT is taken",
            "signal.signal(signal.SIGINT, lambda *_: None)\nwhile True: time.sleep(1)",
        ),
        stuck(
            "SIGINT is blocked",
            "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n\
            while True: time.sleep(1)",
        ),
        case("until the next run as well", "signal.pthread_sigmask(signal.SIG_BLOCK, [])")
            .value("set()"),
        stuck(
            "suppressed",
            "import contextlib\nwhile True:\n    with contextlib.suppress(BaseException): \
            time.sleep(1)",
        ),
        stuck("finally and finally", "def f():\n    try: time.sleep(5)\n    finally: f()\nf()"),
        stuck(
            "a task that will not be cancelled",
            "import asyncio\nasync def f():\n    while True:\n        \
            try: await asyncio.sleep(1)\n        except BaseException: pass\nawait f()",
        ),
        case("await is well", "await asyncio.sleep(0, 'well')").value("'well'"),
        case("nothing is traced", "import sys; sys.gettrace()"),
    ]
}

/// What ends with the interpreter alone.
pub fn killed() -> Vec<Case> {
    let stuck = |name, code: &'static str| case(name, code).within_ms(100).loses_state();
    vec![
        stuck("C code that counts", "import itertools; sum(itertools.repeat(0))"),
        stuck(
            "all signals are blocked",
            "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n\
            while True: pass",
        ),
        stuck("a wait that no signal ends", "import signal; signal.sigwait([signal.SIGUSR1])"),
        case("a new interpreter", "1 + 1").value("2"),
    ]
}

/// Signals, and timers of them, that a run leaves behind.
pub fn signals() -> Vec<Case> {
    vec![
        case(
            "an alarm",
            "import signal, time\ndef late(*_): raise TimeoutError('mine')\n\
            signal.signal(signal.SIGALRM, late); signal.setitimer(0, 0.02)\ntime.sleep(20)",
        )
        .error("TimeoutError"),
        case("is gone with its run", "signal.getsignal(signal.SIGALRM) == signal.SIG_DFL")
            .value("True"),
        case(
            "an alarm that is left",
            "signal.signal(signal.SIGALRM, late); signal.setitimer(0, 0.001, 0.001) and None",
        )
        .err_any(),
        case("does not ring", "time.sleep(0.02); signal.getitimer(0)").value("(0.0, 0.0)"),
        case("an alarm that would end all", "signal.alarm(1) or None"),
        case("does not", "time.sleep(1.1)"),
        case(
            "a handler",
            "import os\nsignal.signal(signal.SIGUSR1, lambda *_: print('got it'))\n\
            os.kill(os.getpid(), signal.SIGUSR1)",
        )
        .out("got it\n"),
        case(
            "all signals blocked",
            "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()) or None",
        ),
        case("are let in again", "signal.pthread_sigmask(signal.SIG_BLOCK, [])").value("set()"),
        case(
            "a descriptor for signals",
            "import socket\na, b = socket.socketpair(); a.setblocking(False)\n\
            signal.set_wakeup_fd(a.fileno()) and None",
        ),
        case("is taken back", "signal.set_wakeup_fd(-1)").value("-1"),
        case("an interrupt by itself", "os.kill(os.getpid(), signal.SIGINT)\ntime.sleep(20)")
            .error("KeyboardInterrupt"),
        case("the firm signal by itself", "os.kill(os.getpid(), 40)\ntime.sleep(20)")
            .error("KeyboardInterrupt"),
        case("the firm signal is ignored", "signal.signal(40, signal.SIG_IGN) and None"),
        case("until the next run", "callable(signal.getsignal(40))").value("True"),
        case(
            "children's ends",
            "signal.signal(signal.SIGCHLD, lambda *_: print('child'))\nos.system('true')\n\
            import subprocess; subprocess.run(['true']) and None",
        )
        .out_has("child\n"),
        case("the module is broken", "signal.signal = signal.getsignal = None"),
        case("which stays", "signal.signal"),
    ]
}
