"""A worker that gets on within an update shows it, to the supervisor and to those who wait for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from pathlib import Path

import numpy as np
import pytest

from htsrl import A2C, PPO, Config, Experiment, Placement
from htsrl.algorithms import draft
from htsrl.algorithms.optimizers import Optimizer, optimizer_of
from htsrl.checkpoint import background
from htsrl.checkpoint.background import BackgroundCheckpoints, CheckpointTimes
from htsrl.checkpoint.files import Checkpoint
from htsrl.config import AlgorithmSettings
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.signals import Doorbell
from htsrl.numerics import single_threaded
from htsrl.placements.signs import Signs, Watched
from htsrl.placements.survey import draw_blueprint
from htsrl.roles.executor import NO_BELLS
from htsrl.roles.role import Role, advance_all


class WatchedOptimizer:
    """Has somebody look before every step."""

    def __init__(self, optimizer: Optimizer, look: Callable[[], None]) -> None:
        self._optimizer = optimizer
        self._look = look

    def step(self, learning_rate: float) -> None:
        self._look()
        self._optimizer.step(learning_rate)


@pytest.mark.parametrize(
    ("algorithm", "num_steps"), [(PPO(epochs=3, num_minibatches=4), 12), (A2C(unroll_length=2), 4)]
)
def test_every_optimizer_step_is_a_sign_of_life(
    monkeypatch: pytest.MonkeyPatch, algorithm: AlgorithmSettings, num_steps: int
) -> None:
    experiment = Experiment("CartPole-v1", algorithm=algorithm, num_envs=2, sync_interval=8, total_steps=16)
    seen: list[tuple[Hashable, bytes]] = []
    monkeypatch.setattr(draft, "optimizer_of", lambda *a: WatchedOptimizer(optimizer_of(*a), look))
    with single_threaded():
        blueprint = draw_blueprint(Config(experiment, Placement(backend="inline", num_executors=1)))
        block = SharedArrays(blueprint.block_specs())
        shared, parameters = blueprint.shared(block), blueprint.build_parameters(block)
        learner_number = len(shared.exchange.beats) - 1
        watched = [Watched((), (), [Doorbell.create()]) for _ in range(learner_number + 1)]
        signs = Signs(shared.exchange, watched, num_threads=0, may_go_on=lambda env: True)

        def look() -> None:
            seen.append((signs.read()[learner_number], shared.exchange.pulse()))

        parameters.initialise(blueprint.build_policy())
        learner = blueprint.build_learner(
            block, shared, parameters, lambda: None, lambda report: None, lambda update: None,
            beat=shared.exchange.heartbeat(learner_number),
        )  # fmt: skip
        roles: list[Role] = [
            blueprint.build_executor(0, shared, NO_BELLS),
            blueprint.build_actor(0, shared, block, lambda envs: None, parameters),
            learner,
        ]
        while not learner.finished:
            advance_all(roles)
    block.close_fd()
    assert len(seen) == num_steps
    assert len({sign for sign, _ in seen}) == num_steps, "the supervisor sees each"
    assert len({pulse for _, pulse in seen}) == num_steps, "and so does who waits for the update"


def test_threads_that_could_go_on_and_do_not_are_seen_though_their_worker_naps_and_no_bell_is_rung() -> None:
    """As when a worker is stopped just after one of its threads cleared its bell."""
    experiment = Experiment("CartPole-v1", algorithm=A2C(), num_envs=2, sync_interval=8, total_steps=32)
    blueprint = draw_blueprint(Config(experiment, Placement(backend="inline", num_executors=1)))
    block = SharedArrays(blueprint.block_specs())
    shared = blueprint.shared(block)
    exchange = shared.exchange
    watched = Watched((0, 1), (0, 1), [Doorbell.create()])
    signs = Signs(exchange, [watched], 2, lambda env: shared.may_go_on(env, blueprint.num_rollouts(env)))
    exchange.naps[0] = 3

    def shown() -> bool:
        return signs.read()[0] is not None

    assert shown(), "both may begin their first rollout"
    exchange.requests[:2] = exchange.tickets.to_act(0, 0)
    assert not shown(), "both wait for an answer"
    exchange.answers[1] = exchange.requests[1]
    assert shown(), "one has it and does not continue"
    exchange.inside[1] += 1
    assert not shown(), "it steps, and has a sign of its own"
    exchange.inside[1] += 1
    exchange.answers[:2], exchange.completed_rollouts[:2] = exchange.requests[:2], blueprint.num_rollouts(0)
    assert not shown(), "all that was asked for is done"
    block.close_fd()


def test_who_waits_for_a_checkpoint_beats_as_long_as_more_of_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer continues only when a beat was heard, so one that is not heard would be waited for in vain."""
    monkeypatch.setattr(background, "LOOK_SECONDS", 0.01)
    beats = 0

    def beat() -> None:
        nonlocal beats
        beats += 1

    class Slow(BackgroundCheckpoints):
        def _count_part(self) -> None:
            heard = beats
            super()._count_part()
            for _ in range(1000):
                if beats > heard:
                    return
                time.sleep(0.01)

    def take(version: int) -> Checkpoint:
        return Checkpoint({"version": version, "mean_return": None}, {"numbers": np.arange(9)})

    times = CheckpointTimes(every_updates=1, every_seconds=None, last=np.zeros(1))
    checkpoints = Slow(tmp_path / "checkpoints", times, take, lambda written: None, beat)
    checkpoints.at_barrier(1)
    checkpoints.finish()
    assert beats >= 4, "two files, and their way to the disk"
