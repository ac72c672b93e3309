"""Whatever the spaces: observations are stored, actions drawn and understood, probabilities right, updates learn."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor
from torch.distributions import AffineTransform, Normal, TanhTransform, TransformedDistribution
from torch.distributions import Categorical as TorchCategorical

from htsrl.algorithms.batch import Batch
from htsrl.algorithms.draft import Drafts
from htsrl.algorithms.optimizers import NUM_VECTORS
from htsrl.algorithms.update import improve
from htsrl.config import A2C, PPO, Algorithm, Experiment, Network
from htsrl.dataflow.memory import SharedArrays
from htsrl.dataflow.parameters import ParameterRing, parameter_arrays
from htsrl.dataflow.storage import Storages
from htsrl.dataflow.trajectory import MEMORY, trajectory_spec
from htsrl.envs.observing import ObservationWriter
from htsrl.numerics import single_threaded
from htsrl.policies.policy import Policy, policy_for
from htsrl.spaces import Interface
from htsrl.spaces.observations import MASK_KEY

NUM_STEPS, NUM_ENVS = 4, 3
AnySpace = spaces.Space[Any]

SIDES = st.integers(1, 3)
LINES, PLANES = st.tuples(SIDES), st.tuples(SIDES, SIDES)
SHAPES = st.one_of(st.just(()), LINES, PLANES)
STARTS = st.integers(-5, 5)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    with single_threaded():
        yield


@st.composite
def boxes_seen(draw: st.DrawFn) -> AnySpace:
    shape = draw(SHAPES)
    dtype = draw(st.sampled_from([np.float32, np.float64, np.uint8, np.int16, np.int64]))
    if issubclass(dtype, np.floating) and draw(st.booleans()):
        return spaces.Box(-np.inf, np.inf, shape, dtype)
    return spaces.Box(0 if dtype is np.uint8 else -7, 255 if dtype is np.uint8 else 9, shape, dtype)


@st.composite
def multi_discretes(draw: st.DrawFn) -> AnySpace:
    shape = draw(st.one_of(LINES, PLANES))
    count = math.prod(shape)
    nvec = np.reshape(draw(st.lists(st.integers(1, 4), min_size=count, max_size=count)), shape)
    start = np.reshape(draw(st.lists(STARTS, min_size=count, max_size=count)), shape)
    return spaces.MultiDiscrete(nvec, start=start, dtype=draw(st.sampled_from([np.int64, np.int8])))


CHOICES: st.SearchStrategy[AnySpace] = st.one_of(
    st.builds(lambda n, start: spaces.Discrete(n, start=start), st.integers(1, 5), STARTS),
    multi_discretes(),
    st.integers(1, 4).map(spaces.MultiBinary),
    PLANES.map(spaces.MultiBinary),
)


@st.composite
def boxes_done(draw: st.DrawFn) -> AnySpace:
    """Every dimension has bounds of its own: two, one, none, or two that are one number."""
    shape = draw(SHAPES)
    kinds = st.sampled_from([(-2.0, 3.0), (0.5, 0.75), (-np.inf, 1.0), (-1.0, np.inf), (-np.inf, np.inf), (4.0, 4.0)])
    bounds = draw(st.lists(kinds, min_size=math.prod(shape), max_size=math.prod(shape)))
    dtype = draw(st.sampled_from([np.float32, np.float64]))
    low, high = (np.reshape(side, shape).astype(dtype) for side in zip(*bounds, strict=True))
    return spaces.Box(low, high, shape, dtype)


def nested(leaves: st.SearchStrategy[AnySpace]) -> st.SearchStrategy[AnySpace]:
    def containers(parts: st.SearchStrategy[AnySpace]) -> st.SearchStrategy[AnySpace]:
        keys = st.sampled_from(["a", "b", "c"])
        return st.one_of(
            st.dictionaries(keys, parts, min_size=1, max_size=3).map(spaces.Dict),
            st.lists(parts, min_size=1, max_size=3).map(spaces.Tuple),
        )

    return st.recursive(leaves, containers, max_leaves=4)


OBSERVATIONS = nested(st.one_of(boxes_seen(), CHOICES))
ACTIONS = nested(st.one_of(boxes_done(), CHOICES))


@dataclass(frozen=True)
class World:
    """Random spaces, and a network for them."""

    interface: Interface
    network: Network
    seed: int


@st.composite
def worlds(draw: st.DrawFn, masks: st.SearchStrategy[str] = st.sampled_from(["no", "observation", "info"])) -> World:  # noqa: B008
    observations, actions = draw(OBSERVATIONS), draw(ACTIONS)
    squashes, mask_in = draw(st.booleans()), draw(masks)
    num_values = sum(Interface(observations, actions).actions.categories)
    if not num_values:
        mask_in = "no"
    if mask_in == "observation":
        observations = spaces.Dict({"seen": observations, MASK_KEY: spaces.MultiBinary(num_values)})
    interface = Interface(observations, actions, masks_in_info=mask_in == "info", squashes=squashes)
    has_floats = any(leaf.dtype.startswith("float") for leaf in interface.observations.values())
    network = Network(
        encoder="mlp",
        hidden_sizes=(7,),
        memory=draw(st.sampled_from(["none", "lstm", "gru"])),
        memory_size=5,
        separate_value=draw(st.sampled_from([None, False])),
        bounded_actions="squash" if squashes else "clip",
        initial_log_std=draw(st.sampled_from([-1.0, 0.0])),
        normalize_observations=has_floats and draw(st.booleans()),
    )
    return World(interface, network, draw(st.integers(0, 2**31 - 1)))


def at(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        tree = tree[key]
    return tree


class Rollout:
    """An interval acted out by hand, into a real storage, in an environment that shows samples of its space."""

    def __init__(self, world: World, algorithm: Algorithm | None = None) -> None:
        self.interface, self.network = world.interface, world.network
        self._random = np.random.default_rng(world.seed)
        self._seen_space = world.interface.observation_space
        self._seen_space.seed(world.seed)
        self.experiment = Experiment(
            "none",
            algorithm=algorithm or A2C(),
            network=world.network,
            num_envs=NUM_ENVS,
            sync_interval=NUM_STEPS,
            total_steps=10**6,
            seed=world.seed,
        )
        self.policy = policy_for(self.experiment, self.interface, NUM_ENVS)
        self.spec = trajectory_spec(self.interface, NUM_STEPS, NUM_ENVS, state_size=self.policy.state_size)
        vectors = NUM_VECTORS[self.experiment.algorithm.optimizer]
        self.memory = SharedArrays([*self.spec.arrays(), *parameter_arrays(self.policy, vectors)])
        self.memory.close_fd()
        self.storages = Storages(self.spec, self.memory)
        self.env_actions: list[list[Any]] = []

    def play(self) -> Rollout:
        writer, noise, fields = ObservationWriter(self.interface), self.interface.actions.noise, self.storages
        draws = [noise.draw(self.experiment.seed, env, 0, NUM_STEPS) for env in range(NUM_ENVS)]
        for t in range(NUM_STEPS):
            for env in range(NUM_ENVS):
                self._show(writer, t, env)
                fields["noise"][0, t, env] = draws[env][t]
            inputs = {name: torch.from_numpy(x[0, t]) for name, x in fields.inputs.items()}
            with torch.inference_mode():
                decision = self.policy.decide(inputs, torch.from_numpy(fields["noise"][0, t]))
            fields["actions"][0, t] = decision.actions.numpy()
            fields["log_probs"][0, t], fields["values"][0, t] = decision.log_probs.numpy(), decision.values.numpy()
            fields["rewards"][0, t] = self._random.normal(size=NUM_ENVS)
            fields["terminated"][0, t] = ended = self._random.random(NUM_ENVS) < 0.3
            if decision.states is not None:
                fields[MEMORY][0, t + 1] = np.where(ended[:, None], 0.0, decision.states.numpy())
            self.env_actions.append([self.interface.actions.to_env(stored) for stored in fields["actions"][0, t]])
        return self

    def _show(self, writer: ObservationWriter, t: int, env: int) -> None:
        """Write a sample of the space, with a mask that leaves every choice something, and look at what was written."""
        seen, rows = self._seen_space.sample(), {name: x[0, t, env, ...] for name, x in self.storages.inputs.items()}
        mask = self._mask()
        if self.interface.masks_in_observation:
            seen[MASK_KEY] = mask
        writer.write(seen, rows)
        writer.write_mask(seen, {MASK_KEY: mask}, rows)
        for name, leaf in self.interface.observations.items():
            expected = mask.astype(np.bool_) if name == MASK_KEY else at(seen, leaf.path)
            np.testing.assert_array_equal(rows[name], expected)

    def _mask(self) -> NDArray[np.int8]:
        parts = []
        for num_values in self.interface.actions.categories:
            part = (self._random.random(num_values) < 0.5).astype(np.int8)
            part[self._random.integers(num_values)] = 1
            parts.append(part)
        return np.concatenate([np.zeros(0, np.int8), *parts])

    def batch(self) -> Batch:
        return Batch.from_storage(self.storages.batch(0), self.spec.observation_names, torch.device("cpu"))

    def inputs(self) -> dict[str, Tensor]:
        """What the policy was given, all steps as rows."""
        return {name: torch.from_numpy(x[0, :NUM_STEPS]).flatten(0, 1) for name, x in self.storages.inputs.items()}


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
    if world.network.memory != "none":
        world = replace(world, network=replace(world.network, backpropagation_length=length))
    common: dict[str, Any] = {"entropy_coefficient": 0.01, "normalize_rewards": world.seed % 2 == 0}
    rollout = Rollout(world, A2C(**common) if name == "a2c" else PPO(epochs=2, num_minibatches=2, **common)).play()
    experiment = rollout.experiment
    ring = ParameterRing(rollout.memory, lambda: policy_for(experiment, world.interface, NUM_ENVS), torch.device("cpu"))
    ring.initialise(rollout.policy)
    behaviour = ring.module(0)
    assert isinstance(behaviour, Policy)
    draft = Drafts(ring, experiment.algorithm).begin(version=1)
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
