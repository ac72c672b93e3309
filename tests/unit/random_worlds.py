"""Random spaces, networks for them, and intervals acted out in them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.batch import Batch
from htsrl.algorithms.optimizers import NUM_VECTORS
from htsrl.config import AlgorithmSettings, Experiment, Network
from htsrl.dataflow.parameters import parameter_arrays
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.storage import Storages
from htsrl.dataflow.trajectory import RECURRENT_STATE, Stored, trajectory_spec
from htsrl.envs.observing import ObservationWriter
from htsrl.policies.policy import policy_for
from htsrl.spaces import Interface
from htsrl.spaces.observations import MASK_KEY

NUM_STEPS, NUM_ENVS = 4, 3
AnySpace = spaces.Space[Any]

SIDES = st.integers(1, 3)
LINES, PLANES = st.tuples(SIDES), st.tuples(SIDES, SIDES)
SHAPES = st.one_of(st.just(()), LINES, PLANES)
BLOCKS = st.tuples(SIDES, SIDES, SIDES)
STARTS = st.integers(-5, 5)


@st.composite
def boxes_seen(draw: st.DrawFn) -> AnySpace:
    shape = draw(st.one_of(SHAPES, BLOCKS))
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64, np.uint8, np.int16, np.uint16, np.int64]))
    if issubclass(dtype, np.floating) and draw(st.booleans()):
        return spaces.Box(-np.inf, np.inf, shape, dtype)
    unsigned = issubclass(dtype, np.unsignedinteger)
    return spaces.Box(0 if unsigned else -7, 255 if dtype is np.uint8 else 9, shape, dtype)


@st.composite
def multi_discretes(draw: st.DrawFn) -> AnySpace:
    shape = draw(st.one_of(LINES, PLANES))
    count = math.prod(shape)
    nvec = np.reshape(draw(st.lists(st.integers(1, 4), min_size=count, max_size=count)), shape)
    start = np.reshape(draw(st.lists(STARTS, min_size=count, max_size=count)), shape)
    return spaces.MultiDiscrete(nvec, start=start, dtype=draw(st.sampled_from([np.int64, np.int8, np.int16])))


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
        hidden_sizes=draw(st.sampled_from([(7,), (), (5, 6, 4)])),
        activation=draw(st.sampled_from(["tanh", "relu"])),
        recurrent=draw(st.sampled_from(["none", "lstm", "gru"])),
        recurrent_size=5,
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

    def __init__(self, world: World, algorithm: AlgorithmSettings | None = None) -> None:
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
        self.spec = trajectory_spec(self.interface, NUM_STEPS, NUM_ENVS, Stored(self.policy.state_size))
        vectors = NUM_VECTORS[self.experiment.algorithm.optimizer]
        self.block = SharedArrays([*self.spec.arrays(), *parameter_arrays(self.policy, vectors)])
        self.block.close_fd()
        self.storages = Storages(self.spec, self.block)
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
                fields[RECURRENT_STATE][0, t + 1] = np.where(ended[:, None], 0.0, decision.states.numpy())
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
