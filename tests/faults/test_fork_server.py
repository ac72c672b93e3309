"""Workers are forked by processes that have imported everything; nothing depends on those being there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
from helpers import workers_left

from htsrl import A2C, Config, Experiment, Placement, train
from htsrl.placements.fork_server import Forked, ForkServers, WorkerOrder, fork_servers, worker_environment

EXPERIMENT = Experiment("CartPole-v1", algorithm=A2C(), num_envs=2, sync_interval=4, total_steps=16)


@pytest.fixture
def servers() -> Iterator[ForkServers]:
    servers = ForkServers()
    yield servers
    servers.close()


def digest_in(run_dir: Path) -> str:
    return train(Config(EXPERIMENT, Placement(run_dir=run_dir, tensorboard=False, progress="off"))).digest


def living_servers() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child.name() == "fork server"]


def asked_for(servers: ForkServers, fds: tuple[int, ...] = (), computes: bool = False) -> Forked:
    """A worker that waits for its equipment."""
    worker = servers.fork(computes, WorkerOrder(fds, [str(os.getpid())], list(sys.path), worker_environment()))
    while psutil.Process(worker.pid).name() != "worker":
        time.sleep(0.01)
    return worker


def end(worker: Forked) -> int:
    worker.stdin.close()
    return worker.wait()


def test_servers_serve_one_run_after_another_and_are_replaced_when_killed(tmp_path: Path) -> None:
    first = digest_in(tmp_path / "first")
    before = living_servers()
    assert digest_in(tmp_path / "second") == first
    assert living_servers() == before != []
    for server in before:
        server.kill()
    assert digest_in(tmp_path / "third") == first
    assert not {server.pid for server in living_servers()} & {server.pid for server in before}
    assert workers_left() == []


def test_where_servers_cannot_live_workers_are_started_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = digest_in(tmp_path / "forked")
    fork_servers.close()

    def refuse(*_: object) -> None:
        raise ConnectionError("no server lives here")

    monkeypatch.setattr(ForkServers, "_started", refuse)
    assert digest_in(tmp_path / "spawned") == expected
    assert living_servers() == []


def test_a_worker_is_a_child_of_who_asked_in_a_group_of_its_own(servers: ForkServers) -> None:
    worker = asked_for(servers)
    process = psutil.Process(worker.pid)
    assert process.ppid() == os.getpid()
    assert os.getpgid(worker.pid) == worker.pid
    os.killpg(worker.pid, 9)
    assert worker.wait() == -9
    worker.stdin.close()


def test_a_worker_that_nobody_tells_anything_ends_in_order(servers: ForkServers) -> None:
    assert end(asked_for(servers)) == 0


def test_a_worker_has_the_descriptors_that_were_named_under_their_numbers_and_no_others(servers: ForkServers) -> None:
    bells = tuple(os.eventfd(0) for _ in range(260))  # more than go into one message
    worker = asked_for(servers, bells)
    try:
        held = {int(fd) for fd in os.listdir(f"/proc/{worker.pid}/fd")}
        assert held == {0, 1, 2, *bells}
        assert os.path.samefile(f"/proc/{worker.pid}/fd/2", "/proc/self/fd/2")
        assert os.path.samefile(f"/proc/{worker.pid}/cwd", ".")
    finally:
        end(worker)
        for bell in bells:
            os.close(bell)


def test_workers_that_do_not_compute_do_without_torch(servers: ForkServers) -> None:
    workers = {computes: asked_for(servers, computes=computes) for computes in (False, True)}
    has_torch = {c: "libtorch" in Path(f"/proc/{worker.pid}/maps").read_text() for c, worker in workers.items()}
    assert has_torch == {False: False, True: True}
    assert [end(worker) for worker in workers.values()] == [0, 0]


def test_a_server_that_was_started_under_other_circumstances_is_not_asked(
    servers: ForkServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    def worker_value(name: str) -> str | None:
        worker = asked_for(servers)
        text = Path(f"/proc/{worker.pid}/environ").read_bytes().decode()
        end(worker)
        return dict(part.partition("=")[::2] for part in text.split("\0")).get(name)

    assert worker_value("MKL_CBWR_TRIAL") is None
    monkeypatch.setenv("MKL_CBWR_TRIAL", "1")
    assert worker_value("MKL_CBWR_TRIAL") == "1"


def test_servers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    script = (
        "import os, signal; from htsrl.placements.fork_server import ForkServers\n"
        "servers = ForkServers(); servers.make_ready()\n"
        "print(*(server._process.pid for server in servers._servers.values()), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=worker_environment())
    pids = [int(word) for word in ended.stdout.split()]
    assert len(pids) == 2
    _, alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=60)
    assert alive == []


class Talks(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Writes down what it draws, and speaks."""

    def reset(self, **settings: Any) -> Any:
        print(f"drawn {np.random.random()}")
        return super().reset(**settings)


def talking_cartpole() -> Any:
    return Talks(gymnasium.make("CartPole-v1"))


def test_workers_draw_differently_from_the_global_generator_and_what_they_print_is_not_held_back(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    experiment = replace(EXPERIMENT, env=talking_cartpole)
    quietly = {"tensorboard": False, "progress": "off", "check_env": False}
    train(Config(experiment, Placement(run_dir=tmp_path / "run", num_executors=2, **quietly)))  # type: ignore[arg-type]
    drawn = [line for line in capfd.readouterr().out.splitlines() if line.startswith("drawn")]
    assert len(set(drawn)) == len(drawn) >= 2


def test_where_a_server_dies_of_its_imports_no_other_is_started(
    servers: ForkServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    (tmp_path / "sitecustomize.py").write_text(thread)
    monkeypatch.syspath_prepend(tmp_path)
    for _ in range(2):
        with pytest.raises(ConnectionError):
            asked_for(servers)
    assert capfd.readouterr().err.count("has started a thread") == 1
