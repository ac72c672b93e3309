"""A replay buffer in checkpoints: every rollout is written once, and no file is believed unseen."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from htsrl.checkpoint import rollouts
from htsrl.checkpoint.files import (
    Checkpoint,
    commit_checkpoint,
    newest_valid,
    prepare_checkpoint,
    prune,
    read_checkpoint,
)
from htsrl.checkpoint.manifest import FileSum, Manifest
from htsrl.checkpoint.rollouts import take_rollouts
from htsrl.checkpoint.segments import Arrays, assembled
from htsrl.dataflow.exchange import Exchange, control_arrays
from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
from htsrl.errors import CheckpointDamaged

NUM_ROWS, HELD = 2, 5  # rows of a rollout, and rollouts that there is room for


class Run:
    """A buffer whose every rollout has numbers of its own, and its checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        data = [
            ArraySpec("replay/numbers", (NUM_ROWS * HELD, 3), "float32", "appended", NUM_ROWS),
            ArraySpec("replay/flags", (NUM_ROWS * HELD,), "bool", "appended", NUM_ROWS),
        ]
        self.block = SharedArrays([*control_arrays(1, 1), *data])
        self.exchange = Exchange(self.block, num_steps=NUM_ROWS)
        self.version = 0

    def go_on(self, num_rollouts: int) -> None:
        for _ in range(num_rollouts):
            rows = slice(self.version % HELD * NUM_ROWS, (self.version % HELD + 1) * NUM_ROWS)
            self.block["replay/numbers"][rows] = self.version + np.arange(6).reshape(2, 3) / 10
            self.block["replay/flags"][rows] = self.version % 2
            self.version += 1

    def save(self) -> Path:
        path = commit_checkpoint(self.prepare())
        prune(path, keep_last=2)
        return path

    def prepare(self) -> Path:
        taken = take_rollouts(self.block, self.exchange, self.folder, self.version)
        document = {"version": self.version, **taken.facts}
        return prepare_checkpoint(self.folder, Checkpoint(document, {}, taken.new, taken.linked))

    def holds(self, path: Path) -> bool:
        """Whether the checkpoint has all that is in memory."""
        arrays, filled = read_checkpoint(path).arrays, min(self.version, HELD) * NUM_ROWS
        return all(
            np.array_equal(arrays[name], self.block[name][:filled]) for name in ("replay/numbers", "replay/flags")
        )


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    run = Run(tmp_path / "checkpoints")
    yield run
    run.block.close()


def segments(path: Path) -> list[str]:
    return sorted(file.name for file in path.glob("rollouts-*"))


def name(first: int, end: int) -> str:
    return f"rollouts-{first:09d}-{end:09d}.safetensors"


def test_each_checkpoint_writes_what_is_new_and_links_the_rest(run: Run) -> None:
    run.go_on(2)
    first = run.save()
    run.go_on(1)
    second = run.save()
    assert segments(second) == [name(0, 2), name(2, 3)]
    assert (second / name(0, 2)).stat().st_ino == (first / name(0, 2)).stat().st_ino
    assert run.holds(second)
    run.go_on(3)  # rollout 0 is written over, rollout 1 is not
    third = run.save()
    assert segments(third) == [name(0, 2), name(2, 3), name(3, 6)]
    assert run.holds(third)
    assert not first.exists(), "pruned, and nothing of it was needed"
    run.go_on(2)
    assert segments(run.save()) == [name(3, 6), name(6, 8)]


@pytest.mark.parametrize("steps", [[1, 4, 1, 1], [5, 5, 5], [7, 2, 9], [3, 1, 1, 1, 1, 1, 1, 1]])
def test_what_is_read_is_what_was_in_memory_however_rollouts_and_checkpoints_fall(steps: list[int], run: Run) -> None:
    for num_rollouts in steps:
        run.go_on(num_rollouts)
        assert run.holds(run.save())
        assert run.holds(run.save()), "the same version once more"


def test_a_checkpoint_before_the_first_rollout_has_none(run: Run) -> None:
    assert segments(run.save()) == []
    run.go_on(1)
    assert run.holds(run.save())


def test_a_process_that_takes_over_goes_on_from_the_same_segments(run: Run) -> None:
    run.go_on(2)
    run.save()
    run.exchange = Exchange(run.block, num_steps=NUM_ROWS)  # as another process has it
    run.go_on(1)
    assert segments(run.save()) == [name(0, 2), name(2, 3)]


def test_another_start_of_the_run_takes_over_only_what_it_was_resumed_from(run: Run) -> None:
    run.go_on(2)
    run.save()
    run.go_on(1)
    run.save()  # of version 3: damaged, say, so the run is resumed from version 2
    run.version = 2
    run.exchange.checkpoint_session = 0
    run.exchange.note_restored(2)
    run.go_on(2)
    assert segments(run.save()) == [name(0, 2), name(2, 4)], "not those of version 3, which may hold something else"


def test_of_too_many_segments_the_newest_become_one_and_the_others_stay(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollouts, "MAX_SEGMENTS", 3)
    monkeypatch.setattr(rollouts, "MERGED_SHARE", 2)  # two of five rollouts
    found = []
    for _ in range(9):
        run.go_on(1)
        path = run.save()
        assert run.holds(path)
        found.append(segments(path))
    assert found[3] == [name(0, 1), name(1, 2), name(2, 4)]
    assert found[5] == [name(1, 2), name(2, 4), name(4, 6)]
    assert max(map(len, found)) == 4


def test_where_files_cannot_be_linked_all_is_written_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.go_on(2)
    run.save()
    run.go_on(1)

    def refuse(*paths: Any, **keywords: Any) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", refuse)
    path = run.save()
    assert segments(path) == [name(0, 3)]
    assert run.holds(path)


def test_a_checkpoint_that_was_not_finished_leaves_the_one_before_whole(run: Run) -> None:
    run.go_on(2)
    before = run.save()
    expected = read_checkpoint(before).arrays["replay/numbers"]
    run.go_on(1)
    run.prepare()
    found = newest_valid(run.folder, pytest.fail)
    assert found is not None
    assert found[0] == before
    assert np.array_equal(found[1].arrays["replay/numbers"], expected)
    assert segments(run.save()) == [name(0, 2), name(2, 3)]


def change(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda path: os.truncate(path, 10), "has 10 bytes where the manifest says"),
        (change, "does not match the SHA-256"),
        (lambda path: path.unlink(), "is missing"),
        (lambda path: (path.rename(path.parent / "other"), path.symlink_to("other")), "cannot be read"),
    ],
)
def test_a_damaged_segment_is_named(damage: Any, problem: str, run: Run) -> None:
    run.go_on(2)
    run.save()
    run.go_on(1)
    path = run.save()
    damage(path / name(0, 2))
    with pytest.raises(CheckpointDamaged, match=rf"{name(0, 2)} {problem}"):
        read_checkpoint(path)
    assert read_checkpoint(path, with_rollouts=False).document["version"] == 3


def test_a_segment_that_was_cut_is_written_anew_by_the_next_checkpoint(run: Run) -> None:
    run.go_on(2)
    os.truncate(run.save() / name(0, 2), 10)
    run.go_on(1)
    path = run.save()
    assert segments(path) == [name(0, 3)]
    assert run.holds(path)


@pytest.mark.parametrize(
    ("document", "named", "problem"),
    [
        ({}, "../../secret", "names '../../secret'"),
        ({}, name(0, 2), "lacks rollouts"),
        ({}, name(3, 3), "names 'rollouts"),
        ({"rollouts_held": 2}, name(2, 3), "lacks rollouts"),
        ({"rollouts_held": -1}, name(0, 3), "room for -1"),
        ({"rollouts_held": "many"}, name(0, 3), "room for 'many'"),
        ({}, name(0, 3), "not so many rollouts"),
    ],
)
def test_a_manifest_of_somebody_else_is_held_against_its_files(
    document: dict[str, Any], named: str, problem: str, tmp_path: Path
) -> None:
    strange: Any = SimpleNamespace(name=named, arrays={"replay/numbers": np.zeros((4, 2))})
    checkpoint = Checkpoint({"version": 3, "rollouts_held": 5, **document}, {}, strange)
    path = commit_checkpoint(prepare_checkpoint(tmp_path / "checkpoints", checkpoint))
    with pytest.raises(CheckpointDamaged, match=problem):
        read_checkpoint(path)


def test_a_segment_that_lacks_an_array_is_not_filled_up_with_zeros() -> None:
    manifest = Manifest({"version": 3, "rollouts_held": 5}, FileSum(0, ""))
    whole: Arrays = {"replay/numbers": np.ones((1, 3)), "replay/flags": np.ones(1)}
    less: Arrays = {"replay/numbers": np.ones((2, 3))}
    for segments in ([(name(0, 1), whole), (name(1, 3), less)], [(name(0, 2), less), (name(2, 3), whole)]):
        with pytest.raises(ValueError, match="in the first segment"):
            assembled(manifest, segments)


def test_a_segment_of_a_single_number_is_refused_by_name() -> None:
    manifest = Manifest({"version": 1, "rollouts_held": 5}, FileSum(0, ""))
    with pytest.raises(ValueError, match="not so many rollouts"):
        assembled(manifest, [(name(0, 1), {"replay/numbers": np.ones(())})])
