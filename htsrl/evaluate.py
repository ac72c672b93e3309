"""Evaluation: episodes of a trained policy, apart from training and without an effect on it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from htsrl.config import EnvFactory, Experiment
from htsrl.envs.make import make_env
from htsrl.errors import ConfigError
from htsrl.numerics import single_threaded
from htsrl.run_folder import RunFolder
from htsrl.seeding import Purpose, network_seed, reset_seed
from htsrl.spaces import action_leaf

if TYPE_CHECKING:
    from htsrl.policies.policy import Policy

MOST_SEATS = 16


@dataclass(frozen=True)
class Evaluation:
    """Returns and lengths of the episodes played, in the order of their seeds."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def mean_return(self) -> float:
        return float(np.mean(self.returns))

    @property
    def std_return(self) -> float:
        return float(np.std(self.returns))


def evaluate(
    run_dir: Path | str, episodes: int = 100, seed: int = 0, sampled: bool = False, env: str | EnvFactory | None = None
) -> Evaluation:
    """Play `episodes` with a run's final policy: its most likely actions, or `sampled` ones."""
    if episodes < 1:
        raise ConfigError(f"episodes={episodes} must be at least 1")
    if not 0 <= seed < 2**63:
        raise ConfigError(f"seed={seed} must be from 0 to 2**63 - 1")
    folder = RunFolder.existing(Path(run_dir))
    experiment = folder.load_config(env).experiment
    from htsrl.policies.policy import build_policy

    with single_threaded():
        seats = [Seat(experiment, seed) for _ in range(min(episodes, MOST_SEATS))]
        spaces = seats[0].env.observation_space, seats[0].env.action_space
        policy = build_policy(*spaces, experiment.network, network_seed(experiment.seed))
        folder.load_policy(policy)
        try:
            return _play(policy, seats, episodes, sampled)
        finally:
            for seat in seats:
                seat.env.close()


class Seat:
    """An environment that plays one episode after another."""

    def __init__(self, experiment: Experiment, seed: int) -> None:
        self.env = make_env(experiment.env, experiment.env_args, experiment.imports)
        self.action = action_leaf(self.env.action_space)
        self._seed = seed

    def begin(self, episode: int) -> None:
        self.episode = episode
        self.episode_return = 0.0
        self.episode_length = 0
        self.observation, _ = self.env.reset(seed=reset_seed(self._seed, 0, episode, Purpose.EVALUATION_RESET))

    def noise(self) -> NDArray[np.float32]:
        """A function of (seed, episode, step), like all randomness here."""
        rows = self.action.noise.draw(self._seed, self.episode, self.episode_length, 1, Purpose.EVALUATION_NOISE)
        return rows.reshape(-1)

    def step(self, stored_action: NDArray[Any]) -> bool:
        """Take one step; True when it ended the episode."""
        self.observation, reward, terminated, truncated, _ = self.env.step(self.action.to_env(stored_action))
        self.episode_return += float(reward)
        self.episode_length += 1
        return bool(terminated or truncated)


def _play(policy: Policy, seats: list[Seat], episodes: int, sampled: bool) -> Evaluation:
    """Every seat takes the next episode when its own has ended, until all have been played."""
    import torch

    returns, lengths = [0.0] * episodes, [0] * episodes
    for episode, seat in enumerate(seats):
        seat.begin(episode)
    following, playing = len(seats), list(seats)
    while playing:
        with torch.inference_mode():
            distribution, _ = policy({"obs": torch.from_numpy(np.stack([seat.observation for seat in playing]))})
            noise = torch.from_numpy(np.stack([seat.noise() for seat in playing])) if sampled else None
            actions = (distribution.mode() if noise is None else distribution.sample(noise)).numpy()
        for seat, action in zip(list(playing), actions, strict=True):
            if not seat.step(action):
                continue
            returns[seat.episode], lengths[seat.episode] = seat.episode_return, seat.episode_length
            if following < episodes:
                seat.begin(following)
                following += 1
            else:
                playing.remove(seat)
    return Evaluation(tuple(returns), tuple(lengths))
