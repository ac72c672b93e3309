"""Sequences for policies with a memory: how batches are cut into them, and what cannot be cut."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from helpers import run
from numpy.typing import NDArray
from torch import Tensor, nn
from updates import PPOProgress, ppo_update

from htsrl import A2C, PPO, Config, ConfigError, Experiment, Network
from htsrl.algorithms.batch import Batch, flat_steps
from htsrl.algorithms.objective import Objective
from htsrl.algorithms.ppo.algorithm import PPOTargets
from htsrl.algorithms.returns import Transitions
from htsrl.algorithms.sequences import Chosen, Sequences, taken
from htsrl.config.check import check
from htsrl.envs.team import Info, Team
from htsrl.policies.policy import Past, Policy, build_policy

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float32)
CHOICE = spaces.Discrete(3)

pytestmark = pytest.mark.usefixtures("one_thread")


# --- how a batch is cut ----------------------------------------------------------------------------------------------


def batch_of(
    num_steps: int, num_columns: int, active: NDArray[np.bool_] | None = None, is_recurrent: bool = True
) -> Batch:
    """Every row is its own number; the state before it as well."""
    shape = (num_steps, num_columns)
    rows = torch.arange(num_steps * num_columns).view(shape)
    false = torch.zeros(shape, dtype=torch.bool)
    return Batch(
        observations={"obs": rows[..., None].float()},
        actions=rows,
        log_probs=torch.zeros(shape),
        steps=Transitions(torch.zeros(shape), torch.zeros(shape), torch.zeros(shape), false.clone(), false.clone()),
        active=None if active is None else torch.from_numpy(active),
        states=rows[..., None].float() if is_recurrent else None,
    )


def rows_of(index: Tensor | slice, size: int) -> list[int]:
    return torch.arange(size)[index].tolist()


@pytest.mark.parametrize("length", [1, 2, 3, 6])
def test_a_sequence_is_a_column_over_neighbouring_steps(length: int) -> None:
    sequences = Sequences(batch_of(6, 4), length)
    assert len(sequences.starts) == 6 * 4 // length
    pieces = [sequences.piece(start[None]) for start in sequences.starts]
    for piece in pieces:
        rows = rows_of(piece.rows, 24)
        assert rows == list(range(rows[0], rows[0] + 4 * length, 4))
        assert rows[0] // 4 % length == 0
        assert rows_of(piece.learned, 24) == rows
    assert sorted(row for piece in pieces for row in rows_of(piece.rows, 24)) == list(range(24))


def test_a_piece_has_the_first_steps_of_its_sequences_and_then_the_second() -> None:
    sequences = Sequences(batch_of(4, 3), 2)
    piece = sequences.piece(torch.tensor([7, 0]))
    assert rows_of(piece.rows, 12) == [7, 0, 10, 3]
    assert piece.past is not None
    assert piece.past.states.flatten().tolist() == [7.0, 0.0]
    assert piece.past.begins_LN.shape == (2, 2)
    assert piece.past.counted is None


def test_without_a_memory_the_rows_of_some_steps_are_a_slice_of_the_storage() -> None:
    sequences = Sequences(batch_of(4, 3, is_recurrent=False), 1)
    piece = sequences.choose(sequences.within(2, 2))
    assert piece.rows == piece.learned == slice(6, 12)
    assert piece.past is None


def test_the_sequences_within_some_steps_are_all_that_begin_there() -> None:
    sequences = Sequences(batch_of(6, 2), 2)
    assert [rows_of(sequences.choose(sequences.within(first, 2)).rows, 12) for first in (0, 2, 4)] == [
        [0, 1, 2, 3],
        [4, 5, 6, 7],
        [8, 9, 10, 11],
    ]
    assert rows_of(sequences.choose(sequences.within(2, 4)).rows, 12) == [4, 5, 8, 9, 6, 7, 10, 11]


def test_sequences_without_a_learned_row_are_left_out_and_unlearned_rows_looked_at_only() -> None:
    active = np.array([[1, 0, 0], [1, 0, 1], [0, 1, 0], [1, 1, 0]], np.bool_)
    sequences = Sequences(batch_of(4, 3, active), 2)
    assert sequences.starts.tolist() == [0, 2, 6, 7]
    piece = sequences.piece(sequences.starts)
    assert rows_of(piece.rows, 12) == [0, 2, 6, 7, 3, 5, 9, 10]
    assert rows_of(piece.learned, 12) == [0, 7, 3, 5, 9, 10]
    assert piece.past is not None
    assert piece.past.counted is not None
    assert rows_of(piece.rows, 12) == [0, 2, 6, 7, 3, 5, 9, 10]
    assert [rows_of(piece.rows, 12)[i] for i in piece.past.counted.tolist()] == rows_of(piece.learned, 12)


def test_without_a_memory_only_learned_rows_are_looked_at() -> None:
    active = np.array([[1, 0, 0], [1, 0, 1]], np.bool_)
    sequences = Sequences(batch_of(2, 3, active, is_recurrent=False), 1)
    assert sequences.starts.tolist() == [0, 3, 5]
    assert rows_of(sequences.choose(sequences.within(1, 1)).rows, 6) == [3, 5]


def test_an_episode_begins_after_an_end_and_after_an_absence() -> None:
    batch = batch_of(4, 3, np.array([[1, 1, 1], [1, 1, 1], [0, 1, 1], [1, 1, 1]], np.bool_))
    batch.steps.terminated_TB[1, 0] = True
    batch.steps.truncated_TB[0, 1] = True
    batch.steps.terminated_TB[3, 2] = True  # the next batch's affair
    assert batch.episode_begins().int().tolist() == [[0, 0, 0], [0, 1, 0], [1, 0, 0], [1, 0, 0]]


@pytest.mark.parametrize("shape", [(), (2,), (2, 3, 4)], ids=str)
@pytest.mark.parametrize(
    "dtype", ["uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float32", "float64", "bool"]
)
def test_rows_of_every_type_and_shape_can_be_taken(dtype: str, shape: tuple[int, ...]) -> None:
    x = np.arange(6 * math.prod(shape)).reshape(6, *shape).astype(dtype)
    for rows in (torch.tensor([5, 0, 3]), slice(1, 4)):
        chosen = rows.numpy() if isinstance(rows, Tensor) else rows
        assert np.array_equal(taken(torch.from_numpy(x), rows).numpy(), x[chosen])


class RecordingPolicy(nn.Module):
    """A policy's place in a draft; notes what it is asked."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy
        self.asked: list[tuple[Tensor, Past | None]] = []

    def forward(self, observations: dict[str, Tensor], past: Past | None = None) -> Any:
        self.asked.append((observations["rows"], past))
        return self.policy({"obs": observations["obs"]}, past)


class FakeDraft:
    """Takes no steps."""

    def __init__(self, policy: nn.Module) -> None:
        self.policy = policy

    def targets(self, kind: type[PPOTargets], num_rows: int) -> PPOTargets:
        return PPOTargets(*torch.zeros(4, num_rows))

    def differentiate(self, objective: Objective, at: Any, chosen: Chosen) -> tuple[Tensor, ...]:
        return objective(at, chosen)

    def clip(self, max_norm: float) -> Tensor:
        return torch.zeros(())

    def step(self, learning_rate: float) -> None: ...


def test_the_minibatches_of_an_epoch_hold_whole_sequences_each_once() -> None:
    num_steps, num_columns, length = 6, 4, 3
    batch = batch_of(num_steps, num_columns)
    rows = torch.arange(num_steps * num_columns).view(num_steps, num_columns)
    policy = build_policy(OBSERVATIONS, CHOICE, Network(recurrent="lstm", recurrent_size=5), seed=1)
    batch = replace(
        batch,
        observations={"obs": torch.randn(num_steps, num_columns, 3), "rows": rows},
        actions=torch.zeros_like(rows),
        states=torch.randn(num_steps, num_columns, policy.state_size),
    )
    recording = RecordingPolicy(policy)
    settings, progress = (
        PPO(epochs=2, num_minibatches=4),
        PPOProgress(1, 0, 1e-3, 0.2, sequence_steps=length),
    )
    draft: Any = FakeDraft(recording)
    ppo_update(settings, draft, batch, num_steps, progress)
    assert len(recording.asked) == 8
    for epoch in (recording.asked[:4], recording.asked[4:]):
        seen = []
        for asked, past in epoch:
            sequences = asked.view(length, -1)
            assert sequences.shape[1] == 2
            assert (sequences.diff(dim=0) == num_columns).all()
            assert past is not None
            assert batch.states is not None
            assert torch.equal(past.states, flat_steps(batch.states)[sequences[0]])
            seen += asked.tolist()
        assert sorted(seen) == list(range(24))
    assert not torch.equal(recording.asked[0][0], recording.asked[4][0])


class Shifts(Team):
    """One agent works through; the other only at the first of every four steps."""

    def __init__(self) -> None:
        self.observation_space: spaces.Space[Any] = OBSERVATIONS
        self.action_space: spaces.Space[Any] = CHOICE
        self.num_agents = 2
        self.active = np.zeros(2, np.bool_)

    def reset(self, *, seed: int | None = None, options: Info | None = None) -> tuple[Any, Info]:
        super().reset(seed=seed)
        self._steps, self.active = 0, np.ones(2, np.bool_)
        return self._seen(), {}

    def step(self, action: Any) -> Any:
        self._steps += 1
        before, self.active = self.active, np.array([True, self._steps % 4 == 0])
        return self._seen(), self.np_random.random(2), before & ~self.active, np.zeros(2, np.bool_), {}

    def _seen(self) -> Any:
        return self.np_random.uniform(-1, 1, (2, 3)).astype(np.float32)


def test_a_sequence_with_a_single_learned_row_can_be_a_minibatch_of_its_own() -> None:
    """Three sequences in two minibatches, one of which may hold the other agent's only step."""
    experiment = Experiment(
        Shifts,
        algorithm=PPO(num_minibatches=2, epochs=4),
        network=Network(recurrent="lstm", recurrent_size=4, backpropagation_length=2),
        num_envs=1,
        sync_interval=4,
        total_steps=16,
    )
    assert len(run(experiment).links) == 4


# --- what cannot be cut ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("experiment", "message"),
    [
        (
            Experiment("CartPole-v1", network=Network(backpropagation_length=8)),
            "backpropagation_length=8 needs a recurrent policy; use recurrent='lstm' or 'gru', or leave it out",
        ),
        (
            Experiment("CartPole-v1", network=Network(recurrent="lstm", backpropagation_length=24)),
            "backpropagation_length=24 does not divide the 128 steps of an unroll; use 16 or 32",
        ),
        (
            Experiment(
                "CartPole-v1",
                algorithm=A2C(unroll_length=5),
                sync_interval=20,
                network=Network(recurrent="gru", backpropagation_length=10),
            ),
            "backpropagation_length=10 does not divide the 5 steps of an unroll; use 5",
        ),
        (
            Experiment("CartPole-v1", network=Network(recurrent="gru", backpropagation_length=0)),
            "backpropagation_length=0 must be at least 1",
        ),
        (
            Experiment(
                "CartPole-v1",
                algorithm=PPO(num_minibatches=16),
                num_envs=3,
                sync_interval=32,
                network=Network(recurrent="lstm"),
            ),
            "3 sequences of 32 steps do not divide into num_minibatches=16; use 3, or another backpropagation_length",
        ),
        (
            Experiment("CartPole-v1", network=Network(recurrent="lstm", recurrent_size=0)),
            "recurrent_size=0 must be at least 1",
        ),
    ],
)
def test_sequences_that_do_not_divide_are_answered_with_numbers_that_do(experiment: Experiment, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        check(Config(experiment))


@pytest.mark.parametrize(
    ("unroll", "asked", "length"),
    [(128, None, 32), (5, None, 5), (40, None, 20), (37, None, 37), (122, None, 61), (64, 64, 64), (64, 4, 4)],
)
def test_the_length_of_sequences_is_the_largest_divisor_up_to_32_or_the_next_where_that_is_far(
    unroll: int, asked: int | None, length: int
) -> None:
    network = Network(recurrent="lstm", backpropagation_length=asked)
    assert Experiment("CartPole-v1", network=network, sync_interval=unroll).sequence_steps == length
    assert Experiment("CartPole-v1", sync_interval=unroll).sequence_steps == 1
