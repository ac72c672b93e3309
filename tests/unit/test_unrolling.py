"""The learner unrolls sequences as the actors did: by an independent loop, and in runs to the bit."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from helpers import assert_same_numbers
from numpy.typing import NDArray
from test_sequences import CHOICE, OBSERVATIONS
from torch import Tensor, nn

from htsrl import A2C, PPO, Config, Experiment, Network, Placement
from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.sequences import Sequences
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.trajectory import RECURRENT_STATE
from htsrl.envs.team import Info
from htsrl.numerics import single_threaded
from htsrl.placements.survey import draw_blueprint
from htsrl.policies.policy import Past, Policy, build_policy
from htsrl.policies.recurrent import Lstm
from htsrl.roles.executor import NO_BELLS

pytestmark = pytest.mark.usefixtures("one_thread")


# --- against an independent loop -------------------------------------------------------------------------------------


def reference_cell(recurrent: Lstm) -> nn.LSTMCell:
    """torch's cell with the same numbers."""
    cell = nn.LSTMCell(recurrent.weight_input.shape[1], recurrent.num_features).double()
    with torch.no_grad():
        cell.weight_ih.copy_(in_torchs_order(recurrent.weight_input))
        cell.weight_hh.copy_(in_torchs_order(recurrent.weight_state))
        cell.bias_ih.copy_(in_torchs_order(recurrent.bias))
        cell.bias_hh.zero_()
    return cell


def in_torchs_order(blocks: Tensor) -> Tensor:
    """torch has input, forget, candidate, output; we have output, input, forget, candidate."""
    return torch.cat([blocks.chunk(4)[i] for i in (1, 2, 3, 0)])


def loop(cell: nn.LSTMCell, inputs_LNI: Tensor, states: Tensor, begins_LN: Tensor) -> Tensor:
    """Step by step, the state emptied by hand where an episode begins."""
    hidden, carried = states.chunk(2, dim=1)
    outputs = []
    for inputs, begins in zip(inputs_LNI, begins_LN, strict=True):
        keep = (~begins).double()[:, None]
        hidden, carried = cell(inputs, (hidden * keep, carried * keep))
        outputs.append(hidden)
    return torch.cat(outputs)


@pytest.mark.parametrize("separate", [False, True])
def test_gradients_of_a_sequence_are_those_of_an_independent_lstm_loop(separate: bool) -> None:
    """With torch's own cell, and the policy's heads and a loss written out."""
    torch.manual_seed(0)
    network = Network(recurrent="lstm", recurrent_size=4, hidden_sizes=(), separate_value=separate)
    policy = build_policy(OBSERVATIONS, CHOICE, network, seed=1)
    for encoder in (policy.encoder, policy.value_encoder):
        if encoder is not None:
            encoder.side_by_side = lambda observations, keep=None: observations["obs"]  # type: ignore[method-assign]
    policy.double()
    length, num_rows = 6, 3
    seen, states = torch.randn(length, num_rows, 3).double(), torch.randn(num_rows, policy.state_size).double()
    begins = torch.tensor([[0, 0, 1], [0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 1, 0], [1, 0, 0]], dtype=torch.bool)
    actions = torch.randint(3, (length * num_rows,))
    counted = torch.tensor([0, 1, 4, 5, 6, 9, 11, 12, 13, 17])

    recurrent = policy.core
    assert isinstance(recurrent, Lstm)
    cell = reference_cell(recurrent)
    features = loop(cell, seen, states, begins)[counted]
    # A value with an encoder of its own looks at the memory, and does not teach it.
    value_features = torch.cat([seen.flatten(0, 1)[counted], features.detach()], dim=1) if separate else features
    log_probs = torch.log_softmax(policy.action_head(features), dim=1)[range(10), actions[counted]]
    expected_loss = log_probs.sum() + policy.value_head(value_features).square().sum()
    heads = [policy.action_head.weight, policy.value_head.weight]
    expected = torch.autograd.grad(expected_loss, [*heads, cell.weight_ih, cell.weight_hh, cell.bias_ih])

    distribution, values = policy({"obs": seen.flatten(0, 1)}, Past(states, begins, counted))
    loss = distribution.log_prob(actions[counted]).sum() + values.square().sum()
    gradients = torch.autograd.grad(loss, [*heads, recurrent.weight_input, recurrent.weight_state, recurrent.bias])
    torch.testing.assert_close(loss, expected_loss)
    ours = [*gradients[:2], *map(in_torchs_order, gradients[2:])]
    for gradient, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-9)


# --- in runs ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Interval:
    """What an update learned from, and the policy that made it."""

    fields: dict[str, NDArray[Any]]
    batch: Batch
    behaviour: Policy


NUM_UPDATES, NUM_STEPS = 4, 12


class Clock(gymnasium.Env[Any, np.int64]):
    """Shows the time, and nothing else happens until a limit cuts it short."""

    LIMIT = 7

    def __init__(self) -> None:
        self.observation_space, self.action_space = OBSERVATIONS, CHOICE

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._steps = 0
        return self.shown(0), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, Info]:
        self._steps += 1
        return self.shown(self._steps), 1.0, False, self._steps == self.LIMIT, {}

    @classmethod
    def shown(cls, step: int) -> NDArray[np.float32]:
        return np.array([step / cls.LIMIT, step % 2, 1.0], np.float32)


ENVS: dict[str, tuple[Any, dict[str, Any]]] = {
    "clock": (Clock, {}),
    "terminated": ("htsrl/Memoir-v0", {"length": 5}),
    "truncated": ("htsrl/HiddenCartPole-v0", {"step_limit": 9}),
    "hybrid": ("htsrl/Crane-v0", {"length": 7}),
    "images": ("htsrl/Crane-v0", {"length": 7}),
    "team": ("htsrl/Relay-v0", {}),
}
NETWORKS = {
    "truncated": Network(separate_value=False),
    "hybrid": Network("mlp", bounded_actions="squash", normalize_observations=True),
    "images": Network("impala", bounded_actions="squash"),
}


@cache
def intervals_of(name: str, recurrent: Any, algorithm: str = "a2c") -> list[Interval]:
    """A run in one process, its batches copied before each update along with the parameters that acted."""
    env, env_args = ENVS[name]
    experiment = Experiment(
        env,
        env_args,
        algorithm=A2C(learning_rate=0.02) if algorithm == "a2c" else PPO(num_minibatches=3, learning_rate=0.01),
        network=replace(NETWORKS.get(name, Network()), recurrent=recurrent, recurrent_size=9),
        num_envs=3,
        sync_interval=NUM_STEPS,
        total_steps=3 * NUM_STEPS * NUM_UPDATES,
    )
    placement = Placement("inline", num_executors=1, num_actors=0, verify_storages=True, progress="off")
    found: list[Interval] = []
    with single_threaded():
        blueprint = draw_blueprint(Config(experiment, placement))
        arrays = SharedArrays(blueprint.block_specs())
        shared, parameters = blueprint.shared(arrays), blueprint.build_parameters(arrays)
        parameters.initialise(blueprint.build_policy())

        def copy_interval(update: int) -> None:
            fields = {name: x.copy() for name, x in shared.source.fields(update).items()}
            batch = Batch.from_storage(fields, shared.storages.spec.observation_names, torch.device("cpu"))
            behaviour = blueprint.build_policy()
            acting = parameters.module(shared.source.behaviour_version(update) or 0)
            behaviour.load_state_dict(acting.state_dict())
            found.append(Interval(fields, batch, behaviour))

        executor = blueprint.build_executor(0, shared, NO_BELLS)
        actor = blueprint.build_actor(0, shared, arrays, lambda envs: None)
        learner = blueprint.build_learner(arrays, shared, parameters, lambda: None, lambda report: None, copy_interval)
        while not learner.finished:
            assert any([executor.advance(), actor.advance(), learner.advance()])
        executor.close()
    arrays.close_fd()
    assert len(found) == NUM_UPDATES
    return found


RUNS = pytest.mark.parametrize(
    ("name", "recurrent"),
    [*itertools.product([name for name in ENVS if name != "images"], ["lstm", "gru"])],
    ids=lambda value: str(value),
)


@RUNS
@pytest.mark.parametrize("length", [1, 2, NUM_STEPS])
def test_what_the_learner_computes_at_the_behaviour_parameters_is_what_was_stored(
    name: str, recurrent: str, length: int
) -> None:
    for interval in intervals_of(name, recurrent):
        batch = interval.batch
        sequences = Sequences(batch, length)
        piece = sequences.piece(sequences.starts)
        seen = {field: flat_steps(x)[piece.rows] for field, x in batch.observations.items()}
        distribution, values = interval.behaviour(seen, piece.past)
        log_probs = distribution.log_prob(flat_steps(batch.actions)[piece.learned])
        assert_same_numbers(log_probs, flat_steps(batch.log_probs)[piece.learned])
        assert_same_numbers(values, flat_steps(batch.steps.values_TB)[piece.learned])
        num_learned = NUM_STEPS * 3 if batch.active is None else int(batch.active.sum())
        assert len(values) == num_learned


@RUNS
def test_a_few_sequences_by_themselves_are_computed_to_the_same_bits(name: str, recurrent: str) -> None:
    batch, behaviour = intervals_of(name, recurrent)[-1].batch, intervals_of(name, recurrent)[-1].behaviour
    sequences = Sequences(batch, 4)
    for starts in (sequences.starts[:1], sequences.starts[[5, 2]], sequences.starts[1::2]):
        piece = sequences.piece(starts)
        seen = {field: flat_steps(x)[piece.rows] for field, x in batch.observations.items()}
        distribution, values = behaviour(seen, piece.past)
        log_probs = distribution.log_prob(flat_steps(batch.actions)[piece.learned])
        assert_same_numbers(log_probs, flat_steps(batch.log_probs)[piece.learned])
        assert_same_numbers(values, flat_steps(batch.steps.values_TB)[piece.learned])


@pytest.mark.parametrize("recurrent", ["lstm", "gru"])
def test_of_images_the_bits_are_those_stored_at_the_size_that_the_actors_had(recurrent: str) -> None:
    """Convolutions may round otherwise in larger batches; so step by step, all environments together."""
    for interval in intervals_of("images", recurrent):
        batch = interval.batch
        sequences = Sequences(batch, 1)
        for t in range(NUM_STEPS):
            piece = sequences.choose(sequences.within(t, 1))
            seen = {field: flat_steps(x)[piece.rows] for field, x in batch.observations.items()}
            distribution, values = interval.behaviour(seen, piece.past)
            assert_same_numbers(distribution.log_prob(batch.actions[t]), batch.log_probs[t])
            assert_same_numbers(values, batch.steps.values_TB[t])


@RUNS
def test_the_state_is_empty_exactly_where_an_episode_begins(name: str, recurrent: str) -> None:
    intervals = intervals_of(name, recurrent)
    num_columns = intervals[0].fields["rewards"].shape[1]
    began, num_begins = np.ones(num_columns, np.bool_), 0
    for interval in intervals:
        fields = interval.fields
        active = fields.get("active", np.ones_like(fields["terminated"]))
        for t in range(NUM_STEPS):
            is_empty = ~fields[RECURRENT_STATE][t].any(axis=1)
            np.testing.assert_array_equal(is_empty[active[t]], began[active[t]])
            num_begins += int(began[active[t]].sum())
            began = fields["terminated"][t] | fields["truncated"][t] | ~active[t]
    assert num_columns < num_begins < NUM_UPDATES * NUM_STEPS * num_columns


def test_of_two_runs_that_differ_in_their_algorithm_the_first_batch_alone_is_the_same() -> None:
    """So the runs above do learn between their intervals."""
    a2c, ppo = intervals_of("terminated", "lstm"), intervals_of("terminated", "lstm", "ppo")
    same = [np.array_equal(one.fields["values"], other.fields["values"]) for one, other in zip(a2c, ppo, strict=True)]
    assert same == [True, True, False, False]  # the second was rolled out while the first was learned from


def test_the_value_at_which_a_time_limit_cut_an_episode_remembers_the_episode() -> None:
    """Its bootstrap value is that of the last observation after the whole episode, not of an empty memory."""
    found = 0
    for interval in intervals_of("clock", "lstm"):
        fields, behaviour = interval.fields, interval.behaviour
        for t, env in zip(*np.nonzero(fields["truncated"]), strict=True):
            # The memory after step t is not stored, for the next row begins an episode: made once more from the row.
            at = {name: torch.from_numpy(fields[name][t, env])[None] for name in ("obs", RECURRENT_STATE)}
            last = torch.from_numpy(Clock.shown(Clock.LIMIT))[None]
            with torch.inference_mode():
                _, _, after = behaviour.respond(at)
                assert after is not None
                _, value, _ = behaviour.respond({"obs": last, RECURRENT_STATE: after})
                _, forgetful, _ = behaviour.respond({"obs": last, RECURRENT_STATE: torch.zeros_like(after)})
            assert_same_numbers(torch.tensor([fields["bootstrap_values"][t, env]]), value)
            assert abs(value.item() - forgetful.item()) > 1e-4
            found += 1
    assert found > 3
