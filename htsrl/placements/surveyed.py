"""What a look at an environment and a policy has shown, and what of the blueprint follows from it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from htsrl.config import Config
from htsrl.config.algorithm_settings import CommonSettings
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.dataflow.shared_arrays import ArraySpec
from htsrl.dataflow.trajectory import NO_ACTIVATIONS, LaneShape, Stored, TrajectorySpec, trajectory_spec
from htsrl.dataflow.versions import num_slots_for
from htsrl.envs.lanes.lane import LaneFacts
from htsrl.envs.origins import Origins
from htsrl.numerics import OwnNumerics
from htsrl.schedules.schedule import Schedule
from htsrl.spaces import Interface

if TYPE_CHECKING:
    from htsrl.algorithms.algorithm import Algorithm
    from htsrl.placements.acting import Acting
    from htsrl.policies.light import LightPlan
    from htsrl.policies.policy import Policy

MAX_KEPT_BYTES = 256 << 20


class Look(NamedTuple):
    """What one environment shows."""

    interface: Interface
    """Of one agent."""
    team_size: int | None
    leave_a_core: bool
    """Whether executors leave the learner one."""
    on_threads: bool
    """Whether executors step their environments on threads."""
    origins: Origins
    lane: LaneFacts | None = None
    state_bytes: int = 0
    """Of what it saves of its state; 0 where it saves none, or nobody asked."""


@dataclass(frozen=True)
class Surveyed:
    """What was found, of which the rest of the blueprint follows."""

    config: Config
    look: Look
    schedule: Schedule
    algorithm: Algorithm
    policy: Policy

    @cached_property
    def _light(self) -> LightPlan | None:
        """How actors could do without torch."""
        from htsrl.policies.light_plan import light_plan

        experiment = self.config.experiment
        has_one_version = experiment.source is None and not self.schedule.mixes_versions
        return light_plan(self.policy, experiment.network) if has_one_version else None

    @property
    def _num_slots(self) -> int:
        return num_slots_for(self.schedule.max_lag)

    def trajectory(self, num_columns: int) -> TrajectorySpec:
        from htsrl.algorithms.algorithm import own_fields

        experiment, look, lane = self.config.experiment, self.look, self.look.lane
        stored = Stored(
            state_size=self.policy.state_size,
            activations=_kept_activations(self.config, self.schedule, self.policy, num_columns),
            activation_dtype=self.policy.activation_dtype,
            values_deferred=self._light is not None,
            mixes_versions=self.schedule.mixes_versions,
            truncates_on_error=experiment.on_env_error == "truncate",
            excludes_on_error=experiment.on_env_error == "exclude",
            log_info=self.config.placement.log_info,
            own_fields=own_fields(self.algorithm, experiment.algorithm, look.interface),
        )
        return trajectory_spec(
            look.interface,
            experiment.interval_steps,
            experiment.num_simulators,
            stored,
            look.team_size,
            LaneShape(experiment.envs_per_simulator, lane.idles) if lane else None,
            self.schedule.num_storages,
        )

    def parameter_specs(self) -> tuple[ArraySpec, ...]:
        from htsrl.algorithms.optimizers import NUM_VECTORS
        from htsrl.dataflow.parameters import parameter_arrays

        num_vectors = NUM_VECTORS[CommonSettings.of(self.config.experiment.algorithm).optimizer]
        return tuple(parameter_arrays(self.policy, num_vectors, self._num_slots))

    def model_specs(self) -> tuple[ArraySpec, ...]:
        from htsrl.algorithms.models import declared_models, model_arrays

        experiment = self.config.experiment
        models = declared_models(experiment, self.look.interface)
        return tuple(model_arrays(models, self.policy, experiment.seed, self._num_slots))

    def acting(self, trajectory: TrajectorySpec, parameter_specs: tuple[ArraySpec, ...]) -> Acting:
        from htsrl.placements.acting import Acting, choose_acting

        experiment = self.config.experiment
        if experiment.source is not None:
            return Acting(None, ReferenceShape((1,)))  # nobody acts
        with OwnNumerics():  # the environment was here
            of_replica = replace(trajectory, num_envs=experiment.per_replica.num_simulators)
            return choose_acting(self.policy, self._light, parameter_specs, of_replica, self.config.placement.device)


def _kept_activations(
    config: Config, schedule: Schedule, policy: Policy, num_columns: int
) -> Mapping[str, tuple[int, ...]]:
    """What actors keep of every row for the learner: only the delayed gradient is taken where the actors were. What is
    computed by a device, or on another machine, would have to be fetched from there."""
    from htsrl.algorithms.algorithm import build_algorithm

    experiment, shapes = config.experiment, policy.activation_shapes
    placement, differentiates_there = config.placement, build_algorithm(experiment).differentiates_at_behaviour
    if not differentiates_there or not placement.device.startswith("cpu") or placement.backend == "ray":
        return NO_ACTIVATIONS
    numbers_per_row = sum(math.prod(shape) for shape in shapes.values())
    bytes_per_row = np.dtype(policy.activation_dtype).itemsize * numbers_per_row
    num_bytes = bytes_per_row * num_columns * experiment.interval_steps * schedule.num_storages
    return shapes if num_bytes <= MAX_KEPT_BYTES else NO_ACTIVATIONS
