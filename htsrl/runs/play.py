"""Playing episodes with a policy: each depends on the policy, the seed and its own number alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

from htsrl.config import Experiment
from htsrl.dataflow.trajectory import SUCCESS
from htsrl.envs.agents import Outcome, agents_of
from htsrl.envs.lanes.as_env import single_env
from htsrl.envs.observing import Rows
from htsrl.envs.team import Info
from htsrl.errors import ConfigError, EnvironmentFailure, RuleBroken
from htsrl.metrics.evaluation import Evaluation
from htsrl.numerics import OwnNumerics, single_threaded
from htsrl.processes.current_folder import current_folder_kept
from htsrl.roles.episode import Episode, number_in
from htsrl.seeding import Purpose, reset_seed
from htsrl.spaces import Interface

MAX_SEATS = 16
Result = TypeVar("Result")
Watch = Callable[[int, int], None]
"""Is told again and again how many episodes have been played, and how many steps were taken."""


class Player(Protocol):
    """A policy that episodes can be played with, such as a TrainedPolicy."""

    @property
    def interface(self) -> Interface: ...

    @property
    def version(self) -> int: ...

    @property
    def source(self) -> Path: ...

    @property
    def state_size(self) -> int:
        """Numbers of the recurrent state."""

    def answer(
        self, rows: Rows, states: NDArray[Any] | None, noise: NDArray[Any] | None
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Actions as they are stored, and recurrent states; the likeliest actions where there is no noise."""


class StepRecorder(Protocol):
    """Is shown every step; what it is given changes with the next one."""

    def begin(self, episode: int, observations: Rows) -> None:
        """After a reset, of which an episode with several lives has several."""

    def add(self, episode: int, stored_actions: NDArray[Any], outcome: Outcome, observations: Rows) -> None:
        """After a step, with what followed it."""


@dataclass(frozen=True)
class Episodes:
    """Which episodes are played, and what is kept of them."""

    number: int
    seed: int = 0
    sampled: bool = False
    seats: int = MAX_SEATS
    """Environments side by side; with another number, those that do not start afresh at a reset may play otherwise."""
    log_info: tuple[str, ...] = ()
    """Keys of the last `info` whose numbers are kept, beside `is_success`."""

    @property
    def info_keys(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((SUCCESS, *self.log_info)))


@dataclass(frozen=True)
class EvaluationPlan:
    """What is the same for all versions of a run that are evaluated while it trains."""

    experiment: Experiment
    interface: Interface
    episodes: Episodes


def play(
    policy: Player,
    experiment: Experiment,
    asked: Episodes,
    watch: Watch | None = None,
    recorder: StepRecorder | None = None,
) -> Evaluation:
    """Make environments of the experiment and play the episodes in them."""
    keys = asked.info_keys
    with current_folder_kept(), single_threaded(), ExitStack() as seats_to_close:
        envs = [_make(experiment, seats_to_close) for _ in range(min(asked.number, asked.seats))]
        _check_spaces(envs[0], policy)
        played = _play(policy, [Seat(env, policy, asked.seed, keys, recorder) for env in envs], asked, watch)
    infos = {key: tuple(episode.info[key] for episode in played) for key in keys}
    return Evaluation(
        tuple(episode.score for episode in played),
        tuple(episode.length for episode in played),
        policy.version,
        policy.source,
        {key: numbers for key, numbers in infos.items() if not all(map(math.isnan, numbers))},
    )


class Played(NamedTuple):
    """An episode that has ended."""

    score: float
    length: int
    info: Mapping[str, float]


def _check_spaces(env: gymnasium.Env[Any, Any], policy: Player) -> None:
    for kind in ("observation_space", "action_space"):
        trained_on, found = getattr(policy.interface, kind), getattr(env, kind)
        if trained_on != found:
            raise ConfigError(f"the environment has the {kind} {found}, the policy was trained on {trained_on}")


def _make(experiment: Experiment, closing: ExitStack) -> gymnasium.Env[Any, Any]:
    env = single_env(experiment)
    closing.callback(env.close)
    return env


class Seat:
    """An environment that plays one episode after another, as it reports them: a whole game, not one life of it."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        policy: Player,
        seed: int,
        info_keys: Sequence[str],
        recorder: StepRecorder | None = None,
    ) -> None:
        """`info_keys` are those whose numbers are kept."""
        self._info_keys = info_keys
        self._recorder = recorder
        interface, state_size = policy.interface, policy.state_size
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

    def step(self, stored_actions: NDArray[Any]) -> Played | None:
        """Take one step; the episode that it ended, if it did."""
        action = self._agents.to_env(stored_actions if self._agents.is_team else stored_actions[0])
        outcome = self._blaming(f"step({action})", lambda: self._agents.step(action, self._seen()))
        self.states[~np.atleast_1d(self._agents.active)] = 0.0  # who has left remembers nothing
        self._episode.add(outcome)
        if self._recorder is not None:
            self._recorder.add(self.number, stored_actions, outcome, self._observations)
        self._steps += 1
        if not outcome.over:
            return None
        return self._ended(outcome.info) or self._go_on()

    def _go_on(self) -> Played | None:
        """After a lost life, unless the game ends while it is resumed."""
        self._life += 1
        info = self._reset()
        return self._ended(info) if self._episode.is_reported_in(info) else None

    def _ended(self, info: Info) -> Played | None:
        ended = self._episode.ended(info)
        return None if ended is None else Played(*ended, {key: number_in(info, key) for key in self._info_keys})

    def _reset(self) -> dict[str, Any]:
        self._episode.begin_next()
        self.states[:] = 0.0
        seed = reset_seed(self._seed, self._life, self.number, Purpose.EVALUATION_RESET)
        info = self._blaming(f"reset(seed={seed})", lambda: self._agents.reset(seed, self._seen()))
        if self._recorder is not None:
            self._recorder.begin(self.number, self._observations)
        return info

    def _blaming(self, what: str, call: Callable[[], Result]) -> Result:
        try:
            return call()
        except Exception as error:
            did = "broke a rule" if isinstance(error, RuleBroken) else f"raised {type(error).__name__}"
            raise EnvironmentFailure(
                f"the environment {did} in {what} at step {self._steps} of evaluation episode {self.number}: {error}"
            ) from error

    def observations(self) -> Rows:
        """What the policy is given, a row per agent."""
        return self._observations

    def _seen(self) -> Rows:
        if self._agents.is_team:
            return self._observations
        return {name: array[0, ...] for name, array in self._observations.items()}


def _play(policy: Player, seats: list[Seat], asked: Episodes, watch: Watch | None) -> list[Played]:
    """Seat s of K plays the episodes s, s + K and so on: what an environment has behind it when an episode begins does
    not depend on how many are played in all, nor on which seat was faster."""
    ended_by_number, numerics = dict[int, Played](), OwnNumerics()
    episodes, num_seats, sampled = asked.number, asked.seats, asked.sampled
    for number, seat in enumerate(seats):
        seat.begin(number)
    playing, steps = list(seats), 0
    while playing:
        steps += len(playing)
        with numerics:
            decided = _actions(policy, playing, sampled)
        for seat, actions in zip(list(playing), decided, strict=True):
            if (ended := seat.step(actions)) is None:
                continue
            ended_by_number[seat.number] = ended
            if seat.number + num_seats < episodes:
                seat.begin(seat.number + num_seats)
            else:
                playing.remove(seat)
        if watch is not None:
            watch(len(ended_by_number), steps)
    return [ended_by_number[number] for number in range(episodes)]


def _actions(policy: Player, seats: list[Seat], sampled: bool) -> list[NDArray[Any]]:
    """What the agents of each seat do next; their recurrent states move on."""
    observed = [seat.observations() for seat in seats]
    rows = {name: np.concatenate([of_seat[name] for of_seat in observed]) for name in observed[0]}
    states = np.concatenate([seat.states for seat in seats]) if policy.state_size else None
    noise = np.concatenate([seat.noise() for seat in seats]) if sampled else None
    actions, following = policy.answer(rows, states, noise)
    if following is not None:
        for seat, of_seat in zip(seats, np.split(following, len(seats)), strict=True):
            seat.states[:] = of_seat
    return np.split(actions, len(seats))
