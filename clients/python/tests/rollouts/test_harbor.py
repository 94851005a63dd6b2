"""Trials of Harbor over our environment: Harbor itself sets them up, runs its agents, and verifies."""

from __future__ import annotations

import logging
import stat
from pathlib import Path

import pytest
from conftest import Bridge
from harbor.environments.factory import EnvironmentFactory
from harbor.job import Job
from harbor.models.job.config import JobConfig
from harbor.models.task.config import EnvironmentConfig, NetworkMode, NetworkPolicy
from harbor.models.trial.config import AgentConfig, TaskConfig
from harbor.models.trial.config import EnvironmentConfig as TrialEnvironment
from harbor.models.trial.paths import TrialPaths

import burrow
from burrow.adapters.harbor import BurrowEnvironment

TASK = """
schema_version = "1.0"
[verifier]
timeout_sec = 60
[agent]
timeout_sec = 60
[environment]
build_timeout_sec = 60
memory_mb = 512
workdir = "/srv"
"""
GRADE = "#!/bin/sh\nif grep -q hello /srv/said; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"


def written(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def task(at: Path, *, words: str = "hello") -> Path:
    written(at / "task.toml", TASK)
    written(at / "instruction.md", "Write hello into /srv/said.\n")
    written(at / "solution/solve.sh", f"#!/bin/sh\necho {words} > said\n")
    written(at / "tests/test.sh", GRADE)
    (at / "environment").mkdir()
    return at


def environment(
    bridge: Bridge, at: Path, task_env: EnvironmentConfig, **more: object
) -> BurrowEnvironment:
    (at / "environment").mkdir(exist_ok=True)
    paths = TrialPaths(trial_dir=at / "trial")
    paths.mkdir()
    return BurrowEnvironment(
        environment_dir=at / "environment",
        environment_name="named",
        session_id="named__1__env",
        trial_paths=paths,
        task_env_config=task_env,
        logger=logging.getLogger("test"),
        **{"url": bridge.url, "sandbox": {"egress": []}, **more},
    )


@pytest.mark.parametrize(("words", "reward"), [("hello", 1.0), ("nothing", 0.0)])
async def test_harbor_runs_and_grades_a_trial(
    bridge: Bridge, tmp_path: Path, words: str, reward: float
) -> None:
    config = JobConfig(
        job_name="job",
        jobs_dir=tmp_path / "jobs",
        agents=[AgentConfig(name="oracle")],
        tasks=[TaskConfig(path=task(tmp_path / "task", words=words))],
        environment=TrialEnvironment(
            import_path="burrow.adapters.harbor:BurrowEnvironment",
            kwargs={"url": bridge.url, "sandbox": {"egress": []}},
        ),
    )
    job = await Job.create(config)
    await job.run()
    (trial,) = [path for path in (tmp_path / "jobs/job").iterdir() if path.is_dir()]
    errors = trial / "exception.txt"
    assert not errors.exists(), errors.read_text()
    assert float((trial / "verifier/reward.txt").read_text()) == reward
    async with burrow.BurrowClient(bridge.url) as client:
        assert await client.list() == []


async def test_commands_and_files_are_as_harbor_wants_them(bridge: Bridge, tmp_path: Path) -> None:
    env = environment(bridge, tmp_path, EnvironmentConfig(workdir="/srv", env={"A": "1"}))
    with pytest.raises(RuntimeError, match="not started"):
        await env.exec("true")
    await env.start(force_build=False)
    try:
        heard: list[tuple[str, str]] = []

        async def hear(text: str, stream: str) -> None:
            heard.append((stream, text))

        with env.scoped_output_callback(hear):
            ran = await env.exec("echo $A $B; pwd; echo e >&2; exit 3", env={"B": "2"})
        assert (ran.return_code, ran.stdout, ran.stderr) == (3, "1 2\n/srv\n", "e\n")
        assert ("stderr", "e\n") in heard and "".join(
            t for s, t in heard if s == "stdout"
        ) == ran.stdout
        assert (await env.exec("pwd", cwd="/tmp")).stdout == "/tmp\n"
        with pytest.raises(RuntimeError, match="timed out after 1 seconds"):
            await env.exec("sleep 60", timeout_sec=1)
        written(tmp_path / "up/d/run.sh", "#!/bin/sh\necho ran\n")
        await env.upload_dir(tmp_path / "up", "/srv/up")
        await env.upload_file(tmp_path / "up/d/run.sh", "/srv/one.sh")
        assert (await env.exec("./up/d/run.sh; ./one.sh")).stdout == "ran\nran\n"
        assert await env.is_dir("/srv/up") and not await env.is_file("/srv/up")
        await env.exec("mkdir -p out/sub; echo b > out/sub/b; head -c 100000 /dev/zero > out/big")
        (tmp_path / "down").mkdir()
        (tmp_path / "down/kept").write_text("k")
        await env.download_dir("/srv/out", tmp_path / "down")
        assert (tmp_path / "down/sub/b").read_text() == "b\n" and (tmp_path / "down/kept").exists()
        await env.download_file("/srv/out/big", tmp_path / "file/big")
        assert (tmp_path / "file/big").stat().st_size == 100_000
        assert stat.S_ISREG((tmp_path / "down/big").stat().st_mode)
        with pytest.raises(FileNotFoundError):
            await env.download_file("/srv/none", tmp_path / "none")
        await env.download_dir_with_exclusions(
            source_dir="/srv/out", target_dir=str(tmp_path / "some"), exclude=["big"]
        )
        assert not (tmp_path / "some/big").exists() and (tmp_path / "some/sub/b").exists()
    finally:
        await env.stop(delete=True)
    async with burrow.BurrowClient(bridge.url) as client:
        assert await client.list() == []


async def test_what_a_task_allows_becomes_the_egress_of_its_sandbox(
    bridge: Bridge, tmp_path: Path
) -> None:
    def egress(
        mode: NetworkMode, hosts: list[str] | None = None, **more: object
    ) -> tuple[str, ...]:
        policy = NetworkPolicy(network_mode=mode, allowed_hosts=hosts or [])
        return environment(
            bridge, tmp_path, EnvironmentConfig(), network_policy=policy, **more
        )._egress()

    assert egress(NetworkMode.NO_NETWORK, sandbox={"egress": ["public"]}) == ()
    allowed = ["example.org", "*.example.org"]
    assert egress(NetworkMode.ALLOWLIST, allowed) == tuple(allowed)
    assert egress(NetworkMode.PUBLIC, sandbox={}) == ("public",)
    assert egress(NetworkMode.PUBLIC, sandbox={"egress": ["@pypi"]}) == ("@pypi",)
    with pytest.raises(ValueError, match="IPv4"):
        egress(NetworkMode.ALLOWLIST, ["10.0.0.1"])


async def test_what_cannot_be_had_is_refused_before_a_sandbox_is_made(
    bridge: Bridge, tmp_path: Path
) -> None:
    (tmp_path / "environment").mkdir()
    (tmp_path / "environment/Dockerfile").write_text("FROM scratch\n")
    with pytest.raises(ValueError, match="docker_image"):
        environment(bridge, tmp_path, EnvironmentConfig())
    environment(bridge, tmp_path, EnvironmentConfig(docker_image="small"))
    with pytest.raises(ValueError, match="colour"):
        environment(bridge, tmp_path, EnvironmentConfig(docker_image="small"), colour="red")
    kind = EnvironmentFactory.get_environment_class(
        import_path="burrow.adapters.harbor:BurrowEnvironment"
    )
    assert kind is BurrowEnvironment
