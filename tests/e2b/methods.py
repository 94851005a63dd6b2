"""Compares the page `methods.py PAGE` with the public methods of the packages and with the tests here."""

import inspect
import pathlib
import re
import sys

import e2b
import e2b_code_interpreter as interpreter
from e2b.sandbox_sync.commands.command import Commands
from e2b.sandbox_sync.commands.command_handle import CommandHandle
from e2b.sandbox_sync.commands.pty import Pty
from e2b.sandbox_sync.filesystem.filesystem import Filesystem
from e2b.sandbox_sync.filesystem.watch_handle import WatchHandle
from e2b.sandbox_sync.git import Git

CLASSES = {
    "Sandbox": interpreter.Sandbox,
    "commands": Commands,
    "CommandHandle": CommandHandle,
    "pty": Pty,
    "files": Filesystem,
    "WatchHandle": WatchHandle,
    "git": Git,
    "Template": e2b.Template,
    "Secret": e2b.Secret,
    "Volume": e2b.Volume,
}
# They send nothing.
LOCAL = re.compile(r"Template\.(from_\w+|skip_cache|to_\w+)|Secret\.(fill|iam_token)")


def public():
    for name, kind in CLASSES.items():
        for method in dir(kind):
            full = f"{name}.{method}"
            is_method = callable(inspect.getattr_static(kind, method)) or isinstance(
                inspect.getattr_static(kind, method), (staticmethod, classmethod)
            )
            # Some are behind a descriptor of the package's own.
            is_method = is_method or callable(getattr(kind, method))
            if not method.startswith("_") and is_method and not LOCAL.fullmatch(full):
                yield full


rows = re.findall(
    r"^\| `([\w.]+)` \| ([^|]+) \| (\w+): (\w+) \|$", pathlib.Path(sys.argv[1]).read_text(), re.M
)
listed, wanted = {row[0] for row in rows}, set(public())
assert listed == wanted, f"missing: {sorted(wanted - listed)}, too many: {sorted(listed - wanted)}"
here = pathlib.Path(__file__).parent
for method, _, suite, test in rows:
    text = (here / f"{suite}.py").read_text()
    assert f"def {test}(" in text, f"{method}: there is no {suite}.{test}"
