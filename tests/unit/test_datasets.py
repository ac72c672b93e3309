"""Datasets: what is written is read back, and whatever is not sound is refused by name before it is used."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from offline_data import recorded, small_dataset, with_other_arrays, with_other_data, with_other_manifest, written

from htsrl import ConfigError, DatasetError
from htsrl.datasets.action_rows import SATURATED, as_stored, in_env_terms
from htsrl.datasets.dataset import read_dataset
from htsrl.datasets.open import open_dataset
from htsrl.datasets.write import merged, write_dataset
from htsrl.processes.kill_points import KILL_AT
from htsrl.runs.collect import Collected, collect_at_random
from htsrl.spaces import Interface


def test_what_is_written_is_read_back_to_the_bit_and_mapped(tmp_path: Path) -> None:
    dataset = small_dataset(dt=(0.01, 0.02))
    write_dataset(dataset, tmp_path / "data")
    read = read_dataset(tmp_path / "data")
    assert read.manifest.identity == dataset.manifest.identity
    assert read.manifest.origins == ({"policy": "random"},)
    for name, array in dataset.arrays.items():
        assert read.arrays[name].tobytes() == array.tobytes()
        assert not read.arrays[name].flags.writeable


def test_the_same_episodes_have_the_same_bytes_and_others_another_identity(tmp_path: Path) -> None:
    first, second, other = written(tmp_path / "a"), written(tmp_path / "b"), written(tmp_path / "c", seed=1)
    for file in ("manifest.json", "transitions.safetensors"):
        assert (first / file).read_bytes() == (second / file).read_bytes()
    assert open_dataset(str(first)).manifest.identity != open_dataset(str(other)).manifest.identity


def test_what_truly_followed_a_step_is_the_next_observation_of_its_own_episode() -> None:
    dataset = small_dataset(lengths=(2, 1, 3))
    steps = np.arange(6)
    before, after = dataset.observations_at(steps)["obs"], dataset.observations_at(steps, after=True)["obs"]
    rows = dataset.arrays["obs"]
    assert dataset.episode_of(steps).tolist() == [0, 0, 1, 2, 2, 2]
    np.testing.assert_array_equal(before, rows[[0, 1, 3, 5, 6, 7]])
    np.testing.assert_array_equal(after, rows[[1, 2, 4, 6, 7, 8]])


def test_merged_datasets_hold_all_episodes_in_order(tmp_path: Path) -> None:
    one, other = small_dataset(lengths=(2, 3)), small_dataset(lengths=(4,), seed=1)
    both = merged([one, other])
    assert both.manifest.episode_lengths == (2, 3, 4)
    np.testing.assert_array_equal(both.arrays["rewards"][5:], other.arrays["rewards"])
    with pytest.raises(DatasetError, match="other spaces or fields"):
        merged([one, small_dataset(dt=(0.1,))])


def test_random_episodes_are_a_function_of_the_seed_and_keep_within_the_bounds(tmp_path: Path) -> None:
    short = Collected(episodes=3, seed=4, env_args={"max_episode_steps": 9})
    one, again = collect_at_random("Pendulum-v1", short), collect_at_random("Pendulum-v1", short)
    assert one.manifest.to_bytes() == again.manifest.to_bytes()
    assert one.manifest.episode_lengths == (9, 9, 9)
    assert np.abs(one.arrays["actions"]).max() <= 2
    assert one.arrays["dt"].tolist() == pytest.approx([0.05] * 27)
    assert one.arrays["truncated"].nonzero()[0].tolist() == [8, 17, 26]
    other = collect_at_random("Pendulum-v1", Collected(3, seed=5, env_args={"max_episode_steps": 9}))
    assert other.manifest.identity != one.manifest.identity


def test_random_choices_are_those_of_the_space() -> None:
    dataset = collect_at_random("CartPole-v1", Collected(episodes=4))
    assert set(dataset.arrays["actions"].tolist()) == {0, 1}
    assert dataset.arrays["terminated"].sum() == 4


def test_squashed_actions_come_back_from_the_environments_terms() -> None:
    layout = Interface(spaces.Box(-1, 1, (3,)), spaces.Box(np.array([-2, 0]), np.array([2, 10])), squashes=True).actions
    stored = np.array([[0.3, -0.7], [20.0, -20.0]], np.float32)
    taken = in_env_terms(layout, stored)
    np.testing.assert_allclose(taken[0], [2 * np.tanh(0.3), 5 * (np.tanh(-0.7) + 1)], rtol=1e-6)
    np.testing.assert_allclose(taken[1], [2, 0], atol=1e-6)
    np.testing.assert_allclose(as_stored(layout, taken)[0], stored[0], rtol=1e-5)
    np.testing.assert_allclose(as_stored(layout, taken)[1], np.arctanh([SATURATED, -SATURATED]), rtol=1e-5)


def test_a_folder_that_is_there_is_never_written_over(tmp_path: Path) -> None:
    written(tmp_path / "data")
    with pytest.raises(DatasetError, match="exists already"):
        written(tmp_path / "data", seed=1)


def test_a_kill_while_it_is_written_leaves_no_dataset_and_the_next_attempt_succeeds(tmp_path: Path) -> None:
    script = "import sys, pathlib; from offline_data import written; written(pathlib.Path(sys.argv[1]))"
    environment = {**os.environ, KILL_AT: "dataset written:1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run([sys.executable, "-c", script, str(tmp_path / "data")], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not (tmp_path / "data").exists()
    written(tmp_path / "data")
    assert [path.name for path in tmp_path.iterdir()] == ["data"], "what the dead one left is gone, too"


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DatasetError, match="No space left on device"):
        written(tmp_path / "data")
    assert not list(tmp_path.iterdir())


def changed(**arrays: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        own = dict(recorded().arrays)
        for name, array in arrays.items():
            own = {**own, name: array} if array is not None else {key: own[key] for key in own if key != name}
        with_other_arrays(folder, own)

    return change


def of_header(header: Any, length: int | None = None) -> Callable[[Path], None]:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    size = len(text) if length is None else length
    return lambda folder: with_other_data(folder, size.to_bytes(8, "little") + text + bytes(64))


def cut(folder: Path) -> None:
    path = folder / "transitions.safetensors"
    path.write_bytes(path.read_bytes()[:-5])


def flipped(folder: Path) -> None:
    path = folder / "transitions.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def piped(folder: Path) -> None:
    (folder / "transitions.safetensors").unlink()
    os.mkfifo(folder / "transitions.safetensors")


RECORDED = recorded().arrays
BAD: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (cut, "has 753 bytes where the manifest says"),
    "a flipped bit": (flipped, "does not match the SHA-256 in the manifest"),
    "no data": (lambda folder: (folder / "transitions.safetensors").unlink(), "cannot be read: No such file"),
    "a pipe": (piped, "is not a plain file"),
    "no manifest": (lambda folder: (folder / "manifest.json").unlink(), "is not a dataset: it holds no manifest.json"),
    "an empty manifest": (lambda folder: (folder / "manifest.json").write_bytes(b""), "manifest.json"),
    "a manifest nested deeply": (
        lambda folder: (folder / "manifest.json").write_bytes(b"[" * 100_000),
        "nested too deeply",
    ),
    "an altered manifest": (
        lambda folder: (folder / "manifest.json").write_bytes(
            (folder / "manifest.json").read_bytes().replace(b"Invented", b"Inventor")
        ),
        "does not match its own SHA-256",
    ),
    "another format": (lambda folder: with_other_manifest(folder, format="htsrl dataset 9"), "is of the format"),
    "no episodes": (lambda folder: with_other_manifest(folder, episode_lengths=[]), "episode_lengths"),
    "huge episodes": (lambda folder: with_other_manifest(folder, episode_lengths=[2**50]), "episode_lengths"),
    "negative episodes": (lambda folder: with_other_manifest(folder, episode_lengths=[18, -1]), "episode_lengths"),
    "a longer episode": (lambda folder: with_other_manifest(folder, episode_lengths=[4, 1, 7, 6]), "of shape"),
    "an array that is missing": (changed(rewards=None), "lacks 'rewards'"),
    "an array too many": (changed(extra=np.zeros(17)), "'extra', which no dataset has"),
    "a wrong shape": (changed(obs=RECORDED["obs"][:, :2]), r"'obs' as float32 of shape \(21, 2\)"),
    "a wrong kind": (changed(rewards=RECORDED["rewards"].astype(np.float64)), "'rewards' as float64"),
    "nan in what is seen": (changed(obs=np.where(RECORDED["obs"] > 0.9, np.nan, RECORDED["obs"])), "row .* of 'obs'"),
    "infinite rewards": (changed(rewards=RECORDED["rewards"] * np.float32(np.inf)), "not finite in row 0 of 'rewards'"),
    "actions outside": (changed(actions=RECORDED["actions"] * 3), "outside the bounds"),
    "an end in the middle": (changed(terminated=~RECORDED["terminated"]), "ended before its last step"),
    "no time": (changed(dt=np.zeros(17, np.float32)), "dt that is not above 0"),
    "a header beyond the file": (of_header(b"{}", length=2**60), "has a header of"),
    "a header that is no JSON": (of_header(b"\x80\x04cos\nsystem\n"), "transitions.safetensors"),
    "a header that is a list": (of_header([1]), "no object"),
    "a dtype that is code": (
        of_header({"obs": {"dtype": "O", "shape": [1], "data_offsets": [0, 8]}}),
        "makes no array of 'obs'",
    ),
    "sizes that contradict": (
        of_header({"obs": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 64]}}),
        "contradict each other",
    ),
    "negative sizes": (
        of_header({"obs": {"dtype": "F32", "shape": [-1, -16], "data_offsets": [0, 64]}}),
        "makes no array",
    ),
    "arrays that overlap": (
        of_header({n: {"dtype": "F32", "shape": [16], "data_offsets": [0, 64]} for n in "ab"}),
        "gap or an overlap",
    ),
    "bytes beyond": (of_header({"a": {"dtype": "F32", "shape": [8], "data_offsets": [0, 32]}}), "no array claims"),
    "an array beyond": (
        of_header({"a": {"dtype": "F32", "shape": [99], "data_offsets": [0, 396]}}),
        "ends before 'a' does",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_dataset_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    spoil, message = BAD[kind]
    folder = written(tmp_path / "data")
    spoil(folder)
    with pytest.raises(DatasetError, match=message) as raised:
        read_dataset(folder)
    assert isinstance(raised.value, ConfigError)
    assert str(folder) in str(raised.value)


def test_a_dataset_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    folder = written(tmp_path / "data")
    identity = read_dataset(folder).manifest.identity
    with_other_arrays(folder, dict(recorded(seed=1).arrays))
    with pytest.raises(DatasetError, match="is not the one that the run began with"):
        open_dataset(f"{folder}#{identity}")
