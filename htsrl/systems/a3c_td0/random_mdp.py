"""A random Markov decision process of which everything can be computed exactly: values, the objective, its gradient."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.errors import ConfigError

Info = dict[str, Any]
Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Mdp:
    """Tables of a process with S states, A actions and D features, and what follows from them."""

    transitions_SAS: Float64
    rewards_SA: Float64
    """From -1 to 1."""
    features_SD: Float64
    """What a policy sees of a state; rows of length 1."""
    starts_S: Float64
    """Eta: where a chain starts."""
    discount: float

    def policy(self, logits_SA: Float64) -> Float64:
        """Action probabilities in all states."""
        exponentials = np.exp(logits_SA - logits_SA.max(axis=1, keepdims=True))
        return np.asarray(exponentials / exponentials.sum(axis=1, keepdims=True), np.float64)

    def values(self, policy_SA: Float64) -> Float64:
        """V of every state: the solution of V = r + gamma P V."""
        return np.linalg.solve(self._system(policy_SA), (policy_SA * self.rewards_SA).sum(axis=1))

    def objective(self, policy_SA: Float64) -> float:
        """J = (1 - gamma) * eta V: the discounted return from the start, on the scale of a single reward."""
        return float((1 - self.discount) * self.starts_S @ self.values(policy_SA))

    def gradient(self, policy_SA: Float64) -> Float64:
        """Of the objective by the logits of all states."""
        values_S = self.values(policy_SA)
        visits_S = np.linalg.solve(self._system(policy_SA).T, (1 - self.discount) * self.starts_S)
        action_values_SA = self.rewards_SA + self.discount * self.transitions_SAS @ values_S
        return visits_S[:, None] * policy_SA * (action_values_SA - values_S[:, None])

    def best_objective(self, iterations: int = 2000, step_size: float = 200.0) -> float:
        """Of a policy whose logits are linear in the features and a constant: where exact gradients lead from 0."""
        inputs_SI = np.hstack([self.features_SD, np.ones((len(self.features_SD), 1))])
        weights_IA = np.zeros((inputs_SI.shape[1], self.rewards_SA.shape[1]))
        for _ in range(iterations):
            weights_IA += step_size * inputs_SI.T @ self.gradient(self.policy(inputs_SI @ weights_IA))
        return self.objective(self.policy(inputs_SI @ weights_IA))

    def _system(self, policy_SA: Float64) -> Float64:
        transitions_SS = np.einsum("sa,sat->st", policy_SA, self.transitions_SAS)
        return np.asarray(np.eye(len(transitions_SS)) - self.discount * transitions_SS, np.float64)


@cache
def random_mdp(
    num_states: int = 100, num_actions: int = 5, num_features: int = 10, discount: float = 0.9, seed: int = 1
) -> Mdp:
    """Transitions uniform on the simplex, rewards uniform from -1 to 1, features of random directions."""
    generator = np.random.default_rng(seed)
    transitions = generator.dirichlet(np.ones(num_states), size=(num_states, num_actions))
    rewards = generator.uniform(-1, 1, size=(num_states, num_actions))
    features = generator.normal(size=(num_states, num_features))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return Mdp(transitions, rewards, features, np.full(num_states, 1 / num_states), discount)


class RandomMdp(gymnasium.Env[Float32, np.int64]):
    """A state of a random process is seen through its features; the same `mdp_seed` is the same process.

    Observation: the state's features, a direction in `num_features` dimensions. Reward: from -1 to 1, by state and
    action. With `sampling="restart"` the state after a step is drawn from gamma P + (1 - gamma) eta: with probability
    1 - gamma the episode is truncated, and the next one starts from eta. With `"chain"` it never ends.
    """

    def __init__(
        self,
        num_states: int = 100,
        num_actions: int = 5,
        num_features: int = 10,
        discount: float = 0.9,
        sampling: Literal["restart", "chain"] = "restart",
        mdp_seed: int = 1,
    ) -> None:
        for name, number in (("num_states", num_states), ("num_actions", num_actions), ("num_features", num_features)):
            if number < 1:
                raise ConfigError(f"{name}={number} must be at least 1")
        if not 0 <= discount < 1:
            raise ConfigError(f"discount={discount} must be from 0 to below 1")
        if sampling not in ("restart", "chain"):
            raise ConfigError(f"sampling={sampling!r} must be 'restart' or 'chain'")
        self.mdp = random_mdp(num_states, num_actions, num_features, discount, mdp_seed)
        self.observation_space = spaces.Box(-1.0, 1.0, (num_features,), np.float32)
        self.action_space = spaces.Discrete(num_actions)
        self._features = self.mdp.features_SD.astype(np.float32)
        self._cumulative_SAS = self.mdp.transitions_SAS.cumsum(axis=2)
        self._restarts = sampling == "restart"
        self._state = 0

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Float32, Info]:
        super().reset(seed=seed)
        self._state = self._drawn(self.mdp.starts_S.cumsum())
        return self._features[self._state], {}

    def step(self, action: np.int64) -> tuple[Float32, float, bool, bool, Info]:
        reward = float(self.mdp.rewards_SA[self._state, action])
        self._state = self._drawn(self._cumulative_SAS[self._state, action])
        ends = self._restarts and self.np_random.random() >= self.mdp.discount
        # Truncated and not terminated: the value of the state that the process went to still counts.
        return self._features[self._state], reward, False, ends, {}

    def save_state(self) -> bytes:
        """An episode may be as long as the run, too long to be played again."""
        return json.dumps([self._state, self.np_random.bit_generator.state]).encode()

    def restore_state(self, saved: bytes) -> None:
        self._state, self.np_random.bit_generator.state = json.loads(saved)

    def _drawn(self, cumulative_S: Float64) -> int:
        return min(int(np.searchsorted(cumulative_S, self.np_random.random(), side="right")), len(cumulative_S) - 1)
