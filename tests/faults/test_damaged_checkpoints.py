"""Whatever becomes of a checkpoint's files, it is read as it was written or refused by name; nothing of it is run."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoint_damage import DAMAGES, Damage, Files, Scene, forged_header_noise, hostile_header, sealed
from numpy.typing import NDArray

from htsrl.checkpoint.archive import Archive
from htsrl.checkpoint.files import (
    Checkpoint,
    commit_checkpoint,
    newest_valid,
    prepare_checkpoint,
    read_checkpoint,
)
from htsrl.checkpoint.manifest import FORMAT, MANIFEST_FILE, MANIFEST_LIMIT_BYTES, STATE_FILE
from htsrl.errors import CheckpointDamaged


def write(folder: Path, version: int) -> Path:
    arrays: dict[str, NDArray[Any]] = {
        "weights": np.arange(12, dtype=np.float32).reshape(3, 4) * version,
        "frames": np.full((2, 5), version, np.uint8),
        "steps": np.array(version, np.int64),
        "nothing": np.zeros((0, 3), np.float16),
        "ended": np.array([True, False]),
    }
    document = {"version": version, "steps": 100 * version, "experiment": {"env": "CartPole-v1", "rate": 1e-3}}
    return commit_checkpoint(prepare_checkpoint(folder, Checkpoint(document, arrays)))


def files_of(path: Path) -> Files:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def put(path: Path, files: Files) -> None:
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    for name, data in files.items():
        (path / name).write_bytes(data)


def outcome_of_reading(path: Path) -> str:
    """The refusal, which begins with a path, or what happened instead."""
    try:
        read_checkpoint(path)
    except CheckpointDamaged as refusal:
        return str(refusal)
    except BaseException as error:  # a panic in safetensors' Rust is no Exception
        return f"it raised {error!r}"
    return "it was read as if whole"


def refuse_each(folder: Path, damages: tuple[Damage, ...], count: int, seed: int) -> None:
    """Let each of `count` damaged checkpoints be read, and fail with what reproduces the first that is not refused."""
    path = write(folder, 7)
    scene = Scene(files_of(path), files_of(write(folder, 8)), canary=folder / "canary")
    for index in range(count):
        damage = damages[index % len(damages)]
        files = damage(np.random.default_rng([seed, index]), scene)
        put(path, files)
        outcome = outcome_of_reading(path)
        what = f"{damage.__name__}, drawn from [{seed}, {index}]: {outcome[:500]}"
        assert files != scene.files, what
        assert outcome.startswith(str(path)), what
        assert len(outcome) < len(str(path)) + 400, what
        assert not scene.canary.exists(), f"executed code: {what}"
    put(path, scene.files)
    read_checkpoint(path)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_checkpoint_is_refused_by_name(tmp_path: Path, damage: Damage) -> None:
    refuse_each(tmp_path, (damage,), count=250 if damage is hostile_header else 100, seed=0)


@pytest.mark.slow
def test_ten_thousand_damaged_checkpoints_are_refused_by_name(tmp_path: Path) -> None:
    refuse_each(tmp_path, DAMAGES, count=10_000, seed=time.time_ns())


def test_a_forged_header_is_read_or_refused_and_does_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path, 7)
    scene = Scene(files_of(path), {}, canary=tmp_path / "canary")
    num_refused = 0
    for index in range(300):
        put(path, forged_header_noise(np.random.default_rng([1, index]), scene))
        outcome = outcome_of_reading(path)
        assert not outcome.startswith("it raised"), f"header noise {index}: {outcome}"
        num_refused += outcome.startswith(str(path))
    assert num_refused > 150


def replaced_by_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def replaced_by_link(path: Path) -> None:
    """To a good file, so that nothing but the link is wrong."""
    path.rename(path.parent.parent / "elsewhere")
    path.symlink_to("../elsewhere")


def replaced_by_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def replaced_by_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def replaced_by_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize("name", [STATE_FILE, MANIFEST_FILE])
@pytest.mark.parametrize(
    "replace", [replaced_by_pipe, replaced_by_link, replaced_by_loop, replaced_by_device, replaced_by_folder]
)
def test_only_plain_files_are_read(tmp_path: Path, name: str, replace: Callable[[Path], None]) -> None:
    path = write(tmp_path, 7)
    replace(path / name)
    with pytest.raises(CheckpointDamaged, match=f"000000007/{name} (is not a plain file|cannot be read)"):
        read_checkpoint(path)


def test_a_link_to_a_checkpoint_is_not_followed(tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere", 7)
    link = tmp_path / elsewhere.name
    link.symlink_to(elsewhere)
    with pytest.raises(CheckpointDamaged, match="000000007 cannot be read"):
        read_checkpoint(link)


def test_a_manifest_of_any_size_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = write(tmp_path, 7)
    os.truncate(path / MANIFEST_FILE, 2**40)
    with pytest.raises(CheckpointDamaged, match=f"has {2**40} bytes, over the limit of {MANIFEST_LIMIT_BYTES}"):
        read_checkpoint(path)


def test_a_state_beyond_all_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """A file with holes takes no room on disk, however long it is."""
    path = write(tmp_path, 7)
    os.truncate(path / STATE_FILE, 2**43)
    entry = {"bytes": 2**43, "sha256": "0" * 64}
    manifest = {"format": FORMAT, "document": {"version": 7}, "files": {STATE_FILE: entry}}
    (path / MANIFEST_FILE).write_bytes(sealed(manifest))
    with pytest.raises(CheckpointDamaged, match="more than this machine's memory"):
        read_checkpoint(path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_checkpoint_that_may_not_be_read_is_said_so(tmp_path: Path) -> None:
    path = write(tmp_path, 7)
    (path / STATE_FILE).chmod(0)
    with pytest.raises(CheckpointDamaged, match=r"state\.safetensors cannot be read: Permission denied"):
        read_checkpoint(path)


def test_among_damaged_checkpoints_the_last_whole_one_is_found(tmp_path: Path) -> None:
    paths = [write(tmp_path, version) for version in range(1, len(DAMAGES) + 3)]
    whole = paths[1]
    files = {path: files_of(path) for path in paths}
    for index, path in enumerate(path for path in paths if path != whole):
        scene = Scene(files[path], files[whole], canary=tmp_path / "canary")
        put(path, DAMAGES[index % len(DAMAGES)](np.random.default_rng(index), scene))
    warnings: list[str] = []
    found = newest_valid(tmp_path, warnings.append)
    assert found is not None
    assert found[0] == whole
    assert [warning.split(str(tmp_path))[1][1:10] for warning in warnings] == [path.name for path in paths[:1:-1]]


def test_a_damaged_one_that_the_run_has_passed_pushes_out_none_that_is_whole(tmp_path: Path) -> None:
    """Of the run that was resumed from version 2; newer ones stay until it has passed them."""
    for version in (1, 2, 3, 9):
        write(tmp_path, version)
    for version in (3, 9):
        (tmp_path / f"{version:09d}" / STATE_FILE).write_bytes(b"damaged")
    archive = Archive(tmp_path, 2, print, lambda: None, begun_at=2)
    archive.save(Checkpoint({"version": 4, "mean_return": None}, {}))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000002", "000000004", "000000009"]
