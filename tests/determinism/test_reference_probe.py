"""The probe finds a batch shape in which a row's bits do not depend on who else was ready."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from gymnasium import spaces
from helpers import assert_same_run, run
from hypothesis import given
from hypothesis import strategies as st
from small_experiments import NUM_ENVS, oracle, small_experiment
from torch import Tensor, nn

from htsrl import Config, ConfigError, Network, Placement
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.numerics import single_threaded
from htsrl.placements.survey import draw_blueprint
from htsrl.policies.encoders import Encoder
from htsrl.policies.policy import Observations, Policy, build_policy
from htsrl.policies.reference_probe import MAX_SIZES, MIN_ROWS, example_inputs, find_reference_shape
from htsrl.spaces import Interface

OBSERVATION_SPACE = spaces.Box(-1.0, 1.0, (4,), np.float32)
ACTION_SPACE = spaces.Discrete(2)
Values = Callable[[Tensor], Tensor]


class FakePolicy(Policy):
    """Gives the sum of a row's numbers as its value, disturbed as the test asks."""

    def __init__(self, disturbance: Values) -> None:
        super().__init__(Interface(OBSERVATION_SPACE, ACTION_SPACE), Network(hidden_sizes=()))
        self._disturbance = disturbance

    def outputs(self, observations: Observations) -> Tensor:
        obs = observations["obs"]
        # Column by column: what torch makes of a sum over rows is not what is tested here.
        values = obs[:, 0] + obs[:, 1] + obs[:, 2] + obs[:, 3]
        return (values + self._disturbance(values))[:, None]


def probed(policy: Policy, num_envs: int = NUM_ENVS) -> ReferenceShape:
    examples = example_inputs(policy.interface, max(num_envs, MIN_ROWS))
    with single_threaded():
        return find_reference_shape(policy.outputs, examples, num_envs)


def small_batches_differ(values: Tensor) -> Tensor:
    return torch.full_like(values, float(len(values) < 4))


def odd_sizes_differ(values: Tensor) -> Tensor:
    return torch.full_like(values, float(len(values) % 2))


def rows_beyond_fours_differ(values: Tensor) -> Tensor:
    """As kernels do that take four rows at a time, and what is left over in another way."""
    return (torch.arange(len(values)) >= len(values) // 4 * 4).float()


def positions_differ(values: Tensor) -> Tensor:
    return torch.arange(len(values)) / 8


def neighbours_differ(values: Tensor) -> Tensor:
    return values.roll(1) / 8


def test_rows_that_agree_in_every_batch_need_no_padding() -> None:
    assert probed(FakePolicy(torch.zeros_like)) == ReferenceShape(tuple(range(1, NUM_ENVS + 1)))


def test_batches_are_padded_to_multiples_of_a_size_from_which_on_rows_agree() -> None:
    assert probed(FakePolicy(small_batches_differ)) == ReferenceShape((4, 8))


def test_batches_are_padded_to_multiples_where_those_agree() -> None:
    assert probed(FakePolicy(odd_sizes_differ)) == ReferenceShape((2, 4, 6, 8))


def test_batches_are_larger_than_all_environments_where_only_that_agrees() -> None:
    assert probed(FakePolicy(rows_beyond_fours_differ), num_envs=10) == ReferenceShape((4, 8, 12))


def test_batches_have_one_size_where_no_other_agrees() -> None:
    assert probed(FakePolicy(lambda values: torch.full_like(values, float(len(values))))) == ReferenceShape((NUM_ENVS,))


def test_a_difference_that_few_rows_show_is_found() -> None:
    """What is left over beyond fours is summed up otherwise, which changes one number in 32."""

    def seldom(values: Tensor) -> Tensor:
        return rows_beyond_fours_differ(values) * ((values * 4096).int() % 32 == 0)

    assert probed(FakePolicy(seldom), num_envs=12) == ReferenceShape((4, 8, 12))


def test_large_batches_are_not_taken_for_the_sake_of_sizes_that_nobody_needs() -> None:
    def agree_among_small_and_among_large(values: Tensor) -> Tensor:
        size = len(values)
        return torch.full_like(values, float(size % 8 > 0) * size + float(size > 16))

    assert probed(FakePolicy(agree_among_small_and_among_large), num_envs=16) == ReferenceShape((8, 16))


@pytest.mark.parametrize("num_envs", [25, 64, 100, 1000])
def test_only_sizes_that_were_tried_are_used_where_there_are_many(num_envs: int) -> None:
    tried: set[int] = set()

    def noted(values: Tensor) -> Tensor:
        tried.add(len(values))
        return odd_sizes_differ(values)

    shape = probed(FakePolicy(noted), num_envs)
    assert len(shape.sizes) <= MAX_SIZES
    assert tried.issuperset(shape.sizes)
    assert all(size % 2 == 0 for size in shape.sizes)
    assert shape.sizes[-1] == num_envs + num_envs % 2


def test_environments_are_pinned_to_their_rows_where_the_position_matters() -> None:
    assert probed(FakePolicy(positions_differ)) == ReferenceShape((NUM_ENVS,), pinned=True)


def test_a_policy_whose_rows_look_at_their_neighbours_is_refused() -> None:
    with pytest.raises(ConfigError, match="batch normalisation does that"):
        probed(FakePolicy(neighbours_differ))


@pytest.mark.parametrize("num_envs", [3, 8, 16])
def test_batch_normalisation_in_training_mode_is_refused(num_envs: int) -> None:
    policy = build_policy(OBSERVATION_SPACE, ACTION_SPACE, Network(), seed=0)
    assert isinstance(policy.encoder, Encoder)
    assert policy.encoder.mlp is not None
    policy.encoder.register_module("mlp", nn.Sequential(nn.BatchNorm1d(4), policy.encoder.mlp))
    policy.train()
    with pytest.raises(ConfigError, match="batch normalisation does that"):
        probed(policy, num_envs)


def test_a_difference_that_the_untrained_softmax_rounds_away_is_found() -> None:
    """The logits of odd rows differ in their last bit only, which log-probabilities near -0.69 do not show."""

    class LastBitOfOddRows(nn.Linear):
        def forward(self, features: Tensor) -> Tensor:
            logits = super().forward(features)
            bump = torch.nextafter(logits, torch.full_like(logits, torch.inf))
            return torch.where((torch.arange(len(logits)) % 2 == 1)[:, None], bump, logits)

    policy = build_policy(OBSERVATION_SPACE, ACTION_SPACE, Network(), seed=0)
    head = LastBitOfOddRows(policy.action_head.in_features, policy.action_head.out_features)
    head.load_state_dict(policy.action_head.state_dict())
    policy.action_head = head
    assert probed(policy) == ReferenceShape((NUM_ENVS,), pinned=True)


def test_enough_ready_rows_are_laid_out_as_they_are() -> None:
    cells, places = ReferenceShape((2, 3)).lay_out(np.array([5, 6, 7]), np.array([0, 3, 4]))
    assert (cells.tolist(), cells[places].tolist()) == ([5, 6, 7], [5, 6, 7])


def test_too_few_ready_rows_are_padded_with_copies_of_the_first() -> None:
    cells, places = ReferenceShape((4, 8)).lay_out(np.array([5, 6]), np.array([0, 3]))
    assert (cells.tolist(), cells[places].tolist()) == ([5, 6, 5, 5], [5, 6])


def test_pinned_rows_are_laid_out_at_the_number_of_their_environment_and_no_other_row_is_read() -> None:
    cells, places = ReferenceShape((4,), pinned=True).lay_out(np.array([5, 6]), np.array([0, 3]))
    assert (cells.tolist(), cells[places].tolist()) == ([5, 5, 5, 6], [5, 6])


@given(
    cells_by_env=st.dictionaries(st.integers(0, 15), st.integers(0, 128), min_size=1),
    shape=st.sampled_from(
        [ReferenceShape(tuple(range(1, 17))), ReferenceShape((2, 5, 11, 16)), ReferenceShape((16,), pinned=True)]
    ),
)
def test_every_ready_row_has_its_place_in_the_batch(cells_by_env: dict[int, int], shape: ReferenceShape) -> None:
    envs = np.array(sorted(cells_by_env), dtype=np.int64)
    asked = np.array([cells_by_env[env] for env in envs.tolist()], dtype=np.int64)
    batch, places = shape.lay_out(asked, envs)
    assert batch[places].tolist() == asked.tolist()
    assert len(batch) in shape.sizes
    assert set(batch.tolist()) == set(asked.tolist())
    if shape.pinned:
        assert batch[envs].tolist() == asked.tolist()


@pytest.mark.parametrize(
    ("name", "pinned"),
    [("cartpole_a2c", False), ("pixels_a2c", False), ("pixels_a2c", True)],  # in NumPy nobody is
)
def test_padding_and_pinning_give_the_bits_of_the_shape_that_was_found(
    name: str, pinned: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every batch is padded to the largest size that was found, or to all environments, each in its place."""
    found, expected = draw_blueprint(Config(small_experiment(name), Placement("inline"))).shape, oracle(name)
    shape = ReferenceShape((NUM_ENVS,), pinned=True) if pinned else ReferenceShape(found.sizes[-1:])
    monkeypatch.setattr("htsrl.policies.reference_probe.find_reference_shape", lambda *_: shape)
    assert_same_run(run(small_experiment(name), num_executors=2, num_actors=4), expected)
