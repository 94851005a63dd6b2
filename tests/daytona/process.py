"""Commands, code, and sessions of commands with their logs."""

import asyncio
import threading
import time

import daytona
from daytona import CodeRunParams, SessionExecuteRequest
from wire import refused, sandbox, until


def a_command_runs_to_its_end():
    with sandbox() as made:
        ran = made.process.exec("echo out; echo err >&2; exit 3")
        assert ran.exit_code == 3 and sorted(ran.result.split()) == ["err", "out"], ran
        assert ran.artifacts.stdout == ran.result
        assert made.process.exec("pwd", cwd="/usr").result == "/usr\n"
        assert made.process.exec("echo $A", env={"A": "it's; $B"}).result == "it's; $B\n"
        assert made.process.exec("kill -9 $$").exit_code == 137
        assert made.process.exec("cat").result == ""
        assert len(made.process.exec("head -c 1000000 /dev/zero | tr '\\0' x").result) == 1_000_000
        assert "�" in made.process.exec("printf '\\xff'").result
        refused(lambda: made.process.exec("true", cwd="/no/such"), daytona.DaytonaBadRequestError)


def a_command_ends_at_its_time_with_all_that_it_started():
    with sandbox() as made:
        begun = time.monotonic()
        error = refused(
            lambda: made.process.exec("setsid sleep 997 & sleep 998", timeout=1),
            daytona.DaytonaTimeoutError,
        )
        assert error.code == "PROCESS_EXECUTION_TIMEOUT" and time.monotonic() - begun < 20, error
        until(lambda: made.process.exec("pgrep -f '^sleep 99[78]'").exit_code == 1)


def a_left_behind_child_does_not_hold_the_answer():
    with sandbox() as made:
        begun = time.monotonic()
        assert made.process.exec("sleep 60 & echo done").result == "done\n"
        assert time.monotonic() - begun < 30


def code_runs_in_a_program_of_its_own():
    with sandbox() as made:
        code = "import os, sys\nprint(sys.argv[1:], os.environ['A'])\nsys.exit(4)"
        ran = made.process.code_run(code, CodeRunParams(argv=["a b", "-c"], env={"A": "x"}))
        assert (ran.exit_code, ran.result) == (4, "['a b', '-c'] x\n"), ran
        assert ran.artifacts.charts == []
        ran = made.process.code_run("raise ValueError('no')")
        assert ran.exit_code == 1 and "ValueError: no" in ran.result, ran
        assert made.process.code_run("").exit_code == 0
        long = "x = '" + "y" * 500_000 + "'\nprint(len(x))"
        assert made.process.code_run(long).result == "500000\n"
        # This client makes no exception of its own of it.
        error = refused(
            lambda: made.process.code_run("import time; time.sleep(60)", timeout=1), Exception
        )
        assert error.status == 408 and "PROCESS_EXECUTION_TIMEOUT" in error.body, error
    with sandbox(language="javascript") as made:
        ran = made.process.code_run("console.log(6 * 7, process.argv.slice(2))", CodeRunParams(argv=["a"]))
        assert ran.exit_code == 0 and ran.result == "42 [ 'a' ]\n", ran
    with sandbox(language="typescript") as made:
        error = refused(lambda: made.process.code_run("let x: number = 1"), Exception)
        assert error.status == 501 and "typescript" in error.body, error


def _run(made, session, command, **options):
    return made.process.execute_session_command(
        session, SessionExecuteRequest(command=command, **options)
    )


def a_session_keeps_its_directory_and_variables():
    with sandbox() as made:
        made.process.create_session("s")
        assert _run(made, "s", "cd /usr/bin; export A=\"it's\"; B=b; f() { echo f; }").exit_code == 0
        ran = _run(made, "s", "pwd; echo $A $B; f; echo err >&2; exit 5")
        assert (ran.exit_code, ran.stdout, ran.stderr) == (5, "/usr/bin\nit's b\nf\n", "err\n"), ran
        assert sorted(ran.output.split()) == sorted("/usr/bin it's b f err".split()), ran
        made.process.create_session("other")
        assert _run(made, "other", "echo [$A]").stdout == "[]\n"
        session = made.process.get_session("s")
        assert session.session_id == "s" and [one.exit_code for one in session.commands] == [0, 5]
        assert session.commands[1].command.startswith("pwd; echo $A"), session
        assert {one.session_id for one in made.process.list_sessions()} == {"s", "other"}
        logs = made.process.get_session_command_logs("s", ran.cmd_id)
        assert (logs.stdout, logs.stderr) == (ran.stdout, ran.stderr), logs
        command = made.process.get_session_command("s", ran.cmd_id)
        assert (command.id, command.exit_code) == (ran.cmd_id, 5), command
        refused(lambda: made.process.create_session("s"), daytona.DaytonaConflictError)
        made.process.delete_session("s")
        for call in [
            lambda: made.process.get_session("s"),
            lambda: _run(made, "s", "true"),
            lambda: made.process.delete_session("s"),
            lambda: made.process.get_session_command("other", "0123456789ab"),
            lambda: made.process.get_session_command_logs("other", ran.cmd_id),
        ]:
            assert refused(call, status=404).code == "PROCESS_NOT_FOUND"
        for bad in ["", "a/b", "../x", "a b", "x" * 41]:
            refused(lambda: made.process.create_session(bad))


def a_command_goes_on_by_itself_and_takes_input():
    with sandbox() as made:
        made.process.create_session("s")
        ran = _run(made, "s", "read a; echo got $a; read b; echo got $b", run_async=True)
        assert ran.exit_code is None
        assert made.process.get_session_command("s", ran.cmd_id).exit_code is None
        made.process.send_session_command_input("s", ran.cmd_id, "one\n")
        until(lambda: made.process.get_session_command_logs("s", ran.cmd_id).stdout == "got one\n")
        made.process.send_session_command_input("s", ran.cmd_id, "two\n")
        until(lambda: made.process.get_session_command("s", ran.cmd_id).exit_code == 0)
        assert made.process.get_session_command_logs("s", ran.cmd_id).stdout == "got one\ngot two\n"
        error = refused(
            lambda: made.process.send_session_command_input("s", ran.cmd_id, "x"),
            daytona.DaytonaGoneError,
        )
        assert error.code == "COMMAND_ALREADY_COMPLETED"
        # One that is waited for has no input, and does not wait for any.
        assert _run(made, "s", "cat").stdout == ""


def the_end_of_a_session_ends_its_commands():
    with sandbox() as made:
        made.process.create_session("s")
        _run(made, "s", "setsid sleep 991 & sleep 992", run_async=True)
        until(lambda: made.process.exec("pgrep -f '^sleep 99[12]' | wc -l").result == "2\n")
        made.process.delete_session("s")
        assert made.process.exec("pgrep -f '^sleep 99[12]'").exit_code == 1


def logs_are_followed_by_a_slow_reader_beside_a_quick_one():
    """Nothing is lost, and the slow one holds up neither the command nor the other."""
    with sandbox() as made:
        made.process.create_session("s")
        lines = 40_000
        script = f"for i in $(seq {lines}); do echo out $i; echo err $i >&2; done; echo last"
        ran = _run(made, "s", script, run_async=True)
        heard = {"quick": [[], []], "slow": [[], []]}
        ended = {}

        def follow(name, pause):
            def on(which):
                def heard_one(text):
                    heard[name][which].append(text)
                    # As long as an answer of a model takes, all together; the command is through long before.
                    time.sleep(pause if len(heard[name][which]) <= 100 else 0)

                return heard_one

            asyncio.run(
                made.process.get_session_command_logs_async("s", ran.cmd_id, on(0), on(1))
            )
            ended[name] = time.monotonic()

        threads = [
            threading.Thread(target=follow, args=("quick", 0)),
            threading.Thread(target=follow, args=("slow", 0.05)),
        ]
        for thread in threads:
            thread.start()
        until(lambda: made.process.get_session_command("s", ran.cmd_id).exit_code == 0, 120)
        for thread in threads:
            thread.join(120)
        expected = [f"out {i}\n" for i in range(1, lines + 1)] + ["last\n"]
        for name in heard:
            out, err = ("".join(texts) for texts in heard[name])
            assert out == "".join(expected), (name, len(out))
            assert err == "".join(f"err {i}\n" for i in range(1, lines + 1)), (name, len(err))
        assert ended["quick"] < ended["slow"]
        # One that comes after the end hears all of it.
        late = []
        asyncio.run(
            made.process.get_session_command_logs_async("s", ran.cmd_id, late.append, lambda _: None)
        )
        assert "".join(late) == "".join(expected)


def _typed(handle, line):
    handle.send_input(line + "\n")


def a_terminal_is_typed_into_resized_and_ended():
    with sandbox() as made:
        size = daytona.PtySize(rows=30, cols=100)
        handle = made.process.create_pty_session("t", cwd="/usr", envs={"A": "it's"}, pty_size=size)
        assert [one.id for one in made.process.list_pty_sessions()] == ["t"]
        info = made.process.get_pty_session_info("t")
        assert (info.active, info.rows, info.cols) == (True, 30, 100), info
        assert handle.resize(daytona.PtySize(rows=40, cols=120)).cols == 120
        _typed(handle, "stty size; pwd; echo a${A}z; exit 3")
        heard = []
        ended = handle.wait(on_data=heard.append, timeout=60)
        text = b"".join(heard)
        assert ended.exit_code == 3 and ended.error is None, (ended, text)
        for said in [b"40 120\r\n", b"/usr\r\n", b"ait'sz\r\n"]:
            assert said in text, text
        assert made.process.list_pty_sessions() == []
        for call in [
            lambda: made.process.get_pty_session_info("t"),
            lambda: made.process.kill_pty_session("t"),
            lambda: made.process.resize_pty_session("t", size),
        ]:
            assert refused(call, status=404).code == "PROCESS_NOT_FOUND"


def a_terminal_outlives_its_client_and_has_many():
    with sandbox() as made:
        first = made.process.create_pty_session("t")
        _typed(first, "x=remembered")
        refused(lambda: made.process.create_pty_session("t"), daytona.DaytonaConflictError)
        second = made.process.connect_pty_session("t")
        _typed(second, "echo is-$x")
        _typed(first, "echo was-$x")

        def hears(handle, words):
            heard = b""
            for piece in handle:
                heard += piece
                if all(word in heard for word in words):
                    return
            raise AssertionError(heard)

        hears(second, [b"is-remembered", b"was-remembered"])
        hears(first, [b"is-remembered", b"was-remembered"])
        first.disconnect()
        second.disconnect()
        third = made.process.connect_pty_session("t")
        hears(third, [b"was-remembered"])
        third.kill()
        assert third.wait(timeout=60).exit_code == 137
        refused(lambda: made.process.create_pty_session("a/b"))
