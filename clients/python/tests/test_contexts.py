"""Interpreters that live on between runs."""

from __future__ import annotations

import time
from typing import Any

import pytest

import burrow


def test_state_stays_between_runs_and_values_are_results(box: Any) -> None:
    context = box.context("py")
    first = context.run("x = 41\nprint('said')\nx + 1")
    assert (first.status, first.stdout, first.stderr, first.result) == ("ok", "said\n", "", "42")
    assert first.ok
    assert first.error is None
    assert context.run("x").result == "41"
    assert box.context("py").run("x").result == "41"
    assert box.context("other", language="python").run("'x' in globals()").result == "False"
    assert context.run("pass").result is None


def test_a_context_has_the_program_that_is_named(box: Any) -> None:
    context = box.context("own", language="python", program="python3")
    assert context.run("x = 6 * 7\nx").result == "42"
    assert context.run("x").result == "42"
    with pytest.raises(burrow.BurrowError):
        box.context("none", language="python", program="/no/such/python").run("1")


def test_a_context_has_the_virtual_environment_that_is_named(box: Any) -> None:
    box.exec("python3", ["-m", "venv", "--without-pip", "/tmp/own"]).check()
    context = box.context("apart", language="python", venv="/tmp/own")
    assert context.run("import sys; sys.prefix").result == "'/tmp/own'"


def test_an_exception_is_a_result_with_type_and_traceback(box: Any) -> None:
    result = box.context().run("print('before')\n1/0")
    assert not result.ok
    assert result.stdout == "before\n"
    assert (result.error.type, result.error.message) == ("ZeroDivisionError", "division by zero")
    assert "1/0" in result.error.traceback
    with pytest.raises(burrow.ExecutionError) as failed:
        result.check()
    assert failed.value.type == "ZeroDivisionError"
    assert "Traceback" in failed.value.traceback
    assert failed.value.stdout == "before\n"


def test_exits_timeouts_and_crashes_are_results(box: Any) -> None:
    context = box.context("python")
    assert context.run("x = 1; print('o'); import sys; sys.exit(3)").exit_code == 3
    overrun = context.run("while True: pass", timeout=0.5)
    assert (overrun.timed_out, overrun.timeout, overrun.state_kept) == (True, 0.5, True)
    with pytest.raises(burrow.SandboxTimeout) as failed:
        overrun.check()
    assert failed.value.seconds == 0.5
    assert context.run("x").result == "1"
    crash = context.run("import os; os.abort()")
    assert (crash.status, crash.state_kept) == ("died", False)
    assert context.run("1").lost is not None


def test_displays_have_their_forms(box: Any) -> None:
    code = """
class Picture:
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"text/plain": "pic", "text/html": "<b>pic</b>"}
display(Picture())
"""
    result = box.context().run(code)
    (shown,) = result.check().displays
    assert shown.data["text/html"] == b"<b>pic</b>"
    assert shown.text == "pic"


def test_runs_are_told_as_they_happen(box: Any) -> None:
    code = "import time\nfor n in range(3):\n    print(n, flush=True)\n    time.sleep(0.05)\n'v'"
    seen = list(box.context().stream(code))
    assert "".join(one.text for one in seen if one.type == "stdout") == "0\n1\n2\n"
    assert [one.display.text for one in seen if one.display] == ["'v'"]
    assert seen[-1].result.ok
    errors = [one.error for one in box.context().stream("1/0") if one.error]
    assert [one.type for one in errors] == ["ZeroDivisionError"]


def test_input_is_read_line_by_line(box: Any) -> None:
    assert box.context().run("input() + input()", stdin="a\nb\n").result == "'ab'"
    assert box.context().run("input()").error.type == "EOFError"


def test_leaving_a_stream_interrupts_its_run(box: Any) -> None:
    context = box.context()
    context.run("n = 0")
    for event in context.stream("while True: n += 1"):
        if event.type == "started":
            break
    began = time.monotonic()
    assert int(context.run("n").result) >= 0
    assert time.monotonic() - began < 20


def test_a_context_can_be_looked_at_restarted_and_closed(box: Any) -> None:
    context = box.context("py")
    with pytest.raises(burrow.NotFound):
        context.info()
    context.run("x = 1")
    assert context.info()["language"] == "python"
    context.interrupt()
    context.restart()
    assert context.run("x").error.type == "NameError"
    context.close()
    with pytest.raises(burrow.NotFound):
        context.close()
    with pytest.raises(burrow.ApiError):
        box.context("what", language="cobol").run("1")


def test_a_notebook_keeps_its_variables_without_its_sandbox(client: Any) -> None:
    notebook = client.notebook("thin")
    try:
        assert notebook.run("x = 41").ok
        notebook.save()
        client.remove("notebook-thin")
        again = client.notebook("thin").run("x + 1")
        assert again.result == "42"
        assert again.raw["notebook"]["reopened"]["restored"] == ["x"]
        assert client.notebooks() == ["thin"]
        assert notebook.info()["runs"] == 2
        notebook.reset()
        assert notebook.run("x").error.type == "NameError"
    finally:
        notebook.remove()
    assert client.notebooks() == []
    assert client.list() == []
