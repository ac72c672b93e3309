"""Small datasets that need no environment, and the folders they are written to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from htsrl.array_file import to_pieces
from htsrl.datasets.dataset import Dataset
from htsrl.datasets.write import Recorded, write_dataset
from htsrl.spaces import Interface

SEEN = spaces.Box(-1, 1, (3,), np.float32)
DONE = spaces.Box(-2, 2, (1,), np.float32)


def recorded(
    lengths: Sequence[int] = (4, 1, 7, 5), seed: int = 0, dt: Sequence[float] = (), action_space: Any = DONE
) -> Recorded:
    """Episodes of random numbers: those of even numbers terminate, the others are truncated; of each `dt` in turn."""
    generator, steps = np.random.default_rng(seed), sum(lengths)
    ends = np.cumsum(lengths) - 1
    is_last = np.zeros(steps, np.bool_)
    is_last[ends] = True
    even = np.repeat(np.arange(len(lengths)) % 2 == 0, lengths)
    interface = Interface(SEEN, action_space)
    if interface.actions.num_continuous:
        actions: NDArray[Any] = generator.uniform(-2, 2, (steps, *interface.actions.shape)).astype(np.float32)
    else:
        actions = generator.integers(0, interface.actions.categories[0], steps)
    arrays: dict[str, NDArray[Any]] = {
        "obs": generator.uniform(-1, 1, (steps + len(lengths), 3)).astype(np.float32),
        "actions": actions,
        "rewards": generator.normal(size=steps).astype(np.float32),
        "terminated": is_last & even,
        "truncated": is_last & ~even,
    }
    if dt:
        arrays["dt"] = np.repeat(np.resize(np.array(dt, np.float32), len(lengths)), lengths)
    return Recorded(interface, list(lengths), arrays, {"id": "Invented-v0", "args": {}}, [{"policy": "random"}])


def small_dataset(**settings: Any) -> Dataset:
    return recorded(**settings).as_dataset("a test's dataset")


def written(folder: Path, **settings: Any) -> Path:
    """A folder with such a dataset."""
    write_dataset(small_dataset(**settings), folder)
    return folder


def with_other_arrays(folder: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Put other arrays into a dataset, with all sums right, as somebody would who wants them believed."""
    with_other_data(folder, b"".join(to_pieces(arrays)))


def with_other_data(folder: Path, data: bytes) -> None:
    (folder / "transitions.safetensors").write_bytes(data)
    with_other_manifest(
        folder, files={"transitions.safetensors": {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}}
    )


def with_other_manifest(folder: Path, **entries: Any) -> None:
    content = json.loads((folder / "manifest.json").read_bytes()) | entries
    del content["sha256"]
    content["sha256"] = hashlib.sha256(canonical(content)).hexdigest()
    (folder / "manifest.json").write_bytes(canonical(content) + b"\n")


def canonical(content: Any) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
