"""A replayed stretch as a table, as JSON, and as a file of arrays."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from htsrl.errors import ConfigError
from htsrl.metrics.atomic_file import write_whole
from htsrl.replay.stretch import Replay

MAX_NUMBERS = 6
"""More of them are summarised in a table."""
SUFFIXES = (".npz", ".safetensors")


def table(replay: Replay) -> str:
    """A line for each step, below a line of names."""
    names = ["step", "observation", "action", *_names_of_outputs(replay), "value", "reward", "end"]
    lines = [names, *_lines(replay)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (zip(line, widths, strict=True) for line in lines)
    return "\n".join("  ".join(f"{cell:{width}}" for cell, width in line).rstrip() for line in padded)


def _names_of_outputs(replay: Replay) -> list[str]:
    actions = replay.interface.actions
    of_choices = ["logits", "probabilities"] if actions.categories else []
    return [*of_choices, *(["means"] if actions.num_continuous else [])]


def _lines(replay: Replay) -> Iterator[list[str]]:
    arrays, actions = replay.arrays, replay.interface.actions
    num_logits, env_actions = sum(actions.categories), replay.env_actions()
    seen = [name for name in replay.interface.observations if name in arrays]
    for row in range(replay.num_steps):
        step = int(arrays["step"][row])
        is_found = replay.moment is not None and replay.moment.step == step
        outputs = []
        if actions.categories:
            outputs.append(_numbers(arrays["logits"][row][..., :num_logits], ".3g", most=18))
            outputs.append(_numbers(arrays["probabilities"][row], ".3f", most=18))
        if actions.num_continuous:
            outputs.append(_numbers(arrays["logits"][row][..., num_logits:], ".4g", most=18))
        yield [
            f"{step}{' *' if is_found else ''}",
            " ".join(_observation(arrays[name][row]) for name in seen),
            _shown(env_actions[row]),
            *outputs,
            _numbers(arrays["values"][row], ".4g"),
            _numbers(arrays["rewards"][row], ".4g"),
            _end(replay, row),
        ]


def _end(replay: Replay, row: int) -> str:
    arrays = replay.arrays
    kinds = [kind for kind in ("terminated", "truncated") if np.any(arrays[kind][row])]
    if (length := int(np.max(arrays["episode_lengths"][row]))) > 0:
        kinds.append(f"return {np.max(arrays['episode_returns'][row]):g} after {length}")
    return ", ".join(kinds)


def _observation(array: NDArray[Any]) -> str:
    if array.size <= MAX_NUMBERS:
        return _numbers(array, ".4g")
    shape = "x".join(map(str, array.shape))
    short = xxhash.xxh3_64_hexdigest(array.tobytes())[:8]
    if array.dtype == np.bool_:
        return f"{shape} {int(array.sum())} set"
    return f"{shape} {array.min():.3g}..{array.max():.3g} mean {array.mean():.4g} #{short}"


def _numbers(array: Any, pattern: str, most: int = MAX_NUMBERS) -> str:
    numbers = np.asarray(array).reshape(-1)
    shown = " ".join(format(float(x), pattern) if x.dtype.kind == "f" else str(x) for x in numbers[:most])
    return shown + (f" ... ({len(numbers)})" if len(numbers) > most else "")


def _shown(action: Any) -> str:
    if isinstance(action, dict):
        return " ".join(f"{key}={_shown(part)}" for key, part in action.items())
    if isinstance(action, list | tuple):
        return " ".join(map(_shown, action))
    return _numbers(action, ".4g") if isinstance(action, np.ndarray) else str(action)


def document(replay: Replay) -> dict[str, Any]:
    """As JSON takes it; what is not finite is null."""
    verification, moment = replay.verification, replay.moment
    return {
        "run_dir": str(replay.run_dir),
        "env": replay.env,
        "verified": verification.is_verified,
        "verification": str(verification),
        "digest": verification.digest,
        "other_numerics": list(verification.other_numerics),
        "moment": None if moment is None else vars(moment),
        "arrays": {name: _as_json(array.tolist()) for name, array in replay.arrays.items()},
    }


def _as_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_as_json(part) for part in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def save(replay: Replay, path: Path) -> None:
    """Its arrays, and what there is to say of them, in a new file: .npz or .safetensors."""
    about = {name: x for name, x in document(replay).items() if name != "arrays"}
    if path.suffix == ".npz":
        buffer = io.BytesIO()
        named: dict[str, Any] = {"about": np.array(json.dumps(about)), **replay.arrays}
        np.savez_compressed(buffer, **named)
        write_whole(path, buffer.getvalue())
    elif path.suffix == ".safetensors":
        from safetensors.numpy import save as to_bytes

        arrays = {name: np.ascontiguousarray(array) for name, array in replay.arrays.items()}
        write_whole(path, to_bytes(arrays, metadata={"about": json.dumps(about)}))
    else:
        raise ConfigError(f"output={path} must end in {' or '.join(SUFFIXES)}")
