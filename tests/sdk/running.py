"""`sandbox.repl.run`: what code says, how it ends, and what is left for the next."""

import asyncio
import concurrent.futures
import json
import time

from microsandbox import NodeSandbox, PythonSandbox

import wire
from wire import BAD_PARAMS, Sandbox, call, failure, text, took


def the_last_expressions_value_is_echoed():
    with Sandbox() as sandbox:
        for code, said in (
            ("1+1", "2\n"),
            ("'a'", "'a'\n"),
            ("None", ""),
            ("x = 5", ""),
            ("x = 5\nx", "5\n"),
            ("print('p')\n'v'", "p\n'v'\n"),
            ("if x:\n    x", ""),
            ("'two\\nlines'", "'two\\nlines'\n"),
            ("[1,\n 2]", "[1, 2]\n"),
        ):
            told = sandbox.run(code)
            assert text(told) == said and told["status"] == "success", (code, told)
        assert text(sandbox.run("1+1", "nodejs")) == "2\n"


async def the_sdk_shows_the_last_expressions_value():
    async with PythonSandbox.create() as python:
        assert await (await python.run("1+1")).output() == "2"
    async with NodeSandbox.create() as node:
        assert await (await node.run("1+1")).output() == "2"


def the_language_is_echoed_as_it_was_asked_for():
    with Sandbox() as sandbox:
        for language, code in (
            ("python", "print(7)"),
            ("nodejs", "console.log(7)"),
            ("node", "console.log(7)"),
            ("javascript", "console.log(7)"),
        ):
            told = sandbox.run(code, language)
            assert (told["language"], told["status"]) == (language, "success"), told
            assert text(told) == "7\n", told


def an_unknown_language_is_refused_by_its_name():
    with Sandbox() as sandbox:
        for language in ("cobol", "", "Python\n"):
            failed = failure(sandbox.run, "1", language)
            assert failed.code == BAD_PARAMS and "python" in failed.message, failed
        assert text(sandbox.run("print('on')")) == "on\n"


def state_stays_between_runs_of_a_language_and_not_between_languages():
    with Sandbox() as sandbox:
        sandbox.run("import math\nx = 42")
        sandbox.run("var x = 'javascript'", "nodejs")
        sandbox.run("y = x * 2")
        assert text(sandbox.run("print(y, math.floor(2.5))")) == "84 2\n"
        # All the names of JavaScript are one interpreter.
        for name in ("nodejs", "node", "javascript"):
            assert text(sandbox.run("console.log(x)", name)) == "javascript\n"


def output_is_never_null():
    with Sandbox() as sandbox:
        for code in ("pass", "", "\n\n", "# nothing", "x = 1"):
            told = sandbox.run(code)
            assert told["output"] == [] and told["status"] == "success", (code, told)


def blank_lines_and_their_order_are_kept():
    with Sandbox() as sandbox:
        told = sandbox.run("print('a\\n\\n\\nb')\nprint()\nprint('  c  ')\nprint('\\t')")
        assert text(told) == "a\n\n\nb\n\n  c  \n\t\n", told


def code_without_a_final_newline_says_all():
    with Sandbox() as sandbox:
        assert text(sandbox.run("print('x', end='')")) == "x\n"
        assert text(sandbox.run("print('y', end='')\nprint('z')")) == "yz\n"


def a_carriage_return_stays_within_its_line():
    with Sandbox() as sandbox:
        told = sandbox.run("print('10 %\\r20 %')")
        assert text(told) == "10 %\r20 %\n", told


def stdout_and_stderr_are_apart():
    with Sandbox() as sandbox:
        told = sandbox.run("import sys\nprint('o')\nprint('e', file=sys.stderr)\nprint('p')")
        assert (text(told), text(told, "stderr")) == ("o\np\n", "e\n"), told
        assert told["status"] == "success"


async def a_division_by_zero_is_a_result_that_has_an_error():
    async with PythonSandbox.create() as sandbox:
        ran = await sandbox.run("print('before')\n1/0\nprint('after')")
        assert ran.has_error() and ran.status in ("error", "exception")
        assert "ZeroDivisionError: division by zero" in await ran.error(), await ran.error()
        assert await ran.output() == "before"
        ran = await sandbox.run("print('next')")
        assert (await ran.output(), ran.has_error(), ran.status) == ("next", False, "success")
    async with NodeSandbox.create() as sandbox:
        ran = await sandbox.run("console.log('before'); null.x")
        assert ran.has_error() and "TypeError" in await ran.error(), await ran.error()
        assert await ran.output() == "before"


async def an_exit_keeps_its_output_and_the_next_run_works():
    async with PythonSandbox.create() as sandbox:
        for code in ("import sys; sys.exit(1)", "exit()", "raise SystemExit('bye')", "import os; os._exit(3)"):
            ran = await sandbox.run(f"print('Hello', flush=True); {code}")
            assert await ran.output() == "Hello", (code, await ran.output(), await ran.error())
            assert await (await sandbox.run("print('next')")).output() == "next", code


def an_exit_of_the_repl_keeps_its_state():
    with Sandbox() as sandbox:
        sandbox.run("kept = 9\nimport sys\nsys.exit(1)")
        assert text(sandbox.run("print(kept)")) == "9\n"


def a_crash_of_the_interpreter_is_a_result_and_the_loss_is_said():
    with Sandbox() as sandbox:
        sandbox.run("lost = 1")
        told = sandbox.run("print('before', flush=True)\nimport os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        assert told["status"] in ("error", "exception"), told
        assert "before\n" in text(told), told
        assert text(told, "stderr").strip(), "how it ended is not said"
        after = sandbox.run("print('fresh')")
        assert text(after) == "fresh\n", after
        assert "NameError" in text(sandbox.run("print(lost)"), "stderr")


def an_overrun_raises_with_what_was_said_and_keeps_the_state():
    with Sandbox() as sandbox:
        sandbox.run("kept = 'state'")
        for loop in ("while True: pass", "import time; time.sleep(60)"):
            code = f"print('partial', flush=True)\n{loop}"
            seconds, failed = took(failure, sandbox.run, code, timeout=1)
            assert 0.9 < seconds < 5, seconds
            assert "1" in failed.message, failed
            assert "partial" in json.dumps(failed.data), failed
            assert text(sandbox.run("print(kept)")) == "state\n"


def an_overrun_of_javascript_raises_and_node_goes_on():
    with Sandbox() as sandbox:
        failed = failure(sandbox.run, "console.log('partial'); for (;;) ;", "nodejs", timeout=1)
        assert "partial" in json.dumps(failed.data), failed
        assert text(sandbox.run("console.log('on')", "nodejs")) == "on\n"


def an_overrun_that_loses_the_state_says_so():
    with Sandbox() as sandbox:
        sandbox.run("lost = 1")
        # What ignores every interrupt is ended with its interpreter.
        code = (
            "import signal, threading\n"
            "def deaf(*_): pass\n"
            "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, deaf)\n"
            "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
            "import ctypes\n"
            "ctypes.PyDLL(None).sleep(60)"
        )
        failed = failure(sandbox.run, code, timeout=1)
        said = (failed.message + json.dumps(failed.data)).lower()
        after = sandbox.run("print('lost' in globals())")
        if text(after) == "False\n":
            assert "state" in said or "lost" in said or "restart" in said, failed


def an_overruns_output_does_not_come_with_the_next_run():
    with Sandbox() as sandbox:
        for _ in range(5):
            failure(sandbox.run, "import time\nwhile True: print('late', flush=True); time.sleep(0.01)", timeout=0.3)
            assert text(sandbox.run("print('clean')")) == "clean\n"


def a_timeout_may_be_a_fraction_of_a_second():
    with Sandbox() as sandbox:
        seconds, _ = took(failure, sandbox.run, "while True: pass", timeout=0.3)
        assert seconds < 4, seconds


def a_timeout_in_nanoseconds_is_read_as_such():
    with Sandbox() as sandbox:
        seconds, _ = took(failure, sandbox.run, "while True: pass", timeout=1_000_000_000)
        assert 0.9 < seconds < 5, seconds
        assert text(sandbox.run("print('in time')", timeout=30_000_000_000)) == "in time\n"


def a_timeout_that_is_none_is_refused_in_words():
    with Sandbox() as sandbox:
        for timeout in (-1, "soon", [], True):
            failed = failure(sandbox.run, "1", timeout=timeout)
            assert failed.code == BAD_PARAMS and "timeout" in failed.message, (timeout, failed)
        assert text(sandbox.run("1", timeout=None)) == "1\n"


def bytes_that_are_not_text_become_replacement_characters():
    with Sandbox() as sandbox:
        code = "import sys\nsys.stdout.buffer.write(b'a\\xffb\\xc3\\n\\xe2\\x82\\xac\\n')\nsys.stdout.flush()"
        assert text(sandbox.run(code)) == "a\ufffdb\ufffd\n€\n"
        assert text(sandbox.command("printf", r"\377x\n")) == "\ufffdx\n"


def characters_of_many_bytes_arrive_whole():
    with Sandbox() as sandbox:
        said = "ä€😀" * 100_000
        assert text(sandbox.run("print('ä€😀' * 100_000)")) == said + "\n"
        told = sandbox.run("print('\\x00\\x1b[31m\\u2028')")
        assert text(told) == "\x00\x1b[31m\u2028\n", told


def what_code_says_cannot_be_taken_for_its_end():
    with Sandbox() as sandbox:
        told = sandbox.run("print('__MICROSANDBOX_EOE__')\nprint('>>> ')\nprint('{\"jsonrpc\": \"2.0\"}')\nprint('end')")
        assert text(told).endswith("end\n") and len(told["output"]) == 4, told


def code_well_above_two_megabytes_is_run():
    with Sandbox() as sandbox:
        body = "x" * (15 << 20)
        assert text(sandbox.run(f"data = '{body}'\nprint(len(data))")) == f"{15 << 20}\n"


def code_beyond_what_an_interpreter_takes_is_refused_in_words():
    with Sandbox() as sandbox:
        failed = failure(sandbox.run, "#" + "x" * (20 << 20))
        assert failed.code == BAD_PARAMS and "limit" in failed.message, failed
        assert text(sandbox.run("print('on')")) == "on\n"


def megabytes_of_output_arrive_whole():
    with Sandbox() as sandbox:
        told = sandbox.run("for n in range(400_000): print('line', n)")
        assert text(told) == "".join(f"line {n}\n" for n in range(400_000))
        assert text(sandbox.run("print('z' * (8 << 20))")) == "z" * (8 << 20) + "\n"


async def a_hundred_and_fifty_runs_at_once_on_one_session_arrive():
    async with PythonSandbox.create() as sandbox:
        await sandbox.run("total = 0")
        codes = (f"total += {n}\nprint('run', {n})" for n in range(150))
        ran = await asyncio.gather(*(sandbox.run(code) for code in codes))
        for n, one in enumerate(ran):
            assert await one.output() == f"run {n}" and not one.has_error(), (n, await one.error())
        assert await (await sandbox.run("total")).output() == str(sum(range(150)))


async def a_hundred_and_fifty_commands_at_once_on_one_session_arrive():
    async with PythonSandbox.create() as sandbox:
        ran = await asyncio.gather(*(sandbox.command.run("echo", [str(n)]) for n in range(150)))
        for n, one in enumerate(ran):
            assert (await one.output(), one.exit_code) == (str(n), 0), n


def runs_on_one_repl_take_their_turns():
    with Sandbox() as sandbox, concurrent.futures.ThreadPoolExecutor(8) as pool:
        code = "busy = globals().get('busy', 0) + 1\nimport time; time.sleep(0.05)\nassert busy == 1\nbusy = 0"
        asked = {**sandbox.which, "language": "python", "code": code}
        for told in pool.map(lambda _: call("sandbox.repl.run", **asked), range(8)):
            assert told["status"] == "success", told


def files_that_code_writes_are_seen_by_commands():
    with Sandbox() as sandbox:
        sandbox.run("open('/tmp/from-code', 'w').write('seen')")
        assert text(sandbox.command("cat", "/tmp/from-code")) == "seen\n"


def a_client_that_leaves_does_not_leave_its_run_in_the_way():
    with Sandbox() as sandbox:
        leaving = wire.Connection(timeout=0.5)
        try:
            leaving.call("sandbox.repl.run", **sandbox.which, language="python", code="while True: pass")
        except TimeoutError:
            leaving.close()
        begun = time.monotonic()
        assert text(sandbox.run("print('free')", timeout=20)) == "free\n"
        assert time.monotonic() - begun < 10


def code_that_is_no_text_is_refused_in_words():
    with Sandbox() as sandbox:
        for code in (None, 5, ["print(1)"]):
            failed = failure(sandbox.run, code)
            assert failed.code == BAD_PARAMS and "code" in failed.message, (code, failed)
