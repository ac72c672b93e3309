"""An environment played at random, as a run would play it: all that it returns is checked on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium

from htsrl.config import Network
from htsrl.envs.agents import agents_of
from htsrl.envs.look import interface_of
from htsrl.envs.observing import Rows
from htsrl.envs.random_actions import RandomActions
from htsrl.spaces.observations import MASK_KEY


def random_play(
    env: gymnasium.Env[Any, Any], num_steps: int, seed: int = 0, record: Callable[[Rows, Any], None] | None = None
) -> Iterator[str]:
    """Says what it is about to do, and then does it; so whoever listens knows what an exception came from.

    `record` is given what was seen and earned in each step.
    """
    yield "asking for its agents"
    interface = interface_of(env, Network())
    agents, actions = agents_of(env, interface), RandomActions(env, seed=seed)
    rows = interface.empty_rows(*([agents.num_agents] if agents.is_team else []))
    yield f"reset(seed={seed})"
    agents.reset(seed, rows)
    for step in range(1, num_steps + 1):
        yield f"step {step}"
        outcome = agents.step(actions.draw(rows.get(MASK_KEY)), rows)
        if record:
            record(rows, outcome.rewards)
        if outcome.over:
            yield f"reset(seed={seed + step})"
            agents.reset(seed + step, rows)
