"""The blueprint: all that a process needs to know to build any role of a run.

It is plain data, and this module imports torch only inside the functions that build what computes: executors do
without.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import cloudpickle
import gymnasium
import numpy as np

from htsrl.config import Config, Experiment
from htsrl.config.algorithm_settings import BUILT_IN, CommonSettings, PackedSettings, algorithm_name
from htsrl.config.schedule_names import BUILT_IN as BUILT_IN_SCHEDULES
from htsrl.dataflow.capsules import capsule_arrays, num_places_for
from htsrl.dataflow.exchange import control_arrays
from htsrl.dataflow.gradient_orders import GradientOrders, Helpers, gradient_arrays
from htsrl.dataflow.learner_slots import LearnerSlots, learner_arrays
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.trajectory import TrajectorySpec
from htsrl.dataflow.versions import num_slots_for
from htsrl.envs.agents import Agents, agents_of
from htsrl.envs.forgiving import TruncatingAgents
from htsrl.envs.make import make_env
from htsrl.envs.origins import Origins
from htsrl.metrics.episodes import WINDOW
from htsrl.policies.light import LightPlan
from htsrl.roles.actor import Actor
from htsrl.roles.answers import Answers, LightAnswers
from htsrl.roles.env_runner import EnvRunner
from htsrl.roles.executor import Bells, Executor
from htsrl.roles.role import Notify, NotifyFor
from htsrl.roles.shared import Shared
from htsrl.schedules.make import make_schedule
from htsrl.schedules.schedule import Schedule
from htsrl.sources.replay import replay_arrays
from htsrl.spaces import Interface
from htsrl.timeline.arrays import TimelineShape

if TYPE_CHECKING:
    from torch import nn

    from htsrl.algorithms.models import Model
    from htsrl.dataflow.parameters import ParameterRing
    from htsrl.metrics.report import UpdateReport
    from htsrl.policies.policy import Policy
    from htsrl.roles.gradient_worker import GradientWorker
    from htsrl.roles.learner import Learner

Envs = tuple[int, ...]
Shards = tuple[int, ...]
MakeEnv = Callable[[], gymnasium.Env[Any, Any]]


@dataclass(frozen=True)
class Blueprint:
    """A run, ready to be built."""

    config: Config
    interface: Interface
    trajectory: TrajectorySpec
    parameter_specs: tuple[ArraySpec, ...]
    """Of the policy's ring."""
    model_specs: tuple[ArraySpec, ...]
    """Of the rings of the algorithm's other models."""
    shape: ReferenceShape
    executor_envs: tuple[Envs, ...]
    """The environments that each executor owns."""
    actor_envs: tuple[Envs, ...]
    """The environments that each actor serves."""
    learner_shards: tuple[Shards, ...]
    """The shards of every gradient that each learner worker takes: first the learner, then the gradient workers."""
    num_targets: int = 0
    """How many numbers the algorithm's gradients aim at for each step."""
    light: LightPlan | None = None
    """How actors do without torch, where they do."""
    on_threads: bool = False
    """Whether executors step each environment on a thread of its own."""
    reports_episodes: bool = False
    """Whether the learner reports every episode, for observers."""
    origins: Origins = Origins()  # noqa: RUF009  (it is frozen)
    """Where the environment, and a policy or an algorithm of the user's own, come from."""

    @property
    def experiment(self) -> Experiment:
        return self.config.experiment

    @cached_property
    def schedule(self) -> Schedule:
        return make_schedule(self.experiment)

    @property
    def acts_for_itself(self) -> bool:
        """Whether executor i and actor i share a process and their environments."""
        return self.config.placement.resolved_actors(self.on_threads) == 0

    @property
    def num_workers(self) -> int:
        """At most; where executors act for themselves, there are fewer."""
        return len(self.executor_envs) + len(self.actor_envs) + len(self.learner_shards)

    @property
    def _timeline_shape(self) -> TimelineShape:
        num_envs, max_lag = self.experiment.num_envs, self.schedule.max_lag
        num_tracks = self.num_workers + (num_envs if self.on_threads else 0)
        return TimelineShape(num_tracks, num_envs, depth=3 + (max_lag or 0))

    def block_specs(self) -> list[ArraySpec]:
        num_rows = self.trajectory.num_steps * self.trajectory.num_columns
        rings = [spec for spec in (*self.parameter_specs, *self.model_specs) if spec.name.endswith("parameter_slots")]
        num_parameters, max_lag = max(spec.shape[-1] for spec in rings), self.schedule.max_lag
        return [
            *control_arrays(self.experiment.num_envs, self.num_workers),
            *self.trajectory.arrays(),
            *capsule_arrays(self.experiment.num_envs, num_places_for(max_lag)),
            *self.parameter_specs,
            *self.model_specs,
            *learner_arrays(WINDOW, 2 + len(self.trajectory.info_names), num_slots_for(max_lag)),
            *gradient_arrays(
                self.experiment.gradient_shards, num_parameters, len(self.learner_shards), num_rows, self.num_targets
            ),
            *self.schedule.arrays(self.experiment.num_envs),
            *(self._timeline_shape.arrays() if self.config.placement.timeline else ()),
            *replay_arrays(self.trajectory, self._replay_capacity),
        ]

    @property
    def _replay_capacity(self) -> int:
        return CommonSettings.of(self.experiment.algorithm).replay_capacity

    def shared(self, block: SharedArrays) -> Shared:
        return Shared.over(block, self.trajectory, self.schedule, self._replay_capacity)

    def build_executor(self, index: int, shared: Shared, bells: Bells) -> Executor:
        return Executor([self.build_env_runner(env, shared, self.make_env) for env in self.executor_envs[index]], bells)

    def build_env_runner(self, env: int, shared: Shared, make_env: MakeEnv) -> EnvRunner:
        """`make_env` is for those who have environments at hand, or watch over them."""
        agents = self._make_agents(make_env)
        num_rollouts = self.schedule.num_rollouts(env, self.experiment.num_intervals)
        return EnvRunner(env, agents, shared, self.experiment.seed, num_rollouts, self.config.placement.verify_storages)

    def _make_agents(self, make_env: MakeEnv) -> Agents:
        if self.experiment.on_env_error == "truncate":
            return TruncatingAgents(make_env, self.interface)
        return agents_of(make_env(), self.interface)

    def make_env(self) -> gymnasium.Env[Any, Any]:
        return make_env(self.experiment.env, self.experiment.env_args, self.experiment.imports)

    def build_policy(self) -> Policy:
        from htsrl.policies.policy import policy_for

        return policy_for(self.experiment, self.interface, self.trajectory.num_columns)

    def declared_models(self) -> dict[str, Model]:
        """The algorithm's models beside the policy."""
        from htsrl.algorithms.models import declared_models

        return declared_models(self.experiment, self.interface)

    def build_model(self, name: str) -> nn.Module:
        """As the run begins with it, unless it copies another."""
        from htsrl.algorithms.models import built_model

        return built_model(self.declared_models()[name], name, self.experiment.seed)

    def build_parameters(self, block: SharedArrays, device: str | None = None) -> ParameterRing:
        """The parameter ring, with those of further models, on the device of the placement, or another."""
        import torch

        from htsrl.dataflow.parameters import ParameterRing

        place = torch.device(device or self.config.placement.device)
        further = {
            name: ParameterRing(block, partial(self.build_model, name), place, name)
            for name in (self.declared_models() if self.model_specs else ())
        }
        return ParameterRing(block, self.build_policy, place, further=further)

    def build_policy_ring(self, block: SharedArrays) -> ParameterRing:
        """For those who only act."""
        import torch

        from htsrl.dataflow.parameters import ParameterRing

        return ParameterRing(block, self.build_policy, torch.device(self.config.placement.device))

    def build_actor(
        self,
        index: int,
        shared: Shared,
        block: SharedArrays,
        executors: NotifyFor,
        parameters: ParameterRing | None = None,
    ) -> Actor:
        """`parameters` are for those who have them at hand."""
        answers = self._build_answers(shared, block, parameters)
        return Actor(self.actor_envs[index], shared, answers, self.shape, executors)

    def _build_answers(self, shared: Shared, block: SharedArrays, parameters: ParameterRing | None) -> Answers:
        if self.light:
            return LightAnswers(shared.storages, self.light.policies(block))
        from htsrl.roles.torch_answers import TorchAnswers

        return TorchAnswers(shared.storages, shared.exchange, parameters or self.build_policy_ring(block))

    def build_learner(
        self,
        block: SharedArrays,
        shared: Shared,
        parameters: ParameterRing,
        executors: Notify,
        report: Callable[[UpdateReport], None],
        at_barrier: Callable[[int], None],
        helpers: Helpers | None = None,
        beat: Notify = lambda: None,
    ) -> Learner:
        """Without `helpers` it takes all shards of its gradients itself. `beat` is its sign of life in an update."""
        from htsrl.algorithms.gradient import Gradient, GradientShards
        from htsrl.roles.learner import Learner, LearnerState, Outlets
        from htsrl.roles.rollout_finisher import RolloutFinisher

        own = self.learner_shards[0] if helpers else range(self.experiment.gradient_shards)
        gradient = Gradient(GradientShards.over(block, parameters, beat), own, parameters.modules, helpers)
        finisher = None if shared.schedule.mixes_versions else RolloutFinisher(shared, parameters, self.shape)
        state = LearnerState(parameters, LearnerSlots(block), gradient, finisher, self.declared_models())
        outlets = Outlets(executors, report, at_barrier, self.reports_episodes)
        return Learner(self.experiment, shared, state, outlets, self.config.placement.verify_storages)

    def build_gradient_worker(
        self,
        index: int,
        block: SharedArrays,
        shared: Shared,
        parameters: ParameterRing,
        learner: Notify,
        beat: Notify = lambda: None,
    ) -> GradientWorker:
        """Of the learner's workers the one with this number, which is not 0."""
        from htsrl.algorithms.gradient import GradientShards
        from htsrl.roles.gradient_worker import GradientShare, GradientWorker

        gradient = GradientShards.over(block, parameters, beat)
        share = GradientShare(index, self.learner_shards[index], GradientOrders(block), gradient)
        return GradientWorker(share, self.experiment, shared, parameters, learner)


def write_blueprint(blueprint: Blueprint) -> int:
    """Put it into a file without a name, for processes that inherit its descriptor; returns that."""
    experiment = blueprint.experiment
    # A schedule of the user's own may look at any setting.
    if algorithm_name(experiment.algorithm) not in BUILT_IN and experiment.schedule in BUILT_IN_SCHEDULES:
        blueprint = _with_algorithm(blueprint, PackedSettings.of(experiment.algorithm))
    fd = os.memfd_create("htsrl-blueprint")
    with open(fd, "wb", closefd=False) as file:
        file.write(cloudpickle.dumps(blueprint))
    return fd


def read_blueprint(fd: int, learns: bool = False) -> Blueprint:
    """Who does not learn gets an algorithm of the user's own as packed settings, and need not import it."""
    blueprint: Blueprint = cloudpickle.loads(os.pread(fd, os.fstat(fd).st_size, 0))
    algorithm = blueprint.experiment.algorithm
    if learns and isinstance(algorithm, PackedSettings):
        return _with_algorithm(blueprint, algorithm.unpacked())
    return blueprint


def _with_algorithm(blueprint: Blueprint, algorithm: Any) -> Blueprint:
    experiment = replace(blueprint.experiment, algorithm=algorithm)
    return replace(blueprint, config=replace(blueprint.config, experiment=experiment))


def share_out(num_parts: int, num_workers: int) -> tuple[tuple[int, ...], ...]:
    """Neighbouring environments, or shards, to each worker, as evenly as possible."""
    return tuple(tuple(part.tolist()) for part in np.array_split(np.arange(num_parts), num_workers))
