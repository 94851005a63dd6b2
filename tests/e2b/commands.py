"""Programs and terminals."""

import threading
import time

import e2b
from wire import refused, sandbox


def run_gives_output_and_exit_code():
    with sandbox() as sbx:
        done = sbx.commands.run("echo out; echo err >&2; pwd; echo $HOME $E2B_SANDBOX $E2B_SANDBOX_ID")
        assert done.stdout.splitlines()[0] == "out" and done.stderr == "err\n", done
        assert done.stdout.splitlines()[1] == "/home/user", done
        assert done.stdout.splitlines()[2] == f"/home/user true {sbx.sandbox_id}", done
        assert done.exit_code == 0 and not done.error
        error = refused(lambda: sbx.commands.run("echo a; exit 3"), kind=e2b.CommandExitException)
        assert error.exit_code == 3 and error.stdout == "a\n", error
        heard = []
        sbx.commands.run("echo é; echo x >&2", on_stdout=heard.append, on_stderr=heard.append)
        assert sorted(heard) == ["x\n", "é\n"], heard
        done = sbx.commands.run("echo $A; pwd", envs={"A": "b c"}, cwd="/tmp", user="root")
        assert done.stdout == "b c\n/tmp\n", done


def nothing_of_a_long_output_is_lost():
    with sandbox() as sbx:
        done = sbx.commands.run("seq 1 200000; seq 1 1000 >&2")
        assert done.stdout == "".join(f"{n}\n" for n in range(1, 200001))
        assert done.stderr == "".join(f"{n}\n" for n in range(1, 1001))


def a_background_command_is_waited_for_and_found():
    with sandbox() as sbx:
        handle = sbx.commands.run("echo begun; read line; echo got $line", background=True, stdin=True)
        listed = [info for info in sbx.commands.list() if info.pid == handle.pid]
        assert listed and listed[0].cmd == "/bin/bash" and listed[0].args[:2] == ["-l", "-c"], listed
        assert listed[0].cwd == "/home/user", listed
        sbx.commands.send_stdin(handle.pid, "hello\n")
        done = handle.wait()
        assert done.stdout == "begun\ngot hello\n", done
        assert all(info.pid != handle.pid for info in sbx.commands.list())


def closing_stdin_is_the_end_of_a_file():
    with sandbox() as sbx:
        handle = sbx.commands.run("cat; echo end", background=True, stdin=True)
        handle.send_stdin("one")
        handle.close_stdin()
        assert handle.wait().stdout == "oneend\n"
        handle = sbx.commands.run("cat; echo end", background=True, stdin=True)
        sbx.commands.close_stdin(handle.pid)
        assert handle.wait().stdout == "end\n"
        assert sbx.commands.run("cat; echo end").stdout == "end\n"


def stream_input_types_as_it_comes():
    with sandbox() as sbx:
        handle = sbx.commands.run("while read l; do echo got $l; done", background=True, stdin=True)
        said = iter(handle)

        def typed():
            # Each waits for the answer to the one before.
            for word in ["one", "two", "three"]:
                yield word + "\n"
                assert next(said)[0] == f"got {word}\n"

        sbx.commands.stream_input(handle.pid, typed())
        sbx.commands.close_stdin(handle.pid)
        assert handle.wait().stdout == "got one\ngot two\ngot three\n"


def connect_finds_what_was_said_before():
    with sandbox() as sbx:
        handle = sbx.commands.run("echo early; read l; echo late; exit 4", background=True, stdin=True)
        pid = handle.pid
        handle.disconnect()
        again = sbx.commands.connect(pid)
        sbx.commands.send_stdin(pid, "go\n")
        error = refused(again.wait, kind=e2b.CommandExitException)
        assert error.stdout == "early\nlate\n" and error.exit_code == 4, error
        refused(lambda: sbx.commands.connect(4_000_000), kind=e2b.NotFoundException)


def kill_takes_the_tree():
    with sandbox() as sbx:
        script = "setsid sleep 1000 & setsid sleep 1001 & sleep 1002"
        handle = sbx.commands.run(script, background=True)
        # The children are there.
        sbx.commands.run("until [ $(pgrep -c -f '^sleep 100[012]') = 3 ]; do sleep 0.02; done")
        assert handle.kill() is True
        error = refused(handle.wait, kind=e2b.CommandExitException)
        assert error.error == "signal: killed", error
        assert sbx.commands.kill(handle.pid) is False
        sbx.commands.run("until ! pgrep -f '^sleep 100[012]'; do sleep 0.02; done", timeout=20)


def a_timeout_kills_and_says_so():
    with sandbox() as sbx:
        refused(lambda: sbx.commands.run("sleep 1000", timeout=1), kind=e2b.TimeoutException)
        sbx.commands.run("until ! pgrep -f '^sleep 1000'; do sleep 0.02; done", timeout=20)


def a_child_that_is_left_behind_holds_no_answer_up():
    with sandbox() as sbx:
        begun = time.monotonic()
        assert sbx.commands.run("sleep 300 & echo done", timeout=100).stdout == "done\n"
        assert time.monotonic() - begun < 60
        assert sbx.commands.run("pgrep -f '^sleep 300'").stdout


def a_viewer_that_does_not_read_holds_nobody_up():
    with sandbox() as sbx:
        stuck = sbx.commands.run("seq 1 3000000; touch /tmp/through", background=True)
        sbx.commands.run("until [ -e /tmp/through ]; do sleep 0.05; done", timeout=60)
        assert stuck.wait().stdout.endswith("\n3000000\n")


def a_terminal_is_typed_into_and_resized():
    with sandbox() as sbx:
        pty = sbx.pty.create(e2b.PtySize(rows=30, cols=90))
        sbx.pty.resize(pty.pid, e2b.PtySize(rows=40, cols=100))
        sbx.pty.send_stdin(pty.pid, b"stty size; echo $TERM; exit 5\n")
        said = []
        error = refused(lambda: pty.wait(on_pty=said.append), kind=e2b.CommandExitException)
        text = b"".join(said).decode()
        assert "40 100" in text and "xterm-256color" in text and error.exit_code == 5, text
        other = sbx.pty.create(e2b.PtySize(rows=24, cols=80))
        again = sbx.pty.connect(other.pid)
        sbx.pty.stream_input(other.pid, iter([b"echo a", b"bc\n"]))
        assert sbx.pty.kill(other.pid) is True
        refused(again.wait, kind=e2b.CommandExitException)


def git_is_a_command():
    with sandbox() as sbx:
        sbx.git.init("/tmp/repo", initial_branch="main")
        sbx.git.configure_user("A", "a@example.org")
        sbx.files.write("/tmp/repo/a", "1")
        sbx.git.add("/tmp/repo")
        sbx.git.commit("/tmp/repo", "one")
        assert sbx.git.branches("/tmp/repo").current_branch == "main"
        assert sbx.git.status("/tmp/repo").is_clean
        sbx.commands.run("git clone --bare /tmp/repo /tmp/bare.git")
        sbx.git.clone("/tmp/bare.git", "/tmp/clone")
        sbx.git.create_branch("/tmp/clone", "side")
        sbx.git.checkout_branch("/tmp/clone", "main")
        sbx.git.delete_branch("/tmp/clone", "side")
        sbx.files.write("/tmp/clone/a", "2")
        sbx.git.restore("/tmp/clone", ["a"])
        assert sbx.files.read("/tmp/clone/a") == "1"
        sbx.files.write("/tmp/clone/b", "2")
        sbx.git.add("/tmp/clone")
        sbx.git.reset("/tmp/clone")
        sbx.git.add("/tmp/clone")
        sbx.git.commit("/tmp/clone", "two")
        sbx.git.push("/tmp/clone")
        sbx.git.remote_add("/tmp/repo", "origin", "/tmp/bare.git")
        assert sbx.git.remote_get("/tmp/repo", "origin") == "/tmp/bare.git"
        sbx.git.pull("/tmp/repo", remote="origin", branch="main")
        assert sbx.files.read("/tmp/repo/b") == "2"
        sbx.git.set_config("burrow.test", "yes")
        assert sbx.git.get_config("burrow.test") == "yes"
        sbx.git.dangerously_authenticate("name", "word")


def a_thousand_commands_of_twenty_clients_lose_nothing():
    with sandbox(timeout=600) as sbx:
        found, trouble = {}, []

        def client(number):
            try:
                own = e2b.Sandbox.connect(sbx.sandbox_id)
                for turn in range(50):
                    word = f"{number}-{turn}"
                    done = own.commands.run(f"echo {word}; echo {word} >&2", timeout=0)
                    assert done.stdout == done.stderr == word + "\n", done
                    found[word] = True
            except Exception as error:
                trouble.append(error)

        clients = [threading.Thread(target=client, args=(n,)) for n in range(20)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()
        assert not trouble, trouble
        assert len(found) == 1000
