"""Compares the page `methods.py PAGE` with the public methods of the packages and with the tests here. Whether a test
calls what it is to show is seen when it runs: `calls.py`."""

import pathlib
import sys

from calls import HERE, public, rows

found = rows(pathlib.Path(sys.argv[1]))
listed, wanted = {row[0] for row in found}, set(public())
assert listed == wanted, f"missing: {sorted(wanted - listed)}, too many: {sorted(listed - wanted)}"
for method, _, suite, test in found:
    text = (HERE / f"{suite}.py").read_text()
    assert f"def {test}(" in text, f"{method}: there is no {suite}.{test}"
