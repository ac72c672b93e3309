"""What goes into an exported policy and what comes out of it, by name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from htsrl.dataflow.trajectory import RECURRENT_STATE
from htsrl.spaces import Interface
from htsrl.spaces.actions import action_layout
from htsrl.spaces.observations import MASK_KEY, parts_of

NEXT_STATE = "next_memory"  # beside `memory`: in ONNX no output can be called like an input
RESERVED = (MASK_KEY, RECURRENT_STATE, "logits", "mean", "log_std", "value", NEXT_STATE)
Path = tuple[Any, ...]


@dataclass(frozen=True)
class Port:
    """A tensor that goes in or comes out, with a row for each observation."""

    name: str
    shape: tuple[int, ...]
    """Of one row."""
    dtype: str


@dataclass(frozen=True)
class ActionPart:
    """A part of the environment's action that is no Dict and no Tuple: choices, or continuous dimensions."""

    port: Port
    path: Path
    """The keys that lead to it from the whole action."""
    space: spaces.Space[Any]
    columns: slice
    """Its logits if these are choices, otherwise its columns of `mean` and `log_std`."""

    @property
    def is_choice(self) -> bool:
        return not isinstance(self.space, spaces.Box)

    @property
    def categories(self) -> tuple[int, ...]:
        """How many values each of its choices has."""
        return action_layout(self.space).categories

    @property
    def starts(self) -> tuple[int, ...]:
        """The smallest value of each of its choices."""
        start = getattr(self.space, "start", None)
        return (0,) * len(self.categories) if start is None else tuple(map(int, np.ravel(start)))


@dataclass(frozen=True)
class Signature:
    """All inputs and outputs, in order."""

    interface: Interface
    inputs: Mapping[str, Port]
    """By the name of the field that the policy knows."""
    parts: tuple[ActionPart, ...]
    raw: tuple[Port, ...]
    """What the policy computes before it becomes an action: for those who want to draw one."""

    @property
    def outputs(self) -> tuple[Port, ...]:
        return (*(part.port for part in self.parts), *self.raw)

    @property
    def state_size(self) -> int:
        return self.inputs[RECURRENT_STATE].shape[0] if RECURRENT_STATE in self.inputs else 0


def signature_of(interface: Interface, state_size: int) -> Signature:
    """`state_size` is how many numbers the policy's recurrent state is, 0 where it has none."""
    taken = set(RESERVED)
    inputs = {
        field: Port(field if field == MASK_KEY else _safe_name(field, taken), leaf.shape, leaf.dtype)
        for field, leaf in interface.observations.items()
    }
    state = Port(NEXT_STATE, (state_size,), "float32")
    if state_size:
        inputs[RECURRENT_STATE] = Port(RECURRENT_STATE, state.shape, state.dtype)
    actions = interface.actions
    raw = [
        *([Port("logits", (sum(actions.categories),), "float32")] if actions.categories else []),
        *(Port(name, (actions.num_continuous,), "float32") for name in ("mean", "log_std") if actions.num_continuous),
        Port("value", (), "float32"),
        *([state] if state_size else []),
    ]
    return Signature(interface, inputs, tuple(_action_parts(interface.action_space, taken)), tuple(raw))


def structure(space: spaces.Space[Any], names: Mapping[Path, str], path: Path = ()) -> Any:
    """The names of tensors in the places of what they hold: dictionaries for Dict, lists for Tuple."""
    if isinstance(space, spaces.Dict):
        return {str(key): structure(part, names, (*path, key)) for key, part in parts_of(space)}
    if isinstance(space, spaces.Tuple):
        return [structure(part, names, (*path, key)) for key, part in parts_of(space)]
    return names[path]


def _action_parts(space: spaces.Space[Any], taken: set[str]) -> Iterator[ActionPart]:
    """In the order in which an action's row has them."""
    num_values = num_dimensions = 0
    for name, path, leaf in _leaves(space, "action", ()):
        layout = action_layout(leaf)
        width = sum(layout.categories) + layout.num_continuous
        first = num_dimensions if isinstance(leaf, spaces.Box) else num_values
        if isinstance(leaf, spaces.Box):
            num_dimensions += width
        else:
            num_values += width
        port = Port(_safe_name(name, taken), tuple(leaf.shape or ()), np.dtype(leaf.dtype).name)
        yield ActionPart(port, path, leaf, slice(first, first + width))


def _leaves(space: spaces.Space[Any], name: str, path: Path) -> Iterator[tuple[str, Path, spaces.Space[Any]]]:
    if isinstance(space, spaces.Dict | spaces.Tuple):
        for key, part in parts_of(space):
            yield from _leaves(part, f"{name}/{key}", (*path, key))
    else:
        yield name, path, space


def _safe_name(name: str, taken: set[str]) -> str:
    """As an identifier, which every runtime takes, and unlike all others."""
    base = unique = re.sub(r"\W+", "_", name, flags=re.ASCII)
    attempt = 1
    while unique in taken:
        attempt += 1
        unique = f"{base}_{attempt}"
    taken.add(unique)
    return unique
