"""The abstract surface, held against a description of it that stands on its own."""

from __future__ import annotations

import abc
import asyncio
import dataclasses
import inspect
from typing import Any

import pytest

import burrow
import burrow.sync

#: Parameters as `name: kind = default`; `*` marks those that are said by name alone.
SURFACE: dict[str, dict[str, tuple[bool, str, str]]] = {
    # class: method: (is abstract, parameters, what it returns)
    "SandboxHandle": {
        "exec": (
            True,
            "self, cmd: str, args: Sequence[str] | None = None, *, timeout: float | None = None",
            "ExecResult",
        ),
        "shell": (True, "self, script: str, *, timeout: float | None = None", "ExecResult"),
        "stop": (True, "self", "None"),
        "kill": (True, "self", "None"),
        "logs": (True, "self, *, tail: int | None = None", "str"),
    },
    "SandboxClient": {
        "create": (True, "self, spec: SandboxSpec", "SandboxHandle"),
        "get": (True, "self, name: str", "SandboxHandle"),
        "list": (True, "self", "list[str]"),
        "remove": (True, "self, name: str", "None"),
        "run_python": (
            False,
            "self, code: str, *, image: str = 'python:3.11-slim', **kwargs: Any",
            "ExecResult",
        ),
        "run_shell": (
            False,
            "self, script: str, *, image: str = 'python:3.11-slim', **kwargs: Any",
            "ExecResult",
        ),
    },
}

NOTHING = object()
FIELDS: dict[str, list[tuple[str, str, Any]]] = {
    "ExecResult": [
        ("stdout", "str", NOTHING),
        ("stderr", "str", ""),
        ("exit_code", "int", 0),
        ("truncated", "bool", False),
    ],
    "SandboxSpec": [
        ("name", "str", NOTHING),
        ("image", "str", "python:3.11-slim"),
        ("memory_mib", "int", 512),
        ("cpus", "int", 1),
        ("workspace", "str | None", None),
        ("secrets", "tuple[str, ...]", ()),
        ("egress", "tuple[str, ...]", ()),
        ("labels", "dict[str, str]", {}),
    ],
}


@pytest.mark.parametrize("name", SURFACE)
def test_abstract_classes_have_the_described_signatures(name: str) -> None:
    described = getattr(burrow, name)
    assert isinstance(described, abc.ABCMeta)
    public = {one for one in vars(described) if not one.startswith("_")}
    assert public == set(SURFACE[name])
    abstract = {one for one, (is_abstract, _, _) in SURFACE[name].items() if is_abstract}
    assert described.__abstractmethods__ == abstract
    for method, (_, parameters, returned) in SURFACE[name].items():
        function = getattr(described, method)
        assert inspect.iscoroutinefunction(function), method
        written = str(inspect.signature(function)).replace("'", "").replace('"', "")
        wanted = f"({parameters}) -> {returned}".replace("'", "")
        assert written == wanted


def test_a_handle_has_a_name() -> None:
    assert burrow.SandboxHandle.__annotations__ == {"name": "str"}


@pytest.mark.parametrize("name", FIELDS)
def test_data_classes_have_the_described_fields(name: str) -> None:
    described = getattr(burrow, name)
    found = []
    for field in dataclasses.fields(described):
        default = field.default
        if default is dataclasses.MISSING:
            factory = field.default_factory
            default = NOTHING if factory is dataclasses.MISSING else factory()
        found.append((field.name, field.type, default))
    assert found == FIELDS[name]
    one = described("x")
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.stdout = one.name = "y"


def test_an_exec_result_has_its_two_properties() -> None:
    result = burrow.ExecResult("out", "err", 3)
    assert result.output == "outerr"
    assert not result.ok
    assert burrow.ExecResult("out").output == "out"
    assert burrow.ExecResult("").ok


def test_labels_of_two_specs_are_two() -> None:
    burrow.SandboxSpec("a").labels["x"] = "y"
    assert burrow.SandboxSpec("b").labels == {}


def test_unavailable_is_a_runtime_error_and_everything_has_one_base() -> None:
    assert issubclass(burrow.SandboxUnavailable, RuntimeError)
    for name in burrow.__all__:
        one = getattr(burrow, name)
        if isinstance(one, type) and issubclass(one, Exception):
            assert issubclass(one, burrow.BurrowError), name


def test_the_concrete_classes_are_the_abstract_ones_and_take_what_those_take() -> None:
    for concrete, abstract in (
        (burrow.BurrowClient, burrow.SandboxClient),
        (burrow.Sandbox, burrow.SandboxHandle),
    ):
        assert issubclass(concrete, abstract)
        for method in SURFACE[abstract.__name__]:
            wide = inspect.signature(getattr(concrete, method)).parameters
            for name, parameter in inspect.signature(getattr(abstract, method)).parameters.items():
                assert wide[name].kind == parameter.kind
                assert wide[name].default == parameter.default
            # What is more than that need not be said.
            more = set(wide) - set(inspect.signature(getattr(abstract, method)).parameters)
            for name in more:
                assert wide[name].kind is inspect.Parameter.KEYWORD_ONLY
                assert wide[name].default is not inspect.Parameter.empty


@pytest.mark.parametrize(
    ("awaited", "plain"),
    [
        (burrow.BurrowClient, burrow.sync.SandboxClient),
        (burrow.Sandbox, burrow.sync.SandboxHandle),
        (burrow.Files, burrow.sync.Files),
        (burrow.Context, burrow.sync.Context),
        (burrow.Notebook, burrow.sync.Notebook),
        (burrow.Stream, burrow.sync.Stream),
    ],
)
def test_both_flavours_have_the_same_methods_with_the_same_parameters(
    awaited: type, plain: type
) -> None:
    def methods(described: type) -> dict[str, list[tuple[str, Any, Any]]]:
        return {
            name: [
                (one.name, one.kind, one.default)
                for one in inspect.signature(function).parameters.values()
            ]
            for name, function in inspect.getmembers(described, callable)
            if not name.startswith("_")
        }

    assert methods(plain) == methods(awaited)
    assert not any(
        inspect.iscoroutinefunction(function) for _, function in inspect.getmembers(plain)
    )


class Recorder(burrow.SandboxClient):
    """Another's client, which has nothing but what it must have."""

    def __init__(self, failure: BaseException | None) -> None:
        self.calls: list[str] = []
        self.failure = failure

    async def create(self, spec: burrow.SandboxSpec) -> burrow.SandboxHandle:
        self.calls.append("create")
        self.spec = spec
        return RecorderHandle(self, spec.name)

    async def get(self, name: str) -> burrow.SandboxHandle:
        raise NotImplementedError

    async def list(self) -> list[str]:
        raise NotImplementedError

    async def remove(self, name: str) -> None:
        self.calls.append(f"remove {name == self.spec.name}")
        raise ValueError("this must not hide what came before")


class RecorderHandle(burrow.SandboxHandle):
    def __init__(self, client: Recorder, name: str) -> None:
        self.client = client
        self.name = name

    async def exec(self, cmd: str, args: Any = None, *, timeout: Any = None) -> burrow.ExecResult:
        self.client.calls.append(f"exec {cmd} {args}")
        if self.client.failure is not None:
            raise self.client.failure
        return burrow.ExecResult("done")

    async def shell(self, script: str, *, timeout: Any = None) -> burrow.ExecResult:
        self.client.calls.append(f"shell {script}")
        if self.client.failure is not None:
            raise self.client.failure
        return burrow.ExecResult("done")

    async def stop(self) -> None:
        self.client.calls.append("stop")
        raise ValueError("nor must this")

    async def kill(self) -> None:
        raise NotImplementedError

    async def logs(self, *, tail: int | None = None) -> str:
        raise NotImplementedError


@pytest.mark.parametrize("failure", [None, LookupError("x"), asyncio.CancelledError()])
def test_one_shots_of_any_client_tear_down_whatever_happens(failure: Any) -> None:
    for method, call in (("run_python", "exec python ['-c', 'x']"), ("run_shell", "shell x")):
        recorder = Recorder(failure)
        running = getattr(recorder, method)("x", image="other", memory_mib=64)
        if failure is None:
            assert asyncio.run(running).stdout == "done"
        else:
            with pytest.raises(type(failure)):
                asyncio.run(running)
        assert recorder.calls == ["create", call, "stop", "remove True"]
        assert (recorder.spec.image, recorder.spec.memory_mib) == ("other", 64)
        assert recorder.spec.name[:3] == method[4:6] + "-"
