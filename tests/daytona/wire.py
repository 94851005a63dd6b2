"""What all suites use: a sandbox that is deleted at the end, and whether something is refused."""

import contextlib
import time

import daytona


@contextlib.contextmanager
def sandbox(**options):
    client = daytona.Daytona()
    made = client.create(daytona.CreateSandboxFromSnapshotParams(**options))
    try:
        yield made
    finally:
        with contextlib.suppress(daytona.DaytonaNotFoundError):
            made.delete()


def refused(call, kind=daytona.DaytonaError, status=None, says=""):
    """What `call` raises."""
    try:
        call()
    except kind as error:
        assert status is None or error.status_code == status, repr(error)
        assert says in str(error), repr(error)
        return error
    raise AssertionError("it was not refused")


def until(look, seconds=30):
    """Waits until `look` finds something."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError("it did not come in time")
