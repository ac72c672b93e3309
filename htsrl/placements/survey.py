"""The survey before a run: one environment and one policy are looked at, in this process, before anything starts."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gymnasium

from htsrl.config import MAX_ENVS_ON_THREADS, NO_ENV, Config, Experiment, available_cores
from htsrl.config.algorithm_settings import CommonSettings, algorithm_name, algorithm_of, is_own
from htsrl.config.check_sizes import check_shards
from htsrl.config.plugins import import_named
from htsrl.config.sync_rule_names import load_sync_rule
from htsrl.datasets.open import open_dataset
from htsrl.envs.contract import check_contract
from htsrl.envs.lanes.lane import LaneFacts
from htsrl.envs.lanes.look import look_at_lane
from htsrl.envs.look import interface_of
from htsrl.envs.make import make_env
from htsrl.envs.origins import Origins, origins_of
from htsrl.envs.pace import can_share_process, pace_of
from htsrl.envs.state import saves_its_state
from htsrl.envs.team import team_size_of
from htsrl.errors import ConfigError
from htsrl.placements.blueprint import Blueprint, Envs, share_out
from htsrl.placements.collector import collector_of
from htsrl.placements.surveyed import Look, Surveyed
from htsrl.roles.recall import wrapper_with_unknown_state
from htsrl.schedules.make import make_schedule
from htsrl.schedules.schedule import Schedule
from htsrl.spaces import Interface

if TYPE_CHECKING:
    from htsrl.algorithms.algorithm import Algorithm
    from htsrl.policies.policy import Policy


def draw_blueprint(config: Config) -> Blueprint:
    """Look at one environment and one policy, in this process, to learn all that the workers need to know."""
    if (name := collector_of(config.experiment.env)) is not None:
        draw: Callable[[Config], Blueprint] = import_named("collector", name, {})
        return draw(config)
    from htsrl.algorithms.algorithm import build_algorithm
    from htsrl.algorithms.gradient import num_columns as num_columns_of
    from htsrl.policies.policy import policy_for

    _check_device(config.placement.device)
    algorithm = build_algorithm(config.experiment)
    look = _look(config, algorithm)
    config = _with_chosen_precision(config, look.interface)
    experiment, schedule = config.experiment, make_schedule(config.experiment)
    num_columns = experiment.per_replica.num_envs * (look.team_size or 1)
    _check_what_was_seen(experiment, look, num_columns)
    policy = policy_for(experiment, look.interface, num_columns)
    _check_that_it_repeats(policy, policy_for(experiment, look.interface, num_columns))
    surveyed = Surveyed(config, look, schedule, algorithm, policy)
    trajectory, parameter_specs = surveyed.trajectory(num_columns), surveyed.parameter_specs()
    acting = surveyed.acting(trajectory, parameter_specs)
    executor_envs, actor_envs = _shared_out_envs(config, look)
    return Blueprint(
        config=config,
        interface=look.interface,
        trajectory=trajectory,
        parameter_specs=parameter_specs,
        model_specs=surveyed.model_specs(),
        shape=acting.shape,
        executor_envs=executor_envs,
        actor_envs=actor_envs,
        learner_shards=_shared_out_shards(config),
        num_targets=num_columns_of(algorithm.Targets),
        light=acting.light,
        on_threads=look.on_threads,
        lane=look.lane,
        state_bytes=look.state_bytes,
        origins=look.origins | origins_of(*_own_parts(experiment, policy, algorithm, schedule)),
    )


def _look(config: Config, algorithm: Algorithm) -> Look:
    if config.experiment.source is not None:
        return _look_offline(config, algorithm)
    return _look_at_env(config) if config.experiment.lanes is None else _look_at_lane(config)


def _check_what_was_seen(experiment: Experiment, look: Look, num_columns: int) -> None:
    if experiment.source is None:
        check_shards(experiment.per_replica, num_columns)
    _check_team(experiment, look.team_size)
    _check_replayed_lane(experiment, look.lane)


def _shared_out_envs(config: Config, look: Look) -> tuple[tuple[Envs, ...], tuple[Envs, ...]]:
    """Those of each executor, and of each actor."""
    experiment, placement = config.experiment, config.placement
    if experiment.source is not None:
        return (), ()
    num_executors = placement.resolved_executors(experiment.num_simulators, look.leave_a_core, look.on_threads)
    executor_envs, num_actors = (
        share_out_replicas(experiment, num_executors),
        placement.resolved_actors(look.on_threads),
    )
    return executor_envs, share_out_replicas(experiment, num_actors) if num_actors else executor_envs


def _shared_out_shards(config: Config) -> tuple[tuple[int, ...], ...]:
    """Those of each learner worker."""
    experiment, shards = config.experiment, config.experiment.num_shards
    workers = config.placement.resolved_learner_workers(shards) if experiment.num_replicas == 1 else 1
    return share_out(shards, workers)


def _with_chosen_precision(config: Config, interface: Interface) -> Config:
    """What `auto` chooses here belongs to the experiment: elsewhere it might choose otherwise."""
    from htsrl.policies.half_precision import chosen_precision

    network = config.experiment.network
    if network.precision != "auto":
        return config
    network = replace(network, precision=chosen_precision(interface.observations, network))
    return replace(config, experiment=replace(config.experiment, network=network))


def _own_parts(experiment: Experiment, policy: Policy, algorithm: Algorithm, schedule: Schedule) -> list[object]:
    """What of a run beside its environment is the user's code: changed, it is another run."""
    plug_ins: list[object] = [part for part in (algorithm, schedule) if not type(part).__module__.startswith("htsrl.")]
    if not (rule := load_sync_rule(experiment.sync_rule)).__module__.startswith("htsrl."):
        plug_ins.append(rule)
    return [*plug_ins, *([policy.encoder] if experiment.network.policy else [])]


def share_out_replicas(experiment: Experiment, num_workers: int) -> tuple[Envs, ...]:
    """Environments to workers, each of which has those of one replica: as many for each, and one at least."""
    own = experiment.per_replica.num_simulators
    shares = share_out(own, max(num_workers // experiment.num_replicas, 1))
    return tuple(
        tuple(replica * own + env for env in share) for replica in range(experiment.num_replicas) for share in shares
    )


def _look_at_lane(config: Config) -> Look:
    """The same of one lane."""
    experiment, placement = config.experiment, config.placement
    interface, facts, simulator = look_at_lane(experiment)
    origins = origins_of(simulator.inner, *_factories(experiment), *experiment.imports)
    leave_a_core = experiment.overlaps_learning and placement.backend == "processes"
    return Look(interface, None, leave_a_core, on_threads=False, origins=origins, lane=facts)


def _factories(experiment: Experiment) -> list[Any]:
    """What makes the environment, where that is not Gymnasium's registry alone."""
    factory = experiment.env
    return [factory] if not isinstance(factory, str) or ":" in factory else []


def _check_replayed_lane(experiment: Experiment, lane: LaneFacts | None) -> None:
    if lane and lane.idles and CommonSettings.of(experiment.algorithm).replay_capacity:
        raise ConfigError(
            f"{algorithm_name(experiment.algorithm)} has a replay buffer, and the simulator spends a step on beginning "
            "each episode, from which nothing can be learned; use PPO or A2C, or another autoreset mode"
        )


def _look_at_env(config: Config) -> Look:
    """After a look at whether the contract is kept."""
    experiment, placement = config.experiment, config.placement
    chooses = placement.backend != "inline" and placement.num_executors is None and not placement.executor_threads

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
        state_bytes = _state_bytes(env) if placement.backend == "ray" else 0
    finally:
        env.close()
    is_slow = pace is not None and pace.is_slow("images" if sees_images else "vectors")
    on_threads = bool(placement.executor_threads)
    if pace and placement.executor_threads is None and experiment.num_envs <= MAX_ENVS_ON_THREADS:
        would_pay = pace.waits_for_more_than(available_cores(), experiment.num_envs)
        patience = 1.0 + 5 * (make_seconds + pace.look_seconds)
        on_threads = would_pay and can_share_process(make, pace, patience)
    leave_a_core = experiment.overlaps_learning and chooses and not is_slow
    return Look(interface, team_size, leave_a_core, on_threads, origins, state_bytes=state_bytes)


def _state_bytes(env: gymnasium.Env[Any, Any]) -> int:
    return len(env.get_wrapper_attr("save_state")()) if saves_its_state(env) else 0


def _look_offline(config: Config, algorithm: Algorithm) -> Look:
    """What a dataset shows, of the same spaces as the environment that evaluations play in, if there is one."""
    experiment = config.experiment
    assert experiment.source is not None
    dataset = open_dataset(experiment.source)
    if hasattr(algorithm, "check_dataset"):
        algorithm.check_dataset(dataset)
    squashes = experiment.network.bounded_actions == "squash"
    interface = replace(dataset.interface, squashes=squashes)
    if experiment.env != NO_ENV:
        env = make_env(experiment.env, experiment.env_args, experiment.imports)
        try:
            for kind in ("observation_space", "action_space"):
                if getattr(env, kind) != getattr(interface, kind):
                    raise ConfigError(
                        f"the environment has the {kind} {getattr(env, kind)}, the dataset {dataset.shown} has "
                        f"{getattr(interface, kind)}; evaluate in an environment like the one it was collected in"
                    )
        finally:
            env.close()
    return Look(interface, None, leave_a_core=False, on_threads=False, origins=Origins())


def _origins_of_env(env: gymnasium.Env[Any, Any], experiment: Experiment) -> Origins:
    factory = experiment.env
    if isinstance(factory, str):  # MODULE:ID, or an id whose entry point may return what another module makes
        factory = factory if ":" in factory else ""
    entry_point = env.spec.entry_point if env.spec is not None else None
    return origins_of(env, factory, entry_point, *experiment.imports)


def _own_algorithm(experiment: Experiment) -> object:
    """The class of an algorithm that is not htsrl's, whose sources the fingerprint has anyway."""
    return None if is_own(algorithm_name(experiment.algorithm)) else algorithm_of(experiment.algorithm)


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
