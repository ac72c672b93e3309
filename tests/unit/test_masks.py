"""Action masks: where they come from, how they are read, and what is said of those that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from htsrl import ConfigError
from htsrl.envs.observing import ObservationWriter
from htsrl.spaces import Interface, action_layout
from htsrl.spaces.masks import MaskReader
from htsrl.spaces.observations import MASK_KEY

SEEN = spaces.Box(0.0, 1.0, (2,), np.float32)
FOUR = spaces.Discrete(4)
PAIR = spaces.MultiDiscrete([3, 2])
DEEP = spaces.Dict(
    {
        "a": spaces.Discrete(2),
        "b": spaces.Tuple((spaces.MultiDiscrete([2, 3]), spaces.Box(-1.0, 1.0, (2,), np.float32))),
        "c": spaces.MultiBinary(2),
    }
)


def read(space: spaces.Space[Any], mask: Any, is_last: bool = False) -> list[int]:
    row = MaskReader(action_layout(space))(mask, is_last)
    assert row.dtype == np.bool_
    return [int(allowed) for allowed in row]


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "mask",
    [
        np.array([0, 1, 0, 1], np.int8),
        np.array([False, True, False, True]),
        np.array([0.0, 1.0, 0.0, 1.0]),
        [0, 1, 0, 1],
        (0, 1, 0, 1),
        np.array([[0, 1], [0, 1]]),
    ],
    ids=["int8", "bool", "float", "list", "tuple", "2d"],
)
def test_the_mask_of_a_choice_is_any_row_of_numbers(mask: Any) -> None:
    assert read(FOUR, mask) == [0, 1, 0, 1]


def test_none_allows_everything() -> None:
    assert read(FOUR, None) == [1, 1, 1, 1]
    assert read(DEEP, None) == [1] * 11


@pytest.mark.parametrize("mask", [np.array([1, 0, 1, 0, 1]), (np.array([1, 0, 1]), np.array([0, 1]))])
def test_the_mask_of_several_choices_is_a_row_or_a_tuple_of_rows(mask: Any) -> None:
    assert read(PAIR, mask) == [1, 0, 1, 0, 1]


def test_the_mask_of_bits_says_of_each_whether_it_may_be_0_and_1() -> None:
    assert read(spaces.MultiBinary(2), np.array([[1, 0], [0, 1]])) == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (np.array([1, 0, 0, 1, 1, 0, 1, 1, 0, 0, 1]), [1, 0, 0, 1, 1, 0, 1, 1, 0, 0, 1]),
        ({"a": [0, 1]}, [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]),
        ({"a": None, "b": ([0, 1, 1, 0, 0],)}, [1, 1, 0, 1, 1, 0, 0, 1, 1, 1, 1]),
        ({"b": (([1, 0], [0, 0, 1]), None), "c": [1, 0, 0, 1]}, [1, 1, 1, 0, 0, 0, 1, 1, 0, 0, 1]),
        ({"c": [0, 1, 1, 1], "a": [1, 0]}, [1, 0, 1, 1, 1, 1, 1, 0, 1, 1, 1]),
    ],
    ids=["flat", "one part", "none is free", "tuples", "any order"],
)
def test_a_nested_mask_is_brought_into_the_order_of_the_logits(mask: Any, expected: list[int]) -> None:
    assert read(DEEP, mask) == expected


@pytest.mark.parametrize(
    ("space", "mask", "message"),
    [
        (FOUR, [1, 1, 1], r"^the action mask has 3 values of int64; Discrete\(4\) needs 4, of 0 and 1$"),
        (FOUR, [1, 1, 1, 1, 1], "has 5 values"),
        (FOUR, 1, "has 1 values"),
        (FOUR, ["a", "b", "c", "d"], "has 4 values of <U1"),
        (PAIR, ([1, 1], [1, 1]), r"has 4 values of int64; MultiDiscrete\(\[3 2\]\) needs 5, of 0 and 1"),
        (DEEP, {"a": [1, 1, 1]}, r"has 3 values of int64; Discrete\(2\) needs 2, of 0 and 1"),
        (DEEP, {"z": [1, 1]}, r"has the parts \['z'\], which the action space has not"),
        (DEEP, {"b": (None, [1])}, "a part for Box.*, which is no choice; leave it out"),
        (DEEP, {"b": (None, None, None)}, r"has the parts \[2\], which the action space has not"),
    ],
)
def test_a_mask_that_does_not_fit_is_named_with_what_it_should_be(
    space: spaces.Space[Any], mask: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        read(space, mask)


def test_a_mask_that_allows_nothing_is_an_error_while_the_episode_goes_on() -> None:
    with pytest.raises(ValueError, match=r"^the action mask allows nothing; while the episode continues"):
        read(FOUR, [0, 0, 0, 0])
    with pytest.raises(ValueError, match=r"allows nothing for \[1\]"):
        read(PAIR, [1, 0, 0, 0, 0])
    with pytest.raises(ValueError, match=r"allows nothing for \['b'\]\[0\]\[1\]"):
        read(DEEP, {"b": ([1, 1, 0, 0, 0], None)})


def test_after_the_last_step_a_choice_left_with_nothing_is_free_and_the_others_stay() -> None:
    assert read(FOUR, [0, 0, 0, 0], is_last=True) == [1, 1, 1, 1]
    assert read(PAIR, [0, 1, 0, 0, 0], is_last=True) == [0, 1, 0, 1, 1]
    assert read(PAIR, [0, 0, 0, 1, 0], is_last=True) == [1, 1, 1, 1, 0]


def test_reading_a_mask_leaves_the_environments_own_as_it_was() -> None:
    mask = np.zeros(4, np.bool_)
    read(FOUR, mask, is_last=True)
    assert not mask.any()


# --- where masks come from -------------------------------------------------------------------------------------------


def writer_for(mask_in: str) -> tuple[ObservationWriter, dict[str, Any]]:
    observations = spaces.Dict({"x": SEEN, MASK_KEY: spaces.MultiBinary(4)}) if mask_in == "observation" else SEEN
    interface = Interface(observations, FOUR, masks_in_info=mask_in == "info")
    return ObservationWriter(interface), interface.empty_rows()


def test_a_mask_is_taken_from_where_it_was_found_first() -> None:
    writer, rows = writer_for("observation")
    writer.write_mask({MASK_KEY: [1, 0, 0, 1]}, {}, rows)
    assert rows[MASK_KEY].tolist() == [True, False, False, True]
    writer, rows = writer_for("info")
    writer.write_mask(None, {MASK_KEY: [0, 1, 0, 1]}, rows)
    assert rows[MASK_KEY].tolist() == [False, True, False, True]


def test_a_mask_that_info_lacks_is_an_error_except_after_the_last_step() -> None:
    writer, rows = writer_for("info")
    with pytest.raises(ValueError, match="info has no action_mask, which it had after the first reset; return it"):
        writer.write_mask(None, {}, rows)
    writer.write_mask(None, {}, rows, is_last=True)
    assert rows[MASK_KEY].tolist() == [True] * 4


def test_without_masks_there_is_no_field_for_them() -> None:
    writer, rows = writer_for("nowhere")
    writer.write_mask(None, {MASK_KEY: [0, 0, 0, 0]}, rows)
    assert MASK_KEY not in rows


@pytest.mark.parametrize("masks_in_info", [True, False])
def test_a_mask_without_choices_is_refused(masks_in_info: bool) -> None:
    observations = SEEN if masks_in_info else spaces.Dict({"x": SEEN, MASK_KEY: spaces.MultiBinary(2)})
    with pytest.raises(ConfigError, match=r"there is an action_mask, but action space Box.* has no choices"):
        Interface(observations, spaces.Box(-1.0, 1.0, (2,), np.float32), masks_in_info)


@pytest.mark.parametrize(
    ("mask", "action"),
    [
        (spaces.MultiBinary(3), FOUR),
        (spaces.Dict({"z": spaces.MultiBinary(2)}), DEEP),
        (spaces.Tuple((spaces.MultiBinary(3), spaces.MultiBinary(3))), PAIR),
    ],
)
def test_a_mask_in_the_observation_that_does_not_fit_is_refused(
    mask: spaces.Space[Any], action: spaces.Space[Any]
) -> None:
    with pytest.raises(
        ConfigError, match=r"the observation's action_mask, .*, does not fit the actions: the action mas"
    ):
        Interface(spaces.Dict({"x": SEEN, MASK_KEY: mask}), action)


@pytest.mark.parametrize(
    ("mask", "action"),
    [
        (spaces.Box(0, 1, (4,), np.int8), FOUR),
        (spaces.Tuple((spaces.MultiBinary(3), spaces.MultiBinary(2))), PAIR),
        (spaces.Dict({"a": spaces.MultiBinary(2)}), DEEP),
    ],
)
def test_a_mask_in_the_observation_may_have_the_structure_of_the_action(
    mask: spaces.Space[Any], action: spaces.Space[Any]
) -> None:
    interface = Interface(spaces.Dict({"x": SEEN, MASK_KEY: mask}), action)
    assert interface.observations[MASK_KEY].shape == (sum(interface.actions.categories),)
    assert list(interface.observations) == ["obs/x", MASK_KEY]


def test_looking_at_a_mask_does_not_draw_from_the_environments_own_space() -> None:
    space = spaces.Dict({"x": SEEN, MASK_KEY: spaces.MultiBinary(4)})
    space.seed(1)
    expected = space.sample()
    space.seed(1)
    Interface(space, FOUR)
    np.testing.assert_equal(space.sample(), expected)
