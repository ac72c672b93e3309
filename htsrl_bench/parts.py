"""The parts that training consists of, each alone and ready to be called again and again."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import count, cycle
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from htsrl.algorithms.algorithm import Update, build_algorithm
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Draft, Drafts
from htsrl.algorithms.objective import Objective
from htsrl.algorithms.optimizers import NUM_VECTORS
from htsrl.algorithms.returns import Transitions
from htsrl.config import Experiment
from htsrl.config.algorithm_settings import CommonSettings
from htsrl.dataflow.parameters import ParameterRing, parameter_arrays
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.envs.agents import agents_of
from htsrl.envs.look import interface_of
from htsrl.envs.make import make_env
from htsrl.envs.random_actions import RandomActions
from htsrl.policies.half_precision import HeldCopies, half_encoders
from htsrl.policies.light import LightPolicy
from htsrl.policies.light_plan import light_plan
from htsrl.policies.policy import Policy, policy_for
from htsrl.policies.reference_probe import example_inputs
from htsrl_bench.works import WORKS

if TYPE_CHECKING:
    from htsrl.spaces import Interface

Kind = Literal["simulator", "inference", "learning"]
Call = Callable[[], object]

NUM_ACTIONS = 4096
SMALL_STEP = 1e-8
"""A learning rate that leaves the network as it is: what is measured stays the same work."""


@dataclass(frozen=True)
class Part:
    """One part of a work; a call of it handles `batch` steps."""

    kind: Kind
    work: str
    batch: int

    def build(self) -> Call:
        experiment = WORKS[self.work]
        if self.kind == "simulator":
            return _simulator(experiment)
        if self.kind == "inference":
            return _inference(experiment, self.batch)
        return _learning(experiment, self.batch)


def _simulator(experiment: Experiment) -> Call:
    """A step as an executor takes it, resets included: checked, and written where the learner would read it."""
    env = make_env(experiment.env, experiment.env_args, experiment.imports)
    interface = interface_of(env, experiment.network)
    agents, drawn = agents_of(env, interface), RandomActions(env, seed=0)
    rows = interface.empty_rows(*([agents.num_agents] if agents.is_team else []))
    actions, seeds = cycle([drawn.draw() for _ in range(NUM_ACTIONS)]), count()
    agents.reset(next(seeds), rows)

    def step() -> None:
        if agents.step(next(actions), rows).over:
            agents.reset(next(seeds), rows)

    return step


def _inference(experiment: Experiment, batch: int) -> Call:
    """Actions, log-probabilities and values, as an actor asks for them, or it and the learner in hindsight."""
    interface = _interface(experiment)
    held = _held_as_in_a_run(experiment, interface)
    policy, seen, noise = held.acting, example_inputs(interface, batch), _noise(interface, batch)
    if held.light is None:
        copies = HeldCopies(half_encoders(policy))  # which actors make once for a version

        @torch.inference_mode()
        def decide() -> None:
            with copies.used():
                policy.decide(seen, noise)

        return decide
    light, observations, drawn = held.light, {name: x.numpy() for name, x in seen.items()}, noise.numpy()
    steps, calls = experiment.interval_steps, count(1)
    rollout, taken = example_inputs(interface, steps * batch), torch.from_numpy(light.act(observations, drawn))
    actions = taken.repeat(steps, *[1] * (taken.dim() - 1))

    @torch.inference_mode()
    def act() -> None:
        light.act(observations, drawn)
        if next(calls) % steps == 0:
            distribution, _ = policy.forward(rollout)
            distribution.log_prob(actions)

    return act


def _learning(experiment: Experiment, batch: int) -> Call:
    """Forward, backward and the optimizer's step for one batch that is at hand."""
    interface = _interface(experiment)
    draft = _held_as_in_a_run(experiment, interface).draft
    objective = _objective(experiment, interface, draft.policy, batch)

    def learn() -> None:
        draft.differentiate(objective, draft.policy, slice(0, batch))
        draft.clip(experiment.algorithm.max_gradient_norm)
        draft.step(SMALL_STEP)

    return learn


@torch.no_grad()
def _objective(experiment: Experiment, interface: Interface, policy: Policy, batch: int) -> Objective:
    """Of one step of so many environments, which the policy itself might have made."""
    seen = example_inputs(interface, batch)
    decision = policy.decide(seen, _noise(interface, batch))
    advantages = torch.randn(batch, generator=torch.Generator().manual_seed(0))
    values, nothing = decision.values[None], torch.zeros(1, batch, dtype=torch.bool)
    made = Batch(
        observations={name: x[None] for name, x in seen.items()},
        actions=decision.actions[None],
        log_probs=decision.log_probs[None],
        steps=Transitions(torch.zeros(1, batch), values, values, nothing, nothing),
    )
    algorithm = build_algorithm(experiment)
    aims = {"advantages": advantages, "returns": decision.values + advantages}
    aims |= {"log_probs": decision.log_probs, "values": decision.values}
    targets = algorithm.Targets(*(aims[name] for name in algorithm.Targets._fields))
    objective = algorithm.objective(Update(0), made, targets)
    objective.epoch = 1  # the usual work, of which the first epoch of PPO under hts does a little more
    return objective


class Held(NamedTuple):
    """A policy, the same in NumPy where actors have it so, and a draft of the version after it."""

    acting: Policy
    light: LightPolicy | None
    draft: Draft


def _held_as_in_a_run(experiment: Experiment, interface: Interface) -> Held:
    """In the memory layout of the parameter ring."""
    policy = policy_for(experiment, interface, experiment.num_envs)
    num_vectors = NUM_VECTORS[CommonSettings.of(experiment.algorithm).optimizer]
    block = SharedArrays(parameter_arrays(policy, num_vectors))
    ring = ParameterRing(block, lambda: deepcopy(policy), torch.device("cpu"))
    ring.initialise(policy)
    block.close_fd()
    acting: Any = ring.module(version=0)
    plan = light_plan(policy, experiment.network)
    light = plan.policies(block)[0] if plan else None
    return Held(acting, light, Drafts(ring, CommonSettings.of(experiment.algorithm)).begin(version=1))


def _interface(experiment: Experiment) -> Interface:
    env = make_env(experiment.env, experiment.env_args, experiment.imports)
    try:
        return interface_of(env, experiment.network)
    finally:
        env.close()


def _noise(interface: Interface, batch: int) -> Tensor:
    return torch.from_numpy(interface.actions.noise.draw(0, env=0, first_step=0, num_steps=batch))
