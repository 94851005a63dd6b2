"""What the portal that came before lost, hung on or died of, case by case."""

import json
import os
import re
import time

from wire import Sandbox, failure, text, took

# A run beside the question for the sandbox's figures, on the same connection.
RUN_QUESTIONS_MAX = 10


def nothing_is_lost_of_short_output():
    with Sandbox() as sandbox:
        for n in range(200):
            told = sandbox.command("echo", "hello")
            assert told["stdout"] == "hello\n" and text(told) == "hello\n", (n, told)


def nothing_is_lost_of_ten_thousand_lines():
    numbers = "".join(f"{n}\n" for n in range(1, 10_001))
    with Sandbox() as sandbox:
        for n in range(30):
            told = sandbox.command("seq", "1", "10000")
            assert told["stdout"] == numbers and text(told) == numbers, n
        for n in range(30):
            assert text(sandbox.run("for n in range(1, 10_001): print(n)")) == numbers, n


def a_syntax_error_is_reported_whole_every_time():
    with Sandbox() as sandbox:
        for n in range(200):
            told = sandbox.run("def f(:\n    pass")
            error = text(told, "stderr")
            assert "SyntaxError" in error and "def f(:" in error and "^" in error, (n, error)
            assert told["status"] in ("error", "exception"), told


def _goes_on(sandbox):
    seconds, told = took(sandbox.run, "print('next')", timeout=20)
    assert text(told) == "next\n" and seconds < 5, (seconds, told)


def output_without_a_newline_does_not_hang():
    with Sandbox() as sandbox:
        seconds, told = took(sandbox.run, "print('x', end='')")
        assert text(told) == "x\n" and seconds < 5, (seconds, told)
        _goes_on(sandbox)


def an_exit_does_not_hang():
    with Sandbox() as sandbox:
        for code in ("exit()", "quit()", "exit(3)"):
            seconds, _ = took(sandbox.run, code)
            assert seconds < 5, (code, seconds)
            _goes_on(sandbox)


def a_question_finds_the_end_of_its_input():
    with Sandbox() as sandbox:
        for code in ("input()", "input('name? ')", "import sys; sys.stdin.readline() or 1/0"):
            seconds, told = took(sandbox.run, code)
            assert seconds < 5 and told["status"] in ("error", "exception"), (code, told)
            _goes_on(sandbox)
        assert "EOFError" in text(sandbox.run("input()"), "stderr")


def a_loop_without_end_does_not_wedge():
    with Sandbox() as sandbox:
        failure(sandbox.run, "while True: pass", timeout=1)
        _goes_on(sandbox)


def an_unclosed_string_is_a_syntax_error():
    with Sandbox() as sandbox:
        for code in ("'''never closed", '"""', "(", "[1,", "x = {'a':", "if True:", "def f():"):
            seconds, told = took(sandbox.run, code)
            assert seconds < 5 and "Error" in text(told, "stderr"), (code, told)
            _goes_on(sandbox)


def a_redefined_print_harms_nobody():
    with Sandbox() as sandbox:
        sandbox.run("kept = print\ndef print(*_): raise RuntimeError('mine')")
        assert "mine" in text(sandbox.run("print('x')"), "stderr")
        assert text(sandbox.run("kept('still')")) == "still\n"
        sandbox.run("import sys\nclass Quiet:\n    def write(self, _): pass\nsys.stdout = Quiet()")
        assert text(sandbox.run("import os; os.write(1, b'raw\\n') and None")) == "raw\n"


def blank_lines_within_a_block_do_not_end_it():
    code = "def f(n):\n\n    total = 0\n\n    for i in range(n):\n\n        total += i\n\n\n    return total\n\nprint(f(5))\n"
    with Sandbox() as sandbox:
        assert text(sandbox.run(code)) == "10\n"
        assert text(sandbox.run(code.replace("\n", "\r\n"))) == "10\n"


def nothing_runs_after_what_was_raised():
    with Sandbox() as sandbox:
        told = sandbox.run("print('one')\nraise ValueError('two')\nprint('three')")
        assert text(told) == "one\n" and "ValueError: two" in text(told, "stderr"), told


def an_exit_does_not_end_the_repl_for_good():
    with Sandbox() as sandbox:
        for _ in range(5):
            sandbox.run("import sys; sys.exit(1)")
            _goes_on(sandbox)


def the_output_of_an_overrun_stays_with_it():
    with Sandbox() as sandbox:
        for n in range(5):
            code = f"import time\nfor _ in range(10**6): print('late {n}', flush=True); time.sleep(0.001)"
            failed = failure(sandbox.run, code, timeout=0.5)
            assert f"late {n}" in json.dumps(failed.data), failed
            for _ in range(3):
                told = sandbox.run("print('clean')")
                assert text(told) == "clean\n" and text(told, "stderr") == "", told


def a_background_process_does_not_hold_the_answer():
    with Sandbox() as sandbox:
        seconds, told = took(sandbox.command, "sh", "-c", "sleep 5 & echo hi")
        assert text(told) == "hi\n" and seconds < 2, (seconds, told)


def a_timeout_ends_more_than_the_shell():
    with Sandbox() as sandbox:
        beat = "while :; do date +%N >/tmp/beat; sleep 0.05; done"
        failure(sandbox.command, "sh", "-c", f"sh -c '{beat}' & sh -c '{beat}'", timeout=1)
        last = text(sandbox.command("cat", "/tmp/beat"))
        time.sleep(0.3)
        assert text(sandbox.command("cat", "/tmp/beat")) == last, "it is still beating"


def _peak_mib(pid):
    status = open(f"/proc/{pid}/status").read()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) >> 10


def a_hundred_megabytes_of_output_take_no_gigabytes():
    with Sandbox() as sandbox:
        told = sandbox.command("sh", "-c", "yes 0123456789012345678901234567890123456789012345678 | head -c 100000000")
        # Whole, or cut short and said to be.
        assert told.get("truncated") is True or len(told["stdout"]) == 100_000_000, told.keys()
        assert told["stdout"].startswith("0123456789"), told["stdout"][:100]
        del told
        peak = _peak_mib(int(os.environ["BURROW_TEST_PID"]))
        assert peak < 600, f"{peak} MiB"
        assert text(sandbox.run("print('on')")) == "on\n"


def _median(seconds):
    return sorted(seconds)[len(seconds) // 2]


def hundreds_of_evaluations_take_little_more_than_a_question():
    with Sandbox() as sandbox:
        sandbox.run("0")
        runs, questions = [], []
        for _ in range(300):
            runs.append(took(sandbox.run, "print(1)")[0])
            questions.append(took(sandbox.metrics)[0])
        ratio = _median(runs) / _median(questions)
        assert ratio < RUN_QUESTIONS_MAX, f"{_median(runs):.4f} s, {ratio:.1f} times a question"
