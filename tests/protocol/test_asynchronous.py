"""Asynchronous training: nobody waits, and still every rollout is whole and is learned from once, in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from test_tagged_transitions import scaled, walk
from worker_layout import Roles

from htsrl import A2C, Experiment
from htsrl.config import AlgorithmSettings
from htsrl.digest import first_difference, hash_batch
from htsrl.policies.policy import Policy
from htsrl.roles.role import advance_all
from htsrl.sources.provenance import BatchProvenance, RolloutProvenance, schedule_file
from htsrl.sources.source import Fields as SourceFields

NUM_ENVS, NUM_STEPS, NUM_UPDATES = 4, 4, 14
Fields = dict[str, NDArray[Any]]
SEEDS = range(6)


def experiment(queue_length: int = 2, algorithm: AlgorithmSettings | None = None) -> Experiment:
    return Experiment(
        "ScaledTagged-v0",
        imports=("tagged_recording",),
        algorithm=algorithm or A2C(),
        schedule="async",
        queue_length=queue_length,
        num_envs=NUM_ENVS,
        sync_interval=NUM_STEPS,
        total_steps=NUM_UPDATES * NUM_ENVS * NUM_STEPS,
    )


class Watched:
    """Roles at work in random order: what it learned from, and when each rollout was complete."""

    def __init__(self, seed: int, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        self.batches: list[Fields] = []

        def keep(fields: Any, num_envs: int) -> Any:
            if len(self.batches) == self.worker_layout.learner.update:  # it is hashed again when it was learned from
                self.batches.append({name: array.copy() for name, array in fields.items()})
            return hash_batch(fields, num_envs)

        monkeypatch.setattr("htsrl.roles.learner.hash_batch", keep)
        self.worker_layout = Roles(experiment(**settings))
        self.completed_at: dict[tuple[int, int], int] = {}
        self._seen = np.zeros(NUM_ENVS, np.int64)
        self.worker_layout.work_in_random_order(seed, after_each_turn=self._look)
        documents = [json.loads(report.provenance or "") for report in self.worker_layout.reports]
        self.provenances = [BatchProvenance.from_document(document) for document in documents]

    def _look(self) -> None:
        exchange = self.worker_layout.shared.exchange
        for env in np.flatnonzero(exchange.completed_rollouts != self._seen).tolist():
            self.completed_at[env, int(self._seen[env])] = exchange.published_version
            self._seen[env] += 1

    def columns(self, env: int) -> list[tuple[int, int, RolloutProvenance]]:
        """Update, column and what was taken, of an environment."""
        return [
            (provenance.update, column, taken)
            for provenance in self.provenances
            for column, taken in enumerate(provenance.rollouts)
            if taken.env == env
        ]

    def joined(self, env: int) -> Fields:
        """All that was learned from an environment, in the order in which it was."""
        parts = [self.batches[update] for update, _, _ in self.columns(env)]
        columns = [column for _, column, _ in self.columns(env)]
        return {
            name: np.concatenate([part[name][:, column] for part, column in zip(parts, columns, strict=True)])
            for name in parts[0]
        }


@pytest.mark.parametrize("queue_length", [2, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_rollout_is_learned_from_once_and_in_order_and_is_whole(
    seed: int, queue_length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(seed, monkeypatch, queue_length=queue_length)
    assert len(watched.batches) == NUM_UPDATES
    for env in range(NUM_ENVS):
        assert [taken.rollout for _, _, taken in watched.columns(env)] == list(range(len(watched.columns(env))))
        fields = watched.joined(env)
        steps, _ = zip(*walk(experiment().seed, env, fields["actions"].tolist()), strict=True)
        np.testing.assert_array_equal(fields["obs"], scaled([step.observation for step in steps]))
        assert fields["rewards"].tolist() == [step.reward for step in steps]
        assert fields["truncated"].tolist() == [step.truncated for step in steps]
        assert (np.diff(fields["versions"]) >= 0).all(), "an environment was answered by an older version than before"


@pytest.mark.parametrize("queue_length", [2, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_queue_bounds_how_many_updates_a_complete_rollout_waits_for(
    seed: int, queue_length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(seed, monkeypatch, queue_length=queue_length)
    waits = [
        provenance.update - watched.completed_at[taken.env, taken.rollout]
        for provenance in watched.provenances
        for taken in provenance.rollouts
    ]
    assert min(waits) >= 0
    assert max(waits) < queue_length


def test_a_longer_queue_lets_data_get_older(monkeypatch: pytest.MonkeyPatch) -> None:
    def mean_lag(queue_length: int) -> float:
        reports = [Watched(seed, monkeypatch, queue_length=queue_length).worker_layout.reports for seed in range(3)]
        return float(np.mean([report.metrics["hts/lag"] for of_seed in reports for report in of_seed]))

    assert mean_lag(8) > mean_lag(2) > 0


@pytest.mark.parametrize("seed", SEEDS)
def test_the_lag_is_recorded_as_it_was(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(seed, monkeypatch)
    for update, (batch, report) in enumerate(zip(watched.batches, watched.worker_layout.reports, strict=True)):
        lags = [update - int(version) for version in batch["versions"].flatten()]
        assert report.metrics["hts/lag"] == sum(lags) / len(lags)
        assert report.metrics["hts/lag_max"] == max(lags)
        assert min(lags) >= 0
    assert len({report.metrics["hts/lag"] for report in watched.worker_layout.reports}) > 2


def test_what_is_written_down_is_what_the_actors_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(1, monkeypatch)
    asked_for = 0
    for provenance, batch in zip(watched.provenances, watched.batches, strict=True):
        for column, taken in enumerate(provenance.rollouts):
            changes = dict(taken.acting)
            version = -1
            for row in range(NUM_STEPS):
                version = changes.get(row, version)
                assert batch["versions"][row, column] == version
            is_asked = batch["truncated"][:, column] | (np.arange(NUM_STEPS) == NUM_STEPS - 1)
            is_asked &= ~batch["terminated"][:, column]
            assert [row for row, _ in taken.values] == (np.flatnonzero(is_asked) + 1).tolist()
            asked_for += len(taken.values)
    assert asked_for > NUM_UPDATES * NUM_ENVS


@pytest.mark.parametrize("queue_length", [2, pytest.param(4, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_replay_gives_the_same_digest_in_any_order_of_turns(seed: int, queue_length: int, tmp_path: Path) -> None:
    recorded = Roles(experiment(queue_length))
    links = recorded.work_in_random_order(seed)
    schedule_file(tmp_path).write_text("".join(f"{report.provenance}\n" for report in recorded.reports))
    for other_seed in (seed, seed + 100, seed + 200):
        replayed = Roles(replace(experiment(queue_length), replay_schedule=tmp_path))
        assert first_difference(replayed.work_in_random_order(other_seed), links) is None
        assert [report.provenance for report in replayed.reports] == [report.provenance for report in recorded.reports]


def test_environments_go_on_until_the_queue_is_full_while_the_learner_does_nothing() -> None:
    worker_layout = Roles(experiment(queue_length=3))
    work_without(worker_layout)
    assert worker_layout.shared.exchange.completed_rollouts.tolist() == [3] * NUM_ENVS
    assert worker_layout.learner.advance()
    work_without(worker_layout)
    assert worker_layout.shared.exchange.completed_rollouts.tolist() == [4] * NUM_ENVS


def work_without(worker_layout: Roles) -> None:
    while advance_all([*worker_layout.executors, *worker_layout.actors]):
        pass


@pytest.mark.parametrize(("publishes", "answers"), [(0, 1), (1, 1), (2, 3), (3, 4)])
def test_an_actor_that_is_overtaken_while_it_decides_answers_again_with_the_newest_version(
    publishes: int, answers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_layout = Roles(replace(experiment(queue_length=6), algorithm=A2C(learning_rate=0.05)))
    work_without(worker_layout)
    assert worker_layout.learner.advance()
    advance_all(worker_layout.executors)  # there is room for one more rollout of each, and version 1 is to act in it
    decide: Callable[..., Any] = Policy.decide
    left = [publishes]

    def decide_and_be_overtaken(self: Policy, *arguments: Any) -> Any:
        decision = decide(self, *arguments)
        while left[0]:
            left[0] -= 1
            with torch.inference_mode(False):
                assert worker_layout.learner.advance()
        return decision

    monkeypatch.setattr(Policy, "decide", decide_and_be_overtaken)
    assert worker_layout.actors[0].advance()
    storage, fields = worker_layout.shared.storages.of_rollout(6), worker_layout.shared.storages
    assert fields["versions"][storage, 0, 0] == answers
    policy = worker_layout.parameters.module(answers)
    assert isinstance(policy, Policy)
    with torch.no_grad():
        _, values = policy({"obs": torch.from_numpy(fields["obs"][storage, 0])})
    np.testing.assert_allclose(fields["values"][storage, 0, 0], values[0], rtol=1e-5)


def test_a_batch_of_versions_that_fall_is_caught() -> None:
    worker_layout = Roles(experiment())
    work_without(worker_layout)
    worker_layout.shared.storages["versions"][0, 0, 0] = 1
    with pytest.raises(AssertionError, match="expected versions up to its own that never fall"):
        worker_layout.learner.advance()


def test_a_write_into_a_rollout_being_learned_from_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    worker_layout = Roles(experiment())
    learn = worker_layout.learner.learn

    def learn_while_another_writes(fields: SourceFields) -> dict[str, float]:
        metrics = learn(fields)
        worker_layout.shared.storages["rewards"][0, -1, -1] += 1
        return metrics

    monkeypatch.setattr(worker_layout.learner, "learn", learn_while_another_writes)
    with pytest.raises(AssertionError, match=r"somebody wrote to the queue \(update 0\) while the learner read it"):
        worker_layout.work_in_random_order(seed=0)
