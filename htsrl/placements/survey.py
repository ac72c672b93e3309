"""The survey before a run: one environment and one policy are looked at, in this process, before anything starts."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import gymnasium

from htsrl.config import MAX_ENVS_ON_THREADS, Config, Experiment, available_cores
from htsrl.config.algorithm_settings import BUILT_IN, CommonSettings, algorithm_name, algorithm_of
from htsrl.config.check import check_shards
from htsrl.dataflow.trajectory import NO_ACTIVATIONS, trajectory_spec
from htsrl.dataflow.versions import num_slots_for
from htsrl.envs.contract import check_contract
from htsrl.envs.look import interface_of
from htsrl.envs.make import make_env
from htsrl.envs.origins import Origins, origins_of
from htsrl.envs.pace import can_share_process, pace_of
from htsrl.envs.state import saves_its_state
from htsrl.envs.team import team_size_of
from htsrl.errors import ConfigError
from htsrl.numerics import OwnNumerics
from htsrl.placements.blueprint import Blueprint, share_out
from htsrl.roles.recall import wrapper_with_unknown_state
from htsrl.schedules.make import make_schedule
from htsrl.schedules.schedule import Schedule
from htsrl.spaces import Interface

if TYPE_CHECKING:
    from htsrl.algorithms.algorithm import Algorithm
    from htsrl.policies.policy import Policy

MAX_KEPT_BYTES = 256 << 20


def draw_blueprint(config: Config) -> Blueprint:
    """Look at one environment and one policy, in this process, to learn all that the workers need to know."""
    from htsrl.algorithms.algorithm import build_algorithm, own_fields
    from htsrl.algorithms.gradient import num_columns as num_columns_of
    from htsrl.algorithms.models import declared_models, model_arrays
    from htsrl.algorithms.optimizers import NUM_VECTORS
    from htsrl.dataflow.parameters import parameter_arrays
    from htsrl.placements.acting import choose_acting
    from htsrl.policies.light_plan import light_plan
    from htsrl.policies.policy import policy_for

    _check_device(config.placement.device)
    experiment, placement, schedule = config.experiment, config.placement, make_schedule(config.experiment)
    algorithm = build_algorithm(experiment)
    interface, team_size, leave_a_core, on_threads, origins = _look_at_env(config)
    num_columns = experiment.num_envs * (team_size or 1)
    check_shards(experiment, num_columns)
    _check_team(experiment, team_size)
    policy = policy_for(experiment, interface, num_columns)
    _check_that_it_repeats(policy, policy_for(experiment, interface, num_columns))
    activation_shapes = _kept_activations(config, schedule, policy, num_columns)
    light = None if schedule.mixes_versions else light_plan(policy, experiment.network)
    trajectory = trajectory_spec(
        interface,
        experiment.interval_steps,
        experiment.num_envs,
        team_size,
        policy.state_size,
        truncates_on_error=experiment.on_env_error == "truncate",
        mixes_versions=schedule.mixes_versions,
        activation_shapes=activation_shapes,
        values_deferred=light is not None,
        log_info=placement.log_info,
        num_storages=schedule.num_storages,
        own_fields=own_fields(algorithm, experiment.algorithm, interface),
    )
    num_vectors = NUM_VECTORS[CommonSettings.of(experiment.algorithm).optimizer]
    num_slots, models = num_slots_for(schedule.max_lag), declared_models(experiment, interface)
    parameter_specs = tuple(parameter_arrays(policy, num_vectors, num_slots))
    num_executors = placement.resolved_executors(experiment.num_envs, leave_a_core, on_threads)
    executor_envs = share_out(experiment.num_envs, num_executors)
    num_actors, shards = placement.resolved_actors(on_threads), experiment.gradient_shards
    with OwnNumerics():  # the environment was here
        acting = choose_acting(policy, light, parameter_specs, trajectory, placement.device)
    return Blueprint(
        config=config,
        interface=interface,
        trajectory=trajectory,
        parameter_specs=parameter_specs,
        model_specs=tuple(model_arrays(models, policy, experiment.seed, num_slots)),
        shape=acting.shape,
        executor_envs=executor_envs,
        actor_envs=share_out(experiment.num_envs, num_actors) if num_actors else executor_envs,
        learner_shards=share_out(shards, placement.resolved_learner_workers(shards)),
        num_targets=num_columns_of(algorithm.Targets),
        light=acting.light,
        on_threads=on_threads,
        origins=origins | origins_of(*_own_parts(experiment, policy, algorithm, schedule)),
    )


def _own_parts(experiment: Experiment, policy: Policy, algorithm: Algorithm, schedule: Schedule) -> list[object]:
    """What of a run beside its environment is the user's code: changed, it is another run."""
    plug_ins = [part for part in (algorithm, schedule) if not type(part).__module__.startswith("htsrl.")]
    return [*plug_ins, *([policy.encoder] if experiment.network.policy else [])]


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


def _look_at_env(config: Config) -> Look:
    """After a look at whether the contract is kept."""
    experiment, placement = config.experiment, config.placement
    chooses = placement.backend == "processes" and placement.num_executors is None and not placement.executor_threads

    def make() -> gymnasium.Env[Any, Any]:
        return make_env(experiment.env, experiment.env_args, experiment.imports)

    begin = time.monotonic()
    env = make()
    make_seconds = time.monotonic() - begin
    origins = _origins_of_env(env, experiment)
    try:
        check_contract(env)
        _warn_of_wrapped_state(env)
        interface, team_size = interface_of(env, experiment.network), team_size_of(env)
        sees_images = any(leaf.is_image for leaf in interface.observations.values())
        pace = pace_of(env) if chooses else None
    finally:
        env.close()
    is_slow = pace is not None and pace.is_slow("images" if sees_images else "vectors")
    on_threads = bool(placement.executor_threads)
    if pace and placement.executor_threads is None and experiment.num_envs <= MAX_ENVS_ON_THREADS:
        would_pay = pace.waits_for_more_than(available_cores(), experiment.num_envs)
        patience = 1.0 + 5 * (make_seconds + pace.look_seconds)
        on_threads = would_pay and can_share_process(make, pace, patience)
    return Look(interface, team_size, experiment.overlaps_learning and chooses and not is_slow, on_threads, origins)


def _origins_of_env(env: gymnasium.Env[Any, Any], experiment: Experiment) -> Origins:
    factory = experiment.env
    if isinstance(factory, str):  # MODULE:ID, or an id whose entry point may return what another module makes
        factory = factory if ":" in factory else ""
    entry_point = env.spec.entry_point if env.spec is not None else None
    return origins_of(env, factory, entry_point, *experiment.imports)


def _own_algorithm(experiment: Experiment) -> object:
    """The class of an algorithm that is not htsrl's, whose sources the fingerprint has anyway."""
    return None if algorithm_name(experiment.algorithm) in BUILT_IN else algorithm_of(experiment.algorithm)


def _check_that_it_repeats(policy: Policy, again: Policy) -> None:
    """A network of the user's may draw its first weights from anywhere."""
    ours, theirs = ({**dict(of.named_parameters()), **dict(of.named_buffers())} for of in (policy, again))
    for name, tensor in ours.items():
        if not tensor.equal(theirs[name]):
            raise ConfigError(
                f"{name.removeprefix('encoder.network.')} of the policy begins with other numbers each time that it is "
                "made, so no two runs could be alike; draw them from torch's own generator (torch.randn, nn.init)"
            )


def _warn_of_wrapped_state(env: gymnasium.Env[Any, Any]) -> None:
    wrapper = wrapper_with_unknown_state(env)
    if saves_its_state(env) and wrapper is not None:
        warnings.warn(
            f"the environment can save its state, but its wrapper {wrapper} may have one of its own; should a process "
            "die, episodes are played again from their reset instead, which must then depend on its seed alone. Give "
            "the wrapper save_state and restore_state",
            stacklevel=2,
        )


def _check_team(experiment: Experiment, team_size: int | None) -> None:
    if team_size is not None and CommonSettings.of(experiment.algorithm).replay_capacity:
        raise ConfigError(
            f"{algorithm_name(experiment.algorithm)} has a replay buffer, which does not record which agents took part "
            f"in a step, and the environment holds a team of {team_size} agents; use PPO or A2C"
        )


def _check_device(name: str) -> None:
    import torch

    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        available = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device={name} cannot be used ({reason}); use one of {', '.join(available)}") from error


def _kept_activations(
    config: Config, schedule: Schedule, policy: Policy, num_columns: int
) -> Mapping[str, tuple[int, ...]]:
    """What actors keep of every row for the learner: only the delayed gradient is taken where the actors were. What is
    computed by a device would have to be fetched from there."""
    from htsrl.algorithms.algorithm import build_algorithm

    experiment, shapes = config.experiment, policy.activation_shapes
    if not config.placement.device.startswith("cpu") or not build_algorithm(experiment).differentiates_at_behaviour:
        return NO_ACTIVATIONS
    numbers_per_row = sum(math.prod(shape) for shape in shapes.values())
    num_bytes = 4 * numbers_per_row * num_columns * experiment.interval_steps * schedule.num_storages
    return shapes if num_bytes <= MAX_KEPT_BYTES else NO_ACTIVATIONS
