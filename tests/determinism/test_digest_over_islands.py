"""Law 2 over machines: on islands, however many there are, a run has the bits that it has in one process."""

from __future__ import annotations

from dataclasses import replace

import pytest
from combinations import combination
from combinations import oracle as combination_oracle
from helpers import assert_same_run, run
from island_runs import run_on_islands
from small_experiments import EXPERIMENTS, oracle, small_experiment
from test_off_policy_runs import EXPERIMENTS as OFF_POLICY
from test_replay_runs import EXPERIMENT as SAC_ON_PENDULUM

from htsrl import A2C, Experiment

pytest.importorskip("ray", reason="islands live on Ray: pip install 'htsrl[ray]'")
NUM_UPDATES = 8


def test_two_islands_with_actors_of_their_own_have_the_digest_of_one_process() -> None:
    outcome = run_on_islands(small_experiment("cartpole_ppo"), nodes=2, num_executors=2, num_actors=1)
    assert_same_run(outcome, oracle("cartpole_ppo"))


def test_a_recurrent_policy_with_several_observations_remembers_on_islands() -> None:
    outcome = run_on_islands(combination("dict_mask_lstm", NUM_UPDATES), nodes=2)
    assert_same_run(outcome, combination_oracle("dict_mask_lstm", NUM_UPDATES))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sac", "dqn", "prioritised dqn"])
def test_a_replay_buffer_is_filled_from_islands_as_from_one_process(name: str) -> None:
    experiment = OFF_POLICY.get(name, SAC_ON_PENDULUM)
    assert_same_run(run_on_islands(experiment, nodes=2), run(experiment))


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("schedule", ["hts", "sync"])
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_number_of_islands_does_not_change_the_digest(name: str, schedule: str, nodes: int) -> None:
    experiment = replace(small_experiment(name), schedule=schedule)
    assert_same_run(run_on_islands(experiment, nodes, jitter_seconds=2e-3), run(experiment))


@pytest.mark.slow
@pytest.mark.parametrize("nodes", [1, 2, 4])
@pytest.mark.parametrize("name", ["lstm_ppo", "gru_a2c", "hybrid_gru", "team_mask_lstm"])
def test_memories_masks_and_teams_live_on_islands(name: str, nodes: int) -> None:
    outcome = run_on_islands(combination(name, NUM_UPDATES), nodes, jitter_seconds=2e-3)
    assert_same_run(outcome, combination_oracle(name, NUM_UPDATES))


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"lag": 3},
        {"learners": 2},
        {"learners": 4, "sync_rule": "qsr"},
        {"num_envs": 9, "learners": 3, "sync_rule": "fixed", "sync_args": {"local_updates": 2}},
        {"lanes": 2},
    ],
)
def test_lags_learners_and_lanes_go_with_islands(changes: dict[str, object]) -> None:
    base = Experiment(
        "CartPole-v1", {"max_episode_steps": 20}, algorithm=A2C(), num_envs=8, sync_interval=5, total_steps=720
    )
    experiment = replace(base, **changes)  # type: ignore[arg-type]  # each has the type of its field
    assert_same_run(run_on_islands(experiment, nodes=2), run(experiment))
