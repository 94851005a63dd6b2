"""`sandbox.metrics.get`: figures that are there after a second and right under load."""

import concurrent.futures
import time

import aiohttp
from microsandbox import PythonSandbox

import wire
from wire import Sandbox, bridge, call, eventually

MIB = 1 << 20


def _listed(**params):
    answer = call("sandbox.metrics.get", **params)
    return {(one["namespace"], one["name"]): one for one in answer["sandboxes"]}


def nothing_is_null_after_the_first_second():
    with Sandbox() as sandbox:
        time.sleep(1.05)
        for _ in range(20):
            figures = sandbox.metrics()
            assert figures["running"] is True, figures
            assert isinstance(figures["cpu_usage"], float) and figures["cpu_usage"] >= 0, figures
            for key in ("memory_usage", "disk_usage"):
                assert isinstance(figures[key], int) and figures[key] >= 0, figures
            assert figures["memory_usage"] > 0, figures
            time.sleep(0.05)


# A busy machine gives a busy loop less than a whole processor, so it says itself what it got.
_BUSY = """
import os, time
for _ in range(12):
    begun, used = time.time(), time.process_time()
    while time.time() < begun + 1: pass
    share = (time.process_time() - used) / (time.time() - begun)
    open('/tmp/share.new', 'w').write(str(100 * share))
    os.rename('/tmp/share.new', '/tmp/share')
"""


def a_busy_loop_reads_as_busy_as_it_is():
    with Sandbox() as sandbox, concurrent.futures.ThreadPoolExecutor(1) as pool:
        busy = pool.submit(call, "sandbox.repl.run", **sandbox.which, language="python", code=_BUSY)

        def is_right():
            share = sandbox.command("cat", "/tmp/share")["stdout"]
            return share and float(share) > 20 and abs(sandbox.metrics()["cpu_usage"] - float(share)) < 15

        eventually("the figure is right", is_right, within_secs=11)
        assert not busy.done(), "the figure came after the run"
        busy.result()
        eventually("it is idle", lambda: sandbox.metrics()["cpu_usage"] < 20, within_secs=10)


def a_sandbox_reads_its_own_load_alone():
    with Sandbox() as idle, Sandbox() as loaded:
        loaded.command("sh", "-c", "while :; do :; done >/dev/null 2>&1 &")
        loaded.run("block = bytearray(200 << 20)")
        eventually("one is loaded", lambda: loaded.metrics()["cpu_usage"] > 30)
        figures = idle.metrics()
        assert figures["cpu_usage"] < 25 and figures["memory_usage"] < 150, figures


def a_hundred_mebibytes_of_memory_show():
    with Sandbox() as sandbox:
        sandbox.run("1")
        before = eventually("figures", lambda: sandbox.metrics()["memory_usage"])
        sandbox.run("block = b'x' * (100 << 20)")
        grown = lambda: sandbox.metrics()["memory_usage"] - before
        eventually("they show", lambda: 90 <= grown() <= 140)
        sandbox.run("del block")
        eventually("they are gone again", lambda: grown() < 50)


def fifty_mebibytes_on_disk_show():
    with Sandbox() as sandbox:
        time.sleep(1.05)
        before = sandbox.metrics()["disk_usage"]
        sandbox.command("dd", "if=/dev/zero", "of=/root/big", "bs=1M", "count=50")
        grown = lambda: sandbox.metrics()["disk_usage"] - before
        eventually("they show", lambda: 49 * MIB <= grown() <= 60 * MIB)


def figures_answer_while_code_runs():
    with Sandbox() as sandbox, concurrent.futures.ThreadPoolExecutor(1) as pool:
        asked = {**sandbox.which, "language": "python", "code": "import time; time.sleep(2)"}
        busy = pool.submit(call, "sandbox.repl.run", **asked)
        for _ in range(10):
            seconds, _ = wire.took(sandbox.metrics)
            assert seconds < 0.5, seconds
        assert not busy.done()
        busy.result()


def a_namespace_lists_its_own_and_a_star_lists_all():
    with Sandbox("one", "east"), Sandbox("two", "east"), Sandbox("one", "west"):
        assert set(_listed(namespace="east")) == {("east", "one"), ("east", "two")}
        assert set(_listed(namespace="west", sandbox=None)) == {("west", "one")}
        assert set(_listed(namespace="*")) >= {("east", "one"), ("east", "two"), ("west", "one")}
        assert set(_listed(namespace="east", sandbox="two")) == {("east", "two")}
        assert set(_listed(namespace="*", sandbox="one")) == {("east", "one"), ("west", "one")}
        assert _listed(namespace="north") == {}


async def a_sandbox_that_is_not_there_reads_as_not_running():
    sandbox = PythonSandbox(name="absent")
    sandbox._session, sandbox._is_started = aiohttp.ClientSession(), True
    try:
        assert await sandbox.metrics.is_running() is False
        assert await sandbox.metrics.all() == {}
        assert await sandbox.metrics.cpu() is None
    finally:
        await sandbox._session.close()


def a_stopped_sandbox_reads_as_not_running():
    with Sandbox("paused") as sandbox:
        bridge("stop", "paused")
        figures = sandbox.metrics()
        assert figures["running"] is False, figures
        assert figures["cpu_usage"] is None and figures["memory_usage"] is None, figures
