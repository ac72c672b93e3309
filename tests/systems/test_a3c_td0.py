"""A3C-TD(0): an update by hand, whole runs against plain NumPy, its delays, its settings."""

from __future__ import annotations

import copy
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from a3c_reference import Parameters, Transition, assert_same_parameters, updated
from gymnasium import spaces
from helpers import run

import htsrl
from htsrl import Config, ConfigError, Experiment, Network, Placement
from htsrl.algorithms.algorithm import Metrics, Update, build_algorithm
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Draft, Drafts
from htsrl.algorithms.optimizers import NUM_VECTORS
from htsrl.algorithms.returns import Transitions
from htsrl.algorithms.update import improve
from htsrl.config.algorithm_settings import CommonSettings, load_algorithm
from htsrl.config.check import check
from htsrl.config.file import load_config, resolve_algorithm, to_json
from htsrl.dataflow.parameters import ParameterRing, parameter_arrays
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.policies.policy import Policy, build_policy
from htsrl.systems.a3c_td0.algorithm import A3CTD0
from htsrl.systems.a3c_td0.measured import OBJECTIVE, MeasuredA3CTD0

Settings = A3CTD0.Settings
MDP = Experiment(
    "htsrl/RandomMdp-v0",
    {"sampling": "chain"},
    imports=("htsrl.systems.a3c_td0",),
    algorithm=Settings(actor_step_size=0.5, critic_step_size=0.5, discount=0.9),
    network=Network(hidden_sizes=()),
    num_envs=3,
    total_steps=30,
)


def linear_policy() -> Policy:
    """Two features and two actions; theta is 0, omega (0.4, -0.2) and 0.1."""
    box, choice = spaces.Box(-1.0, 1.0, (2,), np.float32), spaces.Discrete(2)
    policy = build_policy(box, choice, Network(hidden_sizes=()), seed=1)
    with torch.no_grad():
        policy.action_head.weight.zero_()
        policy.value_head.weight.copy_(torch.tensor([[0.4, -0.2]]))
        policy.value_head.bias.fill_(0.1)
    return policy


def two_workers() -> Batch:
    """One transition each; the second one's episode terminates, and what it bootstraps from must not count."""
    steps = Transitions(
        rewards_TB=torch.tensor([[1.0, -1.0]]),
        values_TB=torch.tensor([[0.4, -0.1]]),
        next_values_TB=torch.tensor([[0.5, 7.0]]),
        terminated_TB=torch.tensor([[False, True]]),
        truncated_TB=torch.tensor([[False, False]]),
    )
    observations = torch.tensor([[[1.0, 0.5], [0.0, 1.0]]])
    return Batch({"obs": observations}, torch.tensor([[1, 0]]), torch.full((1, 2), -0.693), steps)


def updated_ring(settings: Settings, batch: Batch, update: int) -> ParameterRing:
    """A ring after one update from version 0 on, as the learner does it."""
    block = SharedArrays(parameter_arrays(linear_policy(), NUM_VECTORS["sgd"]))
    block.close_fd()
    ring = ParameterRing(block, linear_policy, torch.device("cpu"))
    ring.initialise(linear_policy())
    draft = Drafts(ring, CommonSettings.of(settings)).begin(version=1)
    behaviour = ring.module(0)
    assert isinstance(behaviour, Policy)
    experiment = Experiment("any", algorithm=settings, num_envs=2, total_steps=100)
    improve(build_algorithm(experiment), Update(update, behaviour), draft, batch, settings.discount)
    return ring


def test_an_interval_of_two_workers_by_hand() -> None:
    """delta = 1 + 0.9 * 0.5 - 0.4 = 1.05 and -1 + 0.1 = -0.9; alpha = 0.2 and 0.2 / 2^0.6, beta = 0.5 and 0.5 / 2^0.4.

    Both gradients of log pi are 0.5 for the action that was taken and -0.5 for the other, times the features.
    """
    ring = updated_ring(Settings(actor_step_size=0.2, critic_step_size=0.5, discount=0.9), two_workers(), update=0)
    first, second = 0.2 * 1.05 * 0.5, 0.131950791 * 0.9 * 0.5
    row = [first * 1.0, first * 0.5 + second * 1.0, first + second]
    omega = [0.4 + 0.525, -0.2 + 0.2625 - 0.341036227, 0.1 + 0.525 - 0.341036227]
    assert_same_parameters(
        Parameters.of(ring.module(1)), Parameters(np.array([[-x for x in row], row]), np.array(omega))
    )


def test_the_critic_stays_within_its_ball() -> None:
    settings = Settings(actor_step_size=0.2, critic_step_size=0.5, discount=0.9, critic_radius=0.3)
    projected = Parameters.of(updated_ring(settings, two_workers(), update=0).module(1))
    start, transitions = Parameters.of(linear_policy()), two_workers_in_numpy()
    expected = start
    for k, transition in enumerate(transitions):
        expected = updated(expected, start, transition, k, settings)
    assert_same_parameters(projected, expected)
    assert np.linalg.norm(projected.omega) == pytest.approx(0.3, abs=1e-6)


def two_workers_in_numpy() -> list[Transition]:
    """(0.4, -0.2) s + 0.1 = 0.5 for a next observation of (1, 0)."""
    return [
        Transition(np.array([1.0, 0.5]), 1, 1.0, np.array([1.0, 0.0])),
        Transition(np.array([0.0, 1.0]), 0, -1.0, np.array([9.0, 9.0]), terminated=True),
    ]


@pytest.mark.parametrize("update", [0, 7])
def test_the_count_of_updates_follows_from_the_number_of_the_interval(update: int) -> None:
    settings = Settings(actor_step_size=0.2, critic_step_size=0.5, discount=0.9)
    start = expected = Parameters.of(linear_policy())
    for k, transition in enumerate(two_workers_in_numpy(), start=2 * update):
        expected = updated(expected, start, transition, k, settings)
    assert_same_parameters(Parameters.of(updated_ring(settings, two_workers(), update).module(1)), expected)


@dataclass(frozen=True)
class Recorded:
    """What an update of a run was given, and the parameters that it started from and ended with."""

    batch: Batch
    before: Parameters
    after: Parameters


def recorded_run(experiment: Experiment, monkeypatch: pytest.MonkeyPatch) -> list[Recorded]:
    """Every update of a run through the ordinary runtime."""
    records: list[Recorded] = []
    original: Callable[..., Metrics] = A3CTD0.improve

    def recording(self: A3CTD0, update: Update, draft: Draft, batch: Batch) -> Metrics:
        before = Parameters.of(draft.policy)
        kept = copy.deepcopy(batch)  # the storage's own memory is written again soon
        metrics = original(self, update, draft, batch)
        records.append(Recorded(kept, before, Parameters.of(draft.policy)))
        return metrics

    monkeypatch.setattr(A3CTD0, "improve", recording)
    run(experiment)
    return records


def replayed(records: list[Recorded], settings: Settings, lag: int) -> list[Parameters]:
    """All versions but the last, from the first one and the transitions alone; a chain never ends, so what follows a
    step is what its worker sees next."""
    versions = [records[0].before]
    for update, (record, following) in enumerate(pairwise(records)):
        (name,) = record.batch.observations
        read, now = versions[max(update - lag, 0)], versions[-1]
        num_workers = record.batch.actions.shape[1]
        for worker in range(num_workers):
            transition = Transition(
                record.batch.observations[name][0, worker].double().numpy(),
                int(record.batch.actions[0, worker]),
                float(record.batch.steps.rewards_TB[0, worker]),
                following.batch.observations[name][0, worker].double().numpy(),
            )
            now = updated(now, read, transition, update * num_workers + worker, settings)
        versions.append(now)
    return versions


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_a_whole_run_is_that_of_plain_numpy_with_gradients_at_the_version_that_was_read(
    monkeypatch: pytest.MonkeyPatch, lag: int
) -> None:
    """So update k is behind by at most N * (lag + 1) - 1: the last worker of an interval, whose version is of the
    beginning of the interval `lag` before. Any other delay gives other numbers."""
    records = recorded_run(replace(MDP, lag=lag), monkeypatch)
    versions = replayed(records, MDP.algorithm, lag)
    assert len(versions) == 10
    for record, version in zip(records, versions, strict=True):
        assert_same_parameters(record.before, version)
    for other in {0, 1, 3} - {lag}:
        assert np.abs(replayed(records, MDP.algorithm, other)[-1].theta - versions[-1].theta).max() > 1e-4


@pytest.mark.parametrize("lag", [0, 2])
def test_the_delay_is_bounded_as_stated_in_logical_time(lag: int) -> None:
    lags = [line["hts/lag"] for line in run(replace(MDP, lag=lag), log_every_steps=1).metrics]
    delays = [MDP.num_envs * float(x or 0) + worker for x in lags for worker in range(MDP.num_envs)]
    assert max(delays) == MDP.num_envs * (lag + 1) - 1
    assert lags == [min(update, lag) for update in range(10)]


def test_measuring_changes_no_parameter() -> None:
    measured = MeasuredA3CTD0.Settings(**vars(MDP.algorithm), measure_every_steps=6)
    outcome, plain = run(replace(MDP, algorithm=measured), log_every_steps=1), run(MDP, log_every_steps=1)
    assert outcome.policy == plain.policy
    assert [line["train/n_updates"] for line in outcome.metrics if OBJECTIVE in line] == [2, 4, 6, 8, 10]


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"actor_step_size": 0.0}, {}, "actor_step_size=0.0 must be above 0"),
    ({"critic_step_size": -1.0}, {}, "critic_step_size=-1.0 must be above 0"),
    ({"actor_exponent": 0.3}, {}, "the critic's no larger"),
    ({"critic_radius": 0.0}, {}, "critic_radius=0.0 must be above 0"),
    ({}, {"schedule": "async"}, "use schedule=hts"),
    ({}, {"gradient_shards": 2}, "gradient_shards=2 would cut gradients of a single transition; use 1"),
    (
        {},
        {"sync_interval": 4, "network": Network(recurrent="gru")},
        "use backpropagation_length=1, or recurrent='none'",
    ),
]


@pytest.mark.parametrize(("settings", "experiment", "message"), REFUSED, ids=[text for *_, text in REFUSED])
def test_what_cannot_work_is_refused_before_anything_starts(
    settings: dict[str, Any], experiment: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check(Config(replace(MDP, algorithm=replace(MDP.algorithm, **settings), **experiment)))


def test_an_environment_steps_once_in_an_interval_unless_told_otherwise() -> None:
    assert (MDP.interval_steps, MDP.batch_steps, MDP.num_intervals) == (1, 3, 10)


def test_settings_survive_a_file(tmp_path: Path) -> None:
    config = check(Config(replace(MDP, algorithm=Settings(0.3, 0.7, critic_radius=5.0)), Placement(backend="inline")))
    (tmp_path / "config.json").write_text(to_json(config))
    loaded = load_config(tmp_path / "config.json").experiment
    assert replace(loaded, algorithm=resolve_algorithm(loaded.algorithm)) == config.experiment


def test_the_entry_point_leads_to_the_algorithm() -> None:
    pyproject = tomllib.loads((Path(htsrl.__file__).parents[1] / "pyproject.toml").read_text())
    assert load_algorithm(pyproject["project"]["entry-points"]["htsrl.algorithms"]["a3c_td0"]) is A3CTD0


def test_the_random_mdp_is_registered() -> None:
    assert "htsrl/RandomMdp-v0" in gymnasium.registry
