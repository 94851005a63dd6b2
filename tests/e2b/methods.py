"""Compares the page `methods.py PAGE` with the public methods of the packages and with the tests here. Whether a test
calls what it is to show is seen when it runs: `calls.py`, `calls.mjs`."""

import pathlib
import re
import sys

from calls import HERE, public, rows

PAGE = pathlib.Path(sys.argv[1])
PACKAGES = pathlib.Path(sys.prefix) / "js/node_modules"
# Of what the packages for JavaScript declare: the class or classes, and whether only static methods send anything.
CLASSES = {
    "Sandbox": (["SandboxApi", "Sandbox"], False),
    "commands": (["Commands"], False),
    "CommandHandle": (["CommandHandle"], False),
    "pty": (["Pty"], False),
    "files": (["Filesystem"], False),
    "WatchHandle": (["WatchHandle"], False),
    "git": (["Git"], False),
    "Template": (["TemplateBase"], True),
    "Secret": (["Secret"], False),
    "Volume": (["Volume"], False),
}
# They send nothing.
LOCAL = {"Template.toJSON", "Template.toDockerfile", "Secret.fill", "Secret.iamToken"}
# What has another name in Python, beside the spelling.
OTHERWISE = {"pty.sendInput": "pty.send_stdin", "Sandbox.getFullInfo": "Sandbox.get_info"}


def declared():
    """The public methods of the packages for JavaScript."""
    sources = [PACKAGES / package / "dist/index.d.ts" for package in ("e2b", "@e2b/code-interpreter")]
    text = "".join(source.read_text() for source in sources)
    for name, (kinds, only_static) in CLASSES.items():
        for kind in kinds:
            bodies = re.findall(rf"^declare (?:abstract )?class {kind}\b[^{{]*{{\n(.*?)^}}", text, re.M | re.S)
            assert bodies, f"the packages declare no class {kind}"
            for words, method in re.findall(r"^  ((?:[a-z]+ )*)(\w+)(?:<[^\n]*?>)?\(", "".join(bodies), re.M):
                words = words.split()
                is_hidden = {"private", "protected", "get"} & set(words) or method == "constructor"
                full = f"{name}.{method}"
                if not is_hidden and full not in LOCAL and ("static" in words or not only_static):
                    yield full


def rows_of_javascript():
    """Each method on the page, with the suite and the test that show it."""
    for suite, test, methods in re.findall(
        r"^\| (\w+): (\w+) \| ((?:`[\w.]+`(?:, )?)+) \|$", PAGE.read_text(), re.M
    ):
        for method in re.findall(r"[\w.]+", methods):
            yield method, suite, test


def titles(suite):
    """The tests of a suite of JavaScript, as the page writes them."""
    found = re.findall(r'^test\("([^"]+)"', (HERE / f"{suite}.mjs").read_text(), re.M)
    return {re.sub(r"\W+", "_", title) for title in found}


found = rows(PAGE)
listed, wanted = {row[0] for row in found}, set(public())
assert listed == wanted, f"missing: {sorted(wanted - listed)}, too many: {sorted(listed - wanted)}"
for method, _, suite, test in found:
    text = (HERE / f"{suite}.py").read_text()
    assert f"def {test}(" in text, f"{method}: there is no {suite}.{test}"

found = list(rows_of_javascript())
named, wanted = {row[0] for row in found}, set(declared())
assert named == wanted, f"missing: {sorted(wanted - named)}, too many: {sorted(named - wanted)}"
assert len(found) == len(named), "a method of JavaScript is in two rows"
for method, suite, test in found:
    assert test in titles(suite), f"{method}: there is no test {test} in {suite}.mjs"
    in_python = OTHERWISE.get(method, re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method).lower())
    rest = method.split(".")[0] + "." + in_python.split(".")[1]
    assert rest in listed, f"{method}: the page does not say what becomes of {rest}"
