"""The page about frameworks: its examples run, and it has each module."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from conftest import ROOT, Bridge

import burrow.sync

PAGE = (ROOT / "docs/howto/frameworks.md").read_text()
#: What has no framework of its own.
SHARED = {"__init__", "options"}
#: What `tests/rollouts` runs, in a newer Python.
ELSEWHERE = {"harbor", "verifiers"}
#: The examples, each by the module that it shows.
EXAMPLES = {
    module: example
    for example in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    for module in re.findall(r"burrow\.adapters\.(\w+)", example)
    if module not in SHARED
}


@pytest.mark.parametrize("module", sorted(EXAMPLES.keys() - ELSEWHERE))
def test_examples_of_the_page_run(
    bridge: Bridge, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BURROW_URL", bridge.url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "example.py").write_text(EXAMPLES[module])
    # In this process, which has the frameworks already.
    runpy.run_path("example.py", run_name="__main__")
    with burrow.sync.SandboxClient(bridge.url) as client:
        assert client.list() == []


def test_each_module_has_an_extra_and_an_example() -> None:
    modules = {path.stem for path in Path(burrow.sync.__file__).parent.glob("adapters/*.py")}
    assert modules - SHARED == set(EXAMPLES)
    extras = (ROOT / "clients/python/pyproject.toml").read_text()
    for module in EXAMPLES:
        assert f"\n{module.replace('_', '-')} = [" in extras
