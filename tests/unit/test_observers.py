"""Observers hear of everything, may ask to stop, and cannot change a bit."""

from __future__ import annotations

import asyncio
import json
import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gymnasium
import numpy as np
import pytest
import torch
from helpers import Outcome, assert_same_run, run
from safetensors.numpy import load_file

from htsrl import Config, Experiment, ObserverFailed, Placement, RunResult, resume, train
from htsrl.digest import Link
from htsrl.errors import StopRequested
from htsrl.metrics.report import UpdateReport
from htsrl.metrics.sinks import read_json_lines
from htsrl.observers import delivery
from htsrl.observers.delivery import Event
from htsrl.observers.observer import CheckpointEvent, EpisodeEvent, ObservedRun, Observer, UpdateEvent
from htsrl.placements.messages import ReportReader, ReportWriter
from htsrl.placements.supervisor import Listeners, Supervisor
from htsrl.placements.worker_process import WorkerProcess
from htsrl.processes.current_folder import have_own_current_folder


class Telling(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Tells at an episode's end how many steps it had, and whether that is an even number."""

    def reset(self, **kwargs: Any) -> Any:
        self._steps = 0
        return super().reset(**kwargs)

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        self._steps += 1
        if terminated or truncated:
            info = {**info, "steps": np.float32(self._steps), "is_success": self._steps % 2 == 0, "text": "no number"}
        return observation, reward, terminated, truncated, info


def make_env() -> gymnasium.Env[Any, Any]:
    return Telling(gymnasium.make("CartPole-v1"))


EXPERIMENT = Experiment(make_env, num_envs=4, sync_interval=32, total_steps=512)


class Notes(Observer):
    """Writes down all that it hears."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.calls: list[str] = []
        self.updates: list[UpdateEvent] = []
        self.episodes: list[EpisodeEvent] = []
        self.parameters: list[Any] = []
        self.checkpoints: list[CheckpointEvent] = []
        self.result: RunResult | None = None
        self._stop_at = stop_at

    def on_start(self, run: ObservedRun) -> None:
        self.calls.append("start")
        self.run = run

    def on_update(self, event: UpdateEvent) -> None:
        self.calls.append("update")
        self.updates.append(event)
        self.parameters.append(event.parameters())
        if event.version == self._stop_at:
            self.run.stop("seen enough")

    def on_episode(self, event: EpisodeEvent) -> None:
        self.calls.append("episode")
        self.episodes.append(event)

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        assert event.path.is_dir()
        self.checkpoints.append(event)

    def on_end(self, result: RunResult) -> None:
        self.calls.append("end")
        self.result = result


def train_watched(
    tmp_path: Path, observer: Any, experiment: Experiment = EXPERIMENT, strict: bool = False, **placement: Any
) -> RunResult:
    quietly: dict[str, Any] = {
        "backend": "inline",
        "tensorboard": False,
        "progress": "off",
        "run_dir": tmp_path / "run",
    }
    config = Config(experiment, Placement(**(quietly | placement)))
    return train(config, observers=[observer], strict_observers=strict)


def test_an_observer_hears_of_every_update_and_episode_in_order(tmp_path: Path) -> None:
    notes = Notes()
    result = train_watched(tmp_path, notes, log_info=("steps", "text"), checkpoint_every_updates=2)
    assert notes.calls[0] == "start"
    assert notes.calls[-1] == "end"
    assert [event.version for event in notes.updates] == [1, 2, 3, 4]
    assert [event.steps for event in notes.updates] == [128, 256, 384, 512]
    assert all("train/loss" in event.metrics for event in notes.updates)
    assert notes.result == result
    assert notes.episodes
    for episode in notes.episodes:
        assert episode.info == {"steps": episode.length, "is_success": float(episode.length % 2 == 0)}
        assert episode.episode_return == episode.length  # CartPole rewards every step with 1
    assert 2 in [event.version for event in notes.checkpoints]


def test_numbers_in_info_become_metrics(tmp_path: Path) -> None:
    notes = Notes()
    train_watched(tmp_path, notes, log_info=("steps",), log_every_steps=1)
    last = read_json_lines(tmp_path / "run" / "metrics.jsonl")[-1]
    lengths = [episode.length for episode in notes.episodes]
    assert len(lengths) <= 100
    assert last["rollout/info/steps"] == last["rollout/ep_len_mean"] == pytest.approx(np.mean(lengths))
    assert last["rollout/success_rate"] == pytest.approx(np.mean([length % 2 == 0 for length in lengths]))


def test_what_is_told_of_episodes_survives_a_resume(tmp_path: Path) -> None:
    whole = run(EXPERIMENT, log_info=("steps",), log_every_steps=1)
    train_watched(tmp_path, Notes(stop_at=2), log_info=("steps",), log_every_steps=1)
    resume(tmp_path / "run", env=make_env)
    assert_same_run(Outcome.read(tmp_path / "run"), whole)


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_watching_changes_no_bit(tmp_path: Path, backend: str) -> None:
    train_watched(tmp_path, Notes(), backend=backend, log_info=("steps",))
    assert Outcome.read(tmp_path / "run").digest == run(EXPERIMENT).digest


class Rude(Observer):
    """Sets what it likes, for the whole process, and takes its time."""

    def __init__(self, elsewhere: Path) -> None:
        self._elsewhere = elsewhere

    def on_update(self, event: UpdateEvent) -> None:
        os.chdir(self._elsewhere)
        np.random.seed(event.version)
        random.seed(event.version)
        torch.manual_seed(event.version)
        torch.set_num_threads(3)
        torch.set_default_dtype(torch.float64)
        torch.set_float32_matmul_precision("medium")
        time.sleep(0.05)


class DrawsGlobally(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds noise from NumPy's global generator, as old environments do."""

    def reset(self, *, seed: int | None = None, **kwargs: Any) -> Any:
        if seed is not None:
            np.random.seed(seed)
        return super().reset(seed=seed, **kwargs)

    def step(self, action: Any) -> Any:
        observation, reward, *rest = super().step(action)
        return observation, float(reward) + np.random.normal(), *rest


def test_what_an_observer_sets_for_the_whole_process_changes_no_bit(tmp_path: Path) -> None:
    def noisy() -> gymnasium.Env[Any, Any]:
        return DrawsGlobally(gymnasium.make("CartPole-v1"))

    here, experiment = Path.cwd(), replace(EXPERIMENT, env=noisy, num_envs=1)
    threads = torch.get_num_threads()
    train_watched(tmp_path, Rude(tmp_path), experiment)
    assert Outcome.read(tmp_path / "run").digest == run(experiment).digest
    assert (Path.cwd(), torch.get_num_threads(), torch.get_default_dtype()) == (here, threads, torch.float32)


def test_where_an_observer_goes_during_a_call_nobody_else_goes(tmp_path: Path) -> None:
    """Workers start where the run is, and may do so at any time."""
    with ThreadPoolExecutor(1) as pool:
        if not pool.submit(have_own_current_folder).result():
            pytest.skip("forbidden here")
    is_there, was_seen = threading.Event(), threading.Event()

    def wander(event: Event) -> None:
        os.chdir(tmp_path)
        is_there.set()
        was_seen.wait(60)

    here, wandering = Path.cwd(), delivery.Delivery(wander, patience_seconds=60.0)
    wandering.put(("event", None))
    assert is_there.wait(60)
    assert Path.cwd() == here
    was_seen.set()
    assert not wandering.wait()
    wandering.close()


def test_a_call_that_nobody_waited_for_sets_nothing_back_when_it_returns() -> None:
    """An environment that draws from a global generator, inline, would draw the same numbers again."""
    let_go, has_returned = threading.Event(), threading.Event()

    def hear(event: Event) -> None:
        if event[0] == "next":
            has_returned.set()
        let_go.wait(60)

    hanging = delivery.Delivery(hear, patience_seconds=0.05)
    hanging.put(("first", None))
    assert hanging.wait()
    before = np.random.random(), random.random(), float(torch.rand(()))
    let_go.set()
    hanging.put(("next", None))
    assert has_returned.wait(60)
    hanging.close()
    after = np.random.random(), random.random(), float(torch.rand(()))
    assert all(ours != theirs for ours, theirs in zip(before, after, strict=True))


def test_an_observer_can_stop_a_run_that_continues_later_to_the_same_bits(tmp_path: Path) -> None:
    notes = Notes(stop_at=2)
    result = train_watched(tmp_path, notes)
    assert result.stop_reason == "seen enough"
    assert result.interrupted
    assert result.updates == 2  # inline, observers have their turn after every update
    assert notes.result == result
    again = resume(tmp_path / "run", env=make_env)
    assert again.stop_reason is None
    assert again.digest == run(EXPERIMENT).digest


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt, SystemExit])
def test_whatever_an_observer_raises_ends_it_at_once(tmp_path: Path, error: type[BaseException]) -> None:
    class Raises(Observer):
        def on_update(self, event: UpdateEvent) -> None:
            raise error("its own")

    with pytest.raises(ObserverFailed, match=f"raised {error.__name__} in on_update: its own"):
        train_watched(tmp_path, Raises(), strict=True, deadline_seconds=600.0)


class Broken(Observer):
    """Fails at the first update, and must not hear of another."""

    calls = 0

    def on_update(self, event: UpdateEvent) -> None:
        self.calls += 1
        raise ValueError("a mistake of the user's")


def test_an_exception_ends_its_observer_alone_and_is_said(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broken = Broken()
    result = train_watched(tmp_path, broken, progress="plain")
    assert not result.interrupted
    assert broken.calls == 1
    said = capfd.readouterr().err
    assert "observer Broken raised ValueError in on_update: a mistake of the user's" in said
    assert "Traceback" in said


def test_a_strict_observers_exception_ends_the_run_and_loses_nothing(tmp_path: Path) -> None:
    with pytest.raises(ObserverFailed, match="a mistake of the user's"):
        train_watched(tmp_path, Broken(), strict=True)
    assert resume(tmp_path / "run", env=make_env).digest == run(EXPERIMENT).digest


class FailsLate(Observer):
    """Fails in one hook alone, of the run's end."""

    def __init__(self, hook: str) -> None:
        self._hook = hook

    def on_update(self, event: UpdateEvent) -> None:
        self._fail_in("on_update", event.version == 4)

    def on_checkpoint(self, event: CheckpointEvent) -> None:
        self._fail_in("on_checkpoint", event.version == 3)

    def on_end(self, result: RunResult) -> None:
        self._fail_in("on_end", True)

    def _fail_in(self, hook: str, is_last: bool) -> None:
        if hook == self._hook and is_last:
            raise ValueError("too late for the run to end early")


@pytest.mark.parametrize(
    ("backend", "hook"),
    [("inline", "on_update"), ("inline", "on_checkpoint"), ("inline", "on_end"), ("processes", "on_end")],
)
def test_a_strict_observer_that_fails_at_the_very_end_is_not_forgotten(tmp_path: Path, backend: str, hook: str) -> None:
    with pytest.raises(ObserverFailed, match=f"FailsLate raised ValueError in {hook}: too late"):
        train_watched(tmp_path, FailsLate(hook), strict=True, backend=backend, checkpoint_every_updates=3)
    assert_whole(tmp_path / "run")


def assert_whole(run_dir: Path) -> None:
    result = json.loads((run_dir / "result.json").read_text())
    assert (result["updates"], result["interrupted"]) == (4, False)
    assert_same_run(Outcome.read(run_dir), run(EXPERIMENT))


class Hangs(Observer):
    """Never returns from its first update, until it is let go."""

    def __init__(self) -> None:
        self.let_go = threading.Event()

    def on_update(self, event: UpdateEvent) -> None:
        self.let_go.wait()


@pytest.mark.parametrize("strict", [False, True])
def test_an_observer_that_hangs_holds_up_nothing_for_ever(
    tmp_path: Path, strict: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    observer = Hangs()
    with pytest.raises(ObserverFailed, match="have not heard of") if strict else nullcontext():
        train_watched(tmp_path, observer, strict=strict, progress="plain", deadline_seconds=0.2)
    observer.let_go.set()
    assert_whole(tmp_path / "run")
    said = capfd.readouterr().err
    assert "Hangs.on_update has not returned for 0.2 s (deadline_seconds)" in said
    assert "Hangs.on_update did not return" in said


def test_events_that_there_is_no_room_for_are_dropped_and_counted_only_once_the_thread_hangs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delivery, "MAX_EVENTS", 2)
    heard, let_go = list[int](), threading.Event()

    def hear(event: tuple[str, int]) -> None:
        if event[1] == 10:
            let_go.wait()
        heard.append(event[1])

    slow = delivery.Delivery(hear, patience_seconds=300.0)
    for i in range(10):
        assert not slow.put(("event", i))
    assert not slow.wait()
    assert heard == list(range(10))
    slow.close()
    assert slow.unheard == 0

    hanging = delivery.Delivery(hear, patience_seconds=0.05)
    assert [hanging.put(("event", i)) for i in range(10, 16)].count(True) == 1
    assert not hanging.wait()  # found before, and said once
    hanging.close()
    assert hanging.unheard == 6
    let_go.set()


def test_parameters_are_a_copy_of_the_versions_own_that_nobody_can_write_to(tmp_path: Path) -> None:
    notes = Notes()
    train_watched(tmp_path, notes)
    last = notes.parameters[-1]
    saved = load_file(tmp_path / "run" / "policy.safetensors")
    assert last.keys() <= saved.keys()
    for name, array in last.items():
        np.testing.assert_array_equal(array, saved[name])
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0.0


def test_an_object_without_all_hooks_is_an_observer_too(tmp_path: Path) -> None:
    class OnlyTheEnd:
        result = None

        def on_end(self, result: RunResult) -> None:
            self.result = result

    observer = OnlyTheEnd()
    assert train_watched(tmp_path, observer) == observer.result


def test_a_stop_waits_until_all_that_was_read_with_its_update_is_passed_on() -> None:
    """Else the digest would lack an update that the last checkpoint has, and the run could not be resumed."""
    read_fd, write_fd = os.pipe()
    writer, passed_on = ReportWriter(write_fd), list[int]()

    def on_report(report: UpdateReport) -> None:
        passed_on.append(report.version)
        if report.version == 1:
            raise StopRequested("enough")

    for version in (1, 2, 3):
        link = Link(version - 1, "", "", {}, "")
        writer.update(UpdateReport(version, 8 * version, {}, link, finished=False))
    supervisor = Supervisor.__new__(Supervisor)
    supervisor._workers = {0: cast(WorkerProcess, SimpleNamespace(report_reader=ReportReader(read_fd)))}
    supervisor._listeners = Listeners(on_report, on_checkpoint=print, on_restart=print)

    with pytest.raises(StopRequested, match="enough"):
        supervisor._listen_to(0)

    assert passed_on == [1, 2, 3]
    os.close(read_fd)
    os.close(write_fd)
