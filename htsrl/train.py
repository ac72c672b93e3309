"""Training, from a configuration to a folder of results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from htsrl.config import Config, check
from htsrl.config_file import env_name
from htsrl.dataflow.exchange import Exchange
from htsrl.dataflow.memory import SharedArrays
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.dataflow.trajectory import TrajectorySpec, trajectory_spec
from htsrl.envs.contract import check_contract
from htsrl.envs.make import make_env
from htsrl.errors import ConfigError
from htsrl.numerics import single_threaded, take_fingerprint, warn_if_torch_was_used_before
from htsrl.placements.assignment import crew
from htsrl.placements.blueprint import Blueprint, share_out
from htsrl.placements.inline import run_inline
from htsrl.placements.processes import run_processes
from htsrl.run_folder import RunFolder, RunResult
from htsrl.seeding import network_seed

if TYPE_CHECKING:
    from gymnasium import spaces

    from htsrl.policies.policy import Policy


def train(config: Config) -> RunResult:
    """Train an agent and write the run's folder. Raises ConfigError before anything starts if it cannot work."""
    check(config)
    folder = RunFolder.planned(config)
    with single_threaded():
        blueprint = draw_blueprint(config)
        warn_if_torch_was_used_before()
        memory = SharedArrays(blueprint.memory_specs())
        folder.create(config, take_fingerprint(config.placement.device))
        return _run(blueprint, memory, folder)


def draw_blueprint(config: Config) -> Blueprint:
    """Look at one environment and one policy, in this process, to learn all that the workers need to know."""
    from htsrl.algorithms.draft import OPTIMIZER_VECTORS
    from htsrl.dataflow.parameters import FlatLayout, parameter_arrays
    from htsrl.policies.policy import build_policy

    _check_device(config.placement.device)
    experiment, placement = config.experiment, config.placement
    observation_space, action_space = _spaces(config)
    trajectory = trajectory_spec(observation_space, action_space, experiment.interval_steps, experiment.num_envs)
    policy = build_policy(observation_space, action_space, experiment.network, network_seed(experiment.seed))
    executor_envs = share_out(experiment.num_envs, placement.resolved_executors(experiment.num_envs))
    num_actors = placement.resolved_actors()
    return Blueprint(
        config=config,
        observation_space=observation_space,
        action_space=action_space,
        trajectory=trajectory,
        parameter_specs=tuple(
            parameter_arrays(FlatLayout.of(policy), len(OPTIMIZER_VECTORS[experiment.algorithm.optimizer]))
        ),
        shape=_reference_shape(policy, trajectory, placement.device),
        executor_envs=executor_envs,
        actor_envs=share_out(experiment.num_envs, num_actors) if num_actors else executor_envs,
    )


def _run(blueprint: Blueprint, memory: SharedArrays, folder: RunFolder) -> RunResult:
    from htsrl.metrics.curve import draw_learning_curve
    from htsrl.metrics.recorder import Recorder

    config, exchange = blueprint.config, blueprint.shared(memory).exchange
    parameters = blueprint.build_parameters(memory, device="cpu")
    parameters.initialise(blueprint.build_policy())
    recorder = Recorder(config, folder, lambda: _waited_seconds(blueprint, exchange))
    run = run_inline if config.placement.backend == "inline" else run_processes
    interrupted = False
    try:
        run(blueprint, memory, recorder.record)
    except KeyboardInterrupt:
        interrupted = True
    finally:
        recorder.close()
        folder.save_policy(parameters.module(exchange.published_version), exchange.published_version)
        draw_learning_curve(folder.metrics_file, folder.curve_file, env_name(config.experiment.env))
    result = recorder.result(folder.path, interrupted)
    folder.save_result(result)
    return result


def _spaces(config: Config) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
    """The spaces of the environment, after a look at whether it keeps its contract."""
    experiment = config.experiment
    env = make_env(experiment.env, experiment.env_args, experiment.imports)
    try:
        check_contract(env)
        return env.observation_space, env.action_space
    finally:
        env.close()


def _check_device(name: str) -> None:
    import torch

    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        available = ["cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device={name} cannot be used ({reason}); use one of {', '.join(available)}") from error


def _reference_shape(policy: Policy, trajectory: TrajectorySpec, device: str) -> ReferenceShape:
    """Probe the policy with rows like those of this run, on the device that will act."""
    import torch

    from htsrl.policies.reference_probe import example_observations, find_reference_shape

    noise = torch.from_numpy(trajectory.noise.draw(seed=0, env=0, first_step=0, num_steps=trajectory.num_envs))
    examples = example_observations(policy.observation, trajectory.num_envs)
    on_device = {name: example.to(device) for name, example in examples.items()}
    return find_reference_shape(policy.to(device), on_device, noise.to(device))


def _waited_seconds(blueprint: Blueprint, exchange: Exchange) -> dict[str, float]:
    """Seconds waited so far, as the mean over the workers that host a role."""
    hosted = crew(blueprint)
    kinds = {
        "executor": [i for i, worker in enumerate(hosted) if worker.executor is not None],
        "actor": [i for i, worker in enumerate(hosted) if worker.actor is not None],
        "learner": [i for i, worker in enumerate(hosted) if worker.learner],
    }
    return {f"wait/{kind}_seconds": float(exchange.waited_seconds[workers].mean()) for kind, workers in kinds.items()}
