"""The code interpreter: contexts, and runs in them."""

import time

import daytona
from wire import refused, sandbox


def a_run_keeps_its_state_and_tells_its_output_as_it_comes():
    with sandbox() as made:
        code = made.code_interpreter
        heard = []
        ran = code.run_code(
            "import sys\nx = 1\nprint('é🦫')\nprint('e', file=sys.stderr)",
            on_stdout=lambda message: heard.append(message.output),
        )
        assert (ran.stdout, ran.stderr, ran.error) == ("é🦫\n", "e\n", None), ran
        assert "".join(heard) == "é🦫\n"
        assert code.run_code("x += 1\nprint(x)").stdout == "2\n"
        seen = []
        ran = code.run_code("1 / 0", on_error=seen.append)
        assert ran.error.name == "ZeroDivisionError" and "division" in ran.error.value, ran
        assert "ZeroDivisionError" in ran.error.traceback and seen == [ran.error]
        assert code.run_code("def f(:").error.name == "SyntaxError"
        assert code.run_code("import sys; sys.exit(3)").error.name == "SystemExit"
        ran = code.run_code("for i in range(100_000): print(i)")
        assert ran.stdout == "".join(f"{i}\n" for i in range(100_000))


def contexts_have_a_state_each():
    with sandbox() as made:
        code = made.code_interpreter
        one, two = code.create_context(cwd="/usr"), code.create_context()
        assert one.cwd == "/usr" and one.language == "python" and one.id != two.id, one
        code.run_code("x = 1", context=one)
        assert code.run_code("import os; print(x, os.getcwd())", context=one).stdout == "1 /usr\n"
        assert code.run_code("x", context=two).error.name == "NameError"
        assert {one.id, two.id} <= {found.id for found in code.list_contexts()}
        code.delete_context(one)
        assert one.id not in {found.id for found in code.list_contexts()}
        refused(lambda: code.delete_context(one), status=404)
        refused(lambda: code.run_code("1", context=one), daytona.DaytonaConnectionError, says=one.id)


def variables_are_for_one_run_and_a_run_ends_at_its_time():
    with sandbox() as made:
        code = made.code_interpreter
        show = "import os; print(os.environ.get('A'))"
        assert code.run_code(show, envs={"A": "it's é"}).stdout == "it's é\n"
        assert code.run_code(show).stdout == "None\n"
        code.run_code("x = 1")
        begun = time.monotonic()
        refused(
            lambda: code.run_code("import time\nwhile True: time.sleep(0.1)", timeout=1),
            daytona.DaytonaTimeoutError,
        )
        assert time.monotonic() - begun < 20
        assert code.run_code("print(x)").stdout == "1\n"
