"""`sandbox.command.run`: both shapes of its result, how commands end, and what raises."""

import concurrent.futures
import json

from microsandbox import PythonSandbox

import wire
from wire import BAD_PARAMS, Sandbox, call, failure, text, took


def a_result_has_both_shapes():
    with Sandbox() as sandbox:
        script = "echo out; echo err >&2; echo; printf end; exit 3"
        told = sandbox.command("sh", "-c", script)
        assert told["command"] == "sh" and told["args"] == ["-c", script], told
        assert (told["exit_code"], told["success"]) == (3, False), told
        assert (text(told), text(told, "stderr")) == ("out\n\nend\n", "err\n"), told
        # The other client's.
        assert (told["stdout"], told["stderr"], told["timeout"]) == ("out\n\nend", "err\n", False), told


def a_silent_command_has_empty_output_in_both_shapes():
    with Sandbox() as sandbox:
        told = sandbox.command("true")
        assert (told["output"], told["stdout"], told["stderr"]) == ([], "", ""), told
        assert (told["exit_code"], told["success"]) == (0, True), told


def null_and_missing_args_are_none():
    with Sandbox() as sandbox:
        for more in ({"args": None}, {}, {"args": []}, {"args": None, "timeout": None, "working_directory": None}):
            told = call("sandbox.command.run", **sandbox.which, command="pwd", **more)
            assert told["success"] is True and told["args"] == [], told


def args_reach_the_command_as_they_are():
    with Sandbox() as sandbox:
        args = ["$HOME", "a b", "*", "; ls", "'", '"', "", "ä\n", "\\n", "--help"]
        code = "import json, sys; print(json.dumps(sys.argv[1:]))"
        told = sandbox.command("python3", "-c", code, *args)
        assert json.loads(told["stdout"]) == args, told


def args_that_are_no_texts_are_refused_in_words():
    with Sandbox() as sandbox:
        for args in ("-la", [1], [None], {"0": "-l"}):
            failed = failure(call, "sandbox.command.run", **sandbox.which, command="ls", args=args)
            assert failed.code == BAD_PARAMS and "args" in failed.message, (args, failed)
        for command in (None, 5, "", []):
            failed = failure(call, "sandbox.command.run", **sandbox.which, command=command, args=[])
            assert failed.code == BAD_PARAMS and "command" in failed.message, (command, failed)


async def a_listing_of_what_is_not_there_is_a_result():
    async with PythonSandbox.create() as sandbox:
        result = await sandbox.command.run("ls", ["/nonexistent"])
        assert (result.success, result.exit_code) == (False, 2)
        assert "/nonexistent" in await result.error() and await result.output() == ""


async def a_command_that_is_not_found_raises_and_the_sandbox_works_on():
    async with PythonSandbox.create() as sandbox:
        for command in ("no-such-command", "/no/such/command", "/tmp"):
            try:
                await sandbox.command.run(command)
            except RuntimeError as error:
                assert command in str(error), error
            else:
                raise AssertionError(f"{command} is no command")
        assert await (await sandbox.command.run("echo", ["on"])).output() == "on"
        assert await (await sandbox.run("print('on')")).output() == "on"


def a_command_that_runs_out_of_time_raises_with_what_was_said():
    with Sandbox() as sandbox:
        script = "echo partial; echo trouble >&2; sleep 60"
        seconds, failed = took(failure, sandbox.command, "sh", "-c", script, timeout=1)
        assert 0.9 < seconds < 5, seconds
        assert "1" in failed.message, failed
        said = json.dumps(failed.data)
        assert "partial" in said and "trouble" in said, failed
        assert text(sandbox.command("echo", "on")) == "on\n"


def a_timeout_ends_the_whole_tree():
    with Sandbox() as sandbox:
        script = "sleep 7001 & (setsid sleep 7002 &) ; nohup sleep 7003 & sleep 7004"
        seconds, _ = took(failure, sandbox.command, "sh", "-c", script, timeout=1)
        assert seconds < 5, seconds
        wire.eventually("none of them is left", lambda: "sleep 700" not in _processes(sandbox))


def _processes(sandbox):
    code = (
        "import glob\n"
        "for path in glob.glob('/proc/[0-9]*/cmdline'):\n"
        "    try: print(open(path).read().replace('\\0', ' '))\n"
        "    except OSError: pass"
    )
    return text(sandbox.command("python3", "-c", code)).replace(code, "")


def a_timeout_in_nanoseconds_is_read_as_such():
    with Sandbox() as sandbox:
        seconds, _ = took(failure, sandbox.command, "sleep", "60", timeout=1_000_000_000)
        assert 0.9 < seconds < 5, seconds
        assert sandbox.command("true", timeout=30_000_000_000)["success"] is True


def a_timeout_that_is_none_is_refused_in_words():
    with Sandbox() as sandbox:
        for timeout in (-1, "soon", [], True):
            failed = failure(sandbox.command, "true", timeout=timeout)
            assert failed.code == BAD_PARAMS and "timeout" in failed.message, (timeout, failed)


def exit_codes_arrive_as_they_are():
    with Sandbox() as sandbox:
        for code in (1, 2, 42, 124, 126, 127, 128, 255):
            told = sandbox.command("sh", "-c", f"exit {code}")
            assert (told["exit_code"], told["success"]) == (code, False), told


def death_by_a_signal_is_a_result_without_success():
    with Sandbox() as sandbox:
        for signal in (9, 11, 15):
            told = sandbox.command("sh", "-c", f"kill -{signal} $$")
            assert (told["exit_code"], told["success"]) == (128 + signal, False), told


def a_working_directory_is_where_a_command_runs():
    with Sandbox() as sandbox:
        assert text(sandbox.command("pwd", working_directory="/usr")) == "/usr\n"
        failed = failure(sandbox.command, "pwd", working_directory="/no/such/place")
        assert "/no/such/place" in failed.message, failed


def a_command_that_reads_finds_the_end_of_its_input():
    with Sandbox() as sandbox:
        seconds, told = took(sandbox.command, "cat")
        assert seconds < 5 and told["success"] is True, (seconds, told)


def a_command_runs_beside_a_busy_repl():
    with Sandbox() as sandbox, concurrent.futures.ThreadPoolExecutor(1) as pool:
        code = "import time\nend = time.time() + 3\nwhile time.time() < end: pass\nprint('done')"
        busy = pool.submit(call, "sandbox.repl.run", **sandbox.which, language="python", code=code)
        seconds, told = took(sandbox.command, "echo", "beside")
        assert text(told) == "beside\n" and seconds < 2, seconds
        assert not busy.done()
        assert text(busy.result()) == "done\n"


def a_background_process_holds_no_answer_up():
    with Sandbox() as sandbox:
        seconds, told = took(sandbox.command, "sh", "-c", "sleep 5 & echo hi")
        assert text(told) == "hi\n" and seconds < 2, (seconds, told)


def megabytes_of_output_arrive_whole():
    with Sandbox() as sandbox:
        told = sandbox.command("seq", "1", "1000000")
        assert told["stdout"] == "".join(f"{n}\n" for n in range(1, 1_000_001))
        assert len(told["output"]) == 1_000_000
