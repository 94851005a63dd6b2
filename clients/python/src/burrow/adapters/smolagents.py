"""An executor of smolagents: the code of a `CodeAgent` runs in a sandbox, in an interpreter of its own."""

from __future__ import annotations

import io
import re
import shlex
import uuid
from collections.abc import Sequence

import PIL.Image
from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.tools import Tool, get_tools_definition_code
from smolagents.utils import AgentError

from ..errors import NotFound
from ..limits import RAISED_CHARS_MAX, TOOL_RUN_SECONDS
from ..results import RunResult
from ..sync import SandboxHandle

#: What smolagents imports at the head of the final answer's tool.
_OPTIONAL = re.compile(r"^import (PIL|numpy)$", re.MULTILINE)
#: Prints what the exception of a final answer carries.
_FINAL_ANSWER = "import sys; print(end=sys.last_value.value)"


class BurrowExecutor(RemotePythonExecutor):
    """Runs the code of an agent in a sandbox, which the caller makes and removes: `CodeAgent(…,
    executor=BurrowExecutor(sandbox))`. Variables stay from step to step. What the code gives back is
    read as JSON; pickles of a sandbox could run code here, and are refused."""

    def __init__(
        self,
        sandbox: SandboxHandle,
        *,
        additional_imports: Sequence[str] = (),
        timeout: float = TOOL_RUN_SECONDS,
        logger: AgentLogger | None = None,
    ) -> None:
        super().__init__(list(additional_imports), logger or AgentLogger(), allow_pickle=False)
        self._timeout = timeout
        # Agents that share a sandbox do not share variables.
        self._context = sandbox.context(f"smolagents-{uuid.uuid4().hex[:8]}", language="python")
        self.installed_packages = self.install_packages(self.additional_imports)

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        run = self._context.run(code, timeout=self._timeout)
        logs = run.stdout + run.stderr
        if run.error is not None and run.error.type == self.FINAL_ANSWER_EXCEPTION:
            answer = self._deserialize_final_answer(self._final_answer(run.error.message))
            return CodeOutput(output=answer, logs=logs, is_final_answer=True)
        if not run.ok:
            trace = run.error.traceback if run.error else ""
            ended = "" if run.status == "error" else f"the run ended: {run.reason or run.status}"
            raise AgentError("\n".join(part for part in (logs, trace, ended) if part), self.logger)
        return CodeOutput(output=_value(run), logs=logs, is_final_answer=False)

    def send_tools(self, tools: dict[str, Tool]) -> None:
        """Defines the tools in the interpreter. Unlike smolagents' own, it needs neither pillow nor
        numpy there for the final answer, whose code does without them, and may be called again."""
        final = tools.get("final_answer")
        if final is not None and not hasattr(final, "_forward"):
            self._patch_final_answer_with_exception(final)
        others = [tool for tool in tools.values() if tool is not final]
        wanted = {name for tool in others for name in tool.to_dict()["requirements"]}
        missing = wanted - {"smolagents", *self.installed_packages}
        self.install_packages(["pillow" if name == "PIL" else name for name in sorted(missing)])
        self.installed_packages += missing
        code = _OPTIONAL.sub(
            r"try: \g<0>\nexcept ImportError: pass", get_tools_definition_code(tools)
        )
        self.logger.log(self.run_code_raise_errors(code).logs)

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        if additional_imports:
            names = " ".join(map(shlex.quote, additional_imports))
            run = self._context.run(f"%pip install --quiet {names}\n_exit_code")
            if run.result != "0":
                raise AgentError(f"cannot install {names}: {run.stderr or run.reason}", self.logger)
        return additional_imports

    def cleanup(self) -> None:
        """Ends the interpreter. The sandbox stays."""
        try:
            self._context.close()
        except NotFound:
            # It never ran, or its sandbox is gone.
            pass

    def _final_answer(self, message: str) -> str:
        if len(message) < RAISED_CHARS_MAX:
            return message
        # The server has cut it.
        run = self._context.run(_FINAL_ANSWER, timeout=self._timeout)
        if not run.ok or run.truncated:
            raise AgentError("the final answer is too long: write it to a file", self.logger)
        return run.stdout


def _value(run: RunResult) -> object:
    if run.value is None:
        return None
    for kind in ("image/png", "image/jpeg"):
        if kind in run.value.data:
            return PIL.Image.open(io.BytesIO(run.value.data[kind]))
    return run.value.text
