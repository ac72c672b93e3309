"""The blueprint: all that a process needs to know to build any role of a run.

It is plain data, and this module imports torch only inside the functions that build what computes: executors do
without.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

import cloudpickle
import gymnasium
import numpy as np

from htsrl.config import Config, Experiment
from htsrl.config.algorithm_settings import PackedSettings, algorithm_name, is_own
from htsrl.config.schedule_names import BUILT_IN as BUILT_IN_SCHEDULES
from htsrl.dataflow.gradient_orders import GradientOrders, Helpers, Wait
from htsrl.dataflow.learner_slots import LearnerSlots
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.dataflow.replicas import ReplicaWords, replica_prefix
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.dataflow.trajectory import TrajectorySpec
from htsrl.datasets.open import open_dataset
from htsrl.envs.agents import Agents, agents_of
from htsrl.envs.lanes.lane import LaneFacts, LaneSimulator
from htsrl.envs.lanes.make import make_lane
from htsrl.envs.make import make_env
from htsrl.envs.origins import Origins
from htsrl.envs.truncating import TruncatingAgents
from htsrl.envs.waiting import Deadlines
from htsrl.fingerprint import ComparedNodes
from htsrl.learners.make import make_rule
from htsrl.learners.rule import SyncRule
from htsrl.placements.block_layout import block_specs, priority_rule, replay_capacity
from htsrl.placements.collector import CollectorPlan, CollectorSite
from htsrl.policies.light import LightPlan
from htsrl.roles.actor import Actor
from htsrl.roles.answers import Answers, LightAnswers
from htsrl.roles.env_runner import EnvRunner
from htsrl.roles.executor import Bells, Executor
from htsrl.roles.lane_runner import LaneRunner
from htsrl.roles.role import Collector, Notify, NotifyFor
from htsrl.roles.runner_plan import RunnerPlan
from htsrl.roles.shared import Shared
from htsrl.schedules.make import make_schedule
from htsrl.schedules.schedule import Schedule
from htsrl.sources.dataset import DatasetSampler
from htsrl.spaces import Interface
from htsrl.spaces.many_actions import many_actions

if TYPE_CHECKING:
    from torch import nn

    from htsrl.algorithms.models import Model
    from htsrl.dataflow.parameters import ParameterRing
    from htsrl.metrics.report import UpdateReport
    from htsrl.policies.policy import Policy
    from htsrl.roles.gradient_worker import GradientWorker
    from htsrl.roles.learner import Learner
    from htsrl.roles.replica_learner import ReplicaLearner

Envs = tuple[int, ...]
Shards = tuple[int, ...]
MakeEnv = Callable[[], gymnasium.Env[Any, Any]]


def no_replicas(it_is_so: Callable[[], bool], waits_for: Callable[[], str]) -> None:
    """For those who are the only learner, and have nobody to wait for."""
    assert it_is_so(), f"nobody makes {waits_for()}"


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
    lane: LaneFacts | None = None
    """What lanes are like, where environments are stepped in lanes."""
    origins: Origins = Origins()  # noqa: RUF009  (it is frozen)
    """Where the environment, and a policy or an algorithm of the user's own, come from."""
    islands: tuple[Envs, ...] = ()
    """The environments that live on each of other machines, with their executors and actors; none: all live here."""
    nodes: ComparedNodes | None = None
    """Those that islands may be on."""
    state_bytes: int = 0
    """Of an environment that saves its state, as it was looked at."""
    collector: CollectorPlan | None = None
    """Who fills the storages, where it is no executor with environments; an env is then a column."""

    @property
    def experiment(self) -> Experiment:
        return self.config.experiment

    @property
    def num_replicas(self) -> int:
        """Learners with parameters of their own."""
        return self.experiment.num_replicas

    def envs_of(self, replica: int) -> range:
        own = self.experiment.num_simulators // self.num_replicas
        return range(replica * own, (replica + 1) * own)

    def replica_of(self, env: int) -> int:
        return env // (self.experiment.num_simulators // self.num_replicas)

    @cached_property
    def rule(self) -> SyncRule:
        """When replicas meet, where there are several."""
        return make_rule(self.experiment)

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
        return len(self.executor_envs) + len(self.actor_envs) + len(self.learner_shards) + self.num_replicas - 1

    def block_specs(self) -> list[ArraySpec]:
        """Everything that lies in shared memory."""
        return block_specs(self)

    def shared(self, block: SharedArrays) -> Shared:
        capacity, priorities = replay_capacity(self), priority_rule(self)
        return Shared.over(block, self.trajectory, self.schedule, capacity, priorities, self._dataset())

    def _dataset(self) -> DatasetSampler | None:
        """Not kept here, for a blueprint travels between processes; each maps the dataset once."""
        if self.experiment.source is None:
            return None
        return DatasetSampler(open_dataset(self.experiment.source), self.interface.actions)

    def build_executor(self, index: int, shared: Shared, bells: Bells) -> Executor:
        owned = self.executor_envs[index]
        if self.lane:
            return Executor([self.build_lane_runner(lane, shared, self.make_lane) for lane in owned], bells)
        return Executor([self.build_env_runner(env, shared, self.make_env) for env in owned], bells)

    def build_lane_runner(self, lane: int, shared: Shared, make_lane: Callable[[], LaneSimulator]) -> LaneRunner:
        to_envs = many_actions(self.interface.actions)
        return LaneRunner(lane, make_lane(), shared, self._runner_plan(lane), to_envs)

    def make_lane(self) -> LaneSimulator:
        return make_lane(self.experiment)

    def build_collector(
        self,
        index: int,
        block: SharedArrays,
        shared: Shared,
        bells: Bells,
        beat: Notify = lambda: None,
        parameters: ParameterRing | None = None,
    ) -> Collector:
        """Of those that need no environments. `parameters` are for those who have them at hand."""
        assert self.collector is not None, "executors fill the storages"
        ring = parameters or self.build_policy_ring(block)
        site = CollectorSite(shared, ring, bells.notify_learner, beat)
        return self.collector.build_collector(self.executor_envs[index], site)

    def build_env_runner(self, env: int, shared: Shared, make_env: MakeEnv) -> EnvRunner:
        """`make_env` is for those who have environments at hand, or watch over them."""
        return EnvRunner(env, self._make_agents(make_env), shared, self._runner_plan(env))

    def num_rollouts(self, env: int) -> int:
        """How many an environment is asked for in the whole run."""
        return self.schedule.num_rollouts(env, self.experiment.num_intervals)

    def _runner_plan(self, index: int) -> RunnerPlan:
        poisons, excludes = self.config.placement.verify_storages, self.experiment.on_env_error == "exclude"
        return RunnerPlan(self.experiment.seed, self.num_rollouts(index), poisons, excludes)

    def _make_agents(self, make_env: MakeEnv) -> Agents:
        if self.experiment.tolerates_env_errors:
            return TruncatingAgents(make_env, self.interface)
        return agents_of(make_env(), self.interface)

    def make_env(self) -> gymnasium.Env[Any, Any]:
        placement = self.config.placement
        deadlines = Deadlines(placement.step_deadline_seconds, placement.reset_deadline_seconds)
        return make_env(self.experiment.env, self.experiment.env_args, self.experiment.imports, deadlines)

    def build_policy(self) -> Policy:
        from htsrl.policies.policy import policy_for

        if self.collector is not None:
            return cast("Policy", self.collector.build_policy())
        return policy_for(self.experiment, self.interface, self.trajectory.num_columns // self.num_replicas)

    def declared_models(self) -> dict[str, Model]:
        """The algorithm's models beside the policy."""
        from htsrl.algorithms.models import declared_models

        return declared_models(self.experiment, self.interface)

    def build_model(self, name: str) -> nn.Module:
        """As the run begins with it, unless it copies another."""
        from htsrl.algorithms.models import built_model

        return built_model(self.declared_models()[name], name, self.experiment.seed)

    def block_of(self, block: SharedArrays, replica: int) -> SharedArrays:
        """The block as a replica sees it: its own arrays under the names that those of replica 0 have."""
        return block.named_under(replica_prefix(replica)) if replica else block

    def build_parameters(self, block: SharedArrays, device: str | None = None, replica: int = 0) -> ParameterRing:
        """The parameter ring, with those of further models, on the device of the placement, or another."""
        import torch

        from htsrl.dataflow.parameters import ParameterRing

        place, block = torch.device(device or self.config.placement.device), self.block_of(block, replica)
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
        replica = self.replica_of(self.actor_envs[index][0])
        answers = self._build_answers(shared, self.block_of(block, replica), parameters)
        first_env = self.envs_of(replica).start
        return Actor(self.actor_envs[index], shared, answers, self.shape, executors, first_env)

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
        wait_for_replicas: Wait = no_replicas,
    ) -> Learner:
        """Without `helpers` it takes all shards of its gradients itself. `beat` is its sign of life in an update;
        `wait_for_replicas` is how it waits for the drafts of others, where there are several replicas."""
        from htsrl.placements.updaters import UpdaterSite, build_meetings, build_updater
        from htsrl.roles.learner import Learner, LearnerState, Outlets

        updater = build_updater(self, UpdaterSite(0, block, shared, parameters, beat), helpers)
        meetings = build_meetings(self, block, parameters, wait_for_replicas) if self.num_replicas > 1 else None
        state = LearnerState(parameters, LearnerSlots(block), updater, self.envs_of(0), meetings)
        outlets = Outlets(executors, report, at_barrier, self.reports_episodes)
        return Learner(self.experiment, shared, state, outlets, self.config.placement.verify_storages)

    def build_replica_learner(
        self, replica: int, block: SharedArrays, shared: Shared, learner: Notify, beat: Notify = lambda: None
    ) -> ReplicaLearner:
        """The learner of a replica other than the first."""
        from htsrl.placements.updaters import UpdaterSite, build_updater
        from htsrl.roles.replica_learner import ReplicaLearner, ReplicaPlace

        parameters = self.build_parameters(block, replica=replica)
        updater = build_updater(self, UpdaterSite(replica, block, shared, parameters, beat))
        place = ReplicaPlace(replica, self.envs_of(replica))
        return ReplicaLearner(place, shared, updater, ReplicaWords(block), learner)

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
    fd = os.memfd_create("htsrl-blueprint")
    with open(fd, "wb", closefd=False) as file:
        file.write(pickle_blueprint(blueprint))
    return fd


def pickle_blueprint(blueprint: Blueprint) -> bytes:
    """For those who do not learn, an algorithm of the user's own is packed."""
    experiment = blueprint.experiment
    # A schedule of the user's own may look at any setting.
    if not is_own(algorithm_name(experiment.algorithm)) and experiment.schedule in BUILT_IN_SCHEDULES:
        blueprint = _with_algorithm(blueprint, PackedSettings.of(experiment.algorithm))
    pickled: bytes = cloudpickle.dumps(blueprint)
    return pickled


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
