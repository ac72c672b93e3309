"""The folder of a run's checkpoints: each is there as a whole or not at all, and a damaged one is never believed.

`000000123/` is the checkpoint of version 123. `.tmp-000000123-4121/` is one that process 4121 writes or removes.
`.old-000000123/` is one that is being replaced, and counts for as long as its replacement is not there.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from htsrl.array_file import from_bytes, to_pieces
from htsrl.checkpoint.manifest import MANIFEST_FILE, MANIFEST_LIMIT_BYTES, STATE_FILE, FileSum, Manifest
from htsrl.checkpoint.segments import Segment, assembled
from htsrl.checkpoint.verified import blaming, read_segments, read_verified
from htsrl.errors import CheckpointDamaged
from htsrl.processes.kill_points import kill_point
from htsrl.processes.liveness import is_another_process

SET_ASIDE = ".old-"
NAME = re.compile(r"(?:\.old-)?([0-9]{9}|[1-9][0-9]{9,})")
PART_BYTES = 4 << 20
TEMPORARY_NAME = re.compile(r"\.tmp-(.*)-([0-9]{1,9})")


def checkpoints_in(run_dir: Path) -> Path:
    """The folder of a run's checkpoints."""
    return run_dir / "checkpoints"


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds."""

    document: Mapping[str, Any]
    """JSON, without NaN and infinities; `document["version"]` is the version that it was taken at."""
    arrays: Mapping[str, NDArray[Any]]
    """As it is read, also those of a replay buffer."""
    segment: Segment | None = None
    """Rollouts of a replay buffer that have yet to be written."""
    linked: Mapping[str, FileSum] = field(default_factory=dict)
    """Segments that are in its folder already, where it was begun."""


def begin_checkpoint(folder: Path, version: int) -> Path:
    """The empty folder, under its temporary name, in which the checkpoint of a version will be written."""
    temporary = _temporary(folder / name_of(version))
    _make_checkpoints_folder(folder)
    _remove(temporary)
    _make_private(temporary)
    return temporary


def prepare_checkpoint(folder: Path, checkpoint: Checkpoint, on_part: Callable[[], None] = lambda: None) -> Path:
    """Write all of a checkpoint to disk under a temporary name, under which it does not count yet.

    The arrays must not change meanwhile. Where it fails, on a full disk for one, nothing of it stays. `on_part` is told
    of every few megabytes that were written.
    """
    version, segment = checkpoint.document["version"], checkpoint.segment
    temporary = _temporary(folder / name_of(version)) if checkpoint.linked else begin_checkpoint(folder, version)
    try:
        state = _write(temporary / STATE_FILE, to_pieces(checkpoint.arrays), on_part)
        segments = dict(checkpoint.linked)
        if segment is not None:
            segments[segment.name] = _write(temporary / segment.name, to_pieces(segment.arrays), on_part)
        manifest = Manifest(checkpoint.document, state, segments)
        _write(temporary / MANIFEST_FILE, [_manifest_bytes(manifest)], on_part)
        kill_point("checkpoint written")
        written = [STATE_FILE, *([segment.name] if segment else []), MANIFEST_FILE]
        for path in (*(temporary / name for name in written), temporary):
            _sync(path)
            on_part()
        kill_point("checkpoint synced")
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    return temporary


def commit_checkpoint(prepared: Path) -> Path:
    """Give a prepared checkpoint the name that counts, in place of one of the same version.

    A kill or a power cut at any moment leaves what was there before, or the new checkpoint.
    """
    match = TEMPORARY_NAME.fullmatch(prepared.name)
    assert match is not None, prepared
    final = prepared.with_name(match[1])
    aside = prepared.with_name(SET_ASIDE + final.name)
    try:
        if os.path.lexists(final):
            if os.path.lexists(aside):
                _drop(aside)
            os.rename(final, aside)
            kill_point("checkpoint set aside")
        os.rename(prepared, final)
    except OSError:
        shutil.rmtree(prepared, ignore_errors=True)
        raise
    _sync(final.parent)
    kill_point("checkpoint renamed")
    if os.path.lexists(aside):
        _drop(aside)
    return final


def read_checkpoint(path: Path, with_rollouts: bool = True) -> Checkpoint:
    """What was written, to the bit; CheckpointDamaged for anything else. Who does not continue from it may do without
    the rollouts of a replay buffer, which are most of it."""
    manifest, state = read_verified(path)
    version = manifest.document["version"]
    if path.name.removeprefix(SET_ASIDE) != f"{version:09d}":
        raise CheckpointDamaged(f"{path} holds version {version}, which is not what its name says")
    with blaming(path / STATE_FILE):
        arrays = from_bytes(state)
    if manifest.segments and with_rollouts:
        with blaming(path):
            arrays |= assembled(manifest, ((name, from_bytes(data)) for name, data in read_segments(path, manifest)))
    return Checkpoint(manifest.document, arrays)


def newest_valid(folder: Path, warn: Callable[[str], None]) -> tuple[Path, Checkpoint] | None:
    """The checkpoint to continue from; warns of each damaged one that is newer."""
    for _, path in newest_first(folder):
        try:
            return path, read_checkpoint(path)
        except CheckpointDamaged as damage:
            warn(f"passed over a damaged checkpoint: {damage}")
    return None


def holds_any(folder: Path) -> bool:
    """Whether a checkpoint was ever committed there, whole or damaged since."""
    return next(iter(newest_first(folder)), None) is not None


def whole_documents(folder: Path) -> Iterator[Mapping[str, Any]]:
    """What each checkpoint that is not damaged says of itself, newest first."""
    for _, path in newest_first(folder):
        try:
            yield read_checkpoint(path, with_rollouts=False).document
        except CheckpointDamaged:
            continue


def prune(committed: Path, keep_last: int, best: str | None = None, damaged: Collection[str] = frozenset()) -> None:
    """Keep `committed`, the `keep_last - 1` before it and `best`; remove older ones, and what killed writers left.

    Newer ones stay and do not count: the run continued from before them because they are damaged, so they must not push
    out what is whole. Those among `damaged`, by name, that the run has passed are removed. For the one who commits:
    what this process itself has under a temporary name counts as left.
    """
    match = NAME.fullmatch(committed.name)
    assert match is not None, committed
    assert keep_last >= 1, keep_last
    folder = committed.parent
    for path in _left_behind(folder):
        _remove(path)
    up_to_committed = [(version, path) for version, path in newest_first(folder) if version <= int(match[1])]
    passed = [(version, path) for version, path in up_to_committed if path.name in damaged]
    for version, path in passed + [found for found in up_to_committed if found not in passed][keep_last:]:
        if name_of(version) != best:
            _drop(path)


def name_of(version: int) -> str:
    assert version >= 0, version
    return f"{version:09d}"


def newest_first(folder: Path) -> list[tuple[int, Path]]:
    """Every checkpoint with its version, whole or damaged."""
    by_version: dict[int, Path] = {}
    # A dot sorts before digits: of one that was set aside and its replacement, the replacement stays.
    for name in sorted(_names(folder)):
        if match := NAME.fullmatch(name):
            by_version[int(match[1])] = folder / name
    return sorted(by_version.items(), reverse=True)


def _left_behind(folder: Path) -> Iterator[Path]:
    """What is of no use to anyone: temporary names of processes that are gone, and checkpoints that were replaced."""
    names = _names(folder)
    for name in names:
        temporary = TEMPORARY_NAME.fullmatch(name)
        is_abandoned = temporary is not None and not is_another_process(int(temporary[2]))
        is_replaced = name.startswith(SET_ASIDE) and name.removeprefix(SET_ASIDE) in names
        if is_abandoned or is_replaced:
            yield folder / name


def _names(folder: Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return set()


def _write(path: Path, pieces: Iterable[memoryview], on_part: Callable[[], None]) -> FileSum:
    sha256 = hashlib.sha256()
    num_bytes = 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(descriptor, 0o600)  # whatever the umask took away
        for piece in pieces:
            sha256.update(piece)
            num_bytes += len(piece)
            rest = piece
            while rest:
                rest = rest[os.write(descriptor, rest[:PART_BYTES]) :]
                on_part()
    finally:
        os.close(descriptor)
    return FileSum(num_bytes, sha256.hexdigest())


def _manifest_bytes(manifest: Manifest) -> memoryview:
    data = manifest.to_bytes()
    if len(data) > MANIFEST_LIMIT_BYTES:
        raise ValueError(f"a manifest of {len(data)} bytes is over the limit of {MANIFEST_LIMIT_BYTES}; use arrays")
    return memoryview(data)


def _drop(path: Path) -> None:
    """Remove a checkpoint so that a kill in the midst leaves nothing that looks like one."""
    temporary = _temporary(path)
    _remove(temporary)
    os.rename(path, temporary)
    kill_point("checkpoint dropped")
    _remove(temporary)


def _temporary(path: Path) -> Path:
    return path.with_name(f".tmp-{path.name}-{os.getpid()}")


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _make_checkpoints_folder(folder: Path) -> None:
    try:
        _make_private(folder)
    except FileExistsError:
        return
    _sync(folder.parent)


def _make_private(folder: Path) -> None:
    folder.mkdir(0o700)
    folder.chmod(0o700)  # whatever the umask took away


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
