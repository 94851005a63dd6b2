"""Compares the page `methods.py PAGE` with the public methods of the package and with the tests here. A row has
`Class.method`, then more methods of that class; a class alone is all its methods. The test of a row names each. What
releases of 0.7 alone have is checked with those alone."""

import inspect
import pathlib
import re
import sys

import microsandbox

HERE = pathlib.Path(__file__).parent
# They build values of requests, and send nothing.
VALUES = {"microsandbox.types", "microsandbox.errors", "microsandbox.setup", "microsandbox.jobs"}
NEWEST = hasattr(microsandbox, "Job")


def public():
    for name, kind in vars(microsandbox).items():
        is_value = not inspect.isclass(kind) or kind.__module__ in VALUES
        if name.startswith("_") or is_value or issubclass(kind, Exception):
            continue
        for method, value in vars(kind).items():
            if callable(value) or isinstance(value, staticmethod | classmethod):
                if not method.startswith("_"):
                    yield f"{name}.{method}"


def cells(cell):
    """The methods that a cell names, and the classes."""
    kind = None
    for word in re.findall(r"`([\w.]+)(?:\([^`]*\))?`", cell):
        if word[0].isupper() and "." not in word:
            yield word
            continue
        kind, method = word.split(".") if "." in word else (kind, word)
        yield f"{kind}.{method}"


rows = re.findall(r"^\| (`[^|]+) \| ([^|]+) \| (\w+): (\w+) \|$", pathlib.Path(sys.argv[1]).read_text(), re.M)
assert len(rows) > 20, rows
found = [(name, suite, test) for cell, _, suite, test in rows for name in cells(cell)]
listed, wanted = {row[0] for row in found}, set(public())
assert len(found) == len(listed), "a method is in two rows"
whole = {name for name in listed if "." not in name}
named = listed - whole
missing = {name for name in wanted - named if name.split(".")[0] not in whole}
assert not missing, f"missing: {sorted(missing)}"
extra = {name for name in named - wanted} | {name for name in whole if not hasattr(microsandbox, name)}
assert not NEWEST or not extra, f"too many: {sorted(extra)}"
for name, suite, test in found:
    text = (HERE / f"{suite}.py").read_text()
    body = re.search(rf"^async def {test}\(.*?(?=^(?:async )?def |\Z)", text, re.M | re.S)
    assert body, f"{name}: there is no {suite}.{test}"
    word = name.split(".")[-1]
    assert re.search(rf"\b{word}\b", body[0]), f"{name}: {suite}.{test} does not name it"
