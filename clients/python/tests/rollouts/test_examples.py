"""The examples of the page about frameworks that need a newer Python run."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from conftest import ROOT, Bridge

import burrow.sync

PAGE = (ROOT / "docs/howto/frameworks.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("module", ["harbor", "verifiers"])
def test_examples_of_the_page_run(
    bridge: Bridge, module: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (example,) = [block for block in BLOCKS if f"burrow.adapters.{module} " in block]
    monkeypatch.setenv("BURROW_URL", bridge.url)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "example.py").write_text(example)
    runpy.run_path("example.py", run_name="__main__")
    with burrow.sync.SandboxClient(bridge.url) as client:
        assert client.list() == []
