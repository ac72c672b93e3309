"""What the arrays of a dataset must be: of the spaces' shapes, finite, within bounds, with ends where episodes end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.datasets.manifest import Manifest
from htsrl.spaces.actions import ActionLayout
from htsrl.spaces.observations import ObservationLeaf

BOUNDS_TOLERANCE = 1e-3
"""As a share of the range: what rounding and simulators make of an action at its bound."""
STEP_FIELDS: Mapping[str, str] = {"rewards": "float32", "terminated": "bool", "truncated": "bool"}
OPTIONAL_FIELDS: Mapping[str, str] = {"dt": "float32"}

Arrays = Mapping[str, NDArray[Any]]


def check_arrays(manifest: Manifest, arrays: Arrays) -> None:
    """ValueError that names the array, what is wrong with it, and what it must be."""
    interface, steps = manifest.interface, manifest.num_steps
    _check_shapes(arrays, _expected(manifest))
    for name, array in arrays.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            row = int(np.argwhere(~np.isfinite(array))[0][0])
            raise ValueError(f"holds a number that is not finite in row {row} of {name!r}")
    for name, leaf in interface.observations.items():
        _check_choices(name, leaf, arrays[name])
    _check_actions(interface.actions, arrays["actions"])
    is_last = np.zeros(steps, np.bool_)
    is_last[np.cumsum(manifest.episode_lengths) - 1] = True
    if ((arrays["terminated"] | arrays["truncated"]) & ~is_last).any():
        raise ValueError("says that an episode ended before its last step; look at terminated, truncated and lengths")
    if "dt" in arrays and not (arrays["dt"] > 0).all():
        raise ValueError("holds a dt that is not above 0")


def _expected(manifest: Manifest) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype by name."""
    interface, steps = manifest.interface, manifest.num_steps
    seen = steps + len(manifest.episode_lengths)
    leaves = {name: ((seen, *leaf.shape), leaf.dtype) for name, leaf in interface.observations.items()}
    actions = {"actions": ((steps, *interface.actions.shape), interface.actions.dtype)}
    return {**leaves, **actions, **{name: ((steps,), dtype) for name, dtype in STEP_FIELDS.items()}}


def _check_shapes(arrays: Arrays, expected: Mapping[str, tuple[tuple[int, ...], str]]) -> None:
    steps = expected["rewards"][0]
    expected = {**expected, **{name: (steps, OPTIONAL_FIELDS[name]) for name in OPTIONAL_FIELDS if name in arrays}}
    if missing := sorted(expected.keys() - arrays.keys()):
        raise ValueError(f"lacks {', '.join(map(repr, missing))}")
    if unknown := sorted(arrays.keys() - expected.keys()):
        raise ValueError(f"holds {', '.join(repr(name[:40]) for name in unknown)}, which no dataset has")
    for name, (shape, dtype) in expected.items():
        if arrays[name].shape != shape or arrays[name].dtype != np.dtype(dtype):
            raise ValueError(
                f"has {name!r} as {arrays[name].dtype} of shape {arrays[name].shape}; its spaces and episodes make it "
                f"{dtype} of shape {shape}"
            )


def _check_choices(name: str, leaf: ObservationLeaf, array: NDArray[Any]) -> None:
    if leaf.categories is None:
        return
    low = np.array(leaf.starts).reshape(leaf.shape)
    if ((array < low) | (array >= low + np.array(leaf.categories).reshape(leaf.shape))).any():
        raise ValueError(f"holds observations in {name!r} that are outside their space")


def _check_actions(layout: ActionLayout, actions: NDArray[Any]) -> None:
    rows = actions.reshape(len(actions), -1)
    choices, continuous = np.split(rows, [len(layout.categories)], axis=1)
    if ((choices < 0) | (choices >= np.array(layout.categories))).any():
        raise ValueError("holds actions that are outside the action space")
    room = np.nan_to_num(layout.high - layout.low, posinf=0.0) * BOUNDS_TOLERANCE
    if ((continuous < layout.low - room) | (continuous > layout.high + room)).any():
        raise ValueError(
            f"holds continuous actions that are outside the bounds of {layout.space}; they must be in the "
            "environment's own units"
        )
