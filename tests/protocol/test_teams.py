"""Several agents in one environment: every row belongs to its agent, and nothing is learned from those who are gone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from helpers import assert_same_run, run
from numpy.typing import NDArray
from teams import LAST_STEP, NUM_AGENTS, Loner, Pair, Relay

from htsrl import A2C, PPO, Experiment
from htsrl.algorithms import update as update_module
from htsrl.algorithms.algorithm import Update
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Draft
from htsrl.digest import hash_batch
from htsrl.envs.team import Team
from htsrl.policies.light import LightPolicy
from htsrl.roles import learner as learner_module
from htsrl.roles import updater as updater_module
from htsrl.seeding import reset_seed

NUM_ENVS, SYNC_INTERVAL, SEED = 2, 5, 7
EXPERIMENT = Experiment(
    Relay,
    algorithm=PPO(epochs=1, num_minibatches=2),
    num_envs=NUM_ENVS,
    sync_interval=SYNC_INTERVAL,
    total_steps=8 * NUM_ENVS * SYNC_INTERVAL,
    seed=SEED,
)
Fields = dict[str, NDArray[Any]]


def recorded(monkeypatch: pytest.MonkeyPatch, experiment: Experiment) -> Fields:
    """All batches of a run, one after another, as `[steps, environments, agents, ...]`."""
    batches: list[Fields] = []

    def keep(fields: Any, num_envs: int) -> Any:
        batches.append({name: array.copy() for name, array in fields.items()})
        return hash_batch(fields, num_envs)

    monkeypatch.setattr(learner_module, "hash_batch", keep)
    run(experiment)
    joined = {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}
    return {name: x.reshape(len(x), NUM_ENVS, NUM_AGENTS, *x.shape[2:]) for name, x in joined.items()}


@pytest.mark.parametrize("ends_by_time", [True, False])
def test_every_row_belongs_to_its_agent_and_step(monkeypatch: pytest.MonkeyPatch, ends_by_time: bool) -> None:
    fields = recorded(monkeypatch, replace(EXPERIMENT, env_args={"garbage": 99.0, "ends_by_time": ends_by_time}))
    for env in range(NUM_ENVS):
        world, episode = Relay(garbage=0.0, ends_by_time=ends_by_time), 0
        seen, _ = world.reset(seed=reset_seed(SEED, env, episode))
        for step in range(len(fields["rewards"])):
            at = (step, env)
            np.testing.assert_array_equal(fields["active"][at], world.active)
            # A truncated agent's last observation is seen once, for its value, and then no more.
            np.testing.assert_array_equal(fields["obs"][at][world.active], seen[world.active])
            acted = world.active
            seen, rewards, terminated, truncated, _ = world.step(fields["actions"][at])
            np.testing.assert_array_equal(fields["rewards"][at], rewards.astype(np.float32))
            np.testing.assert_array_equal(fields["terminated"][at], terminated & acted)
            np.testing.assert_array_equal(fields["truncated"][at], truncated & acted)
            if not world.active.any():
                episode += 1
                assert fields["episode_lengths"][at].tolist() == [LAST_STEP + 1, 0, 0]
                seen, _ = world.reset(seed=reset_seed(SEED, env, episode))
            else:
                assert not fields["episode_lengths"][at].any()
        assert episode > 2


def test_the_return_of_an_episode_is_the_mean_over_the_team(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = recorded(monkeypatch, EXPERIMENT)
    ends = np.flatnonzero(fields["episode_lengths"][:, 0, 0])
    first = fields["rewards"][: ends[0] + 1, 0].sum(axis=0).mean()
    assert fields["episode_returns"][ends[0], 0, 0] == pytest.approx(first)


def test_what_those_who_are_gone_would_see_or_earn_changes_nothing() -> None:
    clean, dirty = (run(replace(EXPERIMENT, env_args={"garbage": garbage})) for garbage in (0.0, 1e5))
    assert_same_run(clean, dirty)


@pytest.mark.parametrize("algorithm", [PPO(epochs=1, num_minibatches=1), A2C()], ids=["ppo", "a2c"])
def test_the_gradient_is_that_of_the_active_rows_alone(monkeypatch: pytest.MonkeyPatch, algorithm: A2C | PPO) -> None:
    """Nonsense in the rows of agents that are gone must not reach the loss."""
    improve = update_module.improve
    spoiled = 0

    def spoil(algorithm: Any, update: Update, draft: Draft, batch: Batch, discount: float) -> dict[str, float]:
        nonlocal spoiled
        assert batch.active is not None
        gone = ~batch.active
        spoiled += int(gone.sum())
        observations = torch.where(gone[..., None], torch.full((), torch.nan), batch.observations["obs"])
        changed = replace(batch, observations={"obs": observations})
        return improve(algorithm, update, draft, changed, discount)

    experiment = replace(EXPERIMENT, algorithm=algorithm)
    clean = run(experiment)
    monkeypatch.setattr(updater_module, "improve", spoil)
    assert_same_run(run(experiment), clean)
    assert spoiled > 0


def test_an_agent_whose_time_is_up_before_the_others_is_valued_at_its_own_last_observation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Agent 1 is cut after step 6, in the second rollout, which version 0 acts in; version 0 is the initial policy."""
    values: list[float] = []
    value = LightPolicy.value

    def remember(self: LightPolicy, observations: Any) -> Any:
        answered = value(self, observations)
        agents, steps = (observations["obs"][:, :2] * 16).T
        values.extend(answered[(agents == 1) & (steps == 7)].tolist())
        return answered

    monkeypatch.setattr(LightPolicy, "value", remember)
    fields = recorded(monkeypatch, EXPERIMENT)
    step_6 = fields["truncated"][6, 0]
    assert step_6.tolist() == [False, True, False]
    assert fields["bootstrap_values"][6, 0, 1] in values


@pytest.mark.parametrize("team", [Loner, Pair])
def test_a_team_of_one_and_categories_that_do_not_begin_at_zero(team: type[Team]) -> None:
    experiment = replace(EXPERIMENT, env=team, algorithm=A2C())
    assert_same_run(run(experiment, num_executors=2, num_actors=2), run(experiment, num_executors=1, num_actors=0))


def test_minibatches_stay_even_however_many_agents_are_gone() -> None:
    """48 to 192 rows in 16 pieces; a piece of one row would have no deviation to normalise advantages by."""
    crowd = replace(EXPERIMENT, num_envs=4, sync_interval=16, total_steps=4 * 16 * 8)
    outcome = run(replace(crowd, algorithm=PPO(epochs=1, num_minibatches=16)))
    assert len(outcome.links) == 8


@pytest.mark.parametrize("backend", ["inline", "processes"])
def test_the_placement_does_not_change_the_digest(backend: str) -> None:
    assert_same_run(
        run(EXPERIMENT, backend=backend, num_executors=2, num_actors=1, jitter_seconds=1e-3),
        run(EXPERIMENT, num_executors=1, num_actors=0),
    )
