"""What a differentiator keeps of an assessment, for the gradient that is ordered next."""

from __future__ import annotations

import pytest
import torch
from interleavings import Company, blueprint_of

from htsrl import PPO, Experiment
from htsrl.algorithms.objective import Targets
from htsrl.dataflow.gradient_orders import ASSESS, ASSESS_TO_DIFFERENTIATE, DIFFERENTIATE, GradientOrders, Order
from htsrl.policies.policy import Policy
from htsrl.roles.differentiator import Differentiator

SLOT, NUM_CHOSEN = 0, 8
EXPERIMENT = Experiment(
    "CartPole-v1",
    algorithm=PPO(num_minibatches=2),
    num_envs=4,
    sync_interval=8,
    total_steps=64,
    gradient_shards=2,
)


class Helper:
    """A differentiator that gets its orders from here, and how often its policy looks at something."""

    def __init__(self, company: Company) -> None:
        self._orders = GradientOrders(company.memory)
        self._orders.targets[: Targets._fields.index("log_probs")] = 1.0  # advantages and returns
        (build,) = company.differentiators.values()
        differentiator = build()
        assert isinstance(differentiator, Differentiator)
        self._differentiator, self.looks = differentiator, 0
        differentiator._modules[SLOT].register_forward_pre_hook(self._count)

    def carry_out(self, task: int, first: int = 0) -> None:
        self._orders.sequences[:NUM_CHOSEN] = range(first, first + NUM_CHOSEN)
        self._orders.issue(Order(task, 0, SLOT, True, 0, NUM_CHOSEN, NUM_CHOSEN))
        assert self._differentiator.advance()

    def _count(self, policy: Policy, _: object) -> None:
        self.looks += 1


@pytest.fixture
def helper() -> Helper:
    return Helper(Company(blueprint_of(EXPERIMENT)))


def test_a_gradient_after_its_assessment_takes_no_other_look(helper: Helper) -> None:
    helper.carry_out(ASSESS_TO_DIFFERENTIATE)
    assert helper.looks == 1
    helper.carry_out(DIFFERENTIATE)
    assert helper.looks == 1
    helper.carry_out(DIFFERENTIATE)
    assert helper.looks == 2


def test_after_another_assessment_it_looks_again(helper: Helper) -> None:
    helper.carry_out(ASSESS_TO_DIFFERENTIATE)
    helper.carry_out(ASSESS, first=NUM_CHOSEN)
    helper.carry_out(DIFFERENTIATE)
    assert helper.looks == 3


def test_one_in_the_place_of_another_looks_again_and_finds_the_same() -> None:
    company = Company(blueprint_of(EXPERIMENT))
    first = Helper(company)
    first.carry_out(ASSESS_TO_DIFFERENTIATE)
    first.carry_out(DIFFERENTIATE)
    gradient = torch.from_numpy(company.memory["shard_gradients"][1].copy())
    company.memory["shard_gradients"][1] = 0
    second = Helper(company)
    second.carry_out(DIFFERENTIATE)
    assert (first.looks, second.looks) == (1, 1)
    assert gradient.any()
    assert torch.equal(gradient, torch.from_numpy(company.memory["shard_gradients"][1]))


def test_a_gradient_of_other_sequences_than_were_kept_is_refused(helper: Helper) -> None:
    helper.carry_out(ASSESS_TO_DIFFERENTIATE)
    with pytest.raises(AssertionError, match="a pass was kept of other sequences"):
        helper.carry_out(DIFFERENTIATE, first=NUM_CHOSEN)
