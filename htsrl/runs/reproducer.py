"""What led an environment to where it failed: its seed, and the actions since, for whoever wants to see it again."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from htsrl.config import Experiment
from htsrl.config.file import env_name
from htsrl.dataflow.exchange import BEGAN_EARLIER, COMING_BACK
from htsrl.roles.recall import segments
from htsrl.roles.shared import Shared
from htsrl.seeding import reset_seed
from htsrl.spaces import ActionLayout


def reproducer_of(experiment: Experiment, layout: ActionLayout, shared: Shared, env: int) -> dict[str, Any]:
    """As JSON takes it; read from shared memory, so it does not matter how the process ended.

    `actions` is what was stored, `env_actions` what the environment was given: of a team, a list with every agent's, of
    a lane, with every environment's.
    """
    episode, episode_row = shared.exchange.episodes[env].tolist()
    actions = [] if episode_row == COMING_BACK else _actions_in_storage(shared, env)
    state, spec = None, shared.storages.spec
    has_axis = spec.is_team or spec.is_lane
    if episode_row in (BEGAN_EARLIER, COMING_BACK):
        before, state = _before_the_rollout(shared, env)
        actions = before + actions
    else:
        actions = actions[episode_row:]
    return {
        "env": env_name(experiment.env),
        "env_args": dict(experiment.env_args),
        "index": env,
        "episode": episode,
        "reset_seed": reset_seed(experiment.seed, env * (spec.num_agents if spec.is_lane else 1), episode),
        "state": state,
        "actions": actions,
        "env_actions": [_in_env(layout, action, has_axis) for action in actions],
    }


def _in_env(layout: ActionLayout, stored: Any, of_team: bool) -> Any:
    if of_team:
        return [_in_env(layout, of_agent, of_team=False) for of_agent in stored]
    return _as_json(layout.to_env(np.asarray(stored, layout.dtype)))


def _as_json(action: Any) -> Any:
    if isinstance(action, dict):
        return {str(key): _as_json(part) for key, part in action.items()}
    if isinstance(action, tuple):
        return [_as_json(part) for part in action]
    return action.tolist() if isinstance(action, np.ndarray) else action


def _actions_in_storage(shared: Shared, env: int) -> list[Any]:
    """Those that were taken in the rollout under way, the one that it is in the middle of included."""
    exchange, completed = shared.exchange, int(shared.exchange.completed_rollouts[env])
    ticket = exchange.requests[env : env + 1]
    rollouts, rows = exchange.tickets.rollout_and_row(ticket)
    if rollouts[0] != completed:
        return []
    is_acting = bool(exchange.tickets.asks_to_act(ticket)[0] and exchange.answers[env] == ticket[0])
    columns = shared.storages.spec.columns_of(env)
    taken = shared.storages["actions"][shared.storages.of_rollout(completed), : int(rows[0]) + is_acting, columns]
    return taken.tolist()  # type: ignore[no-any-return]


def _before_the_rollout(shared: Shared, env: int) -> tuple[list[Any], str | None]:
    """The actions from the reset to the rollout, or else the state that was saved between them."""
    completed = int(shared.exchange.completed_rollouts[env])
    if completed == 0:
        return [], None
    capsule = shared.capsules.get(env, completed)
    data = shared.capsules.read(env, capsule)
    if not capsule.is_log:
        return [], base64.b64encode(data).decode()
    actions = shared.storages["actions"][:, :, shared.storages.spec.columns_of(env)]
    parts = [part.tolist() for part, _ in segments(data, actions.shape[2:], np.dtype(actions.dtype))]
    return [action for part in parts for action in part], None
