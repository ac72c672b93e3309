"""policy.json: what a program that knows nothing of htsrl needs to play with an exported policy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.dataflow.trajectory import RECURRENT_STATE
from htsrl.export.signature import NEXT_STATE, ActionPart, Port, Signature, structure
from htsrl.spaces.observations import MASK_KEY


def description(signature: Signature) -> dict[str, Any]:
    interface = signature.interface
    seen = interface.observation_space
    if interface.masks_in_observation:
        assert isinstance(seen, spaces.Dict)
        seen = spaces.Dict({key: part for key, part in seen.spaces.items() if key != MASK_KEY})
    leaves = {leaf.path: field for field, leaf in interface.observations.items() if field != MASK_KEY}
    inputs = {path: signature.inputs[field].name for path, field in leaves.items()}
    actions = {part.path: part.port.name for part in signature.parts}
    squashed = interface.actions.squashed
    return {
        "observation": structure(seen, inputs),
        "action": structure(interface.action_space, actions),
        "inputs": [_input(port, signature) for port in signature.inputs.values()],
        "outputs": [
            *(_action(part, squashed[part.columns]) for part in signature.parts),
            *(_port(port) for port in signature.raw),
        ],
    }


def as_json(document: Mapping[str, Any]) -> str:
    """A line for each entry, and for each element of a list of entries."""
    entries = [f"  {json.dumps(key)}: {_lines(value)}" for key, value in document.items()]
    return "{\n" + ",\n".join(entries) + "\n}\n"


def _lines(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(element, dict) for element in value):
        return "[\n" + ",\n".join(f"    {json.dumps(element)}" for element in value) + "\n  ]"
    return json.dumps(value)


def _input(port: Port, signature: Signature) -> dict[str, Any]:
    if port.name == RECURRENT_STATE:
        return {**_port(port), "first": 0.0, "then": NEXT_STATE}
    if port.name == MASK_KEY:
        return {**_port(port), "from": "observation" if signature.interface.masks_in_observation else "info"}
    return _port(port)


def _action(part: ActionPart, squashed: NDArray[np.bool_]) -> dict[str, Any]:
    columns = [part.columns.start, part.columns.stop]
    described = {**_port(part.port), "space": type(part.space).__name__}
    if part.is_choice:
        return {**described, "logits": columns, "values": list(part.categories), "starts": list(part.starts)}
    assert isinstance(part.space, spaces.Box)
    bounds = {"low": _finite(part.space.low.flat), "high": _finite(part.space.high.flat)}
    return {**described, "mean": columns, **bounds, "squashed": squashed.tolist()}


def _port(port: Port) -> dict[str, Any]:
    return {"name": port.name, "shape": ["batch", *port.shape], "dtype": port.dtype}


def _finite(bounds: Iterable[Any]) -> list[float | None]:
    """JSON has no infinities; None: no bound."""
    return [float(bound) if np.isfinite(bound) else None for bound in bounds]
