"""In which range a setting must be, by its name; fields of any section that have the name are held to it.

Of algorithms only what several have is here. What one alone has is in the `rules` of its settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from htsrl.config.schedule_names import MAX_LAG

MAX_ENVS = 65_536
MAX_QUEUE = 1024
MAX_EVAL_ENVS = 1024
MAX_LEARNERS = 64
MAX_DEADLINE_SECONDS = 7 * 24 * 3600.0

Rule = tuple[Callable[[Any], bool], str]
AT_LEAST_1: Rule = (lambda x: x >= 1, "at least 1")
ABOVE_0: Rule = (lambda x: x > 0, "above 0")
NOT_NEGATIVE: Rule = (lambda x: x >= 0, "0 or more")
A_SHARE: Rule = (lambda x: 0 <= x <= 1, "from 0 to 1")

RULES: dict[str, Rule] = {
    "checkpoint_every_seconds": ABOVE_0,
    "checkpoint_every_updates": AT_LEAST_1,
    "deadline_seconds": (lambda x: 0 < x <= MAX_DEADLINE_SECONDS, "above 0 and at most a week"),
    "discount": A_SHARE,
    "entropy_coefficient": NOT_NEGATIVE,
    "eval_envs": (lambda x: 1 <= x <= MAX_EVAL_ENVS, f"from 1 to {MAX_EVAL_ENVS}"),
    "eval_episodes": NOT_NEGATIVE,
    "eval_every": AT_LEAST_1,
    "eval_goal_held": AT_LEAST_1,
    "gae_lambda": A_SHARE,
    "gradient_shards": AT_LEAST_1,
    "hidden_sizes": (lambda sizes: all(size >= 1 for size in sizes), "all at least 1"),
    "jitter_seconds": NOT_NEGATIVE,
    "keep_checkpoints": AT_LEAST_1,
    "lag": (lambda x: 0 <= x <= MAX_LAG, f"from 0 to {MAX_LAG}"),
    "lanes": AT_LEAST_1,
    "learning_rate": ABOVE_0,
    "learner_workers": AT_LEAST_1,
    "learners": (lambda x: 1 <= x <= MAX_LEARNERS, f"from 1 to {MAX_LEARNERS}"),
    "log_every_steps": AT_LEAST_1,
    "max_gradient_norm": ABOVE_0,
    "max_running": AT_LEAST_1,
    "reset_deadline_seconds": ABOVE_0,
    "step_deadline_seconds": ABOVE_0,
    "recurrent_size": AT_LEAST_1,
    "backpropagation_length": AT_LEAST_1,
    "num_actors": NOT_NEGATIVE,
    "num_envs": (lambda x: x >= 0, "at least 1"),  # 0 is for runs that learn from a dataset
    "num_executors": AT_LEAST_1,
    "nodes": AT_LEAST_1,
    "num_minibatches": AT_LEAST_1,
    "queue_length": (lambda x: 2 <= x <= MAX_QUEUE, f"from 2 to {MAX_QUEUE}"),
    "follow_rate": (lambda x: 0 < x <= 1, "above 0 and at most 1"),
    "importance_exponent": A_SHARE,
    "initial_temperature": ABOVE_0,
    "learning_starts": NOT_NEGATIVE,
    "minibatch_size": AT_LEAST_1,
    "n_step": AT_LEAST_1,
    "optimizer_epsilon": ABOVE_0,
    "priority_exponent": A_SHARE,
    "replay_capacity": NOT_NEGATIVE,
    "rmsprop_decay": (lambda x: 0 <= x < 1, "from 0 to below 1"),
    "seed": (lambda x: 0 <= x < 2**63, "from 0 to 2**63 - 1"),
    "sync_interval": AT_LEAST_1,
    "temperature_learning_rate": ABOVE_0,
    "total_steps": AT_LEAST_1,
    "unroll_length": AT_LEAST_1,
    "update_to_data": ABOVE_0,
    "value_coefficient": NOT_NEGATIVE,
}
