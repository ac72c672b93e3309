"""All metrics of a run, by name: what each one is. Names are those of Stable-Baselines3 where it has one."""

from __future__ import annotations

from collections.abc import Mapping

from htsrl.config.algorithm_settings import own_settings

INFO_METRIC = "rollout/info/KEY"
"""Stands for a metric of each key of `log_info`."""
EVAL_INFO_METRIC = "eval/info/KEY"
"""The same of evaluations."""

METRICS: Mapping[str, Mapping[str, str]] = {
    "Episodes: means over the last 100 that ended": {
        "rollout/ep_rew_mean": "Return, undiscounted and unscaled.",
        "rollout/ep_len_mean": "Length in steps; of environments that report episodes themselves, in their own unit.",
        "rollout/success_rate": "Share of episodes whose last `info` has a true `is_success`, of those that have one.",
        INFO_METRIC: "The number under this key in the last `info` of an episode, for every key of `log_info`.",
        "rollout/env_errors": "Episodes cut short by an exception so far, with `on_env_error=truncate` or `exclude`.",
    },
    "Evaluations beside training, in evaluations.jsonl": {
        "eval/mean_reward": "Mean return of the episodes of an evaluation; `step` is that of the version it is of.",
        "eval/std_reward": "Standard deviation of their returns.",
        "eval/mean_ep_length": "Mean length.",
        "eval/success_rate": "Share of episodes whose last `info` has a true `is_success`, of those that have one.",
        EVAL_INFO_METRIC: "The number under this key in the last `info` of an episode, on average.",
    },
    "Time": {
        "time/fps": "Environment steps per second, from the second update on.",
        "time/time_elapsed": "Seconds of training, those before a resume included.",
        "time/total_timesteps": "Environment steps so far, of all environments together.",
    },
    "Updates, of every algorithm": {
        "train/n_updates": "Updates so far: the newest version.",
        "hts/lag": "Versions between the parameters that the update moved and those that made its data, on average.",
        "hts/lag_max": "The same, of the oldest step in the batch.",
    },
    **{f"Updates, of {cls.__name__}": cls.metrics for cls in own_settings().values()},
    "Several learners": {
        "sync/rounds": "Meetings of the learners so far; under `every` optimizer steps, at each of which they meet.",
        "sync/bytes": "Bytes that learners have sent to where they are averaged and were sent back, in all so far.",
    },
    "Islands, with placement ray": {
        "cluster/bytes_up": "Bytes that islands have sent to the learner since the run was last started.",
        "cluster/bytes_down": "Bytes that islands were sent.",
    },
    "Waiting: seconds so far, mean over the processes of a kind": {
        "wait/executor_seconds": "Executors; absent where environments step on threads.",
        "wait/actor_seconds": "Actors.",
        "wait/learner_seconds": "The learner; of several, the first.",
        "wait/gradient_worker_seconds": "Gradient workers, where the learner has some.",
    },
    "CPU time, with measure_costs: seconds so far, all processes together": {
        "cpu/simulator_seconds": "In the environments.",
        "cpu/inference_seconds": "In the policy when acting.",
        "cpu/learning_seconds": "In updates.",
        "cpu/keeping_seconds": "In saving the environments' states and copying for checkpoints.",
        "cpu/total_seconds": "In all.",
    },
}
"""By what they are about. An algorithm of the user's own reports what its `improve` returns, under its own names."""


def meaning_of(name: str) -> str:
    """In a line; where algorithms mean several things by a name, all of them."""
    found = [metrics[name] for metrics in METRICS.values() if name in metrics]
    return " Or: ".join(dict.fromkeys(found))
