"""What a run needs before its first step, begun or resumed: a blueprint, a fingerprint, version 0."""

from __future__ import annotations

import platform
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import cloudpickle

from htsrl.config import Config
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.versions import POLICY
from htsrl.errors import ConfigError
from htsrl.fingerprint import Fingerprint
from htsrl.numerics import (
    computes_like_a_new_process,
    fingerprint_of_a_new_process,
    take_fingerprint,
    warn_if_torch_was_used_before,
)
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.survey import draw_blueprint
from htsrl.processes.current_folder import current_folder_kept
from htsrl.runs.folder import RunFolder
from htsrl.runs.warm_start import initial_policy

if TYPE_CHECKING:
    from torch import nn

    from htsrl.dataflow.parameters import ParameterRing

WRITTEN_FIRST = {
    f"{name}{end}"
    for name in ("initial_policy.safetensors", "init_from.json", "config.json.signature", "config.json")
    for end in ("", ".tmp")
} - {"config.json"}
"""What a run's folder may hold before it has a configuration."""


def has_begun(path: Path) -> bool:
    """Whether there is a run in the folder; one that was killed while it made it leaves less than a configuration."""
    if not path.exists():
        return False
    if path.is_dir() and all(file.name in WRITTEN_FIRST and file.is_file() for file in path.iterdir()):
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
        return False
    return True


def survey(
    config: Config, folder: RunFolder, is_observed: bool = False, allow_different_numerics: bool = False
) -> Blueprint:
    """The blueprint of a run in this folder, if its roles can live where they are asked to.

    What is allowed now is not what the run's configuration allows from now on.
    """
    allows = allow_different_numerics or config.placement.allow_different_numerics
    placement = replace(config.placement, run_dir=folder.path, allow_different_numerics=allows)
    with current_folder_kept():  # for the workers, which start where this process is
        blueprint = replace(draw_blueprint(replace(config, placement=placement)), reports_episodes=is_observed)
    _check_placement(blueprint)
    if placement.backend == "ray":
        from htsrl.cluster.run import place_on_islands

        return place_on_islands(blueprint, fingerprint_for(blueprint))
    return blueprint


def fingerprint_for(blueprint: Blueprint) -> Fingerprint:
    """Of the process that will compute: this one, or one as new as the workers."""
    placement, origins = blueprint.config.placement, blueprint.origins
    computes_here = placement.backend == "inline" or computes_like_a_new_process()
    take = take_fingerprint if computes_here else fingerprint_of_a_new_process
    in_half = blueprint.experiment.network.precision == "bfloat16"
    return replace(take(placement.device, in_half), packages=origins.packages, own_modules=origins.own_modules)


def initialise(blueprint: Blueprint, block: SharedArrays, folder: RunFolder) -> None:
    """Make version 0."""
    policy = initial_policy(blueprint.experiment, blueprint.build_policy(), folder)
    for replica in range(blueprint.num_replicas):  # all of them begin alike
        _initialise_ring(blueprint, blueprint.build_parameters(block, device="cpu", replica=replica), policy)


def _initialise_ring(blueprint: Blueprint, ring: ParameterRing, policy: nn.Module) -> None:
    initial: dict[str, nn.Module] = {POLICY: policy}
    for name, model in blueprint.declared_models().items():
        initial[name] = blueprint.build_model(name) if model.copies is None else initial[model.copies]
        ring.further[name].initialise(initial[name])
    ring.initialise(policy)


def _check_placement(blueprint: Blueprint) -> None:
    """Whether the roles can live where they are asked to."""
    if blueprint.config.placement.backend == "inline":
        warn_if_torch_was_used_before()
        if blueprint.config.placement.eval_every is not None:
            _check_can_be_handed_over(blueprint, "leave out eval_every")
        return
    if sys.platform != "linux":
        raise ConfigError(
            f"placement={blueprint.config.placement.backend} needs Linux, this is {sys.platform}; use placement inline"
        )
    if platform.machine() not in ("x86_64", "AMD64"):
        warnings.warn(
            f"placement=processes was not proven on {platform.machine()}, whose memory order is weaker than that of "
            "x86-64; compare a digest with placement inline before you rely on it",
            stacklevel=3,
        )
    _check_can_be_handed_over(blueprint, "use placement inline")
    if blueprint.on_threads:
        from htsrl.processes.open_files import allow_open_files

        allow_open_files(blueprint.experiment.num_envs)


def _check_can_be_handed_over(blueprint: Blueprint, way_out: str) -> None:
    try:
        cloudpickle.dumps(blueprint)
    except Exception as error:
        raise ConfigError(
            f"the environment cannot be handed to worker processes ({type(error).__name__}: {error}); make what it "
            f"closes over inside the callable, or {way_out}"
        ) from error
