"""Evaluation: episodes of a trained policy, apart from training and without an effect on it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from htsrl.config import EnvFactory, Experiment
from htsrl.dataflow.trajectory import MEMORY
from htsrl.envs.agents import agents_of
from htsrl.envs.look import interface_of
from htsrl.envs.make import make_env
from htsrl.envs.observing import Rows
from htsrl.errors import ConfigError, EnvironmentFailure, RuleBroken, RunFolderError
from htsrl.numerics import single_threaded
from htsrl.roles.episode import Episode
from htsrl.run_folder import RunFolder
from htsrl.seeding import Purpose, reset_seed
from htsrl.spaces import Interface

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
    run_dir: Path | str,
    episodes: int = 100,
    seed: int = 0,
    sampled: bool = False,
    env: str | EnvFactory | None = None,
    watch: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Play `episodes` with a run's final policy: its most likely actions, or `sampled` ones.

    `watch` is told again and again how many episodes have been played, and how many steps were taken.
    """
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
        envs = [_make(experiment, seats_to_close) for _ in range(min(episodes, MOST_SEATS))]
        interface = interface_of(envs[0], experiment.network)
        policy = policy_for(experiment, interface)
        folder.load_policy(policy)
        seats = [Seat(env, interface, seed, policy.state_size) for env in envs]
        return _play(policy, seats, episodes, sampled, watch)


def _make(experiment: Experiment, closing: ExitStack) -> gymnasium.Env[Any, Any]:
    env = make_env(experiment.env, experiment.env_args, experiment.imports)
    closing.callback(env.close)
    return env


class Seat:
    """An environment that plays one episode after another, as it reports them: a whole game, not one life of it."""

    def __init__(self, env: gymnasium.Env[Any, Any], interface: Interface, seed: int, state_size: int) -> None:
        self._agents = agents_of(env, interface)
        self._episode = Episode.of(env)
        self._noise = interface.actions.noise
        self._seed = seed
        self._observations = interface.empty_rows(self._agents.num_agents)
        self.states = np.zeros((self._agents.num_agents, state_size), np.float32)

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
        self.states[~np.atleast_1d(self._agents.active)] = 0.0  # who has left remembers nothing
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
        self.states[:] = 0.0
        seed = reset_seed(self._seed, self._life, self.number, Purpose.EVALUATION_RESET)
        return self._blaming(f"reset(seed={seed})", lambda: self._agents.reset(seed, self._seen()))

    def _blaming(self, what: str, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except Exception as error:
            did = "broke a rule" if isinstance(error, RuleBroken) else f"raised {type(error).__name__}"
            raise EnvironmentFailure(
                f"the environment {did} in {what} at step {self._steps} of evaluation episode {self.number}: {error}"
            ) from error

    def inputs(self) -> Rows:
        """What the policy is given, a row per agent."""
        return {**self._observations, MEMORY: self.states} if self.states.size else self._observations

    def _seen(self) -> Rows:
        if self._agents.is_team:
            return self._observations
        return {name: array[0, ...] for name, array in self._observations.items()}


def _play(
    policy: Policy, seats: list[Seat], episodes: int, sampled: bool, watch: Callable[[int, int], None] | None
) -> Evaluation:
    """Every seat takes the next episode when its own has ended, until all have been played."""
    import torch

    returns, lengths = [0.0] * episodes, [0] * episodes
    for number, seat in enumerate(seats):
        seat.begin(number)
    following, playing, steps = len(seats), list(seats), 0
    while playing:
        steps += len(playing)
        with torch.inference_mode():
            inputs = [seat.inputs() for seat in playing]
            together = {name: torch.from_numpy(np.concatenate([rows[name] for rows in inputs])) for name in inputs[0]}
            distribution, _, states = policy.respond(together)
            noise = torch.from_numpy(np.concatenate([seat.noise() for seat in playing])) if sampled else None
            actions = (distribution.mode() if noise is None else distribution.sample(noise)).numpy()
        if states is not None:
            for seat, of_seat in zip(playing, np.split(states.numpy(), len(playing)), strict=True):
                seat.states[:] = of_seat
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
        if watch is not None:
            watch(following - len(playing), steps)
    return Evaluation(tuple(returns), tuple(lengths))
