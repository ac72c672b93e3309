"""The parts that training consists of, each alone and ready to be called again and again."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from itertools import count, cycle
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Draft, Drafts
from htsrl.algorithms.objective import Objective, Targets
from htsrl.algorithms.optimizers import NUM_VECTORS
from htsrl.algorithms.returns import Transitions
from htsrl.algorithms.update import objective_for
from htsrl.bench.works import WORKS
from htsrl.config import Experiment
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
    return objective_for(experiment, 0, made, Targets(advantages, decision.values + advantages))


def _held_as_in_a_run(experiment: Experiment, interface: Interface) -> tuple[Policy, Draft]:
    """The policy of version 0 and a draft of version 1, in the memory layout of the parameter ring."""
    policy = policy_for(experiment, interface, experiment.num_envs)
    num_vectors = NUM_VECTORS[experiment.algorithm.optimizer]
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
