"""The half of the configuration that must not change the result: who works where, and what is shown of it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

MAX_THREADS = 96
"""Of one executor: they share an interpreter's lock, and a fault handler shows the stacks of a hundred."""
MAX_ENVS_ON_THREADS = 1024
"""Of one run: each has a thread, and a file descriptor in every process."""


@dataclass(frozen=True)
class Placement:
    """All that must not change the result of a run: who works where, and what is shown of it."""

    backend: Literal["inline", "processes", "ray"] = "processes"
    """inline: everything in this process (debugger, oracle). processes: executors, actors and learner in their own.
    ray: executors and actors on the nodes of a Ray cluster, or of a local Ray. Needs `pip install 'htsrl[ray]'`."""
    num_executors: int | None = None
    """Processes that step environments. None: one per core, less one where the learner works at the same time and a
    step takes less than the networks do: a millisecond with images, 40 microseconds without; one for
    every 96 environments that step on threads. With placement ray: on each island, where None is one per core."""
    num_actors: int | None = None
    """Processes that run the policy, with placement ray on each island; 0 lets every executor act for its own
    environments. None: 0 on the CPU, unless executors step on threads; else 1."""
    executor_threads: bool | None = None
    """Step every environment on a thread of its own: for environments whose steps wait, for a server, another process
    or a clock, let other threads run meanwhile, and can share a process. None: where a look at two shows
    that they do, and there are more than cores, unless num_executors is given."""
    learner_workers: int | None = None
    """Processes that take gradients, the learner among them. None: one per core, up to gradient_shards; 1 where the
    networks do not run on the CPU, or everything in one process."""
    auto_tune: bool = False
    """Try several numbers of executors and learner workers while the run continues, some updates each, and train on
    with the fastest: it is stopped and resumed for each, to the same bits. Goes with placement processes."""
    device: str = "cpu"
    """Where the networks run: cpu, cuda, cuda:1 ..."""
    nodes: int | None = None
    """With placement ray, how many islands of executors and actors there are, on as many nodes if there are so many.
    None: one for each node."""
    ray_address: str | None = None
    """The Ray cluster to join, as HOST:PORT, or auto for the one that this machine belongs to. None: start a Ray on
    this machine, which nobody else can reach."""
    allow_different_numerics: bool = False
    """With placement ray: nodes that compute other bits than this machine may have islands too. That marks the run for
    good."""
    run_dir: Path | None = None
    """Folder for this run's results; must not exist yet. None: a new one under runs/."""
    checkpoint_every_seconds: float | None = 300.0
    """Write a checkpoint about this often, in the background, and one at the end in any case. None: not by time."""
    checkpoint_every_updates: int | None = None
    """Also write one before every so many updates. None: not by count."""
    keep_checkpoints: int = 2
    """How many of the newest checkpoints are kept, beside the one with the best return."""
    restart_workers: bool = True
    """Start a worker process that dies again, where it left off. Otherwise its end is the run's."""
    log_every_steps: int = 2048
    """Metrics are written about this often, in environment steps."""
    log_info: tuple[str, ...] = ()
    """Keys of `info` whose numbers at an episode's end are logged, as a mean over the last hundred; `is_success` always
    is."""
    eval_every: int | None = None
    """Evaluate the policy beside training about every so many environment steps, and at the end: a frozen version, in a
    process of its own. None: not."""
    eval_episodes: int = 0
    """Episodes of an evaluation; 0 with eval_every is 10. Without eval_every, `htsrl train` plays so many with the
    final policy when training is over."""
    eval_envs: int = 16
    """Environments that an evaluation beside training plays in, side by side."""
    stop_at_eval_return: float | None = None
    """End the run once evaluations have this mean return. At which update depends on when they are done, so it changes
    the run's length, never its bits."""
    eval_goal_held: int = 1
    """How many evaluations in a row must reach stop_at_eval_return."""
    video_every: int | None = None
    """Film an episode of the policy about every so many environment steps, and at the end, to RUN_DIR/videos: a frozen
    version, in a process of its own. Needs `pip install 'htsrl[video]'`. None: not."""
    tensorboard: bool = True
    """Also write the metrics for TensorBoard."""
    sinks: tuple[Literal["csv", "wandb", "mlflow", "trackio"], ...] = ()
    """Where else metrics go: csv is metrics.csv in the run's folder, the others are extras (`htsrl[wandb]`, ...). One
    that fails costs a warning, never the run."""
    progress: Literal["auto", "live", "plain", "verbose", "off"] = "auto"
    """Progress on the terminal; auto is live on a terminal and plain lines elsewhere, fewer as a run gets long.
    verbose: plain lines all along, and one for every checkpoint. off: warnings only."""
    step_deadline_seconds: float | None = None
    """A step that takes longer fails, as if the environment had raised; see on_env_error. None: deadline_seconds."""
    reset_deadline_seconds: float | None = None
    """The same for a reset."""
    max_running: int | None = None
    """On threads: environments that may be in the middle of a step or reset at once. None: all of them."""
    deadline_seconds: float = 300.0
    """A worker that gets nowhere for so long is killed and started again; when it happens once more, the run ends."""
    check_env: bool = True
    """Before training begins, play a few steps twice and warn where the same seed gives something else."""
    jitter_seconds: float = 0.0
    """For tests: every role sleeps up to this long before each piece of work."""
    measure_costs: bool = False
    """Also write to the metrics how many CPU seconds went into simulator, inference, learning and in all."""
    timeline: bool = True
    """Write down, in the run's folder, what every worker did lately and whom it waited for, and how long in all."""
    verify_storages: bool = False
    """For tests: poison every storage before it is written and check that nobody writes to one being read."""

    def resolved_executors(self, num_envs: int, leave_a_core: bool = False, on_threads: bool = False) -> int:
        if self.num_executors is not None:
            return self.num_executors
        if on_threads:
            return -(-num_envs // MAX_THREADS)
        return min(num_envs, max(available_cores() - leave_a_core, 1))

    def resolved_learner_workers(self, gradient_shards: int) -> int:
        if self.backend == "inline" or not self.device.startswith("cpu"):
            return 1
        return min(gradient_shards, available_cores()) if self.learner_workers is None else self.learner_workers

    def resolved_actors(self, on_threads: bool = False) -> int:
        if self.num_actors is None:
            return 0 if self.device.startswith("cpu") and not on_threads else 1
        return self.num_actors


def available_cores() -> int:
    """Cores that this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
