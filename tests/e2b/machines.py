"""What needs a machine that can copy its memory; `just test-vm` runs this suite with one. Other machines refuse it."""

import os

import e2b
from wire import refused, sandbox

CAN_COPY = os.environ.get("BURROW_DEFAULTS_MACHINE") == "qemu"


def a_fork_has_the_memory_of_its_original():
    with sandbox(timeout=600) as sbx:
        if not CAN_COPY:
            error = refused(sbx.fork)
            assert "501" in str(error), error
            return
        assert sbx.run_code("x = 41").error is None
        counting = sbx.commands.run("while :; do sleep 0.1; done", background=True, timeout=0)
        sbx.files.write("/tmp/kept", "before")
        copies = sbx.fork(count=2)
        try:
            assert all(isinstance(copy, e2b.Sandbox) for copy in copies), copies
            for copy in copies:
                # The interpreter and the program go on in each.
                assert copy.run_code("x + 1").text == "42"
                assert counting.pid in [one.pid for one in copy.commands.list()]
                assert copy.files.read("/tmp/kept") == "before"
                copy.files.write("/tmp/kept", copy.sandbox_id)
            for copy in copies:
                assert copy.files.read("/tmp/kept") == copy.sandbox_id
            assert sbx.files.read("/tmp/kept") == "before"
        finally:
            for copy in copies:
                if isinstance(copy, e2b.Sandbox):
                    copy.kill()


def a_snapshot_makes_sandboxes_that_go_on():
    with sandbox(timeout=600) as sbx:
        if not CAN_COPY:
            error = refused(sbx.create_snapshot)
            assert "501" in str(error), error
            return
        assert sbx.run_code("x = 41").error is None
        taken = sbx.create_snapshot()
        try:
            listed = [one.snapshot_id for one in e2b.Sandbox.list_snapshots().next_items()]
            assert taken.snapshot_id in listed, listed
            with sandbox(template=taken.snapshot_id, timeout=600) as made:
                assert made.run_code("x + 1").text == "42"
        finally:
            assert e2b.Sandbox.delete_snapshot(taken.snapshot_id) is True
