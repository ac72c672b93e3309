"""Offline RL at multiple frequencies: targets by hand, fifty updates against plain torch, environments, the table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from offline_data import small_dataset, written
from offline_reference import PlainCQL

import htsrl.systems.multi_frequency
from htsrl import Config, ConfigError, DatasetError, Experiment, Network, Placement, load_policy, train
from htsrl.datasets.dataset import read_dataset
from htsrl.envs.make import make_env
from htsrl.runs.collect import Collected, collect_at_random
from htsrl.runs.folder import RunFolder
from htsrl.sources.dataset import DatasetSampler
from htsrl.systems.multi_frequency.algorithm import MultiFrequencyCQL, MultiFrequencyObjective, evenly

IMPORTS = (htsrl.systems.multi_frequency.__name__,)
PERIODS = (0.005, 0.01, 0.02)
LENGTHS = (6, 9, 8, 5, 7)
SETTINGS = MultiFrequencyCQL.Settings(minibatch_size=8, sampled_actions=2, learning_rate=3e-3, follow_rate=0.1)


def sampled(settings: Any, **dataset: Any) -> tuple[DatasetSampler, Any, Any]:
    """The data, which steps were drawn, and what came of them."""
    own = small_dataset(lengths=LENGTHS, dt=PERIODS, **dataset)
    data = DatasetSampler(own, replace(own.interface, squashes=True).actions)
    objective = MultiFrequencyObjective(replace(settings, minibatch_size=200), 1, 0, data)
    return data, data.draw(1, 0, 0, 200), objective._sampled()


def test_returns_reach_equally_far_in_time_and_discounts_are_by_time() -> None:
    data, first, found = sampled(SETTINGS)
    rewards, ends = data.dataset.arrays["rewards"].astype(np.float64), data.dataset.episode_ends
    seen = set()
    for row, step in enumerate(first.tolist()):
        dt = float(data.dataset.arrays["dt"][step])
        n, gamma = round(0.02 / dt), 0.99 ** (dt / 0.02)
        end = ends[data.dataset.episode_of(np.array([step]))[0]]
        count = min(n, end - step)
        seen.add((n, count))
        assert found.rewards[row] == pytest.approx(sum(gamma**i * rewards[step + i] for i in range(count)), rel=1e-4)
        worth = 0.0 if data.dataset.arrays["terminated"][step + count - 1] else gamma**count
        assert found.discounts[row] == pytest.approx(worth, rel=1e-5)
    assert {(4, 4), (2, 2), (1, 1), (4, 1)} <= seen, "of every period, and cut at an episode's end"


def test_naive_mixing_takes_one_step_of_every_period() -> None:
    data, first, found = sampled(replace(SETTINGS, adaptive_n=False))
    np.testing.assert_array_equal(found.rewards, data.dataset.arrays["rewards"][first])
    np.testing.assert_array_equal(
        found.next_observations["obs"], data.dataset.observations_at(first, after=True)["obs"]
    )


def test_one_discount_is_gamma_for_steps_of_every_period() -> None:
    data, first, found = sampled(replace(SETTINGS, adaptive_n=False, scaled_discount=False))
    ended = data.dataset.arrays["terminated"][first]
    assert ended.any()
    np.testing.assert_allclose(found.discounts, np.where(ended, 0.0, 0.99), rtol=1e-6)


def test_a_minibatch_can_have_as_many_transitions_of_every_period() -> None:
    data, drawn, _ = sampled(SETTINGS)
    settings = replace(SETTINGS, even_periods=True, minibatch_size=300)
    asked = MultiFrequencyObjective(settings, 1, 0, data)._sampled()
    assert len(np.unique(data.dt(drawn), return_counts=True)[1]) == 3
    assert len(set(np.unique(data.dt(drawn), return_counts=True)[1].tolist())) > 1, "otherwise they are not"
    steps = evenly(data.draw(1, 0, 0, 300), data)
    assert np.unique(data.dt(steps), return_counts=True)[1].tolist() == [100, 100, 100]
    assert len(np.unique(steps)) == data.size, "every step can be drawn"
    np.testing.assert_array_equal(asked.observations["obs"], data.dataset.observations_at(steps)["obs"])


class PlainMultiFrequency(PlainCQL):
    def __init__(self, experiment: Experiment, dataset: Any) -> None:
        super().__init__(experiment, dataset)
        self.periods = dataset.arrays["dt"].tolist()

    def n_and_discount(self, i: int) -> tuple[int, float]:
        share = self.periods[i] / max(self.periods)
        return round(self.settings.n_step / share), self.settings.discount**share


def test_fifty_updates_are_those_of_a_plain_implementation(tmp_path: Path) -> None:
    folder = written(tmp_path / "data", lengths=LENGTHS, dt=PERIODS)
    network = Network(hidden_sizes=(16, 16), activation="relu")
    experiment = Experiment(
        "", algorithm=SETTINGS, source=str(folder), network=network, sync_interval=1, total_steps=50
    )
    train(Config(experiment, Placement("inline", tensorboard=False, progress="off", run_dir=tmp_path / "run")))
    network = RunFolder.existing(tmp_path / "run").load_config().experiment.network
    plain = PlainMultiFrequency(replace(experiment, network=network), read_dataset(folder))
    for update in range(50):
        plain.update(update)
    policy = load_policy(tmp_path / "run").policy
    ours = [*policy.encoder.parameters(), *policy.action_head.parameters()]
    assert all(map(torch.equal, ours, plain.actor.parameters()))


def test_a_dataset_without_periods_is_refused(tmp_path: Path) -> None:
    experiment = Experiment("", algorithm=SETTINGS, source=str(written(tmp_path / "data")), total_steps=100)
    with pytest.raises(DatasetError, match="does not say its control periods"):
        train(Config(experiment, Placement("inline", tensorboard=False, progress="off", run_dir=tmp_path / "run")))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("dt", PERIODS)
def test_an_episode_of_the_pendulum_lasts_as_long_whatever_the_period(dt: float) -> None:
    asked = Collected(episodes=1, env_args={"dt": dt, "seconds": 0.4, "reward": "dense"})
    dataset = collect_at_random("htsrl/PendulumDt-v0", asked, imports=IMPORTS)
    assert dataset.num_steps == round(0.4 / dt)
    assert dataset.arrays["dt"].tolist() == pytest.approx([dt] * dataset.num_steps)
    np.testing.assert_allclose(dataset.arrays["obs"][:, 3], dt / 0.02, rtol=1e-6)
    assert dataset.arrays["truncated"].sum() == 1


def test_the_pendulum_falls_as_far_in_the_same_time_and_earns_as_much() -> None:
    ends, returns = [], []
    for dt in PERIODS:
        env = make_env("htsrl/PendulumDt-v0", {"dt": dt, "seconds": 0.2, "reward": "dense"}, IMPORTS)
        env.reset(seed=1)
        earned, is_over = 0.0, False
        while not is_over:
            seen, reward, _, is_over, _ = env.step(np.zeros(1, np.float32))
            earned += float(reward)
        ends.append(seen[:3])
        returns.append(earned)
    np.testing.assert_allclose(ends[0], ends[2], atol=0.05)
    assert returns[0] == pytest.approx(returns[2], rel=0.1)


def test_mujocos_periods_are_whole_numbers_of_its_own_steps() -> None:
    pytest.importorskip("mujoco")
    for name, dt in (("HalfCheetah", 0.02), ("Hopper", 0.004)):
        env = make_env(f"htsrl/{name}Dt-v0", {"dt": dt, "seconds": 5 * dt}, IMPORTS)
        env.reset(seed=1)
        *_, is_over, info = env.step(env.action_space.sample())
        assert (is_over, info["dt"]) == (False, dt)
        assert env.unwrapped.frame_skip == round(dt / env.unwrapped.model.opt.timestep)  # type: ignore[attr-defined]
        env.close()
    with pytest.raises(ConfigError, match=r"use 0.01, 0.02, 0.03, 0.04, 0.05"):
        make_env("htsrl/HalfCheetahDt-v0", {"dt": 0.015}, IMPORTS)
    assert "htsrl/HopperDt-v0" in gymnasium.registry


@pytest.mark.slow
def test_the_table_is_made_and_goes_on_where_it_was(tmp_path: Path) -> None:
    from htsrl_bench.systems.multi_frequency import MultiFrequencyExperiment

    tiny = MultiFrequencyExperiment(
        methods=("naive", "adaptive", "only-0.02"),
        seeds=1,
        periods=(0.01, 0.02),
        behaviour_steps=1040,
        episodes=1,
        gradient_steps=100,
        minibatch_size=8,
        sampled_actions=1,
        hidden_sizes=(8,),
        eval_episodes=1,
        work=tmp_path / "work",
        output=tmp_path,
    )
    assert tiny.run() == 0
    before = (tmp_path / "work" / "naive-seed-1" / "result.json").read_bytes()
    assert tiny.run() == 0
    assert (tmp_path / "work" / "naive-seed-1" / "result.json").read_bytes() == before
    record = (tmp_path / "system-multi-frequency.md").read_text()
    assert "adaptive n-step" in record
    assert "only 0.02 s" in record
    with pytest.raises(ConfigError, match="holds 1 episodes of a policy where 2 are asked for; choose another --work"):
        replace(tiny, episodes=2).run()


def test_a_method_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    from htsrl_bench.systems.multi_frequency import MultiFrequencyExperiment

    with pytest.raises(ConfigError, match=r"method 'only-0\.5' is not known; choose among naive, naive-one-discount"):
        MultiFrequencyExperiment(methods=("only-0.5",), work=tmp_path / "work").run()
    assert not list(tmp_path.iterdir())
