"""Every slot of every batch holds one step, whole: nothing is lost, doubled or mixed up, at any interval's border."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from helpers import Outcome, run
from numpy.typing import NDArray
from tagged_recording import FOLDER_VARIABLE, SCALES, Recording, RecordingChain, ScaledTagged

from htsrl import A2C, Experiment
from htsrl.config import AlgorithmSettings
from htsrl.dataflow.parameters import FlatLayout
from htsrl.policies.distributions import Distribution
from htsrl.policies.policy import build_policy
from htsrl.seeding import reset_seed

ALPHAS = (1, 2, 4, 5, 128)
SCHEDULES = ("hts", "sync")
OVER_PROCESSES = [
    *[(1, "hts"), (1, "sync"), (2, "sync"), (4, "hts"), (5, "hts"), (128, "sync")],
    *[pytest.param(*rest, marks=pytest.mark.slow) for rest in ((2, "hts"), (4, "sync"), (5, "sync"), (128, "hts"))],
]
NUM_ENVS = 6
MIN_STEPS = 24  # of one environment: some four episodes
# Versions that differ so much that a value of one cannot pass for that of another.
ALGORITHM: AlgorithmSettings = A2C(learning_rate=0.01, anneal_learning_rate=False)

Float32 = NDArray[np.float32]
Run = Callable[[Experiment], tuple[Recording, Outcome]]


def tagged_experiment(alpha: int, schedule: Literal["hts", "sync"], lag: int | None = None) -> Experiment:
    num_intervals = max(3, -(-MIN_STEPS // alpha))
    return Experiment(
        "ScaledTagged-v0",
        imports=("tagged_recording",),
        algorithm=ALGORITHM,
        schedule=schedule,
        lag=lag,
        num_envs=NUM_ENVS,
        sync_interval=alpha,
        total_steps=num_intervals * alpha * NUM_ENVS,
    )


@pytest.fixture
def run_inline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def recorded(experiment: Experiment) -> tuple[Recording, Outcome]:
        recording = Recording(tmp_path)
        monkeypatch.setattr("htsrl.roles.learner.hash_batch", recording.hash_batch)
        monkeypatch.setattr(RecordingChain, "folder", tmp_path, raising=False)
        monkeypatch.setattr("htsrl.roles.learner.DigestChain", RecordingChain)
        return recording, run(experiment, num_executors=2, num_actors=3, log_every_steps=1)

    return recorded


@pytest.fixture
def run_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def recorded(experiment: Experiment) -> tuple[Recording, Outcome]:
        monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
        worker_layout = {"num_executors": 2, "num_actors": 1, "jitter_seconds": 1e-3}
        return Recording(tmp_path), run(experiment, backend="processes", log_every_steps=1, **worker_layout)

    return recorded


@dataclass(frozen=True)
class Step:
    """One step of a Tagged environment, by its formulae from where it stands and the action it takes."""

    tag: int
    episode_step: int
    total_step: int
    last_action: int
    action: int

    @property
    def observation(self) -> list[int]:
        return [self.tag, self.episode_step, self.total_step, self.last_action]

    @property
    def next_observation(self) -> list[int]:
        """What truly follows, before any reset."""
        return [self.tag, self.episode_step + 1, self.total_step + 1, self.action]

    @property
    def reward(self) -> int:
        return 4 * self.episode_step + self.action

    @property
    def ends(self) -> bool:
        return self.episode_step + 1 == 3 + self.tag % 7

    @property
    def terminated(self) -> bool:
        return self.ends and self.tag % 2 == 0

    @property
    def truncated(self) -> bool:
        return self.ends and self.tag % 2 == 1


def walk(seed: int, env: int, actions: list[int]) -> Iterator[tuple[Step, float]]:
    """The steps that these actions take one environment through, each with the episode's return so far."""
    episode, episode_step, last_action, episode_return = 0, 0, -1, 0.0
    for total_step, action in enumerate(actions):
        tag = reset_seed(seed, env, episode) % 2**20
        step = Step(tag, episode_step, total_step, last_action, action)
        episode_return += step.reward
        yield step, episode_return
        if step.ends:
            episode, episode_step, last_action, episode_return = episode + 1, 0, -1, 0.0
        else:
            episode_step, last_action = episode_step + 1, action


def scaled(observations: Any) -> Float32:
    array: Float32 = np.asarray(observations, dtype=np.float32) * SCALES
    return array


class Versions:
    """Answers of all versions that a run has had."""

    def __init__(self, recording: Recording, experiment: Experiment) -> None:
        env = ScaledTagged()
        self._recording = recording
        self._policy = build_policy(env.observation_space, env.action_space, experiment.network, seed=0)
        self._layout = FlatLayout.of(self._policy)

    @torch.inference_mode()
    def answers(self, version: int, observations: Float32) -> tuple[Distribution, Float32]:
        """The distribution over actions for every row, and the values in the shape of the observations."""
        flat = torch.from_numpy(self._recording.version(version))
        for parameter, view in zip(self._policy.parameters(), self._layout.views(flat, self._policy), strict=True):
            parameter.copy_(view)
        distribution, values = self._policy({"obs": torch.from_numpy(observations).flatten(0, -2)})
        return distribution, values.numpy().reshape(observations.shape[:-1])

    def values(self, version: int, observations: Float32) -> Float32:
        return self.answers(version, observations)[1]


def assert_slots_hold_whole_steps(recording: Recording, experiment: Experiment) -> None:
    """Observation, action, reward and end of every slot belong to one step, and the slots follow one another."""
    batches = [recording.batch(update) for update in range(experiment.num_intervals)]
    fields_TB = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    num_steps = experiment.num_intervals * experiment.interval_steps
    assert fields_TB["actions"].shape == (num_steps, NUM_ENVS)
    ends = 0
    for env in range(NUM_ENVS):
        steps, returns = zip(*walk(experiment.seed, env, fields_TB["actions"][:, env].tolist()), strict=True)
        ended = np.array([step.ends for step in steps])
        np.testing.assert_array_equal(fields_TB["obs"][:, env], scaled([step.observation for step in steps]))
        assert fields_TB["rewards"][:, env].tolist() == [step.reward for step in steps]
        assert fields_TB["terminated"][:, env].tolist() == [step.terminated for step in steps]
        assert fields_TB["truncated"][:, env].tolist() == [step.truncated for step in steps]
        np.testing.assert_array_equal(fields_TB["episode_returns"][:, env], np.where(ended, returns, 0.0))
        lengths = [step.episode_step + 1 for step in steps]
        np.testing.assert_array_equal(fields_TB["episode_lengths"][:, env], np.where(ended, lengths, 0))
        ends += ended.sum()
    assert fields_TB["terminated"].any()
    assert fields_TB["truncated"].any()
    assert ends > NUM_ENVS
    assert len(set(fields_TB["actions"].flatten().tolist())) == 4, "all four actions occur"


def true_next_observations(batches: list[dict[str, NDArray[Any]]], experiment: Experiment) -> Float32:
    actions_TB = np.concatenate([batch["actions"] for batch in batches])
    by_env = [
        [step.next_observation for step, _ in walk(experiment.seed, env, actions_TB[:, env].tolist())]
        for env in range(NUM_ENVS)
    ]
    return scaled(by_env).swapaxes(0, 1)


def acting_version(experiment: Experiment, update: int) -> int:
    """By the law, not by the schedule's own word."""
    lag = {"hts": 1, "sync": 0}[experiment.schedule] if experiment.lag is None else experiment.lag
    return max(update - lag, 0)


def assert_answers_come_from_the_named_version(recording: Recording, experiment: Experiment) -> None:
    """Log-probabilities and values are those of the acting version, for this observation and this action."""
    versions = Versions(recording, experiment)
    for update in range(experiment.num_intervals):
        batch = recording.batch(update)
        acting = acting_version(experiment, update)
        assert (batch["versions"] == acting).all()
        distribution, values = versions.answers(acting, batch["obs"])
        log_probs = distribution.log_prob(torch.from_numpy(batch["actions"]).flatten()).view(values.shape)
        np.testing.assert_allclose(batch["values"], values, rtol=1e-5, atol=1e-5)
        np.testing.assert_allclose(batch["log_probs"], log_probs, rtol=1e-5, atol=1e-5)
        for other in {acting + 1, acting - 1} - {-1}:
            assert np.abs(versions.values(other, batch["obs"]) - values).max() > 1e-3, "the versions can be told apart"


def assert_bootstrap_values_are_those_of_the_true_next_observation(
    recording: Recording, experiment: Experiment
) -> None:
    """They stand exactly at truncated steps and at an interval's last, unless that one terminated; elsewhere is 0."""
    versions = Versions(recording, experiment)
    batches = [recording.batch(update) for update in range(experiment.num_intervals)]
    alpha = experiment.interval_steps
    next_observations_TB = true_next_observations(batches, experiment)
    for update, batch in enumerate(batches):
        expected = versions.values(
            acting_version(experiment, update), next_observations_TB[update * alpha : (update + 1) * alpha]
        )
        needed = batch["truncated"].copy()
        needed[-1] |= ~batch["terminated"][-1]
        np.testing.assert_allclose(batch["bootstrap_values"], np.where(needed, expected, 0.0), rtol=1e-5, atol=1e-5)
        assert not np.allclose(expected[needed], batch["values"][needed], rtol=1e-5, atol=1e-5)


def assert_lags_are_recorded(outcome: Outcome, experiment: Experiment) -> None:
    lags = [update - acting_version(experiment, update) for update in range(experiment.num_intervals)]
    assert [line["hts/lag"] for line in outcome.metrics] == lags
    assert [line["hts/lag_max"] for line in outcome.metrics] == lags


def assert_recorded_run_is_right(recording: Recording, outcome: Outcome, experiment: Experiment) -> None:
    assert recording.num_updates == experiment.num_intervals
    assert_slots_hold_whole_steps(recording, experiment)
    assert_answers_come_from_the_named_version(recording, experiment)
    assert_bootstrap_values_are_those_of_the_true_next_observation(recording, experiment)
    assert_lags_are_recorded(outcome, experiment)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_inline_every_slot_holds_one_whole_step_of_the_named_version(
    alpha: int, schedule: Literal["hts", "sync"], run_inline: Run
) -> None:
    experiment = tagged_experiment(alpha, schedule)
    recording, outcome = run_inline(experiment)
    assert_recorded_run_is_right(recording, outcome, experiment)


@pytest.mark.parametrize(
    ("alpha", "schedule"),
    [
        (1, "hts"),
        (2, "sync"),
        (5, "hts"),
        *(pytest.param(*way, marks=pytest.mark.slow) for way in [(1, "sync"), (4, "hts"), (128, "hts")]),
    ],
)
def test_over_processes_with_delays_every_slot_holds_one_whole_step_of_the_named_version(
    alpha: int, schedule: Literal["hts", "sync"], run_processes: Run
) -> None:
    experiment = tagged_experiment(alpha, schedule)
    recording, outcome = run_processes(experiment)
    assert_recorded_run_is_right(recording, outcome, experiment)


@pytest.mark.parametrize("lag", [0, 2, 4])
def test_under_any_lag_every_slot_holds_one_whole_step_of_the_named_version(lag: int, run_inline: Run) -> None:
    experiment = tagged_experiment(2, "hts", lag)
    recording, outcome = run_inline(experiment)
    assert_recorded_run_is_right(recording, outcome, experiment)


def test_over_processes_under_a_lag_of_4_every_slot_holds_one_whole_step_of_the_named_version(
    run_processes: Run,
) -> None:
    experiment = tagged_experiment(2, "hts", lag=4)
    recording, outcome = run_processes(experiment)
    assert_recorded_run_is_right(recording, outcome, experiment)
