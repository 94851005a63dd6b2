"""What all suites use: a sandbox that is killed at the end, and whether something is refused."""

import contextlib

import e2b_code_interpreter as interpreter


@contextlib.contextmanager
def sandbox(**options):
    made = interpreter.Sandbox.create(**options)
    try:
        yield made
    finally:
        made.kill()


def refused(call, status=None, kind=Exception):
    """What `call` raises."""
    try:
        call()
    except kind as error:
        assert status is None or getattr(error, "status_code", None) == status, (error, vars(error))
        return error
    raise AssertionError("it was not refused")
