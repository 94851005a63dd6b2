"""The package itself: its types, its style, its installation, and that its README is true."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Bridge

import burrow
import burrow.sync

PACKAGE = Path(__file__).resolve().parents[1]


def _run(*command: str | Path, cwd: Path = PACKAGE, **environment: str) -> None:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=cwd,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **environment},
        capture_output=True,
        text=True,
        timeout=140,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_types_are_strict_in_the_package_and_in_its_tests(tmp_path: Path) -> None:
    cache = str(tmp_path)
    _run("-m", "mypy", "--strict", "--cache-dir", cache, "src/burrow")
    _run("-m", "mypy", "--strict", "--cache-dir", cache, "tests", MYPYPATH="src:tests")


def test_style_is_that_of_ruff() -> None:
    _run("-m", "ruff", "check", "--no-cache", ".")
    _run("-m", "ruff", "format", "--no-cache", "--check", ".")


def test_it_installs_by_pip_with_its_types_and_needs_nothing_else(tmp_path: Path) -> None:
    # What builds it leaves files beside its sources.
    source, target = tmp_path / "source", tmp_path / "target"
    shutil.copytree(PACKAGE, source)
    pip = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index")
    _run(*pip, "--no-build-isolation", "--target", target, source)
    assert (target / "burrow" / "py.typed").exists()
    assert sorted(one.name for one in target.iterdir()) == [
        "burrow",
        f"burrow_sandbox-{burrow.__version__}.dist-info",
    ]
    # No other package is in reach.
    _run("-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(target)!r}); import burrow.sync")


def test_every_name_that_is_used_here_is_younger_than_no_supported_python() -> None:
    # Types in annotations may be newer; code that runs may not.
    wanted = re.search(r'requires-python = ">=3\.(\d+)"', (PACKAGE / "pyproject.toml").read_text())
    assert wanted is not None
    version = (3, int(wanted[1]))
    for path in (PACKAGE / "src").rglob("*.py"):
        compile_for = __import__("ast").parse
        text = path.read_text()
        compile_for(text, feature_version=version)
        assert "from __future__ import annotations" in text or path.name == "__init__.py"


def _examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(len(_examples())))
def test_examples_of_the_readme_run(bridge: Bridge, number: int, tmp_path: Path) -> None:
    (tmp_path / "example.py").write_text(_examples()[number])
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "main.py").write_text("print('main')\n")
    source = str(Path(burrow.__file__).parents[1])
    _run(
        "-X",
        "dev",
        "-W",
        "error",
        "example.py",
        cwd=tmp_path,
        BURROW_URL=bridge.url,
        PYTHONPATH=source,
    )
    with burrow.sync.SandboxClient(bridge.url) as client:
        assert client.list() == []


def test_the_readme_has_examples() -> None:
    assert len(_examples()) >= 5
