"""Training, from a configuration to a folder of results."""

from __future__ import annotations

import platform
import sys
import time
import warnings
from contextlib import ExitStack

import cloudpickle

from htsrl.config import Config, Placement
from htsrl.config_check import check
from htsrl.config_file import env_name
from htsrl.dataflow.exchange import Cost, Exchange
from htsrl.dataflow.memory import SharedArrays
from htsrl.errors import ConfigError
from htsrl.numerics import (
    Fingerprint,
    fingerprint_of_a_new_process,
    is_row_stable,
    single_threaded,
    take_fingerprint,
    warn_if_torch_was_used_before,
)
from htsrl.placements.assignment import crew
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.inline import run_inline
from htsrl.placements.processes import run_processes
from htsrl.run_folder import RunFolder, RunResult
from htsrl.survey import draw_blueprint


def train(config: Config) -> RunResult:
    """Train an agent and write the run's folder.

    Raises ConfigError before anything starts if it cannot work. Ctrl-C ends the run, writes what there is, and is
    passed on.
    """
    config = check(config)
    folder = RunFolder.planned(config)
    with single_threaded():
        blueprint = draw_blueprint(config)
        _check_placement(blueprint)
        memory = SharedArrays(blueprint.memory_specs())
        try:
            folder.create(config, _fingerprint(config.placement))
            return _run(blueprint, memory, folder)
        finally:
            memory.close_fd()


def _run(blueprint: Blueprint, memory: SharedArrays, folder: RunFolder) -> RunResult:
    from htsrl.metrics.curve import draw_learning_curve
    from htsrl.metrics.recorder import Recorder

    config, exchange = blueprint.config, blueprint.shared(memory).exchange
    parameters = blueprint.build_parameters(memory, device="cpu")
    parameters.initialise(blueprint.build_policy())
    recorder = Recorder(config, folder, lambda: _readings(blueprint, exchange))
    run = run_inline if config.placement.backend == "inline" else run_processes
    with ExitStack() as last_things:  # from the last to the first, and each of them even if another fails
        title = env_name(config.experiment.env)
        last_things.callback(lambda: draw_learning_curve(folder.metrics_file, folder.curve_file, title))
        last_things.callback(recorder.close)
        last_things.callback(lambda: folder.save_result(recorder.result()))
        last_things.callback(lambda: folder.save_policy(parameters.module(recorder.version), recorder.version))
        try:
            run(blueprint, memory, recorder.record)
        except KeyboardInterrupt:
            recorder.say(f"interrupted after update {recorder.version}; what there is, is in {folder.path}")
            raise
    return recorder.result()


def _fingerprint(placement: Placement) -> Fingerprint:
    """Of the process that will compute: this one, or one as new as the workers."""
    if placement.backend == "inline" or is_row_stable():
        return take_fingerprint(placement.device)
    return fingerprint_of_a_new_process(placement.device)


def _check_placement(blueprint: Blueprint) -> None:
    """Whether the roles can live where they are asked to."""
    if blueprint.config.placement.backend == "inline":
        warn_if_torch_was_used_before()
        return
    if sys.platform != "linux":
        raise ConfigError(f"placement=processes needs Linux, this is {sys.platform}; use placement inline")
    if platform.machine() not in ("x86_64", "AMD64"):
        warnings.warn(
            f"placement=processes was not proven on {platform.machine()}, whose memory order is weaker than that of "
            "x86-64; compare a digest with placement inline before you rely on it",
            stacklevel=3,
        )
    try:
        cloudpickle.dumps(blueprint)
    except Exception as error:
        raise ConfigError(
            f"the environment cannot be handed to worker processes ({type(error).__name__}: {error}); make what it "
            "closes over inside the callable, or use placement inline"
        ) from error


def _readings(blueprint: Blueprint, exchange: Exchange) -> dict[str, float]:
    """What the workers have written about themselves so far."""
    readings = _waited_seconds(blueprint, exchange)
    if blueprint.config.placement.measure_costs:
        spent = exchange.cpu_seconds.sum(axis=0)
        spent[Cost.TOTAL] += time.process_time()
        readings |= {f"cpu/{cost.name.lower()}_seconds": float(spent[cost]) for cost in Cost}
    return readings


def _waited_seconds(blueprint: Blueprint, exchange: Exchange) -> dict[str, float]:
    """Seconds waited so far, as the mean over the workers that host a role."""
    hosted = crew(blueprint)
    kinds = {
        "executor": [i for i, worker in enumerate(hosted) if worker.executor is not None],
        "actor": [i for i, worker in enumerate(hosted) if worker.actor is not None],
        "learner": [i for i, worker in enumerate(hosted) if worker.learner],
    }
    return {f"wait/{kind}_seconds": float(exchange.waited_seconds[workers].mean()) for kind, workers in kinds.items()}
