"""One quick look at a lane before anything starts: its spaces, its rules, whether it repeats and can save its state."""

from __future__ import annotations

import warnings
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from htsrl.config import Experiment
from htsrl.envs.lanes.lane import LaneFacts, LaneOutcome, LaneSimulator
from htsrl.envs.lanes.make import make_lane
from htsrl.envs.observing import Rows
from htsrl.errors import ConfigError, RuleBroken
from htsrl.spaces import Interface
from htsrl.spaces.many_actions import many_actions

LOOK_STEPS = 5
SEED = 0
OUTCOMES = ("rewards", "terminated", "truncated")
Played = list[tuple[Rows, LaneOutcome]]


class LaneLook(NamedTuple):
    """What one lane shows."""

    interface: Interface
    facts: LaneFacts
    simulator: LaneSimulator
    """Closed, for those who ask where its code comes from."""


def look_at_lane(experiment: Experiment) -> LaneLook:
    """ConfigError for the first rule that it breaks."""
    name, squashes = _name(experiment), experiment.network.bounded_actions == "squash"
    with closing(make_lane(experiment)) as simulator:
        interface = Interface(simulator.observation_space, simulator.action_space, squashes=squashes)
        if interface.has_masks:
            raise ConfigError(f"{name} has an action mask, which lanes do not read; leave lanes out")
        many_actions(interface.actions)
        try:
            play(simulator, interface, LOOK_STEPS)
        except RuleBroken as error:
            raise ConfigError(f"{name}: {error}; mend the simulator") from error
        except ConfigError:
            raise
        except Exception as error:
            raise ConfigError(f"{name}: the lane raised {type(error).__name__}: {error}") from error
        saves_state = simulator.can_save_state()
    if saves_state and not _comes_back(experiment, interface):
        raise ConfigError(
            f"{name}: a lane that was restored from what it saved continues in another way; save all that steps depend "
            "on, or take save_state and restore_state away"
        )
    if not saves_state:
        warnings.warn(
            f"lanes of {name} cannot save their state: should their process die, or the run be resumed, all their "
            "steps since its start are played again (docs/lanes.md)",
            stacklevel=2,
        )
    return LaneLook(interface, LaneFacts(simulator.idles, saves_state), simulator)


def warn_unless_lane_repeats(experiment: Experiment) -> None:
    """Play two lanes with the same seeds and actions."""
    played = []
    for _ in range(2):
        with closing(make_lane(experiment)) as simulator:
            interface = Interface(simulator.observation_space, simulator.action_space)
            played.append(play(simulator, interface, LOOK_STEPS))
    if not all(map(same, *played)):
        warnings.warn(
            "the same seeds and actions gave the lane something else the second time, so no run will repeat this one's "
            "digest; --no-check-env skips this look",
            stacklevel=3,
        )


def play(
    simulator: LaneSimulator, interface: Interface, num_steps: int, begin: bool = True, seed: int = SEED
) -> Played:
    """A few steps with random actions, from a reset, or from where it stands."""
    rows, seen = interface.empty_rows(simulator.num_envs), list[tuple[Rows, LaneOutcome]]()
    actions, to_envs = np.random.default_rng(seed), many_actions(interface.actions)
    if begin:
        simulator.reset(np.arange(simulator.num_envs) + seed, rows)
    for step in range(num_steps):
        outcome = simulator.step(to_envs(_random_actions(actions, interface, simulator.num_envs)), rows)
        kept = outcome._replace(**{name: getattr(outcome, name).copy() for name in OUTCOMES})
        if outcome.ended.any():
            seeds = np.flatnonzero(outcome.ended) + (seed + step + 1) * simulator.num_envs
            simulator.begin_episodes(outcome.ended, seeds, rows)
        seen.append(({name: x.copy() for name, x in rows.items()}, kept))
    return seen


def same(ours: tuple[Rows, LaneOutcome], theirs: tuple[Rows, LaneOutcome]) -> bool:
    """Whether two steps showed the same."""
    (rows, outcome), (other_rows, other) = ours, theirs
    return all(np.array_equal(rows[name], other_rows[name]) for name in rows) and all(
        np.array_equal(getattr(outcome, name), getattr(other, name)) for name in OUTCOMES
    )


def _comes_back(experiment: Experiment, interface: Interface) -> bool:
    """Whether one lane, restored from what another saved, continues as that does."""
    with closing(make_lane(experiment)) as ours, closing(make_lane(experiment)) as theirs:
        play(ours, interface, LOOK_STEPS)
        state = ours.save_state()
        play(theirs, interface, LOOK_STEPS, seed=SEED + 1)
        theirs.restore_state(state)
        going_on = [play(lane, interface, LOOK_STEPS, begin=False) for lane in (ours, theirs)]
    return all(map(same, *going_on))


def _random_actions(generator: np.random.Generator, interface: Interface, num_envs: int) -> NDArray[Any]:
    """As they are stored."""
    actions = interface.actions
    choices = [generator.integers(0, count, num_envs) for count in actions.categories]
    drawn = generator.normal(size=(num_envs, actions.num_continuous))
    stored = np.concatenate([np.stack(choices, axis=1), drawn], axis=1) if choices else drawn
    return (stored[:, 0] if actions.is_single_choice else stored).astype(actions.dtype)


def _name(experiment: Experiment) -> str:
    env = experiment.env
    return env if isinstance(env, str) else getattr(env, "__qualname__", repr(env))
