"""Tools of LangChain: an agent runs code and commands in a sandbox, and reads and writes its files."""

from __future__ import annotations

import functools
from typing import Any, Callable

from langchain_core.tools import BaseTool, BaseToolkit, StructuredTool, ToolException
from pydantic import ConfigDict

from ..client import Sandbox
from ..errors import FileError, InvalidRequest, NotFound, SpawnFailed, TooLarge
from ..limits import TOOL_RUN_SECONDS, TOOL_TEXT_CHARS_MAX
from ..results import CommandResult, RunResult
from ..sync import SandboxHandle

#: What the model can correct by another call. Everything else is the program's to handle.
_OF_THE_MODEL = (FileError, InvalidRequest, NotFound, SpawnFailed, TooLarge)


class BurrowToolkit(BaseToolkit):
    """Four tools over one sandbox, which the caller makes and removes.

    A sandbox of `BurrowClient` gives tools for `ainvoke`, which end what they run when the agent is
    cancelled. One of `burrow.sync` gives tools for `invoke`, and for `ainvoke` in a thread.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True)

    sandbox: Sandbox | SandboxHandle
    #: How long code and commands may run, in seconds.
    timeout: float = TOOL_RUN_SECONDS
    #: The length of a text for the model. The artifact of the tool's message has all of it.
    chars_max: int = TOOL_TEXT_CHARS_MAX

    def get_tools(self) -> list[BaseTool]:
        python = self.sandbox.context("python")
        shell, files, seconds = self.sandbox.shell, self.sandbox.files, self.timeout

        def run_python(code: str) -> Any:
            """Run Python code. Variables, imports and functions stay for the next call. Returns what
            the code prints, the value of its last expression, and its exception.

            Args:
                code: The code.
            """
            return python.run(code, timeout=seconds)

        def run_shell(script: str, cwd: str | None = None) -> Any:
            """Run a script with /bin/sh. Returns its output, and its exit code if it fails.

            Args:
                script: The script.
                cwd: The directory in which it runs.
            """
            return shell(script, cwd=cwd, timeout=seconds)

        def read_file(path: str) -> Any:
            """Read a text file of the sandbox.

            Args:
                path: The absolute path.
            """
            return files.read(path)

        def write_file(path: str, text: str) -> Any:
            """Write a text file of the sandbox. Its directories are made; a file that exists is
            replaced.

            Args:
                path: The absolute path.
                text: All that the file will contain.
            """
            return files.write(path, text)

        return [
            self._tool(run_python, run_text),
            self._tool(run_shell, command_text),
            self._tool(read_file, lambda data: data.decode("utf-8", "replace")),
            self._tool(write_file, lambda size: f"{size} bytes are written"),
        ]

    def _tool(self, call: Callable[..., Any], text: Callable[[Any], str]) -> BaseTool:
        def shown(result: Any) -> tuple[str, Any]:
            return shortened(text(result), self.chars_max), result

        @functools.wraps(call)
        def invoke(**arguments: Any) -> tuple[str, Any]:
            try:
                return shown(call(**arguments))
            except _OF_THE_MODEL as error:
                raise ToolException(str(error)) from error

        @functools.wraps(call)
        async def ainvoke(**arguments: Any) -> tuple[str, Any]:
            try:
                return shown(await call(**arguments))
            except _OF_THE_MODEL as error:
                raise ToolException(str(error)) from error

        is_async = isinstance(self.sandbox, Sandbox)
        return StructuredTool.from_function(
            func=None if is_async else invoke,
            coroutine=ainvoke if is_async else None,
            parse_docstring=True,
            response_format="content_and_artifact",
            handle_tool_error=True,
        )


def run_text(run: RunResult) -> str:
    """What a model reads of a run."""
    parts = [run.stdout, run.stderr]
    if run.result is not None:
        parts.append(run.result)
    if run.error is not None:
        parts.append(run.error.traceback or f"{run.error.type}: {run.error.message}")
    if not run.ok and run.status != "error":
        parts.append(f"the run ended: {run.reason or run.status}")
    if not run.state_kept:
        parts.append("the variables are lost")
    return _joined(parts)


def command_text(result: CommandResult) -> str:
    """What a model reads of a command."""
    parts = [result.stdout, result.stderr]
    if not result.ok:
        parts.append(f"exit code {result.exit_code} ({result.cause})")
    return _joined(parts)


def _joined(parts: list[str]) -> str:
    return "\n".join(part.rstrip("\n") for part in parts if part) or "no output"


def shortened(text: str, chars_max: int) -> str:
    """A text without its middle, if it is longer: the beginning says what it is, the end how it
    went."""
    if len(text) <= chars_max:
        return text
    half = chars_max // 2
    cut = len(text) - 2 * half
    return f"{text[:half]}\n[{cut} characters are left out]\n{text[len(text) - half :]}"
