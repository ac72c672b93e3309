"""An environment played at random, as a run would play it: all that it returns is checked on the way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gymnasium

from htsrl.config import Network
from htsrl.envs.agents import agents_of
from htsrl.envs.look import interface_of
from htsrl.envs.random_actions import RandomActions
from htsrl.spaces.observations import MASK_KEY


def random_play(env: gymnasium.Env[Any, Any], num_steps: int) -> Iterator[str]:
    """Says what it is about to do, and then does it; so whoever listens knows what an exception came from."""
    yield "asking for its agents"
    interface = interface_of(env, Network())
    agents, actions = agents_of(env, interface), RandomActions(env, seed=0)
    rows = interface.empty_rows(*([agents.num_agents] if agents.is_team else []))
    yield "reset(seed=0)"
    agents.reset(0, rows)
    for step in range(1, num_steps + 1):
        yield f"step {step}"
        if agents.step(actions.draw(rows.get(MASK_KEY)), rows).over:
            yield f"reset(seed={step})"
            agents.reset(step, rows)
