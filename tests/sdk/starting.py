"""Starting and stopping: names, namespaces, what a sandbox is made with, and doing it twice."""

import concurrent.futures
import time
import warnings

import aiohttp
from microsandbox import PythonSandbox

import wire
from wire import BAD_PARAMS, Sandbox, call, eventually, failure, took


def _start(**params):
    try:
        return call("sandbox.start", **params)
    finally:
        stoppable = isinstance(params.get("sandbox"), str) and isinstance(params.get("namespace", ""), str)
        if stoppable:
            _stop_quietly(**{key: params[key] for key in ("sandbox", "namespace") if key in params})


def _stop_quietly(**which):
    try:
        call("sandbox.stop", **which)
    except wire.Failed:
        pass


async def a_cpu_count_that_the_sdk_rounds_to_zero_is_the_smallest_share():
    sandbox = PythonSandbox(name="small")
    sandbox._session = aiohttp.ClientSession()
    try:
        await sandbox.start(cpus=0.4)
        assert await (await sandbox.run("print('small')")).output() == "small"
    finally:
        await sandbox.stop()
        await sandbox._session.close()


async def a_start_gives_no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with PythonSandbox.create():
            pass


def a_missing_namespace_is_the_default_one():
    call("sandbox.start", sandbox="no-namespace", config={"image": "microsandbox/python"})
    with Sandbox("no-namespace", "default") as same:
        assert same.metrics()["namespace"] == "default"
        ran = call("sandbox.repl.run", sandbox="no-namespace", language="python", code="print(1)")
        assert wire.text(ran) == "1\n"
        call("sandbox.stop", sandbox="no-namespace")
        assert same.metrics() is None


def a_null_namespace_is_the_default_one():
    call("sandbox.start", sandbox="null-namespace", namespace=None, config=None)
    with Sandbox("null-namespace", "default") as same:
        assert same.metrics()["running"] is True


def a_start_without_a_config_takes_the_defaults():
    call("sandbox.start", sandbox="plain", namespace="default")
    with Sandbox("plain") as plain:
        assert wire.text(plain.run("print('plain')")) == "plain\n"


def both_images_of_the_sdk_start():
    for image in ("microsandbox/python", "microsandbox/node"):
        with Sandbox(config={"image": image}) as sandbox:
            assert wire.text(sandbox.run("print('py')")) == "py\n", image
            assert wire.text(sandbox.run("console.log('js')", "nodejs")) == "js\n", image


def an_unknown_image_is_refused_by_its_name():
    failed = failure(_start, sandbox="imageless", namespace="default", config={"image": "no/such-image"})
    assert "no/such-image" in failed.message, failed


def names_of_63_characters_and_of_one_are_names():
    for name in ("a", "0", "A_b-9", "x" * 63, "z-", "9_"):
        _start(sandbox=name, namespace="default", config={})
    _start(sandbox="same", namespace="N" * 63, config={})


def what_is_no_name_is_refused_in_words():
    wrong = ["", "x" * 64, "-a", "_a", "a b", "a/b", "..", "a\n", "ä", "a.b", "a\0b", "$(id)"]
    for name in wrong:
        failed = failure(_start, sandbox=name, namespace="default", config={})
        assert failed.code == BAD_PARAMS and "name" in failed.message, (name, failed)
        failed = failure(_start, sandbox="fine", namespace=name, config={})
        assert failed.code == BAD_PARAMS and "name" in failed.message, (name, failed)


def a_namespace_and_a_name_together_name_a_sandbox():
    with Sandbox("twin", "left") as left, Sandbox("twin", "right") as right:
        left.run("side = 'left'")
        assert "NameError" in wire.text(right.run("print(side)"), "stderr")
        right.stop()
        assert wire.text(left.run("print(side)")) == "left\n"


def sandboxes_do_not_share_files():
    with Sandbox() as one, Sandbox() as other:
        one.run("open('/tmp/mine', 'w').write('1')")
        assert one.command("cat", "/tmp/mine")["success"] is True
        assert other.command("cat", "/tmp/mine")["success"] is False


def envs_are_seen_by_code_and_by_commands():
    with Sandbox(config={"envs": ["COLOUR=dark = blue", "EMPTY="]}) as sandbox:
        told = sandbox.run("import os; print(os.environ['COLOUR'], [os.environ['EMPTY']])")
        assert wire.text(told) == "dark = blue ['']\n"
        assert wire.text(sandbox.run("console.log(process.env.COLOUR)", "nodejs")) == "dark = blue\n"
        assert wire.text(sandbox.command("sh", "-c", 'echo "$COLOUR"')) == "dark = blue\n"


def an_env_without_a_value_is_refused_in_words():
    failed = failure(_start, sandbox="valueless", namespace="default", config={"envs": ["=x"]})
    assert failed.code == BAD_PARAMS and "env" in failed.message, failed


def a_workdir_is_where_code_and_commands_begin():
    with Sandbox(config={"workdir": "/usr"}) as sandbox:
        assert wire.text(sandbox.command("pwd")) == "/usr\n"
        assert wire.text(sandbox.run("import os; print(os.getcwd())")) == "/usr\n"


def volumes_and_ports_are_heeded_or_refused_in_words():
    for key, value in (("volumes", ["/usr/share:/data"]), ("ports", ["18080:80"])):
        which = {"sandbox": f"with-{key}", "namespace": "default"}
        try:
            call("sandbox.start", **which, config={"image": "microsandbox/python", key: value})
        except wire.Failed as failed:
            assert key.rstrip("s") in failed.message, (key, failed)
        else:
            with Sandbox(which["sandbox"]) as sandbox:
                heeded = key == "volumes" and sandbox.command("ls", "/data")["success"]
                assert heeded, f"{key} was accepted and forgotten"
    # None of them is nothing to refuse.
    _start(sandbox="without", namespace="default", config={"volumes": [], "ports": [], "envs": []})
    _start(sandbox="without", namespace="default", config={"volumes": None, "ports": None, "envs": None})


def a_limit_that_is_no_limit_is_refused_in_words():
    for config in ({"memory": "much"}, {"memory": -1}, {"cpus": -1}, {"cpus": "two"}, {"image": 5}, []):
        failed = failure(_start, sandbox="odd", namespace="default", config=config)
        assert failed.code == BAD_PARAMS, (config, failed)


def a_start_of_what_runs_succeeds_and_changes_nothing():
    with Sandbox("again") as first:
        first.run("kept = 7")
        # Not left by `with`, which would stop what the first still uses.
        second = Sandbox("again")
        assert wire.text(second.run("print(kept)")) == "7\n"
        assert wire.text(first.run("print(kept)")) == "7\n"
        second.connection.close()


def starts_at_once_of_one_name_make_one_sandbox():
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        started = list(pool.map(lambda _: Sandbox("crowded"), range(8)))
    try:
        started[0].run("shared = 'one'")
        for sandbox in started:
            assert wire.text(sandbox.run("print(shared)")) == "one\n"
    finally:
        for sandbox in started:
            sandbox.stop()
            sandbox.connection.close()


def a_start_after_a_stop_is_a_new_sandbox():
    with Sandbox("phoenix") as first:
        first.run("old = 1")
        first.command("touch", "/tmp/old")
    with Sandbox("phoenix") as second:
        assert "NameError" in wire.text(second.run("print(old)"), "stderr")
        assert second.command("ls", "/tmp/old")["success"] is False


def a_stop_is_idempotent():
    call("sandbox.stop", sandbox="never-was", namespace="default")
    call("sandbox.stop", sandbox="never-was", namespace="never-was-either")
    with Sandbox("ended") as sandbox:
        sandbox.stop()
        sandbox.stop()
        assert sandbox.metrics() is None


def stops_at_once_all_succeed():
    for _ in range(5):
        sandbox = Sandbox("mown")
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda _: call("sandbox.stop", **sandbox.which), range(6)))
        sandbox.connection.close()


def a_stop_is_quick_whatever_goes_on_inside():
    with Sandbox("busy") as sandbox, concurrent.futures.ThreadPoolExecutor(2) as pool:
        code = "open('/tmp/code', 'w').close()\nwhile True: pass"
        stubborn = "trap '' TERM INT HUP; touch /tmp/command; while :; do sleep 1; done"
        run = pool.submit(call, "sandbox.repl.run", **sandbox.which, language="python", code=code)
        command = pool.submit(call, "sandbox.command.run", **sandbox.which, command="sh", args=["-c", stubborn])
        under_way = lambda: sandbox.command("ls", "/tmp/code", "/tmp/command")["success"]
        eventually("both are under way", under_way)
        seconds, _ = took(sandbox.stop)
        assert seconds < 5, seconds
        # Those who waited for them are told, in one way or the other, and not left to wait.
        for left in (run, command):
            ended = left.exception(timeout=10)
            assert ended is None or isinstance(ended, wire.Failed), ended


async def a_stop_in_finally_does_not_hide_the_users_exception():
    class Mine(Exception):
        pass

    try:
        async with PythonSandbox.create(name="failing") as sandbox:
            await sandbox.run("import threading; threading.Thread(target=lambda: [None for _ in iter(int, 1)]).start()")
            # Somebody else was quicker.
            call("sandbox.stop", sandbox="failing", namespace="default")
            raise Mine
    except Mine:
        pass


def what_is_asked_of_a_sandbox_that_is_not_there_says_so():
    which = {"sandbox": "nowhere", "namespace": "default"}
    for method, more in (
        ("sandbox.repl.run", {"language": "python", "code": "1"}),
        ("sandbox.command.run", {"command": "true", "args": []}),
    ):
        failed = failure(call, method, **which, **more)
        assert "nowhere" in failed.message, failed


def starting_takes_less_than_a_second():
    seconds = []
    for _ in range(5):
        begun = time.monotonic()
        with Sandbox():
            seconds.append(time.monotonic() - begun)
    assert sorted(seconds)[2] < 1, seconds
