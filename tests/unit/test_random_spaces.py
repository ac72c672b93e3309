"""Whatever the spaces: observations are stored, actions drawn and understood, probabilities right, updates learn."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from random_worlds import NUM_ENVS, NUM_STEPS, AnySpace, Rollout, World, worlds
from torch import Tensor
from torch.distributions import AffineTransform, Normal, TanhTransform, TransformedDistribution
from torch.distributions import Categorical as TorchCategorical
from updates import improve

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.draft import Drafts
from htsrl.algorithms.ppo import PPO
from htsrl.config.algorithm_settings import CommonSettings
from htsrl.dataflow.parameters import ParameterRing
from htsrl.policies.policy import Policy, policy_for
from htsrl.spaces.observations import MASK_KEY

pytestmark = pytest.mark.usefixtures("one_thread")


@dataclass
class Parts:
    """An action taken apart, by a walk of its space that knows nothing of layouts."""

    choices: list[int]
    numbers: list[float]
    sizes: list[int]
    bounds: list[tuple[float, float]]


def taken_apart(space: AnySpace, action: Any, parts: Parts | None = None) -> Parts:
    parts = parts or Parts([], [], [], [])
    if isinstance(space, spaces.Dict):
        for key in space.spaces:
            taken_apart(space[key], action[key], parts)
    elif isinstance(space, spaces.Tuple):
        for part, its_action in zip(space.spaces, action, strict=True):
            taken_apart(part, its_action, parts)
    elif isinstance(space, spaces.Box):
        parts.numbers += action.flatten().tolist()
        parts.bounds += list(zip(space.low.flatten().tolist(), space.high.flatten().tolist(), strict=True))
    elif isinstance(space, spaces.Discrete):
        parts.choices.append(int(action - space.start))
        parts.sizes.append(int(space.n))
    elif isinstance(space, spaces.MultiDiscrete):
        parts.choices += (action - space.start).flatten().tolist()
        parts.sizes += space.nvec.flatten().tolist()
    else:
        parts.choices += action.flatten().tolist()
        parts.sizes += [2] * action.size
    return parts


def torchs_choice(logits: Tensor) -> Any:
    return TorchCategorical(logits=logits)


def torchs_normal(mean: Tensor, std: Tensor, bounds: tuple[float, float] | None) -> tuple[Any, Any]:
    """The distribution of what the environment gets of a dimension, and what brings it there."""
    normal = Normal(mean, std)
    if bounds is None:
        return normal, lambda x: x
    low, high = bounds
    squash = [TanhTransform(), AffineTransform((low + high) / 2, (high - low) / 2)]
    return TransformedDistribution(normal, squash), lambda x: squash[1](squash[0](x))


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_every_action_lies_in_its_space_and_says_what_was_drawn(world: World) -> None:
    rollout = Rollout(world).play()
    space, layout = world.interface.action_space, world.interface.actions
    stored = rollout.storages["actions"][0].reshape(NUM_STEPS * NUM_ENVS, -1)
    actions = [action for step in rollout.env_actions for action in step]
    for row, action in zip(stored, actions, strict=True):
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a Box complains of what is no array
            assert space.contains(action)
        parts, num_choices = taken_apart(space, action), len(layout.categories)
        assert parts.sizes == list(layout.categories)
        assert parts.choices == row[:num_choices].tolist()
        drawn = row[num_choices:].astype(np.float64)
        low, high = np.array(parts.bounds).reshape(-1, 2).T
        with np.errstate(invalid="ignore"):  # of bounds at infinity
            squashed = (low + high) / 2 + np.tanh(drawn) * (high - low) / 2
        is_squashed = np.isfinite(low) & np.isfinite(high) & (low < high) & layout.squashes
        expected = np.where(is_squashed, squashed, np.clip(drawn, low, high))
        np.testing.assert_allclose(parts.numbers, expected, rtol=1e-6, atol=1e-6)


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_log_probabilities_and_entropies_are_sums_over_the_parts_as_torch_computes_them(world: World) -> None:
    rollout = Rollout(world).play()
    policy, layout, inputs = rollout.policy, world.interface.actions, rollout.inputs()
    action = taken_apart(world.interface.action_space, rollout.env_actions[0][0])
    with torch.inference_mode():
        outputs = policy.outputs(inputs).double()
        distribution, values, _ = policy.respond(inputs)
        stored = torch.from_numpy(rollout.storages["actions"][0]).flatten(0, 1)
        log_probs, entropies = distribution.log_prob(stored), distribution.entropy()
    columns = stored.view(len(stored), -1).double()
    mask = inputs.get(MASK_KEY, torch.ones(len(stored), sum(action.sizes), dtype=torch.bool))
    expected, expected_entropies = torch.zeros(len(stored)).double(), torch.zeros(len(stored)).double()
    first = 0
    for i, size in enumerate(action.sizes):
        logits = outputs[:, first : first + size].where(mask[:, first : first + size], -torch.inf)
        choice = torchs_choice(logits)
        expected += choice.log_prob(columns[:, i].long())
        expected_entropies += choice.entropy()
        first += size
    has_room = [math.isfinite(low) and math.isfinite(high) and low < high for low, high in action.bounds]
    for i, bounds in enumerate(action.bounds):
        squashed = bounds if has_room[i] and layout.squashes else None
        std = policy.log_std[i].detach().double().exp()
        normal, to_env = torchs_normal(outputs[:, first + i], std, squashed)
        expected += normal.log_prob(to_env(columns[:, len(action.sizes) + i]))
        if squashed is None:
            expected_entropies += normal.entropy()
    torch.testing.assert_close(log_probs.double(), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(values.double(), outputs[:, first + len(action.bounds)])
    stored_log_probs = torch.from_numpy(rollout.storages["log_probs"][0]).flatten()
    torch.testing.assert_close(log_probs, stored_log_probs, rtol=1e-4, atol=1e-4)
    if not (layout.squashes and any(has_room)):  # those of squashed ones are estimated in test_distributions
        torch.testing.assert_close(entropies.double(), expected_entropies, rtol=1e-4, atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(worlds(masks=st.sampled_from(["observation", "info"])))
def test_what_a_mask_forbids_is_neither_drawn_nor_the_mode(world: World) -> None:
    if not world.interface.has_masks:  # there was nothing to choose
        return
    rollout = Rollout(world).play()
    inputs, categories = rollout.inputs(), world.interface.actions.categories
    with torch.inference_mode():
        mode = rollout.policy.respond(inputs)[0].mode()
    for actions in (torch.from_numpy(rollout.storages["actions"][0]).flatten(0, 1), mode):
        chosen = actions.reshape(len(actions), -1)[:, : len(categories)].long()
        firsts = torch.tensor([0, *categories[:-1]]).cumsum(0)
        assert inputs[MASK_KEY].gather(1, firsts + chosen).all()


@settings(max_examples=40, deadline=None)
@given(worlds(), st.sampled_from([1, 2, NUM_STEPS]), st.sampled_from(["a2c", "ppo"]))
def test_an_update_learns_something_finite(world: World, length: int, name: str) -> None:
    if world.network.recurrent != "none":
        world = replace(world, network=replace(world.network, backpropagation_length=length))
    common: dict[str, Any] = {"entropy_coefficient": 0.01, "normalize_rewards": world.seed % 2 == 0}
    rollout = Rollout(world, A2C(**common) if name == "a2c" else PPO(epochs=2, num_minibatches=2, **common)).play()
    experiment = rollout.experiment
    ring = ParameterRing(rollout.block, lambda: policy_for(experiment, world.interface, NUM_ENVS), torch.device("cpu"))
    ring.initialise(rollout.policy)
    behaviour = ring.module(0)
    assert isinstance(behaviour, Policy)
    draft = Drafts(ring, CommonSettings.of(experiment.algorithm)).begin(version=1)
    before = {name: x.clone() for name, x in behaviour.state_dict().items()}
    metrics = improve(experiment, 0, draft, behaviour, rollout.batch())
    assert all(math.isfinite(metrics[name]) for name in metrics if name != "train/explained_variance")
    assert all(x.isfinite().all() for x in draft.policy.state_dict().values())
    assert all(torch.equal(x, before[name]) for name, x in behaviour.state_dict().items())
    assert not torch.equal(ring.slots[1, 0], ring.slots[0, 0])
    moved = {name for name, x in draft.policy.named_parameters() if not torch.equal(x, before[name])}
    assert {"value_head.weight", "value_head.bias"} <= moved
    num_alternatives = sum(n > 1 for n in world.interface.actions.categories) + world.interface.actions.num_continuous
    if num_alternatives and not world.interface.has_masks:
        assert "action_head.bias" in moved
