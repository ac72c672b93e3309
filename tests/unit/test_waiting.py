"""Environments that wait: coroutines, deadlines of single calls, a cap, and episodes that are left out of the loss."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from helpers import Outcome, run

from htsrl import A2C, PPO, SAC, Config, ConfigError, EnvironmentFailure, Experiment, Network, Placement, train
from htsrl.config.check import check
from htsrl.dataflow.signals import ThreadBell
from htsrl.envs import waiting
from htsrl.envs.make import make_env
from htsrl.envs.waiting import Deadlines
from htsrl.metrics.sinks import read_json_lines
from htsrl.roles.executor import NO_BELLS
from htsrl.roles.threaded_executor import ThreadedExecutor


class Counting(gymnasium.Env[Any, Any]):
    """Shows the step; an episode is 6 steps long, and fails or hangs at a step that it is told."""

    def __init__(
        self, fails_at: int | None = None, hangs_at: int | None = None, fails_in: int = 1, hang_seconds: float = 0.5
    ) -> None:
        self.observation_space = spaces.Box(-10, 10, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._fails_at, self._hangs_at, self._fails_in = fails_at, hangs_at, fails_in
        self._hang_seconds = hang_seconds
        self._episode = 0

    def _begin(self, seed: int | None) -> Any:
        self._seed, self._step = (seed or 0) % 7, 0
        self._episode += 1
        return self._seen(), {}

    def _go_on(self) -> Any:
        self._step += 1
        if self._step == self._fails_at and self._episode == self._fails_in:
            raise OSError("the server is gone")
        return self._seen(), 1.0, self._step == 6, False, {}

    def _seen(self) -> Any:
        return np.array([self._step, self._seed], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self._begin(seed)

    def step(self, action: Any) -> Any:
        if self._step + 1 == self._hangs_at and self._episode == self._fails_in:
            time.sleep(self._hang_seconds)
        return self._go_on()


class TimesOut(Counting):
    """Its server does not answer, which it finds out itself."""

    error: BaseException = TimeoutError("no answer from the server")

    def step(self, action: Any) -> Any:
        raise self.error


class AsyncTimesOut(TimesOut):
    async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # type: ignore[override]
        return self._begin(seed)

    async def step(self, action: Any) -> Any:  # type: ignore[override]
        raise self.error


class AsyncExits(AsyncTimesOut):
    error = SystemExit("no answer from the server")


class Async(Counting):
    """The same, awaited."""

    async def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # type: ignore[override]
        await asyncio.sleep(0)
        return self._begin(seed)

    async def step(self, action: Any) -> Any:  # type: ignore[override]
        await asyncio.sleep(
            self._hang_seconds if self._step + 1 == self._hangs_at and self._episode == self._fails_in else 0
        )
        return self._go_on()


def limited(**arguments: Any) -> gymnasium.Env[Any, Any]:
    """An asynchronous one below a wrapper of Gymnasium's, which knows nothing of that."""
    return TimeLimit(Async(**arguments), 4)


EXPERIMENT = Experiment(Counting, algorithm=A2C(), num_envs=2, sync_interval=8, total_steps=4 * 16)


def test_an_environment_with_coroutines_makes_the_run_of_the_same_with_plain_methods() -> None:
    plain, awaited = (run(replace(EXPERIMENT, env=env)) for env in (Counting, Async))
    assert plain.digest == awaited.digest


def test_coroutines_are_awaited_below_gymnasiums_wrappers() -> None:
    env = make_env(limited, {}, ())
    env.reset(seed=3)
    outcomes = [env.step(0) for _ in range(4)]
    assert [truncated for *_, truncated, _ in outcomes] == [False, False, False, True]
    env.close()


@pytest.mark.parametrize("env", [Counting, Async])
def test_a_call_beyond_its_deadline_fails(env: type[Counting]) -> None:
    made = make_env(env, {"hangs_at": 2, "hang_seconds": 600.0}, (), Deadlines(step_seconds=1.0))
    made.reset(seed=1)
    made.step(0)  # a loaded machine has a second for it
    with pytest.raises(TimeoutError, match=r"step\(\) took longer than step_deadline_seconds=1"):
        made.step(0)
    made.close()


class IsCancelled(AsyncTimesOut):
    error = asyncio.CancelledError("by a library")


def test_what_would_end_more_than_an_environment_is_its_failure() -> None:
    made = make_env(IsCancelled, {}, ())
    made.reset(seed=1)
    with pytest.raises(RuntimeError, match=r"step\(\) raised CancelledError: by a library"):
        made.step(0)
    made.close()


class Blocks(Async):
    """Its author has forgotten to await."""

    async def step(self, action: Any) -> Any:  # type: ignore[override]
        time.sleep(self._hang_seconds)


def test_a_coroutine_that_blocks_the_event_loop_misses_its_deadline_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """And others are awaited afterwards."""
    monkeypatch.setattr(waiting, "LOOP_SECONDS", 0.1)
    blocking, other = (
        make_env(env, {"hang_seconds": 600.0}, (), Deadlines(step_seconds=2.0)) for env in (Blocks, Async)
    )
    blocking.reset(seed=1)
    other.reset(seed=1)
    with pytest.raises(TimeoutError, match=r"step\(\) was not awaited within step_deadline_seconds=2: a coroutine"):
        blocking.step(0)
    assert other.step(0)[0].tolist() == [1, 1]


@pytest.mark.parametrize("deadlines", [Deadlines(), Deadlines(step_seconds=30)])
@pytest.mark.parametrize("env", [TimesOut, AsyncTimesOut, AsyncExits])
def test_what_an_environment_raises_itself_is_no_missed_deadline(env: type[TimesOut], deadlines: Deadlines) -> None:
    """And ends nothing that others are awaited on: it happens twice."""
    for _ in range(2):
        made = make_env(env, {}, (), deadlines)
        made.reset(seed=1)
        with pytest.raises(type(env.error), match=r"^no answer from the server$"):
            made.step(0)
        made.close()


def test_a_step_beyond_its_deadline_ends_the_run_or_the_episode(tmp_path: Path) -> None:
    hangs = replace(EXPERIMENT, env=Async, env_args={"hangs_at": 3})
    with pytest.raises(EnvironmentFailure, match=r"step_deadline_seconds=0\.05"):
        run(hangs, step_deadline_seconds=0.05, check_env=False)
    placement = Placement("inline", run_dir=tmp_path / "run", tensorboard=False, progress="off", check_env=False)
    placement = replace(placement, step_deadline_seconds=0.05, log_every_steps=1)
    result = train(Config(replace(hangs, on_env_error="truncate"), placement))
    assert result.env_errors > 0


def batches(experiment: Experiment, folder: Path) -> list[dict[str, Any]]:
    """What updates learned from, as the last checkpoint's arrays would not tell: read from the metrics."""
    placement = Placement("inline", run_dir=folder / "run", tensorboard=False, progress="off", check_env=False)
    train(Config(experiment, replace(placement, log_every_steps=1)))
    return read_json_lines(folder / "run" / "metrics.jsonl")


def test_an_episode_that_failed_is_left_out_of_the_loss_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It fails at its 4th step: rows 0 to 3 of the first rollout are not learned from, its return is not counted."""
    from htsrl.algorithms.batch import Batch

    seen: list[Any] = []
    original = Batch.learned_rows

    def noted(self: Batch) -> Any:
        if self.active is not None:
            seen.append(self.active.clone())
        return original(self)

    monkeypatch.setattr(Batch, "learned_rows", noted)
    fails = replace(EXPERIMENT, env=Made(lambda: Counting(fails_at=4)), on_env_error="exclude", num_envs=1)
    lines = batches(replace(fails, total_steps=3 * 8), tmp_path)
    assert seen[0][:, 0].tolist() == [False] * 4 + [True] * 4
    assert seen[-1].all()
    assert lines[-1]["rollout/env_errors"] == 1
    assert lines[-1]["rollout/ep_len_mean"] == 6


def test_where_nothing_fails_excluding_learns_what_stopping_does() -> None:
    stopping, excluding = run(EXPERIMENT), run(replace(EXPERIMENT, on_env_error="exclude"))
    assert stopping.policy == excluding.policy


def test_a_batch_of_failures_alone_is_an_error_that_says_so() -> None:
    class Broken(Counting):
        def step(self, action: Any) -> Any:
            raise OSError("the server is gone")

    with pytest.raises(EnvironmentFailure, match="nothing to learn from"):
        run(replace(EXPERIMENT, env=Made(*[Broken] * 20), on_env_error="exclude"), check_env=False)


def test_a_learner_whose_own_environments_all_failed_takes_nothing_in() -> None:
    """Of two with parameters of their own; there is something to learn from in the batch, and not in its part of it."""

    class Broken(Counting):
        def step(self, action: Any) -> Any:
            raise OSError("the server is gone")

    makers = [Counting, *[Broken] * 400]  # of environment 0 the only one, which never fails
    experiment = replace(
        EXPERIMENT,
        env=Made(*makers),
        on_env_error="exclude",
        num_envs=2,
        learners=2,
        sync_rule="fixed",
        sync_args={"local_updates": 1},
        network=replace(EXPERIMENT.network, normalize_observations=True),
        algorithm=replace(EXPERIMENT.algorithm, normalize_rewards=True),
    )
    assert run(experiment, check_env=False).links


class Made:
    """Makes one that works for the look before a run, then those that it is told, then such that work."""

    def __init__(self, *then: Any) -> None:
        self._makers = [Counting, *then]

    def __call__(self) -> Any:
        return self._makers.pop(0)() if self._makers else Counting()


@pytest.mark.parametrize(
    ("changed", "placement", "text"),
    [
        ({"algorithm": SAC(), "network": Network(), "on_env_error": "exclude"}, {}, "use on_env_error=truncate"),
        ({}, {"step_deadline_seconds": 0.0}, "step_deadline_seconds=0.0 must be above 0"),
        ({}, {"max_running": 0}, "max_running=0 must be at least 1"),
        ({"num_envs": 2}, {"max_running": 1, "num_executors": 2}, "less than one for each of 2 executors"),
    ],
)
def test_settings_that_cannot_work_are_refused(changed: Any, placement: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        check(Config(replace(EXPERIMENT, **changed), Placement(**placement)))


class Watched:
    """An env runner that notes how many are inside at once."""

    inside = 0
    most = 0
    lock = threading.Lock()

    def __init__(self, index: int) -> None:
        self.index, self.rollout, self.stage, self._left = index, 0, None, 5

    def advance(self) -> bool:
        with Watched.lock:
            Watched.inside += 1
            Watched.most = max(Watched.most, Watched.inside)
        time.sleep(0.002)
        with Watched.lock:
            Watched.inside -= 1
        self._left -= 1
        return self._left > 0

    def close(self) -> None:
        pass


@pytest.mark.parametrize("cap", [1, 3])
def test_no_more_environments_run_at_once_than_the_cap_says(cap: int) -> None:
    Watched.inside = Watched.most = 0
    bells = {env: ThreadBell.create() for env in range(8)}
    executor = ThreadedExecutor(bells, Watched, NO_BELLS, lambda: None, max_running=cap)  # type: ignore[arg-type]
    deadline = time.monotonic() + 20
    while any(lane._left for lane in executor._env_runners) and time.monotonic() < deadline:  # type: ignore[attr-defined]
        time.sleep(0.01)
    executor.close()
    for bell in bells.values():
        bell.close()
    assert Watched.most == cap


def test_threads_under_a_cap_make_the_bits_of_one_process() -> None:
    experiment = replace(EXPERIMENT, env=Async, algorithm=PPO(epochs=1, num_minibatches=2), num_envs=4)
    oracle = run(replace(experiment, total_steps=2 * 32))
    threads: Outcome = run(
        replace(experiment, total_steps=2 * 32), backend="processes", executor_threads=True, max_running=2
    )
    assert oracle.digest == threads.digest
