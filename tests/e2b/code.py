"""The code interpreter."""

import json
import statistics
import time

import e2b
from wire import name_of, native, refused, sandbox


def state_output_and_results():
    with sandbox() as sbx:
        sbx.run_code("x = 41\nprint('héllo\\u2028there')")
        run = sbx.run_code("import sys; print('err', file=sys.stderr); x + 1")
        assert run.text == "42" and run.logs.stderr == ["err\n"], run
        assert run.results[0].is_main_result and run.error is None
        assert sbx.run_code("print('é\\u2028')").logs.stdout == ["é\u2028\n"]
        assert sbx.run_code("'text'").text == "text"
        assert sbx.run_code("x = 1").text is None
        run = sbx.run_code("1/0")
        assert run.error.name == "ZeroDivisionError" and "1/0" in run.error.traceback, run
        assert sbx.run_code("import os; os.getcwd()").text == "/home/user"


def callbacks_hear_it_as_it_comes():
    with sandbox() as sbx:
        heard = []
        sbx.run_code(
            "print(1)\nimport sys\nprint(2, file=sys.stderr)\n3",
            on_stdout=lambda m: heard.append(("out", m.line)),
            on_stderr=lambda m: heard.append(("err", m.line)),
            on_result=lambda r: heard.append(("result", r.text)),
        )
        assert sorted(heard) == [("err", "2\n"), ("out", "1\n"), ("result", "3")], heard
        errors = []
        sbx.run_code("raise ValueError('v')", on_error=errors.append)
        assert errors[0].value == "v"


def displays_are_results_in_order():
    with sandbox() as sbx:
        run = sbx.run_code(
            "class P:\n"
            "    def _repr_png_(self): return b'\\x89PNG'\n"
            "    def _repr_html_(self): return '<b>é</b>'\n"
            "display(P())\n"
            "'last'"
        )
        assert len(run.results) == 2, run.results
        assert run.results[0].png == "iVBORw==" and run.results[0].html == "<b>é</b>", run.results
        assert not run.results[0].is_main_result and run.results[1].is_main_result


def contexts_are_apart():
    with sandbox() as sbx:
        one = sbx.create_code_context(cwd="/tmp")
        assert one.cwd == "/tmp" and one.language == "python", vars(one)
        sbx.run_code("x = 1")
        sbx.run_code("x = 2", context=one)
        assert sbx.run_code("x").text == "1" and sbx.run_code("x", context=one).text == "2"
        assert {c.id for c in sbx.list_code_contexts()} == {one.id, "python"}
        sbx.restart_code_context(one)
        assert sbx.run_code("x", context=one).error.name == "NameError"
        sbx.remove_code_context(one)
        refused(lambda: sbx.run_code("1", context=one), kind=e2b.NotFoundException)


def other_languages_run():
    with sandbox() as sbx:
        assert sbx.run_code("1 + 1", language="javascript").text == "2"
        assert sbx.run_code("echo $((1 + 1))", language="bash").logs.stdout == ["2\n"]
        error = refused(lambda: sbx.run_code("1", language="r"), kind=e2b.SandboxException)
        assert "interpreter" in str(error), error


def variables_of_one_run_are_gone_after_it():
    with sandbox(envs={"KEPT": "k"}) as sbx:
        ask = "import os; [os.environ.get('KEPT'), os.environ.get('NEW')]"
        assert sbx.run_code(ask, envs={"KEPT": "é'\"\n", "NEW": "n"}).results[0].text == repr(["é'\"\n", "n"])
        assert sbx.run_code(ask).results[0].text == "['k', None]"
        ask = "[process.env.KEPT, process.env.NEW]"
        sbx.run_code(ask, language="js", envs={"NEW": "n"})
        assert "undefined" in sbx.run_code(ask, language="js").text


def input_ends_at_once_and_a_death_is_an_error():
    with sandbox() as sbx:
        assert sbx.run_code("input()").error.name == "EOFError"
        run = sbx.run_code("import os; os.kill(os.getpid(), 9)")
        assert run.error.name == "UnexpectedEndOfExecution", run
        assert sbx.run_code("2").text == "2"


def a_run_that_overruns_is_interrupted_and_its_state_stays():
    with sandbox() as sbx:
        sbx.run_code("x = 7")
        refused(
            lambda: sbx.run_code("import time\nwhile True: time.sleep(0.01)", timeout=1),
            kind=e2b.TimeoutException,
        )
        assert sbx.run_code("x").text == "7"


def the_first_run_is_as_quick_as_our_own_call():
    """The median of some: what a run costs before its interpreter is there, at this door and at the native one."""
    took = {"theirs": [], "ours": []}
    for _ in range(9):
        with sandbox() as sbx:
            sbx.commands.run("true")
            begun = time.monotonic()
            assert sbx.run_code("1 + 1").text == "2"
            took["theirs"].append(time.monotonic() - begun)
        with sandbox() as sbx:
            path = f"/v1/sandboxes/default/{name_of(sbx)}/contexts/python/run"
            begun = time.monotonic()
            run = native("POST", path, {"code": "1 + 1"})
            took["ours"].append(time.monotonic() - begun)
            assert '"2"' in json.dumps(run), run
    theirs, ours = statistics.median(took["theirs"]), statistics.median(took["ours"])
    print(f"the first run: {theirs * 1000:.1f} ms, our own call: {ours * 1000:.1f} ms")
    # It is to be within twice; a test beside others gets as much again.
    assert theirs < 4 * ours + 0.05, took
