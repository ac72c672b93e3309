"""Minari's datasets: what is written there is read back, with the identity that it has in a folder of htsrl's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gymnasium import spaces
from offline_data import small_dataset

from htsrl import DatasetError
from htsrl.datasets.minari import check_id, read_minari, write_minari
from htsrl.datasets.write import Recorded
from htsrl.spaces import Interface

pytest.importorskip("minari")


@pytest.fixture(autouse=True)
def own_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))


def test_episodes_come_back_to_the_bit_by_name_and_by_path(tmp_path: Path) -> None:
    dataset = small_dataset(dt=(0.01, 0.02))
    write_minari(dataset, "invented/small-v0")
    for name in ("invented/small-v0", str(tmp_path / "minari" / "invented" / "small-v0")):
        read = read_minari(name)
        assert read.manifest.episode_lengths == dataset.manifest.episode_lengths
        assert read.arrays.keys() == dataset.arrays.keys()
        for array in dataset.arrays:
            np.testing.assert_array_equal(read.arrays[array], dataset.arrays[array])
    assert read.manifest.identity == read_minari("invented/small-v0").manifest.identity


def test_spaces_with_parts_and_choices_come_back() -> None:
    seen = spaces.Dict({"number": spaces.Discrete(3, start=1), "box": spaces.Box(-1, 1, (2,), np.float32)})
    done = spaces.Dict({"box": spaces.Box(-1, 1, (2,), np.float32), "pick": spaces.Discrete(4, start=2)})
    arrays = {
        "obs/number": np.array([1, 2, 3, 3]),
        "obs/box": np.linspace(-1, 1, 8, dtype=np.float32).reshape(4, 2),
        "actions": np.array([[0, 0.5, -0.5], [3, 0.0, 1.0], [1, -1.0, 0.25]], np.float32),
        "rewards": np.array([1, 2, 3], np.float32),
        "terminated": np.array([False, False, True]),
        "truncated": np.array([False, False, False]),
    }
    dataset = Recorded(Interface(seen, done), [3], arrays, {"id": None, "args": {}}, []).as_dataset("parts")
    write_minari(dataset, "parts-v0")
    read = read_minari("parts-v0")
    for name, array in arrays.items():
        np.testing.assert_array_equal(read.arrays[name], array)


def test_what_is_not_there_and_what_is_there_already_are_refused() -> None:
    with pytest.raises(DatasetError, match=r"minari:no/such-v0 cannot be read"):
        read_minari("no/such-v0")
    with pytest.raises(DatasetError, match="is no Minari id"):
        check_id("../elsewhere")
    write_minari(small_dataset(), "small-v0")
    with pytest.raises(DatasetError, match="has a local dataset 'small-v0' already"):
        write_minari(small_dataset(), "small-v0")
