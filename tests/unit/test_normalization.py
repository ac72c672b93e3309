"""Running statistics against NumPy over all the data at once, and the place they have in a policy's version."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from helpers import run

from htsrl import A2C, PPO, Config, ConfigError, Experiment, Network, Placement, evaluate, train
from htsrl.algorithms.draft import Drafts
from htsrl.algorithms.ppo import algorithm as ppo
from htsrl.config.algorithm_settings import CommonSettings
from htsrl.dataflow.parameters import ParameterRing, parameter_arrays
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.policies.normalization import ObservationScale, RewardScale, RunningMoments
from htsrl.policies.policy import build_policy, policy_for
from htsrl.spaces import Interface

OBSERVATIONS = spaces.Box(-np.inf, np.inf, (3,), np.float32)
NUM_COLUMNS = 4
NORMALIZED = Experiment(
    "Pendulum-v1",
    {"max_episode_steps": 9},
    algorithm=PPO(epochs=1, num_minibatches=2, normalize_rewards=True),
    network=Network(hidden_sizes=(8,), normalize_observations=True),
    num_envs=NUM_COLUMNS,
    sync_interval=8,
    total_steps=5 * NUM_COLUMNS * 8,
)


def test_moments_of_many_batches_are_those_of_all_the_data() -> None:
    generator = np.random.default_rng(1)
    batches = [generator.normal(3.0, 5.0, (size, 3)) for size in (1, 7, 100, 2)]
    moments = RunningMoments((3,))
    for batch in batches:
        moments.take_in(torch.from_numpy(batch))
    everything = np.concatenate(batches)
    assert float(moments.count) == len(everything)
    np.testing.assert_allclose(moments.mean, everything.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(moments.variance, everything.var(axis=0), rtol=1e-12)


def test_before_any_data_observations_pass_unchanged_and_far_ones_are_cut() -> None:
    observations = torch.tensor([[1.0, -2.0, 300.0]])
    assert ObservationScale((3,))(observations).tolist() == [[1.0, -2.0, 10.0]]


def test_scaled_observations_have_mean_0_and_deviation_1() -> None:
    samples = torch.randn(1000, 3, generator=torch.Generator().manual_seed(1)) * 4 + 100
    scale = ObservationScale((3,))
    scale.take_in(samples)
    scaled = scale(samples)
    assert scaled.dtype == torch.float32
    torch.testing.assert_close(scaled.mean(dim=0), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(scaled.std(dim=0, correction=0), torch.ones(3), atol=1e-4, rtol=0)


def test_rewards_are_divided_by_the_deviation_of_discounted_returns() -> None:
    """By hand, column by column and step by step, over two batches: the sum continues from one to the next."""
    generator = np.random.default_rng(2)
    rewards = generator.normal(1.0, 3.0, (20, NUM_COLUMNS)).astype(np.float32)
    ends = generator.random((20, NUM_COLUMNS)) < 0.2
    returns, running = [], np.zeros(NUM_COLUMNS)
    for t in range(20):
        for b in range(NUM_COLUMNS):
            running[b] = 0.9 * running[b] + rewards[t, b]
            returns.append(running[b])
            if ends[t, b]:
                running[b] = 0.0
    scale = RewardScale(NUM_COLUMNS)
    for batch in (slice(0, 12), slice(12, 20)):
        scale.take_in(torch.from_numpy(rewards[batch]), torch.from_numpy(ends[batch]), 0.9, slice(None))
    expected = np.clip(rewards / np.sqrt(np.var(returns) + 1e-8), -10, 10)
    np.testing.assert_allclose(scale(torch.from_numpy(rewards)), expected, rtol=1e-6)


def test_only_counted_steps_enter_the_deviation_of_returns() -> None:
    """Two columns, of which the second belongs to an agent that is gone."""
    rewards = torch.tensor([[3.0, 0.0], [-1.0, 0.0], [2.0, 0.0]])
    scale = RewardScale(2)
    scale.take_in(rewards, torch.ones(3, 2, dtype=torch.bool), 0.9, torch.tensor([0, 2, 4]))
    assert float(scale.moments.count) == 3
    assert float(scale.moments.variance) == pytest.approx(np.var([3, -1, 2]))


def test_doubles_that_are_large_and_close_together_keep_their_differences() -> None:
    samples = 1e5 + 1e-3 * torch.randn(200, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    scale = ObservationScale((3,))
    scale.take_in(samples)
    assert scale(samples).std(dim=0).tolist() == pytest.approx([1.0] * 3, rel=0.02)


def test_without_a_lag_the_first_ratio_is_exactly_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the policy sees while it is optimised is what it saw when its update began."""
    first_of_updates: list[float] = []
    loss = ppo.ppo_loss

    def remember(*arguments: Any) -> ppo.PPOLoss:
        result = loss(*arguments)
        if not taken:
            first_of_updates.append(float(result.approx_kl))
        taken.append(True)
        return result

    update = ppo.PPOAlgorithm.improve

    def begin(*arguments: Any) -> dict[str, float]:
        taken.clear()
        return update(*arguments)

    taken: list[bool] = []
    monkeypatch.setattr(ppo, "ppo_loss", remember)
    monkeypatch.setattr(ppo.PPOAlgorithm, "improve", begin)
    run(replace(NORMALIZED, schedule="sync"))
    assert first_of_updates == [0.0] * 5


def normalized_ring() -> ParameterRing:
    def build() -> Any:
        return policy_for(NORMALIZED, Interface(OBSERVATIONS, OBSERVATIONS), NUM_COLUMNS)

    block = SharedArrays(parameter_arrays(build(), 2))
    block.close_fd()
    ring = ParameterRing(block, build, torch.device("cpu"))
    ring.initialise(build())
    return ring


def test_statistics_belong_to_a_version_and_a_draft_leaves_the_one_before_alone() -> None:
    ring = normalized_ring()
    first: Any = ring.module(0)
    assert float(first.observation_scales.scales[0].variance.sum()) == 3.0, (
        "version 0 must start from the module's own values"
    )
    draft: Any = Drafts(ring, CommonSettings.of(NORMALIZED.algorithm)).begin(1).policy
    draft.observation_scales.take_in({"obs": torch.randn(50, 3)})
    draft.reward_scale.take_in(
        torch.ones(6, NUM_COLUMNS), torch.zeros(6, NUM_COLUMNS, dtype=torch.bool), 0.5, slice(None)
    )
    assert (float(first.observation_scales.scales[0].count), float(first.reward_scale.returns_B.sum())) == (0.0, 0.0)
    following: Any = Drafts(ring, CommonSettings.of(NORMALIZED.algorithm)).begin(2).policy
    assert float(following.observation_scales.scales[0].count) == 50
    assert following.reward_scale.returns_B.tolist() == draft.reward_scale.returns_B.tolist() != [0.0] * NUM_COLUMNS


def test_they_lie_in_shared_memory_where_other_processes_see_them() -> None:
    ring = normalized_ring()
    module: Any = ring.module(0)
    module.reward_scale.moments.take_in(torch.tensor([1.0, 3.0]))
    assert {1.0, 2.0} <= set(ring.statistics[0].tolist()), "mean 2, variance 1, count 2"


@pytest.mark.parametrize("algorithm", [NORMALIZED.algorithm, A2C(normalize_rewards=True)], ids=["ppo", "a2c"])
def test_a_run_saves_what_it_has_seen_and_evaluation_uses_it(tmp_path: Path, algorithm: Any) -> None:
    from safetensors.torch import load_file, save_file

    experiment = replace(NORMALIZED, algorithm=algorithm)
    train(Config(experiment, Placement("inline", run_dir=tmp_path / "run", tensorboard=False, progress="off")))
    saved = load_file(tmp_path / "run" / "policy.safetensors")
    assert (
        float(saved["observation_scales.scales.0.count"])
        == float(saved["reward_scale.moments.count"])
        == 5 * NUM_COLUMNS * 8
    )
    before = evaluate(tmp_path / "run", episodes=4)
    saved["observation_scales.scales.0.mean"] += 3.0
    save_file(saved, tmp_path / "run" / "policy.safetensors", metadata={"version": "5"})
    shutil.rmtree(tmp_path / "run" / "checkpoints")  # or the newest would be played in its place
    assert evaluate(tmp_path / "run", episodes=4).returns != before.returns


def test_only_floats_can_be_normalized() -> None:
    for space, kind in ((spaces.Discrete(4), "categories"), (spaces.Box(0, 255, (40, 40, 3), np.uint8), "uint8")):
        with pytest.raises(ConfigError, match=f"normalize_observations=True needs observations of floats, not {kind}"):
            build_policy(space, spaces.Discrete(2), Network(normalize_observations=True), seed=0)
