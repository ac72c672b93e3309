"""Reading the files of a checkpoint, of which nothing is believed before it has been checked."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from htsrl.checkpoint.manifest import MANIFEST_FILE, MANIFEST_LIMIT_BYTES, STATE_FILE, FileSum, Manifest
from htsrl.checkpoint.segments import HELD, check_ranges, is_segment, range_of
from htsrl.errors import CheckpointDamaged


def read_verified(path: Path) -> tuple[Manifest, bytes]:
    """The manifest and the state's bytes, the very ones whose sum was found right."""
    with blaming(path), _opened_folder(path) as folder:
        with blaming(path / MANIFEST_FILE):
            manifest = Manifest.from_bytes(_read(folder, MANIFEST_FILE, _check_manifest_size))
            _check_segments(manifest)
        return manifest, _read_summed(path, folder, STATE_FILE, manifest.state)


def read_segments(path: Path, manifest: Manifest) -> Iterator[tuple[str, bytes]]:
    """The bytes of a checkpoint's segments by name, oldest first, after the same look at each."""
    with blaming(path), _opened_folder(path) as folder:
        for name in sorted(manifest.segments, key=range_of):
            yield name, _read_summed(path, folder, name, manifest.segments[name])


def _read_summed(path: Path, folder: int, name: str, expected: FileSum) -> bytes:
    with blaming(path / name):
        data = _read(folder, name, lambda num_bytes: _check_size(num_bytes, expected))
        if hashlib.sha256(data).hexdigest() != expected.sha256:
            raise ValueError("does not match the SHA-256 in the manifest")
        return data


def _check_segments(manifest: Manifest) -> None:
    """ValueError for files that are none of a checkpoint's, and for rollouts that are missing."""
    if strange := [name for name in manifest.segments if not is_segment(name)]:
        raise ValueError(f"names {strange[0][:60]!r}, which no checkpoint holds")
    if manifest.segments:
        check_ranges(manifest.segments, manifest.document["version"], manifest.document.get(HELD))
    _check_fits_memory(sum(of.bytes for of in (manifest.state, *manifest.segments.values())))


@contextmanager
def blaming(path: Path) -> Iterator[None]:
    """Whatever reading may raise, as CheckpointDamaged that names the file."""
    try:
        yield
    except FileNotFoundError as error:
        raise CheckpointDamaged(f"{path} is missing") from error
    except OSError as error:
        raise CheckpointDamaged(f"{path} cannot be read: {error.strerror}") from error
    except RecursionError as error:
        raise CheckpointDamaged(f"{path} is nested too deeply") from error
    except MemoryError as error:
        raise CheckpointDamaged(f"{path} does not fit into memory") from error
    except ValueError as error:
        raise CheckpointDamaged(f"{path} {error}") from error


@contextmanager
def _opened_folder(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _read(folder: int, name: str, check_size: Callable[[int], None]) -> bytes:
    """A plain file's bytes, after a look at how many there are; links are not followed and pipes not waited for."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is not a plain file")
        check_size(status.st_size)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(status.st_size)
    finally:
        os.close(descriptor)


def _check_manifest_size(num_bytes: int) -> None:
    if num_bytes > MANIFEST_LIMIT_BYTES:
        raise ValueError(f"has {num_bytes} bytes, over the limit of {MANIFEST_LIMIT_BYTES}")


def _check_size(num_bytes: int, expected: FileSum) -> None:
    if num_bytes != expected.bytes:
        raise ValueError(f"has {num_bytes} bytes where the manifest says {expected.bytes}")
    _check_fits_memory(num_bytes)


def _check_fits_memory(num_bytes: int) -> None:
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if num_bytes > memory_bytes:
        raise ValueError(f"has {num_bytes} bytes, more than this machine's memory of {memory_bytes}")
