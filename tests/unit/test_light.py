"""A small policy in NumPy acts as the same policy does in torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from numpy.typing import NDArray
from random_worlds import NUM_ENVS, Rollout, World, worlds
from torch import Tensor, nn

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.ppo import PPO
from htsrl.config import Config, Experiment, Network, Placement
from htsrl.dataflow.parameters import ParameterRing, parameter_arrays
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.placements.survey import draw_blueprint
from htsrl.policies.light import LightPolicy
from htsrl.policies.light_plan import light_plan
from htsrl.policies.policy import Policy, build_policy
from htsrl.policies.reference_probe import example_inputs
from htsrl.spaces.observations import MASK_KEY

VECTOR, IMAGE = spaces.Box(-1.0, 1.0, (4,), np.float32), spaces.Box(0, 255, (84, 84, 1), np.uint8)
CHOICE = spaces.Discrete(2)
NEAR = 1e-4
"""Of two logits, within which rounding may decide otherwise."""

pytestmark = pytest.mark.usefixtures("one_thread")


def in_both(policy: Policy, network: Network) -> tuple[Policy, LightPolicy]:
    """The policy as version 0 of a ring, and in NumPy over the same memory."""
    block = SharedArrays(parameter_arrays(policy, num_optimizer_vectors=1))
    block.close_fd()
    ring = ParameterRing(block, lambda: policy, torch.device("cpu"))
    ring.initialise(policy)
    plan, held = light_plan(policy, network), ring.module(version=0)
    assert plan is not None
    assert isinstance(held, Policy)
    return held, plan.policies(block)[0]


def unsettled(policy: Policy, inputs: dict[str, Tensor]) -> None:
    """Give it strong opinions, and running moments of what it sees."""
    with torch.no_grad():
        policy.action_head.weight.mul_(100)
        for parameter in policy.parameters():
            numbers = torch.Generator().manual_seed(parameter.numel())
            parameter.add_(torch.randn(parameter.shape, generator=numbers), alpha=0.1)
    if policy.observation_scales is not None:
        policy.observation_scales.take_in({name: inputs[name] for name in policy.observation_scales.names})


def clearly_made(outputs: Tensor, inputs: dict[str, Tensor], noise: Tensor, world: World) -> NDArray[np.bool_]:
    """Which choices are not made by a hair, `[rows, choices]`."""
    categories = world.interface.actions.categories
    logits = outputs[:, : sum(categories)]
    allowed = inputs.get(MASK_KEY, torch.ones_like(logits, dtype=torch.bool))
    perturbed = logits.where(allowed, -torch.inf) + noise[:, : sum(categories)]
    best = [part.sort(dim=1, descending=True).values for part in torch.split(perturbed, list(categories), dim=1)]
    by_more = [x[:, 0] - x[:, 1] > NEAR if x.shape[1] > 1 else torch.ones(len(x), dtype=torch.bool) for x in best]
    return torch.stack(by_more, dim=1).numpy()


class Own(nn.Linear):
    """A network of the user's."""

    num_features = 8

    def __init__(self, space: spaces.Box) -> None:
        super().__init__(4, 8)


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_it_does_and_values_what_torch_does(world: World) -> None:
    network = replace(world.network, recurrent="none", separate_value=True)
    rollout = Rollout(replace(world, network=network)).play()
    inputs, noise = rollout.inputs(), torch.from_numpy(rollout.storages["noise"][0, :-1]).flatten(0, 1)
    policy, light = in_both(rollout.policy, network)
    unsettled(policy, inputs)
    with torch.inference_mode():
        outputs = policy.outputs(inputs)
        decision = policy.decide(inputs, noise)
        assert torch.equal(policy.draw(inputs, noise), decision.actions)
    seen, num_choices = {name: x.numpy() for name, x in inputs.items()}, len(world.interface.actions.categories)
    actions, expected = light.act(seen, noise.numpy()), decision.actions.numpy()
    assert (actions.dtype, actions.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(light.value(seen), decision.values.numpy(), rtol=1e-4, atol=1e-4)
    actions, expected = actions.reshape(len(actions), -1), expected.reshape(len(actions), -1)
    np.testing.assert_allclose(actions[:, num_choices:], expected[:, num_choices:], rtol=1e-4, atol=1e-4)
    if num_choices:
        clear = clearly_made(outputs, inputs, noise, world)
        np.testing.assert_array_equal(actions[:, :num_choices][clear], expected[:, :num_choices][clear])


def test_it_acts_by_whatever_is_in_its_slot() -> None:
    policy = build_policy(VECTOR, CHOICE, Network(), seed=0)
    block = SharedArrays(parameter_arrays(policy, num_optimizer_vectors=1))
    block.close_fd()
    ring = ParameterRing(block, lambda: policy, torch.device("cpu"))
    plan = light_plan(policy, Network())
    assert plan is not None
    lights, seen = plan.policies(block), {"obs": np.ones((3, 4), np.float32)}
    ring.initialise(build_policy(VECTOR, CHOICE, Network(), seed=1))
    ring.draft(version=1)
    before = lights[0].value(seen)
    np.testing.assert_array_equal(lights[1].value(seen), before)
    with torch.no_grad():
        ring.modules[1].get_parameter("value_head.bias").add_(1.0)
    np.testing.assert_allclose(lights[1].value(seen), before + 1, rtol=1e-6)
    np.testing.assert_array_equal(lights[0].value(seen), before)


@pytest.mark.parametrize(
    ("space", "network"),
    [
        pytest.param(VECTOR, Network(separate_value=False), id="one encoder for both"),
        pytest.param(VECTOR, Network(recurrent="gru"), id="a memory"),
        pytest.param(VECTOR, Network(hidden_sizes=(256, 256)), id="large layers"),
        pytest.param(IMAGE, Network(separate_value=True), id="images"),
        pytest.param(VECTOR, Network(policy=Own), id="a network of the user's"),
    ],
)
def test_other_policies_act_in_torch(space: spaces.Box, network: Network) -> None:
    assert light_plan(build_policy(space, CHOICE, network, seed=0), network) is None


@pytest.mark.parametrize("algorithm", [A2C(), PPO()])
@pytest.mark.parametrize("schedule", ["hts", "sync", "lockstep"])
def test_small_policies_act_in_numpy(schedule: Any, algorithm: A2C | PPO) -> None:
    experiment = Experiment("CartPole-v1", algorithm=algorithm, schedule=schedule, num_envs=NUM_ENVS)
    blueprint = draw_blueprint(Config(experiment, Placement("inline")))
    assert blueprint.light is not None
    assert blueprint.trajectory.values_deferred


@pytest.mark.parametrize("num_envs", [5, 16, 64])
def test_the_sizes_of_batches_are_those_in_which_numpy_agrees_with_itself(num_envs: int) -> None:
    experiment = Experiment("Pendulum-v1", algorithm=PPO(), num_envs=num_envs)
    blueprint = draw_blueprint(Config(experiment, Placement("inline")))
    if blueprint.light is None:
        pytest.skip("on this processor NumPy agrees with itself in no sizes, and actors use torch")
    policy = blueprint.build_policy()
    _, light = in_both(policy, Network())
    examples = {name: x.numpy() for name, x in example_inputs(policy.interface, num_envs).items()}
    examples["noise"] = policy.interface.actions.noise.draw(0, env=0, first_step=0, num_steps=num_envs)
    sizes, drawn = blueprint.shape.sizes, np.random.default_rng(0)
    in_order = np.arange(sizes[-1]) % num_envs
    whole = light.probe({name: x[in_order] for name, x in examples.items()})
    for size in sizes:
        rows = drawn.integers(num_envs, size=size)
        np.testing.assert_array_equal(light.probe({name: x[rows] for name, x in examples.items()}), whole[rows])


def test_what_is_probed_is_what_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy whose rows depend on where they stand acts in torch, which asks for less."""
    probe = LightPolicy.probe
    monkeypatch.setattr(LightPolicy, "probe", lambda self, x: probe(self, x) + np.arange(len(x["noise"]))[:, None])
    blueprint = draw_blueprint(Config(Experiment("CartPole-v1"), Placement("inline")))
    assert blueprint.light is None
    assert not blueprint.shape.pinned
    assert blueprint.trajectory.values_deferred


def test_an_environment_that_is_strict_with_numpy_does_not_stop_it() -> None:
    experiment = Experiment("CartPole-v1", algorithm=A2C(), num_envs=NUM_ENVS)
    blueprint = draw_blueprint(Config(experiment, Placement("inline")))
    block = SharedArrays(blueprint.block_specs())
    block.close_fd()
    shared = blueprint.shared(block)
    blueprint.build_parameters(block).initialise(blueprint.build_policy())
    shared.storages["obs"][...] = 1e-40
    answers = blueprint.build_actor(0, shared, block, lambda envs: None).answers
    with np.errstate(all="raise"):
        _, answered = answers.act(0, np.arange(4))
        _, values = answers.value(0, np.arange(4))
    assert answered["actions"].shape == values.shape == (4,)


def test_where_rollouts_queue_they_do_not() -> None:
    experiment = Experiment("CartPole-v1", algorithm=A2C(), schedule="async", num_envs=NUM_ENVS)
    blueprint = draw_blueprint(Config(experiment, Placement("inline")))
    assert blueprint.light is None
    assert not blueprint.trajectory.values_deferred
