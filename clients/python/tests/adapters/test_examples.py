"""The page about frameworks: its examples run, and it has each module."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Bridge

import burrow.sync

PAGE = (ROOT / "docs/howto/frameworks.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
MODULES = Path(burrow.sync.__file__).parent / "adapters"


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_of_the_page_run(bridge: Bridge, number: int, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(EXAMPLES[number])
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path,
        env={
            **os.environ,
            "BURROW_URL": bridge.url,
            "PYTHONPATH": str(MODULES.parents[1]),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with burrow.sync.SandboxClient(bridge.url) as client:
        assert client.list() == []


def test_each_module_has_an_extra_and_an_example() -> None:
    extras = (ROOT / "clients/python/pyproject.toml").read_text()
    for path in MODULES.glob("*.py"):
        # `options` is shared, and has no framework.
        if path.stem not in ("__init__", "options"):
            assert f"\n{path.stem.replace('_', '-')} = [" in extras
            assert any(f"burrow.adapters.{path.stem}" in one for one in EXAMPLES)
