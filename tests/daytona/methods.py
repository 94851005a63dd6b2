"""Compares the page `methods.py PAGE` with the public methods of the package and with the tests here."""

import inspect
import pathlib
import re
import sys

import daytona
from daytona._sync.code_interpreter import CodeInterpreter
from daytona._sync.filesystem import FileSystem
from daytona._sync.git import Git
from daytona._sync.process import Process
from daytona.handle.pty_handle import PtyHandle

CLASSES = {
    "Daytona": daytona.Daytona,
    "Sandbox": daytona.Sandbox,
    "process": Process,
    "PtyHandle": PtyHandle,
    "fs": FileSystem,
    "git": Git,
    "code_interpreter": CodeInterpreter,
}


def public():
    for name, kind in CLASSES.items():
        # Not what a model of data has of its library.
        for method, value in vars(kind).items():
            is_own = inspect.isfunction(value) and not method.startswith(("_", "model_"))
            if is_own:
                yield f"{name}.{method}"


def listed():
    text = pathlib.Path(sys.argv[1]).read_text()
    return re.findall(r"^\| `([\w.]+)` \| ([^|]+) \| (\w+): (\w+) \|$", text, re.M)


if __name__ == "__main__":
    rows = listed()
    names, wanted = {row[0] for row in rows}, set(public())
    assert names == wanted, f"missing: {sorted(wanted - names)}, too many: {sorted(names - wanted)}"
    assert len(rows) == len(names), "a method has two rows"
    here = pathlib.Path(__file__).parent
    for method, _, suite, test in rows:
        text = (here / f"{suite}.py").read_text()
        assert f"def {test}(" in text, f"{method}: there is no {suite}.{test}"
