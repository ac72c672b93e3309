"""The parts that training consists of, each alone and ready to be called again and again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from itertools import count, cycle
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from htsrl.algorithms.a2c import a2c_loss
from htsrl.algorithms.draft import OPTIMIZER_VECTORS, Draft, Drafts
from htsrl.algorithms.ppo import Minibatch, ppo_loss
from htsrl.bench.works import WORKS
from htsrl.config import PPO, Experiment
from htsrl.dataflow.memory import SharedArrays
from htsrl.dataflow.parameters import ParameterRing, parameter_arrays
from htsrl.envs.agents import agents_of
from htsrl.envs.look import interface_of
from htsrl.envs.make import make_env
from htsrl.envs.random_actions import RandomActions
from htsrl.policies.policy import Policy, policy_for
from htsrl.policies.reference_probe import example_inputs

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
    """Actions, log-probabilities and values, as an actor asks for them."""
    interface = _interface(experiment)
    policy, _ = _held_as_in_a_run(experiment, interface)
    seen, noise = example_inputs(interface, batch), _noise(interface, batch)

    @torch.inference_mode()
    def decide() -> None:
        policy.decide(seen, noise)

    return decide


def _learning(experiment: Experiment, batch: int) -> Call:
    """Forward, backward and the optimizer's step for one batch that is at hand."""
    interface = _interface(experiment)
    _, draft = _held_as_in_a_run(experiment, interface)
    seen = example_inputs(interface, batch)
    data = _example_data(draft.policy, seen, _noise(interface, batch))

    def learn() -> None:
        draft.differentiate(_loss(experiment, draft, seen, data))
        draft.clip(experiment.algorithm.max_gradient_norm)
        draft.step(SMALL_STEP)

    return learn


def _loss(experiment: Experiment, draft: Draft, seen: Mapping[str, Tensor], data: Minibatch) -> Tensor:
    distribution, values = draft.policy(seen)
    algorithm = experiment.algorithm
    if isinstance(algorithm, PPO):
        return ppo_loss(distribution, values, data, algorithm, algorithm.clip_range).total
    return a2c_loss(distribution, values, data.actions, data.advantages, data.returns, algorithm).total


@torch.no_grad()
def _example_data(policy: Policy, seen: Mapping[str, Tensor], noise: Tensor) -> Minibatch:
    decision = policy.decide(seen, noise)
    advantages = torch.randn(decision.values.shape, generator=torch.Generator().manual_seed(0))
    return Minibatch(
        decision.actions, decision.log_probs, decision.values, advantages, returns=decision.values + advantages
    )


def _held_as_in_a_run(experiment: Experiment, interface: Interface) -> tuple[Policy, Draft]:
    """The policy of version 0 and a draft of version 1, in the memory layout of the parameter ring."""
    policy = policy_for(experiment, interface, experiment.num_envs)
    num_vectors = len(OPTIMIZER_VECTORS[experiment.algorithm.optimizer])
    memory = SharedArrays(parameter_arrays(policy, num_vectors))
    ring = ParameterRing(memory, lambda: deepcopy(policy), torch.device("cpu"))
    ring.initialise(policy)
    memory.close_fd()
    acting: Any = ring.module(version=0)
    return acting, Drafts(ring, experiment.algorithm).begin(version=1)


def _interface(experiment: Experiment) -> Interface:
    env = make_env(experiment.env, experiment.env_args, experiment.imports)
    try:
        return interface_of(env, experiment.network)
    finally:
        env.close()


def _noise(interface: Interface, batch: int) -> Tensor:
    return torch.from_numpy(interface.actions.noise.draw(0, env=0, first_step=0, num_steps=batch))
