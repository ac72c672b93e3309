"""Google Research Football on its bare engine, for one player or for a team that shares a policy."""

from __future__ import annotations

import gymnasium

from htsrl.envs.football.environment import Football, FootballTeam
from htsrl.envs.football.make import make_football, make_scenario

__all__ = ["Football", "FootballTeam", "make_football", "make_scenario"]

# Made bare: `Football` refuses a step before a reset by itself, and a wrapper would hide `step_into`.
gymnasium.register("htsrl/Football-v0", f"{__name__}:make_scenario", order_enforce=False, disable_env_checker=True)
