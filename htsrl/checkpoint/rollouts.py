"""Which rollouts of a replay buffer a checkpoint writes, and which it takes over from another, when it is made."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.checkpoint.files import begin_checkpoint, newest_first
from htsrl.checkpoint.manifest import MANIFEST_FILE, MANIFEST_LIMIT_BYTES, FileSum, Manifest
from htsrl.checkpoint.segments import HELD, SESSION, Segment, is_segment, range_of
from htsrl.dataflow.exchange import Exchange
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.plain_files import read_plain

MAX_SEGMENTS = 64
"""From so many on, the newest of them are written again as one, together with what is new."""
MERGED_SHARE = 16
"""Those that lie within the newest so-many-th of the buffer: a copy of them is made while the run waits."""


@dataclass(frozen=True)
class Rollouts:
    """Those of a checkpoint: what is new, and what others have written."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """For the checkpoint's document."""
    new: Segment | None = None
    linked: Mapping[str, FileSum] = field(default_factory=dict)
    """Segments that are in the checkpoint's folder already."""


def take_rollouts(block: SharedArrays, exchange: Exchange, folder: Path, version: int) -> Rollouts:
    """Copy what no checkpoint in the folder has; the rest is linked to where the one of `version` will be written."""
    specs = [spec for spec in block.specs if spec.kept_by == "appended"]
    if not specs:
        return Rollouts()
    if not exchange.checkpoint_session:
        exchange.checkpoint_session = secrets.randbits(62) + 1
    held = specs[0].shape[0] // specs[0].rows_per_version
    oldest = max(version - held, 0)
    linked = _linked(folder, version, held, _base(folder, version, held, exchange))
    first = max((range_of(name)[1] for name in linked), default=oldest)
    new = {spec.name: _rows_of(block[spec.name], spec.rows_per_version, first, version) for spec in specs}
    facts = {HELD: held, SESSION: exchange.checkpoint_session}
    return Rollouts(facts, Segment(first, version, new) if first < version else None, linked)


def _rows_of(array: NDArray[Any], num_rows: int, first: int, end: int) -> NDArray[Any]:
    """A copy of what some rollouts have put there."""
    begin = first * num_rows % len(array)
    wrapped = max(begin + (end - first) * num_rows - len(array), 0)
    return np.concatenate([array[begin : begin + (end - first) * num_rows], array[:wrapped]])


def _base(folder: Path, version: int, held: int, exchange: Exchange) -> tuple[Path, Manifest] | None:
    """The newest checkpoint whose rollouts are those in memory."""
    for path, manifest in _manifests(folder, version):
        facts = manifest.document
        is_ours = facts.get(SESSION) == exchange.checkpoint_session or facts["version"] == exchange.restored_version
        if is_ours and facts.get(HELD) == held and all(map(is_segment, manifest.segments)):
            return path, manifest
    return None


def _manifests(folder: Path, version: int) -> Iterator[tuple[Path, Manifest]]:
    for number, path in newest_first(folder):
        try:
            manifest = Manifest.from_bytes(read_plain(path / MANIFEST_FILE, MANIFEST_LIMIT_BYTES))
        except (OSError, ValueError, RecursionError):
            continue
        if number == manifest.document["version"] <= version:
            yield path, manifest


def _linked(folder: Path, version: int, held: int, base: tuple[Path, Manifest] | None) -> dict[str, FileSum]:
    """Nothing where a file is not as it was written, as far as its size tells, or cannot be linked."""
    if base is None:
        return {}
    path, manifest = base
    wanted = _worth_linking(manifest.segments, version, held)
    if not wanted:
        return {}
    try:
        temporary = begin_checkpoint(folder, version)
        for name, of in wanted.items():
            os.link(path / name, temporary / name, follow_symlinks=False)
            if os.lstat(temporary / name).st_size != of.bytes:
                raise OSError(f"{path / name} was changed")
    except OSError:
        return {}  # whoever writes the checkpoint begins its folder anew
    return wanted


def _worth_linking(segments: Mapping[str, FileSum], version: int, held: int) -> dict[str, FileSum]:
    """Those with rollouts that are still held, but for the newest where there are too many."""
    found = {name: of for name, of in segments.items() if range_of(name)[1] > version - held}
    if len(found) < MAX_SEGMENTS:
        return found
    return {name: of for name, of in found.items() if range_of(name)[0] < version - held // MERGED_SHARE}
