"""Commands that are followed while they run."""

from __future__ import annotations

import time
from typing import Any

import pytest
from conftest import Make, Scissors, eventually

import burrow


def _text(events: list[Any], channel: str) -> str:
    pieces = [one for one in events if isinstance(one, burrow.Output) and one.channel == channel]
    return b"".join(one.data for one in pieces).decode()


def test_events_come_as_they_happen_and_end_with_the_exit(box: Any) -> None:
    script = "echo one; echo err >&2; while ! [ -e /tmp/go ]; do sleep 0.02; done; echo two; exit 4"
    events = []
    stream = box.stream_shell(script)
    for event in stream:
        events.append(event)
        if "one" in _text(events, "stdout") and not box.files.exists("/tmp/go"):
            # It still runs, and this much of it is known.
            box.files.write("/tmp/go", "")
    assert _text(events, "stdout") == "one\ntwo\n"
    assert _text(events, "stderr") == "err\n"
    assert isinstance(events[-1], burrow.Exited)
    assert events[-1].result.exit_code == 4
    assert stream.result == events[-1].result


def test_input_is_written_while_it_runs(box: Any) -> None:
    with box.stream(
        "python3", ["-u", "-c", "while True: print(int(input()) * 2)"], stdin=True
    ) as it:
        for number in (1, 21):
            it.write(f"{number}\n")
            said = ""
            while not said.endswith("\n"):
                said += it.next().text
            assert said == f"{2 * number}\n"
        it.close_stdin()
        assert it.wait().exit_code == 1


def test_megabytes_both_ways_arrive_whole(box: Any) -> None:
    data = bytes(range(256)) * 12288
    received = b""
    for event in box.stream("cat", stdin=data):
        if isinstance(event, burrow.Output):
            assert event.offset == len(received)
            received += event.data
    assert received == data


def test_what_is_left_before_its_end_is_killed(box: Any) -> None:
    for event in box.stream_shell("echo on; sleep 77"):
        assert isinstance(event, burrow.Output)
        break
    with box.stream("sleep", ["77"]):
        pass
    with pytest.raises(LookupError), box.stream("sleep", ["77"]):
        raise LookupError
    find = "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -c 'slee[p] 77'"
    eventually("nothing of it is left", lambda: box.shell(find).stdout == "0\n")


def test_signals_and_deadlines_end_it(box: Any) -> None:
    with box.stream_shell("trap 'exit 9' INT; echo on; sleep 60 & wait") as it:
        assert it.next().text == "on\n"
        it.signal("INT")
        assert it.wait().exit_code == 9
    with box.stream("sleep", ["60"]) as it:
        it.kill()
        assert it.wait().exit_code == 137
    result = box.stream("sleep", ["60"], timeout=0.3).wait()
    assert (result.exit_code, result.timed_out) == (124, True)


def test_a_program_that_is_missing_is_told_at_the_start(box: Any) -> None:
    with pytest.raises(burrow.SpawnFailed):
        box.stream("no-such-program").wait()


def test_a_stream_that_is_cut_goes_on_where_it_was(scissors: Scissors, flavour: Make) -> None:
    client = flavour(scissors.url)
    with client.sandbox() as box:
        # The start's answer is lost, and so are the first two answers of the stream.
        scissors.cut(f"POST /v1/sandboxes/default/{box.name}/sessions ")
        scissors.cut(f"GET /v1/sandboxes/default/{box.name}/sessions/", times=2)
        events = list(box.stream_shell("echo run >> /tmp/runs; seq 1 1000; exit 3"))
        assert scissors.cuts == []
        assert _text(events, "stdout") == "".join(f"{n}\n" for n in range(1, 1001))
        assert events[-1].result.exit_code == 3
        assert box.files.read_text("/tmp/runs") == "run\n"


def test_input_whose_answer_is_lost_is_typed_once(scissors: Scissors, flavour: Make) -> None:
    client = flavour(scissors.url)
    with client.sandbox() as box, box.stream("cat", stdin=True) as it:
        path = f"POST /v1/sandboxes/default/{box.name}/sessions/{it.session}/input"
        scissors.cut(path)
        it.write("once\n")
        it.close_stdin()
        pieces = []
        while (event := it.next()) is not None:
            pieces.append(event)
        assert _text(pieces, "stdout") == "once\n"


def test_a_slow_reader_holds_nobody_else_up(box: Any) -> None:
    stream = box.stream_shell("yes | head -c 20000000")
    with stream as it:
        it.next()
        began = time.monotonic()
        assert box.exec("true").ok
        assert time.monotonic() - began < 10
        length = 1
        while (event := it.next()) is not None:
            length += 1
        assert event is None
        assert it.result.exit_code == 0
