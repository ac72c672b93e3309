"""Training, from a configuration to a folder of results."""

from __future__ import annotations

import platform
import sys
import warnings
from dataclasses import replace

import cloudpickle

from htsrl.config import Config, Placement
from htsrl.config_check import check
from htsrl.dataflow.memory import SharedArrays
from htsrl.errors import ConfigError
from htsrl.metrics.recorder import Standing
from htsrl.numerics import (
    Fingerprint,
    computes_like_a_new_process,
    fingerprint_of_a_new_process,
    single_threaded,
    take_fingerprint,
    warn_if_torch_was_used_before,
)
from htsrl.placements.blueprint import Blueprint
from htsrl.replay import prepared_for_replay
from htsrl.run import run_to_end
from htsrl.run_folder import RunFolder, RunResult
from htsrl.run_lock import RunLock
from htsrl.survey import draw_blueprint


def train(config: Config) -> RunResult:
    """Train an agent and write the run's folder.

    Raises ConfigError before anything starts if it cannot work. Ctrl-C ends the run, writes what there is, and is
    passed on.
    """
    config = prepared_for_replay(check(config))
    folder = RunFolder.planned(config)
    with single_threaded():
        blueprint = survey(config, folder)
        memory = SharedArrays(blueprint.memory_specs())
        try:
            folder.create(config, fingerprint_for(config.placement))
            with RunLock.acquire(folder.path):
                blueprint.build_parameters(memory, device="cpu").initialise(blueprint.build_policy())
                return run_to_end(blueprint, memory, folder, Standing())
        finally:
            memory.close_fd()


def survey(config: Config, folder: RunFolder) -> Blueprint:
    """The blueprint of a run in this folder, if its roles can live where they are asked to."""
    placement = replace(config.placement, run_dir=folder.path.absolute())
    blueprint = draw_blueprint(replace(config, placement=placement))
    _check_placement(blueprint)
    return blueprint


def fingerprint_for(placement: Placement) -> Fingerprint:
    """Of the process that will compute: this one, or one as new as the workers."""
    if placement.backend == "inline" or computes_like_a_new_process():
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
