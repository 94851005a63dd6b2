//! Rows of code that is not alone: children, forks, threads, the loop of `asyncio`.

use tests::torture::{Case, End, Text, case};

use super::row;

/// Programs, forks, C code.
pub fn children() -> Vec<Case> {
    vec![
        case("a program", "import subprocess; subprocess.run(['echo', 'sub']).returncode")
            .out("sub\n")
            .value("0"),
        case("its errors", "subprocess.run('echo e >&2; exit 3', shell=True).returncode")
            .err("e\n")
            .value("3"),
        case("its output is taken", "subprocess.check_output(['echo', 'x'])").value("b'x\\n'"),
        case("a pipe to it", "subprocess.run(['cat'], input=b'in\\n').returncode")
            .out("in\n")
            .value("0"),
        case("a shell's command", "import os; os.system('echo 1; echo 2 >&2; exit 4') >> 8")
            .out("1\n")
            .err("2\n")
            .value("4"),
        case("a pipe of a shell", "os.popen('echo popen').read()").value("'popen\\n'"),
        case("a program that is not there", "subprocess.run(['no-such-program'])")
            .error("FileNotFoundError"),
        case("a program that fails", "subprocess.run(['false'], check=True)")
            .error("CalledProcessError"),
        case("a program that takes too long", "subprocess.run(['sleep', '9'], timeout=0.05)")
            .error("TimeoutExpired"),
        case("a program that stays", "os.system('sleep 5 & echo hi')").out("hi\n").value("0"),
        case("a program that is left", "left = subprocess.Popen(['sleep', '1000'])"),
        case("can be ended later", "left.terminate(); left.wait()").value("-15"),
        case(
            "Python itself",
            "import sys; subprocess.run([sys.executable, '-c', 'print(5)']).returncode",
        )
        .out("5\n")
        .value("0"),
        case("what children hold", HELD).value("[]"),
        case("what a shell holds", "os.system('ls -l /proc/self/fd | grep -c socket')")
            .out("0\n")
            .value("256"),
        case("the agent's variables", "[n for n in os.environ if 'BURROW' in n]")
            .value("['BURROW_SESSION']"),
        case(
            "a session of its own",
            "subprocess.run(['echo', 'x'], start_new_session=True) and None",
        )
        .out("x\n"),
        case("a terminal of its own", "import pty; pty.spawn(['echo', 'on a terminal']) or None")
            .out_has("on a terminal"),
        row(
            "C code that prints, in order",
            r"
            import ctypes
            libc = ctypes.CDLL(None)
            print('one')
            libc.printf(b'two\n')
            print('three')
            libc.puts(b'four')
            os.system('echo five')
            libc.printf(b'%d', 6)
            print()
            ",
        )
        .out("one\ntwo\nthree\nfour\nfive\n6\n"),
        row(
            "a fork that ends in order",
            "
            pid = os.fork()
            if pid == 0:
                print('child')
                os._exit(7)
            print('parent', os.waitpid(pid, 0)[1] >> 8)
            ",
        )
        .out("child\nparent 7\n"),
        row(
            "a fork without exit",
            "
            pid = os.fork()
            if pid == 0:
                print('child')
            else:
                print('parent', os.waitpid(pid, 0)[1])
            ",
        )
        .out("child\nparent 0\n"),
        row(
            "a fork that fails",
            "
            pid = os.fork()
            if pid == 0:
                raise ValueError('in the child')
            os.waitpid(pid, 0)[1] >> 8
            ",
        )
        .err_has("ValueError: in the child")
        .value("1"),
        row(
            "a fork that exits",
            "
            pid = os.fork()
            if pid == 0:
                sys.exit(9)
            os.waitpid(pid, 0)[1] >> 8
            ",
        )
        .value("9"),
        row(
            "a fork that shows",
            "
            pid = os.fork()
            if pid == 0:
                display('forged')
            else:
                os.waitpid(pid, 0)
            'mine'
            ",
        )
        .value("'mine'"),
        row(
            "a fork with an unclosed asyncio",
            "
            import asyncio
            await asyncio.sleep(0)
            pid = os.fork()
            if pid == 0:
                os._exit(3)
            os.waitpid(pid, 0)[1] >> 8
            ",
        )
        .value("3"),
        row(
            "forks of forks",
            "
            for _ in range(3):
                if os.fork() == 0:
                    os._exit(0) if _ else os.fork()
                    os._exit(0)
            ",
        ),
        row(
            "a fork of C code",
            "
            pid = ctypes.PyDLL(None).fork()
            if pid == 0:
                print('child')
                os._exit(0)
            os.waitpid(pid, 0)[1]
            ",
        )
        .out("child\n")
        .value("0"),
        case(
            "what has been left",
            "try:\n    while True: os.waitpid(-1, os.WNOHANG)[0] or 1/0\n\
            except (ChildProcessError, ZeroDivisionError): pass",
        ),
    ]
}

const HELD: &str = "import re\nlinks = subprocess.check_output(['ls', '-l', '/proc/self/fd'], \
    close_fds=False).decode()\n[line for line in links.splitlines() if 'socket' in line]";

/// Pools of processes.
pub fn pools() -> Vec<Case> {
    vec![
        row(
            "a pool of forks",
            "
            import multiprocessing
            def square(x):
                return x * x
            with multiprocessing.get_context('fork').Pool(2) as pool:
                made = pool.map(square, range(5))
            made
            ",
        )
        .value("[0, 1, 4, 9, 16]"),
        row(
            "a pool of new interpreters",
            "
            import math
            with multiprocessing.get_context('spawn').Pool(2) as pool:
                made = pool.map(math.factorial, range(5))
            made
            ",
        )
        .value("[1, 1, 2, 6, 24]"),
        row(
            "a fork that speaks",
            "
            process = multiprocessing.get_context('fork').Process(target=print, args=('in a process',))
            process.start()
            process.join()
            process.exitcode
            ",
        )
        .out("in a process\n")
        .value("0"),
        row(
            "an executor",
            "
            from concurrent.futures import ProcessPoolExecutor
            with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context('fork')) as pool:
                made = list(pool.map(square, range(3)))
            made
            ",
        )
        .value("[0, 1, 4]"),
        row(
            "a worker that dies",
            "
            import os
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context('fork')) as pool:
                pool.submit(os._exit, 3).result()
            ",
        )
        .error("BrokenProcessPool"),
        row(
            "a queue between processes",
            "
            fork = multiprocessing.get_context('fork')
            queue = fork.Queue()
            process = fork.Process(target=lambda: queue.put('said'))
            process.start()
            said = queue.get(timeout=20)
            process.join()
            said
            ",
        )
        .value("'said'"),
    ]
}

/// Threads.
pub fn threads() -> Vec<Case> {
    vec![
        row(
            "a thread",
            "
            import threading, time
            thread = threading.Thread(target=lambda: print('in a thread'))
            thread.start()
            thread.join()
            ",
        )
        .out("in a thread\n"),
        row(
            "many threads",
            "
            threads = [threading.Thread(target=print, args=('x' * 10,)) for _ in range(100)]
            for thread in threads: thread.start()
            for thread in threads: thread.join()
            ",
        )
        .out_bytes(1100),
        row(
            "a thread that fails",
            "
            def work():
                1/0
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
            ",
        )
        .err_has("    1/0"),
        row(
            "a thread that exits",
            "
            thread = threading.Thread(target=lambda: exit(3))
            thread.start()
            thread.join()
            5
            ",
        )
        .value("5"),
        row(
            "a pool of threads",
            "
            from concurrent.futures import ThreadPoolExecutor
            pool = ThreadPoolExecutor(1)
            list(pool.map(lambda n: print('x') or n, range(2)))
            ",
        )
        .out("x\nx\n")
        .value("[0, 1]"),
        case("speaks for whoever asks it", "pool.submit(print, 'now').result()").out("now\n"),
        case("a pool that is over", "pool.shutdown()"),
        row(
            "a thread that prints for ever",
            "
            over = False
            def flood():
                while not over:
                    print('late')
                    time.sleep(0.0001)
            thread = threading.Thread(target=flood, daemon=True)
            thread.start()
            ",
        )
        .out_any()
        .late(Text::Any),
        case("beside code of the next run", "time.sleep(0.05); print('own')")
            .out("own\n")
            .late(Text::Any),
        case("until it ends", "over = True; thread.join(); print('own')")
            .out("own\n")
            .late(Text::Any),
        case(
            "a timer",
            "timer = threading.Timer(0.01, print, ['timed']); timer.start(); timer.join()",
        )
        .out("timed\n"),
        case(
            "a bare thread",
            "import _thread\n_thread.start_new_thread(print, ('bare',))\ntime.sleep(0.1)",
        )
        .out("bare\n"),
        case("variables of a thread", "local = threading.local(); local.x = 1"),
        case("are kept", "local.x").value("1"),
        case("the main thread", "threading.current_thread() is threading.main_thread()")
            .value("True"),
        case(
            "an interrupt by a thread",
            "threading.Timer(0.05, _thread.interrupt_main).start()\n\
            for _ in range(2000): time.sleep(0.01)",
        )
        .error("KeyboardInterrupt"),
    ]
}

/// The loop of `asyncio`.
pub fn loops() -> Vec<Case> {
    vec![
        case("await", "import asyncio\nawait asyncio.sleep(0.001, 'slept')").value("'slept'"),
        case("await among statements", "x = await asyncio.sleep(0, 3)\ny = x + 1\ny").value("4"),
        case("await in a loop", "for i in range(3): print(await asyncio.sleep(0, i))")
            .out("0\n1\n2\n"),
        case("await in a function's default", "def f(x=await asyncio.sleep(0, 6)): return x\nf()")
            .value("6"),
        row(
            "async for, async with",
            "
            async def count():
                for i in range(3):
                    yield i
            lock = asyncio.Lock()
            async with lock:
                async for i in count():
                    print(i)
            [i async for i in count()]
            ",
        )
        .out("0\n1\n2\n")
        .value("[0, 1, 2]"),
        case("gather", "await asyncio.gather(*(asyncio.sleep(0.01, i) for i in range(3)))")
            .value("[0, 1, 2]"),
        case("an error behind an await", "await asyncio.sleep(0)\n1/0").error("ZeroDivisionError"),
        case("an error that is awaited", "async def bad(): {}['k']\nawait bad()").error("KeyError"),
        case("a timeout", "await asyncio.wait_for(asyncio.sleep(9), 0.01)").error("TimeoutError"),
        case("asyncio.run", "async def four(): return 4\nasyncio.run(four())").value("4"),
        case("asyncio.run again", "asyncio.run(four()), asyncio.run(four())").value("(4, 4)"),
        case(
            "asyncio.run within a loop",
            "await asyncio.sleep(0)\nc = four()\ntry: asyncio.run(c)\n\
            finally: c.close()",
        )
        .error("RuntimeError"),
        case(
            "a loop of its own",
            "loop = asyncio.new_event_loop()\nloop.run_until_complete(four())",
        )
        .value("4"),
        case("that is closed", "loop.close()"),
        case("await again", "await four()").value("4"),
        case(
            "a loop in a thread",
            "await asyncio.get_running_loop().run_in_executor(None, asyncio.run, four())",
        )
        .value("4"),
        case(
            "a task of the background",
            "seen = []\nasync def work():\n    for i in range(3):\n        \
            await asyncio.sleep(0.01); seen.append(i)\ntask = asyncio.ensure_future(work())\n\
            await asyncio.sleep(0)",
        ),
        case("goes on between runs", "import time\nawait task\nseen").value("[0, 1, 2]"),
        case(
            "a task that fails unheard",
            "async def lost(): 1/0\ntask = asyncio.ensure_future(lost())\n\
            await asyncio.sleep(0)\ndel task",
        )
        .err_has("ZeroDivisionError"),
        case(
            "a program",
            "p = await asyncio.create_subprocess_exec('echo', 'sub')\nawait p.wait()",
        )
        .out("sub\n")
        .value("0"),
        case(
            "a server",
            "async def hello(r, w): w.write(b'hi'); w.close()\n\
            server = await asyncio.start_server(hello, '127.0.0.1', 0)",
        ),
        case(
            "answers in a later run",
            "r, w = await asyncio.open_connection(*server.sockets[0].getsockname())\n\
            said = await r.read()\nw.close(); server.close()\nsaid",
        )
        .value("b'hi'"),
        case("exit in a coroutine", "async def leave(): exit(3)\nawait leave()")
            .ends(End::Exited(3)),
        case("exit in a task", "task = asyncio.ensure_future(leave())\nawait asyncio.sleep(0.05)")
            .ends(End::Exited(3)),
        case("which nobody has heard of", "import gc\ntask = None\ngc.collect(); None").err_any(),
        case("await after that", "await four()").value("4"),
        case("an interrupt of its own", "async def stop(): raise KeyboardInterrupt\nawait stop()")
            .error("KeyboardInterrupt"),
        case("in a task", "task = asyncio.ensure_future(stop())\nawait asyncio.sleep(0.05)")
            .error("KeyboardInterrupt"),
        case("await after this", "await four()").value("4"),
        case(
            "and is not heard of either",
            "import sys\ntask = sys.last_exc = sys.last_value = sys.last_traceback = None\n\
            gc.collect(); None",
        )
        .err_any(),
        case("cancelled", "raise asyncio.CancelledError").error("CancelledError"),
        case("cancels itself", "asyncio.current_task().cancel()\nawait asyncio.sleep(1)")
            .error("CancelledError"),
        case(
            "a loop that is stopped",
            "asyncio.get_running_loop().stop()\nawait asyncio.sleep(0.02)",
        )
        .error("RuntimeError")
        .err_any(),
        case("await after that one", "await four()").value("4"),
        case(
            "a loop that is closed",
            "l = asyncio.get_event_loop_policy().get_event_loop(); l.close()",
        )
        .err_any(),
        case("is made anew", "await four()").value("4"),
        case("no loop", "asyncio.set_event_loop(None)"),
        case("is no matter", "await four()").value("4"),
        case("a busy wait", "for _ in range(1000): await asyncio.sleep(0)"),
        case("debugged", "asyncio.run(four(), debug=True)").value("4"),
    ]
}
