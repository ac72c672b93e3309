"""Evaluation: episodes of a trained policy, apart from training and without an effect on it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from htsrl.config import EnvFactory, Experiment
from htsrl.envs.agents import agents_of
from htsrl.envs.make import make_env
from htsrl.errors import ConfigError, EnvironmentFailure, RunFolderError
from htsrl.numerics import single_threaded
from htsrl.roles.episode import Episode
from htsrl.run_folder import RunFolder
from htsrl.seeding import Purpose, reset_seed
from htsrl.spaces import action_leaf, observation_leaves

if TYPE_CHECKING:
    from htsrl.policies.policy import Policy

MOST_SEATS = 16
Result = TypeVar("Result")


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
    if folder.result()["updates"] == 0:
        raise RunFolderError(
            f"{run_dir} ended before its first update, so there is nothing to evaluate; train it again"
        )
    experiment = folder.load_config(env).experiment
    from htsrl.policies.policy import policy_for

    with single_threaded(), ExitStack() as seats_to_close:
        first = Seat(experiment, seed, seats_to_close)
        policy = policy_for(experiment, first.env.observation_space, first.env.action_space)
        folder.load_policy(policy)
        others = [Seat(experiment, seed, seats_to_close) for _ in range(min(episodes, MOST_SEATS) - 1)]
        return _play(policy, [first, *others], episodes, sampled)


class Seat:
    """An environment that plays one episode after another, as it reports them: a whole game, not one life of it."""

    def __init__(self, experiment: Experiment, seed: int, closing: ExitStack) -> None:
        self.env = make_env(experiment.env, experiment.env_args, experiment.imports)
        closing.callback(self.env.close)
        self._agents = agents_of(self.env)
        self._episode = Episode.of(self.env)
        self._noise = action_leaf(self.env.action_space).noise
        self._seed = seed
        leaf = observation_leaves(self.env.observation_space)["obs"]
        self.observations = np.zeros((self._agents.num_agents, *leaf.shape), leaf.dtype)

    def begin(self, number: int) -> None:
        """Begin the evaluation's episode of this number."""
        self.number = number
        self._steps = 0
        self._life = 0
        self._reset()

    def noise(self) -> NDArray[np.float32]:
        """A row per agent; a function of (seed, episode, step, agent), like all randomness here."""
        agents = self._agents.num_agents
        step = self._steps * agents
        return self._noise.draw(self._seed, self.number, step, agents, Purpose.EVALUATION_NOISE)

    def step(self, stored_actions: NDArray[Any]) -> tuple[float, int] | None:
        """Take one step; the return and length of the episode that it ended, if it did."""
        action = self._agents.to_env(stored_actions if self._agents.is_team else stored_actions[0])
        outcome = self._blaming(f"step({action})", lambda: self._agents.step(action, self._seen()))
        self._episode.add(outcome)
        self._steps += 1
        if not outcome.over:
            return None
        return self._episode.ended(outcome.info) or self._go_on()

    def _go_on(self) -> tuple[float, int] | None:
        """After a lost life, unless the game ends while it is resumed."""
        self._life += 1
        info = self._reset()
        return self._episode.ended(info) if self._episode.is_reported_in(info) else None

    def _reset(self) -> dict[str, Any]:
        self._episode.begin_next()
        seed = reset_seed(self._seed, self._life, self.number, Purpose.EVALUATION_RESET)
        return self._blaming(f"reset(seed={seed})", lambda: self._agents.reset(seed, self._seen()))

    def _blaming(self, what: str, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except Exception as error:
            raise EnvironmentFailure(
                f"the environment raised {type(error).__name__} in {what} at step {self._steps} of evaluation episode "
                f"{self.number}: {error}"
            ) from error

    def _seen(self) -> NDArray[Any]:
        return self.observations if self._agents.is_team else self.observations[0, ...]


def _play(policy: Policy, seats: list[Seat], episodes: int, sampled: bool) -> Evaluation:
    """Every seat takes the next episode when its own has ended, until all have been played."""
    import torch

    returns, lengths = [0.0] * episodes, [0] * episodes
    for number, seat in enumerate(seats):
        seat.begin(number)
    following, playing = len(seats), list(seats)
    while playing:
        with torch.inference_mode():
            seen = torch.from_numpy(np.concatenate([seat.observations for seat in playing]))
            distribution, _ = policy({"obs": seen})
            noise = torch.from_numpy(np.concatenate([seat.noise() for seat in playing])) if sampled else None
            actions = (distribution.mode() if noise is None else distribution.sample(noise)).numpy()
        for seat, of_seat in zip(list(playing), np.split(actions, len(playing)), strict=True):
            ended = seat.step(of_seat)
            if ended is None:
                continue
            returns[seat.number], lengths[seat.number] = ended
            if following < episodes:
                seat.begin(following)
                following += 1
            else:
                playing.remove(seat)
    return Evaluation(tuple(returns), tuple(lengths))
