"""The random MDP: exact values and gradients, and steps that are drawn from what they are said to be drawn from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from htsrl import ConfigError
from htsrl.systems.a3c_td0.random_mdp import Mdp, RandomMdp, random_mdp

TINY: dict[str, Any] = {"num_states": 3, "num_actions": 2, "num_features": 2}


def logits(mdp: Mdp, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=mdp.rewards_SA.shape)


def test_two_states_by_hand() -> None:
    """From 0 always to 1 with reward 1, from 1 always to 1 with reward 0.5: V(1) = 0.5 / 0.2, V(0) = 1 + 0.8 V(1)."""
    transitions = np.array([[[0.0, 1.0]], [[0.0, 1.0]]])
    mdp = Mdp(transitions, np.array([[1.0], [0.5]]), np.eye(2), np.array([0.5, 0.5]), discount=0.8)
    assert mdp.values(np.ones((2, 1))) == pytest.approx([3.0, 2.5])
    assert mdp.objective(np.ones((2, 1))) == pytest.approx(0.2 * 2.75)


def test_the_gradient_is_that_of_small_differences() -> None:
    mdp = random_mdp(**TINY)
    at, step = logits(mdp), 1e-6
    gradient = mdp.gradient(mdp.policy(at))
    for place in np.ndindex(*at.shape):
        moved = [at.copy(), at.copy()]
        moved[0][place] += step
        moved[1][place] -= step
        above, below = (mdp.objective(mdp.policy(x)) for x in moved)
        assert gradient[place] == pytest.approx((above - below) / (2 * step), abs=1e-8)


def test_the_best_linear_policy_is_better_than_chance() -> None:
    mdp = random_mdp(**TINY)
    chance = mdp.objective(mdp.policy(np.zeros_like(mdp.rewards_SA)))
    best = mdp.best_objective(iterations=100)
    assert best > chance + 0.05
    assert best <= mdp.best_objective(iterations=200) + 1e-12


def test_sizes_are_the_papers_and_the_same_seed_is_the_same_process() -> None:
    env = RandomMdp()
    assert env.mdp.transitions_SAS.shape == (100, 5, 100)
    assert env.mdp.features_SD.shape == (100, 10)
    assert env.mdp.transitions_SAS.sum(axis=2) == pytest.approx(np.ones((100, 5)))
    assert RandomMdp().mdp is env.mdp
    assert (RandomMdp(mdp_seed=2).mdp.rewards_SA != env.mdp.rewards_SA).any()


@pytest.mark.parametrize(("sampling", "share"), [("restart", 0.1), ("chain", 0.0)])
def test_a_chain_restarts_with_probability_one_minus_gamma_or_never(sampling: Any, share: float) -> None:
    env = RandomMdp(**TINY, discount=0.9, sampling=sampling)
    env.reset(seed=3)
    ends = []
    for _ in range(2000):
        _, _, terminated, truncated, _ = env.step(np.int64(0))
        assert not terminated, "the state that was reached has a value"
        ends.append(truncated)
        if truncated:
            env.reset()
    assert np.mean(ends) == pytest.approx(share, abs=0.02)


def test_states_follow_as_often_as_the_table_says() -> None:
    env = RandomMdp(**TINY, sampling="chain")
    seen, (before, _) = np.zeros((3, 3)), env.reset(seed=4)
    states = [row.tobytes() for row in env.mdp.features_SD.astype(np.float32)]
    for _ in range(6000):
        after, reward, *_ = env.step(np.int64(1))
        assert reward == env.mdp.rewards_SA[states.index(before.tobytes()), 1]
        seen[states.index(before.tobytes()), states.index(after.tobytes())] += 1
        before = after
    assert seen / seen.sum(axis=1, keepdims=True) == pytest.approx(env.mdp.transitions_SAS[:, 1], abs=0.05)


def test_a_saved_state_goes_on_as_the_original() -> None:
    env, other = RandomMdp(), RandomMdp()
    env.reset(seed=5)
    for _ in range(5):
        env.step(np.int64(1))
    other.reset(seed=6)
    other.restore_state(env.save_state())
    for _ in range(20):
        (one, *rest), (another, *others) = env.step(np.int64(2)), other.step(np.int64(2))
        assert (one == another).all()
        assert rest == others


@pytest.mark.parametrize(
    "arguments", [{"num_states": 0}, {"num_actions": 0}, {"num_features": 0}, {"discount": 1.0}, {"sampling": "iid"}]
)
def test_arguments_that_make_no_process_are_refused(arguments: dict[str, Any]) -> None:
    (name,) = arguments
    with pytest.raises(ConfigError, match=f"^{name}="):
        RandomMdp(**arguments)
