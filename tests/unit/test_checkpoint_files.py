"""Checkpoints on disk: what comes back, what stays, what goes, and who may read it."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from htsrl.array_file import CODES, to_pieces
from htsrl.checkpoint.files import (
    Checkpoint,
    commit_checkpoint,
    newest_valid,
    prepare_checkpoint,
    prune,
    read_checkpoint,
    whole_documents,
)
from htsrl.checkpoint.manifest import FileSum, Manifest
from htsrl.errors import CheckpointDamaged

SHAPES = ((), (0,), (0, 3), (1,), (5,), (2, 3, 4))
GONE_PID = 2**22 + 1  # above the highest that Linux gives


def small(version: int, **document: Any) -> Checkpoint:
    return Checkpoint({"version": version, **document}, {"weights": np.full(10, version, np.float32)})


def write_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    return commit_checkpoint(prepare_checkpoint(folder, checkpoint))


def no_warning(text: str) -> None:
    raise AssertionError(text)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def noise(shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    """Any bits at all, NaNs with odd payloads among them; truths are 0 or 1."""
    num_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    drawn = np.random.default_rng(num_bytes).integers(0, 2 if dtype == "|b1" else 256, num_bytes, np.uint8)
    return drawn.view(dtype).reshape(shape)


def assert_same_bits(read: NDArray[Any], written: NDArray[Any]) -> None:
    assert (read.dtype, read.shape) == (written.dtype, written.shape)
    assert read.tobytes() == written.tobytes()


@pytest.mark.parametrize("dtype", CODES)
def test_arrays_of_every_dtype_and_shape_come_back_to_the_bit(tmp_path: Path, dtype: str) -> None:
    arrays = {f"of shape {shape}": noise(shape, dtype) for shape in SHAPES}
    read = read_checkpoint(write_checkpoint(tmp_path, Checkpoint({"version": 3}, arrays)))
    assert read.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert_same_bits(read.arrays[name], array)


def test_arrays_of_many_dtypes_together_come_back_whatever_their_order_in_memory(tmp_path: Path) -> None:
    grid = np.arange(24.0).reshape(4, 6)
    arrays = {
        "bytes": noise((3,), "|u1"),
        "every second": grid[:, ::2],
        "transposed": grid.T,
        "backwards": grid[::-1],
        "ünïcode / with spaces": noise((3, 5), "<i2"),
        "": noise((), "<f8"),
    }
    read = read_checkpoint(write_checkpoint(tmp_path, Checkpoint({"version": 3}, arrays)))
    assert read.arrays.keys() == arrays.keys()
    for name, array in arrays.items():
        assert_same_bits(read.arrays[name], array)


def test_a_checkpoint_without_arrays_is_one(tmp_path: Path) -> None:
    assert read_checkpoint(write_checkpoint(tmp_path, Checkpoint({"version": 0}, {}))).arrays == {}


def test_the_document_comes_back_as_it_was(tmp_path: Path) -> None:
    document = {"version": 12, "é\n\ud800": [None, True, -0.0, 1e-308, 2**70, {"": []}], "steps": 0}
    read = read_checkpoint(write_checkpoint(tmp_path, Checkpoint(document, {})))
    assert read.document == document
    assert math.copysign(1.0, read.document["é\n\ud800"][2]) == -1.0


def test_other_programs_can_read_the_state(tmp_path: Path) -> None:
    arrays = {dtype: noise((2, 3), dtype) for dtype in CODES}
    path = write_checkpoint(tmp_path, Checkpoint({"version": 1}, arrays))
    loaded = load_file(path / "state.safetensors")
    assert loaded.keys() == arrays.keys()
    for name, array in arrays.items():
        assert_same_bits(loaded[name], array)


def test_writing_copies_no_array_that_is_contiguous() -> None:
    array = noise((100, 100), "<f4")
    _, data = to_pieces({"array": array})
    assert np.shares_memory(np.frombuffer(data, np.uint8), array)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o377])
def test_only_the_owner_may_read_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        path = write_checkpoint(tmp_path / "checkpoints", small(1))
    finally:
        os.umask(before)
    modes = {entry.name: entry.stat().st_mode & 0o7777 for entry in (path.parent, path, *path.iterdir())}
    assert modes == {"checkpoints": 0o700, "000000001": 0o700, "state.safetensors": 0o600, "manifest.json": 0o600}


def test_a_prepared_checkpoint_counts_once_it_is_committed(tmp_path: Path) -> None:
    prepared = prepare_checkpoint(tmp_path, small(1))
    assert newest_valid(tmp_path, no_warning) is None
    committed = commit_checkpoint(prepared)
    assert newest_valid(tmp_path, no_warning) is not None
    assert names(tmp_path) == [committed.name] == ["000000001"]


def test_a_checkpoint_of_the_same_version_is_replaced(tmp_path: Path) -> None:
    for edition in (1, 2, 3):
        path = write_checkpoint(tmp_path, small(5, edition=edition))
        assert read_checkpoint(path).document == {"version": 5, "edition": edition}
        assert names(tmp_path) == ["000000005"]


def test_what_stands_where_the_checkpoint_belongs_gives_way(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "000000005").symlink_to(elsewhere)
    (tmp_path / f".tmp-000000005-{os.getpid()}").write_text("of a process that had the same pid")
    assert read_checkpoint(write_checkpoint(tmp_path, small(5))).document == {"version": 5}
    assert names(tmp_path) == ["000000005", "elsewhere"]


@pytest.mark.parametrize(
    ("checkpoint", "complaint"),
    [
        (Checkpoint({"version": 2}, {"things": np.array([object()])}), "array 'things' has dtype object"),
        (Checkpoint({"version": 2}, {"old": np.zeros(2, ">f4")}), "array 'old' has dtype >f4"),
        (Checkpoint({"version": 2, "loss": math.nan}, {}), "not JSON compliant"),
        (Checkpoint({"version": 2, "path": Path()}, {}), "not JSON serializable"),
        (Checkpoint({"version": 2, "log": "x" * 2**24}, {}), "use arrays"),
    ],
)
def test_what_could_not_be_read_again_is_not_written(tmp_path: Path, checkpoint: Checkpoint, complaint: str) -> None:
    write_checkpoint(tmp_path, small(1))
    with pytest.raises((TypeError, ValueError), match=complaint):
        write_checkpoint(tmp_path, checkpoint)
    assert names(tmp_path) == ["000000001"]


def test_the_newest_is_the_highest_version(tmp_path: Path) -> None:
    for version in (9, 1_000_000_000, 10, 999_999_999):
        write_checkpoint(tmp_path, small(version))
    (tmp_path / "notes.txt").write_text("not a checkpoint")
    found = newest_valid(tmp_path, no_warning)
    assert found is not None
    assert (found[0].name, found[1].document) == ("1000000000", {"version": 1_000_000_000})


@pytest.mark.parametrize("folder", ["missing", "empty"])
def test_without_checkpoints_there_is_no_newest(tmp_path: Path, folder: str) -> None:
    (tmp_path / "empty").mkdir()
    assert newest_valid(tmp_path / folder, no_warning) is None


def test_damaged_checkpoints_are_passed_over_with_a_warning_each(tmp_path: Path) -> None:
    paths = [write_checkpoint(tmp_path, small(version)) for version in (1, 2, 3, 4)]
    (paths[0] / "manifest.json").unlink()
    (paths[2] / "state.safetensors").write_bytes(b"")
    shutil.rmtree(paths[3])
    paths[3].write_text("a file")
    warnings: list[str] = []
    found = newest_valid(tmp_path, warnings.append)
    assert found is not None
    assert found[0] == paths[1]
    assert len(warnings) == 2
    assert f"damaged checkpoint: {paths[3]} cannot be read: Not a directory" in warnings[0]
    assert f"damaged checkpoint: {paths[2] / 'state.safetensors'} has 0 bytes where the manifest says" in warnings[1]


def test_the_documents_of_whole_checkpoints_come_newest_first(tmp_path: Path) -> None:
    paths = [write_checkpoint(tmp_path, small(version)) for version in (1, 2, 3)]
    (paths[1] / "state.safetensors").write_bytes(b"")
    assert list(whole_documents(tmp_path)) == [{"version": 3}, {"version": 1}]


def test_if_all_are_damaged_there_is_no_newest(tmp_path: Path) -> None:
    (write_checkpoint(tmp_path, small(1)) / "manifest.json").write_bytes(b"{}")
    warnings: list[str] = []
    assert newest_valid(tmp_path, warnings.append) is None
    assert len(warnings) == 1


def test_files_beside_the_two_are_ignored(tmp_path: Path) -> None:
    path = write_checkpoint(tmp_path, small(1))
    (path / ".DS_Store").write_bytes(b"garbage")
    (path / "folder").mkdir()
    assert read_checkpoint(path).document == {"version": 1}


def test_a_checkpoint_under_another_name_is_damaged(tmp_path: Path) -> None:
    moved = write_checkpoint(tmp_path, small(1)).rename(tmp_path / "000000002")
    with pytest.raises(CheckpointDamaged, match="000000002 holds version 1, which is not what its name says"):
        read_checkpoint(moved)


def test_every_flipped_bit_of_a_manifest_is_found() -> None:
    data = Manifest({"version": 7, "steps": 700, "name": "é", "rate": 1e-3}, FileSum(10, "a" * 64)).to_bytes()
    assert Manifest.from_bytes(data).to_bytes() == data
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ValueError, match=r"is not JSON|lacks an entry|does not match|is of the format"):
            Manifest.from_bytes(bytes(flipped))


@pytest.mark.parametrize("version", [True, 1.0, "1", None])
def test_a_version_is_a_whole_number(version: Any) -> None:
    data = Manifest({"version": version}, FileSum(10, "a" * 64)).to_bytes()
    with pytest.raises(ValueError, match="lacks an entry that every manifest has"):
        Manifest.from_bytes(data)


def test_pruning_keeps_the_last_and_the_best(tmp_path: Path) -> None:
    for version in range(1, 7):
        newest = write_checkpoint(tmp_path, small(version))
    prune(newest, keep_last=2, best="000000003")
    assert names(tmp_path) == ["000000003", "000000005", "000000006"]
    prune(newest, keep_last=2, best="000000006")
    assert names(tmp_path) == ["000000005", "000000006"]
    prune(newest, keep_last=5)
    assert names(tmp_path) == ["000000005", "000000006"]


def test_newer_checkpoints_do_not_push_out_the_one_that_was_just_written(tmp_path: Path) -> None:
    """As after a resume from before a damaged one."""
    for version in (1, 2, 5, 6):
        write_checkpoint(tmp_path, small(version))
    prune(write_checkpoint(tmp_path, small(3)), keep_last=2)
    assert names(tmp_path) == ["000000002", "000000003", "000000005", "000000006"]


def test_pruning_removes_what_dead_writers_left_and_nothing_else(tmp_path: Path) -> None:
    committed = write_checkpoint(tmp_path, small(1))
    alive = f".tmp-000000002-{os.getppid()}"
    others = [alive, ".tmp-notes", "elsewhere"]
    for name in (f".tmp-000000002-{GONE_PID}", f".tmp-.old-000000003-{os.getpid()}", *others):
        (tmp_path / name).mkdir()
        (tmp_path / name / "state.safetensors").write_bytes(b"half")
    (tmp_path / f".tmp-000000009-{GONE_PID}").symlink_to(tmp_path / "elsewhere")
    prune(committed, keep_last=1)
    assert names(tmp_path) == sorted([*others, "000000001"])
    assert names(tmp_path / "elsewhere") == ["state.safetensors"]


def test_a_checkpoint_set_aside_counts_until_its_replacement_is_there(tmp_path: Path) -> None:
    """As a kill between the two renames of a replacement leaves it."""
    aside = write_checkpoint(tmp_path, small(4, edition="old")).rename(tmp_path / ".old-000000004")
    write_checkpoint(tmp_path, small(3))
    prune(aside, keep_last=1)
    assert names(tmp_path) == [aside.name]
    found = newest_valid(tmp_path, no_warning)
    assert found is not None
    assert found[1].document["edition"] == "old"
    write_checkpoint(tmp_path, small(4, edition="new"))
    assert names(tmp_path) == ["000000004"]


def test_a_checkpoint_that_was_replaced_does_not_count(tmp_path: Path) -> None:
    """As a kill after the two renames of a replacement leaves it."""
    write_checkpoint(tmp_path, small(4, edition="old")).rename(tmp_path / ".old-000000004")
    shutil.copytree(tmp_path / ".old-000000004", tmp_path / "copy")
    replacement = write_checkpoint(tmp_path, small(4, edition="new"))
    (tmp_path / "copy").rename(tmp_path / ".old-000000004")
    found = newest_valid(tmp_path, no_warning)
    assert found is not None
    assert found[1].document["edition"] == "new"
    prune(replacement, keep_last=2)
    assert names(tmp_path) == ["000000004"]
