"""Spaces understood: the leaves of observations, the rows of actions, and what is refused in words."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import cloudpickle
import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.envs.observing import ObservationWriter
from htsrl.errors import ConfigError
from htsrl.spaces import Interface, ObservationLeaf, action_layout, observation_leaves
from htsrl.spaces.observations import MASK_KEY

CHOICE = spaces.Discrete(2)
FLOATS = spaces.Box(-1.0, 1.0, (2, 3), np.float32)
NESTED = spaces.Dict(
    {
        "camera": spaces.Box(0, 255, (4, 5, 3), np.uint8),
        "inner": spaces.Tuple((spaces.Discrete(3, start=-1), spaces.Dict({"bits": spaces.MultiBinary([2, 2])}))),
        "sizes": spaces.MultiDiscrete(np.array([[2, 3], [4, 5]]), start=np.array([[0, 1], [2, -3]])),
    }
)


def floats(*shape: int, low: float = -1.0, high: float = 1.0) -> spaces.Box[np.float32]:
    return spaces.Box(low, high, shape, np.float32)


def test_every_leaf_has_a_name_a_shape_a_dtype_and_a_path() -> None:
    assert observation_leaves(NESTED) == {
        "obs/camera": ObservationLeaf((4, 5, 3), "uint8", path=("camera",)),
        "obs/inner/0": ObservationLeaf((), "int64", (3,), (-1,), ("inner", 0)),
        "obs/inner/1/bits": ObservationLeaf((2, 2), "int8", path=("inner", 1, "bits")),
        "obs/sizes": ObservationLeaf((2, 2), "int64", (2, 3, 4, 5), (0, 1, 2, -3), ("sizes",)),
    }


def test_an_observation_without_parts_is_one_leaf() -> None:
    assert observation_leaves(FLOATS) == {"obs": ObservationLeaf((2, 3), "float32")}


def test_the_width_of_a_leaf_counts_numbers_and_the_values_of_choices() -> None:
    widths = {name: leaf.width for name, leaf in observation_leaves(NESTED).items()}
    assert widths == {"obs/camera": 60, "obs/inner/0": 3, "obs/inner/1/bits": 4, "obs/sizes": 14}


@pytest.mark.parametrize(
    ("space", "is_image"),
    [
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), True),
        (spaces.Box(0, 255, (84, 84), np.uint8), False),
        (spaces.Box(0, 1, (84, 84, 3), np.float32), False),
        (spaces.MultiBinary([84, 84, 3]), False),
    ],
)
def test_an_image_is_three_axes_of_bytes(space: spaces.Space[Any], is_image: bool) -> None:
    assert observation_leaves(space)["obs"].is_image == is_image


@pytest.mark.parametrize(
    ("shape", "channels_last"),
    [((84, 84, 3), True), ((3, 84, 84), False), ((5, 84, 4), True), ((4, 84, 5), False), ((4, 84, 4), False)],
)
def test_channels_are_the_smaller_of_the_outer_axes_and_the_first_of_equals(
    shape: tuple[int, ...], channels_last: bool
) -> None:
    assert observation_leaves(spaces.Box(0, 255, shape, np.uint8))["obs"].channels_last == channels_last


def test_the_blank_of_a_leaf_lies_in_its_space() -> None:
    for name, leaf in observation_leaves(NESTED).items():
        part: Any = NESTED
        for key in leaf.path:
            part = part[key]
        blank = np.broadcast_to(leaf.blank, leaf.shape)
        assert blank.dtype == leaf.dtype, name
        assert part.contains(int(blank) if isinstance(part, spaces.Discrete) else blank.copy()), name


def test_the_blank_of_a_mask_allows_everything() -> None:
    leaf = Interface(floats(2), CHOICE, masks_in_info=True).observations[MASK_KEY]
    assert leaf.blank.tolist() == [True, True]


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(5), r"^observation space Text\(1, 5, .*\) is not supported; use Box"),
        (spaces.Dict({"a": spaces.Tuple((CHOICE, spaces.Text(5)))}), r"is not supported \(in 'obs/a/1'\); use Box"),
        (spaces.Sequence(CHOICE), "is not supported; use Box"),
        (spaces.Dict({}), "has nothing to see; give it a part"),
        (spaces.Tuple(()), "has nothing to see; give it a part"),
        (spaces.Dict({MASK_KEY: spaces.MultiBinary(2)}), "has nothing to see; give it a part"),
        (spaces.Dict({"a": CHOICE, "b": floats(0)}), "has no elements in 'obs/b'; leave that part out"),
        (
            spaces.Dict({"a": spaces.Dict({"b": CHOICE}), "a/b": CHOICE}),
            "has two parts that would be called 'obs/a/b'; rename one",
        ),
    ],
)
def test_an_observation_space_that_cannot_be_stored_is_named(space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        observation_leaves(space)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(5), "^action space Text.* is not supported; use Discrete"),
        (spaces.Dict({"a": CHOICE, "b": spaces.Sequence(CHOICE)}), "action space Sequence.* is not supported"),
        (spaces.Box(0, 5, (2,), np.int64), r"action space Box\(0, 5, \(2,\), int64\) is not supported"),
        (spaces.Dict({}), "has nothing to do; give it a part"),
        (floats(0), "has nothing to do; give it a part"),
    ],
)
def test_an_action_space_that_cannot_be_drawn_from_is_named(space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        action_layout(space)


HYBRID = spaces.Dict(
    {
        "arm": spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, np.inf], np.float32)),
        "buttons": spaces.MultiBinary(2),
        "deep": spaces.Tuple(
            (
                spaces.Discrete(3, start=5),
                floats(1, 2),
                spaces.MultiDiscrete(np.array([[2], [4]]), start=np.array([[1], [7]])),
            )
        ),
    }
)


def test_an_action_is_stored_as_choices_and_then_numbers() -> None:
    layout = action_layout(HYBRID)
    assert layout.categories == (2, 2, 3, 2, 4)
    assert layout.low.tolist() == [-2.0, 0.0, -1.0, -1.0]
    assert layout.high.tolist() == [2.0, np.inf, 1.0, 1.0]
    assert (layout.shape, layout.dtype) == ((9,), "float32")
    assert (layout.noise.gumbel, layout.noise.normal) == (13, 4)
    action = layout.to_env(np.array([1, 0, 2, 1, 3, -5.0, 7.0, 0.25, 9.0], np.float32))
    assert action["arm"].tolist() == [-2.0, 7.0]
    assert action["buttons"].tolist() == [1, 0]
    discrete, box, multi = action["deep"]
    assert discrete == 7
    assert box.tolist() == [[0.25, 1.0]]
    assert multi.tolist() == [[2], [10]]
    assert HYBRID.contains(action)


@pytest.mark.parametrize(
    ("space", "shape", "dtype"),
    [
        (spaces.Discrete(4), (), "int64"),
        (spaces.Tuple((spaces.Discrete(4),)), (1,), "int64"),
        (spaces.MultiDiscrete(np.array([[2, 3]])), (2,), "int64"),
        (spaces.MultiBinary([2, 3]), (6,), "int64"),
        (floats(2, 3), (6,), "float32"),
        (floats(), (1,), "float32"),
    ],
)
def test_a_row_has_a_column_for_every_choice_and_dimension(
    space: spaces.Space[Any], shape: tuple[int, ...], dtype: str
) -> None:
    layout = action_layout(space)
    assert (layout.shape, layout.dtype) == (shape, dtype)
    stored = np.zeros(shape, dtype)
    assert space.contains(layout.to_env(stored))


def test_a_single_choice_is_a_number_that_begins_at_the_start_of_its_space() -> None:
    action = action_layout(spaces.Discrete(3, start=-7)).to_env(np.int64(2))
    assert action == -5
    assert type(action) is int


def test_numbers_beyond_the_bounds_are_clipped_to_them() -> None:
    layout = action_layout(spaces.Box(np.array([-1.0, -np.inf]), np.array([np.inf, 2.0]), dtype=np.float64))
    assert layout.to_env(np.array([-3.0, -3.0], np.float32)).tolist() == [-1.0, -3.0]
    assert layout.to_env(np.array([3.0, 3.0], np.float32)).tolist() == [3.0, 2.0]


def test_squashing_takes_hold_only_between_two_bounds() -> None:
    low, high = np.array([-1.0, 2.0, -np.inf, 3.0], np.float32), np.array([3.0, np.inf, np.inf, 3.0], np.float32)
    layout = action_layout(spaces.Box(low, high), squashes=True)
    assert layout.squashed.tolist() == [True, False, False, False]
    np.testing.assert_array_equal(layout.half_ranges, [2.0, np.nan, np.nan, np.nan])
    assert layout.to_env(np.array([0.0, -4.0, -4.0, -4.0], np.float32)).tolist() == [1.0, 2.0, -4.0, 3.0]
    squashed = layout.to_env(np.array([0.5, 5.0, 5.0, 5.0], np.float32))
    np.testing.assert_allclose(squashed, [1 + 2 * np.tanh(0.5), 5.0, 5.0, 3.0], rtol=1e-6)
    assert not action_layout(spaces.Box(low, high)).squashed.any()


@pytest.mark.parametrize("drawn", [-1e30, -30.0, 0.0, 30.0, 1e30])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_what_is_squashed_stays_finite_and_inside_however_far_out_it_was_drawn(drawn: float, dtype: Any) -> None:
    largest = min(float(np.finfo(dtype).max), float(np.finfo(np.float32).max))
    for low, high in ((-largest, largest), (-1.1, 0.3), (0.1, 0.1 + 1e-3)):
        space = spaces.Box(low, high, (1,), dtype)
        layout = action_layout(space, squashes=True)
        with np.errstate(all="raise", under="ignore"):
            action = layout.to_env(np.array([drawn], np.float32))
        assert space.contains(action), (low, high, action)
        assert drawn <= 0 or action > space.low
        assert drawn >= 0 or action < space.high


def test_an_array_of_actions_is_not_a_view_of_the_storage() -> None:
    layout, stored = action_layout(floats(2)), np.array([0.25, 0.5], np.float32)
    action: NDArray[Any] = layout.to_env(stored)
    action += 1
    assert stored.tolist() == [0.25, 0.5]


def test_an_interface_that_was_used_can_be_copied_and_sent_to_other_processes() -> None:
    interface = Interface(NESTED, HYBRID)
    row = np.array([1, 0, 2, 1, 3, -5.0, 7.0, 0.25, 9.0], np.float32)
    expected = interface.actions.to_env(row)
    for other in (copy.deepcopy(interface), pickle.loads(cloudpickle.dumps(interface))):
        assert other.observations == interface.observations
        np.testing.assert_equal(other.actions.to_env(row), expected)


def test_every_leaf_is_written_where_it_belongs() -> None:
    interface, observation = Interface(NESTED, CHOICE), copy.deepcopy(NESTED)
    observation.seed(3)
    seen = observation.sample()
    rows = interface.empty_rows(2)
    ObservationWriter(interface).write(seen, {name: array[1, ...] for name, array in rows.items()})
    np.testing.assert_array_equal(rows["obs/camera"][1], seen["camera"])
    assert rows["obs/inner/0"].tolist() == [0, seen["inner"][0]]
    np.testing.assert_array_equal(rows["obs/inner/1/bits"][1], seen["inner"][1]["bits"])
    np.testing.assert_array_equal(rows["obs/sizes"][1], seen["sizes"])
    assert not any(array[0].any() for array in rows.values())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"camera": np.zeros((4, 5, 3), np.float32)}, "the observation's 'camera' has dtype float32"),
        ({"camera": np.zeros((5, 4, 3), np.uint8)}, r"the observation's 'camera' has shape \(5, 4, 3\)"),
        ({"inner": (2, {"bits": np.zeros((2, 2), np.int8)})}, "the observation's 'inner/0' is 2, its space reaches"),
        ({"inner": (-2, {"bits": np.zeros((2, 2), np.int8)})}, "from -1 to 1"),
        ({"inner": (0, {"bits": np.zeros(4, np.int8)})}, r"the observation's 'inner/1/bits' has shape \(4,\)"),
        ({"sizes": np.array([[0, 1], [2, 2]])}, "the observation's 'sizes' is"),
        ({"sizes": np.array([[0, 0], [2, -3]])}, "the observation's 'sizes' is"),
    ],
)
def test_a_part_that_leaves_its_space_is_named(change: dict[str, Any], message: str) -> None:
    """A choice beyond its space has no one-hot numbers, and an actor would stumble where no environment is named."""
    sound = {
        "camera": np.zeros((4, 5, 3), np.uint8),
        "inner": (0, {"bits": np.zeros((2, 2), np.int8)}),
        "sizes": np.array([[0, 1], [2, -3]]),
    }
    interface = Interface(NESTED, CHOICE)
    writer, rows = ObservationWriter(interface), interface.empty_rows()
    writer.write(sound, rows)
    with pytest.raises(ValueError, match=message):
        writer.write(sound | change, rows)
