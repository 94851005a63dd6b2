"""Which methods of the packages a test calls: what the page says that it shows is compared with it."""

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
HERE = pathlib.Path(__file__).parent
PAGE = HERE.parent.parent / "docs/reference/e2b.md"

called = set()


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


def rows(page=PAGE):
    """The methods on the page, with what becomes of them, and the suite and the test that show it."""
    return re.findall(r"^\| `([\w.]+)` \| ([^|]+) \| (\w+): (\w+) \|$", page.read_text(), re.M)


class _Watched:
    """A method that notes when a suite gets it; what the packages call among themselves shows nothing."""

    def __init__(self, full, inner):
        self.full, self.inner = full, inner

    def __get__(self, instance, kind=None):
        caller = sys._getframe(1).f_globals.get("__file__", "")
        if pathlib.Path(caller).parent == HERE:
            called.add(self.full)
        return self.inner.__get__(instance, kind)


def watch():
    for full in list(public()):
        name, method = full.split(".")
        kind = next(one for one in CLASSES[name].__mro__ if method in vars(one))
        inner = vars(kind)[method]
        if not isinstance(inner, _Watched):
            setattr(kind, method, _Watched(full, inner))


def uncalled(suite, test):
    """The methods of which the page says that this test shows them, and that it has not called."""
    cited = {
        method
        for method, _, one, name in rows()
        if (one, name) == (suite, test)
    }
    missing = cited - called
    called.clear()
    return sorted(missing)


watch()
