"""Law 2: weights, metrics and trajectories are a function of the experiment, whatever the placement and the timing."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Literal

import pytest
from helpers import assert_same_run, busy_machine, run
from small_experiments import EXPERIMENTS, NUM_ENVS, oracle, small_experiment

from htsrl.digest import first_difference

Synchronous = Literal["sync", "lockstep"]
INLINE_CREWS = [(1, 1), (2, 0), (4, 2), (NUM_ENVS, 4)]
"""Executors and actors; the oracle itself is (1, 0)."""


@dataclass(frozen=True)
class Processes:
    """A run in processes; together they cover every number of executors and actors, and every disturbance."""

    experiment: str
    schedule: Literal["hts", "sync"]
    num_executors: int
    num_actors: int
    jitter_seconds: float = 0.0
    busy_neighbours: int = 0
    executor_threads: bool = False

    def __str__(self) -> str:
        jitter = "-jitter" if self.jitter_seconds else ""
        load = "-load" if self.busy_neighbours else ""
        threads = "-threads" if self.executor_threads else ""
        return f"{self.experiment}-{self.schedule}-E{self.num_executors}{threads}-A{self.num_actors}{jitter}{load}"


CALM = [
    Processes("cartpole_ppo", "sync", num_executors=2, num_actors=0),
    Processes("cartpole_a2c", "sync", num_executors=1, num_actors=1),
]
DELAYED = [
    Processes("cartpole_ppo", "hts", num_executors=2, num_actors=1, jitter_seconds=2e-3),
    Processes("cartpole_a2c", "hts", num_executors=NUM_ENVS, num_actors=2, jitter_seconds=2e-3),
    Processes("pixels_a2c", "hts", num_executors=4, num_actors=4, jitter_seconds=2e-3),
    Processes("pixels_a2c", "sync", num_executors=2, num_actors=0, jitter_seconds=2e-3),
    Processes("normalized_ppo", "hts", num_executors=4, num_actors=2, jitter_seconds=2e-3),
]
ON_THREADS = [
    Processes("cartpole_ppo", "hts", num_executors=1, num_actors=0, executor_threads=True),
    Processes("cartpole_a2c", "hts", num_executors=2, num_actors=1, jitter_seconds=2e-3, executor_threads=True),
    Processes("pixels_a2c", "sync", num_executors=1, num_actors=1, executor_threads=True),
    Processes("normalized_ppo", "hts", num_executors=1, num_actors=2, busy_neighbours=2, executor_threads=True),
]
LOADED = [
    Processes("pixels_a2c", "hts", num_executors=2, num_actors=1, busy_neighbours=2),
]


def assert_like_the_oracle(chosen: Processes) -> None:
    expected = oracle(chosen.experiment, chosen.schedule)
    with busy_machine(chosen.busy_neighbours) if chosen.busy_neighbours else nullcontext():
        outcome = run(
            small_experiment(chosen.experiment, chosen.schedule),
            backend="processes",
            num_executors=chosen.num_executors,
            num_actors=chosen.num_actors,
            jitter_seconds=chosen.jitter_seconds,
            executor_threads=chosen.executor_threads,
        )
    assert_same_run(outcome, expected)


@pytest.mark.parametrize(("num_executors", "num_actors"), INLINE_CREWS)
@pytest.mark.parametrize("schedule", ["hts", pytest.param("sync", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_number_of_executors_and_actors_does_not_change_the_digest(
    name: str, schedule: Literal["hts", "sync"], num_executors: int, num_actors: int
) -> None:
    outcome = run(small_experiment(name, schedule), num_executors=num_executors, num_actors=num_actors)
    assert_same_run(outcome, oracle(name, schedule))


@pytest.mark.parametrize("chosen", CALM, ids=str)
def test_processes_do_not_change_the_digest(chosen: Processes) -> None:
    assert_like_the_oracle(chosen)


@pytest.mark.parametrize("chosen", DELAYED, ids=str)
def test_random_delays_in_every_role_do_not_change_the_digest(chosen: Processes) -> None:
    assert_like_the_oracle(chosen)


@pytest.mark.parametrize("chosen", ON_THREADS, ids=str)
def test_threads_do_not_change_the_digest(chosen: Processes) -> None:
    assert_like_the_oracle(chosen)


@pytest.mark.parametrize("chosen", LOADED, ids=str)
def test_a_loaded_machine_does_not_change_the_digest(chosen: Processes) -> None:
    assert_like_the_oracle(chosen)


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_a_barrier_at_every_step_does_not_change_the_digest_of_sync(name: str) -> None:
    lockstep = run(small_experiment(name, "lockstep"), num_executors=2, num_actors=2)
    assert_same_run(lockstep, oracle(name, "sync"))


@pytest.mark.parametrize("executor_threads", [False, True], ids=["in turn", "on threads"])
def test_a_barrier_at_every_step_over_processes_with_delays_does_not_change_the_digest_of_sync(
    executor_threads: bool,
) -> None:
    worker_layout = {"num_executors": 2, "num_actors": 2, "jitter_seconds": 1e-3, "executor_threads": executor_threads}
    lockstep = run(small_experiment("cartpole_a2c", "lockstep"), backend="processes", **worker_layout)
    assert_same_run(lockstep, oracle("cartpole_a2c", "sync"))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_delays_between_the_turns_of_one_process_do_not_change_the_digest(name: str) -> None:
    assert_same_run(run(small_experiment(name), num_executors=2, num_actors=1, jitter_seconds=5e-4), oracle(name))


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_another_seed_gives_another_digest(name: str) -> None:
    expected = oracle(name)
    other = run(replace(small_experiment(name), seed=EXPERIMENTS[name].seed + 1))
    assert first_difference(other.links, expected.links) is not None
    assert other.policy != expected.policy
    assert other.metrics != expected.metrics


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_another_schedule_gives_another_digest(name: str) -> None:
    assert oracle(name, "hts").digest != oracle(name, "sync").digest
