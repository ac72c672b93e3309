"""The comparison of algorithms that learn from a dataset, in small."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from htsrl.errors import ConfigError
from htsrl_bench.offline import DATASETS, Learned, OfflineBench, table
from htsrl_bench.tables.offline import OfflineTable


def test_every_dataset_is_learned_from_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = OfflineTable(("bc",), 1, 256, 1, 100, work=tmp_path / "work", output=tmp_path)

    assert small.run() == 0

    repetitions = json.loads((tmp_path / "offline.json").read_text())["repetitions"]
    assert [(run["algorithm"], run["dataset"]) for run in repetitions] == [("bc", name) for name in DATASETS]
    assert len({run["digest"] for run in repetitions}) == 3
    before = capsys.readouterr().out
    made = sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "work").glob("*/result.json"))
    assert small.run() == 0
    assert capsys.readouterr().out == before
    assert sorted((path, path.stat().st_mtime_ns) for path in (tmp_path / "work").glob("*/result.json")) == made
    with pytest.raises(ConfigError, match="data-policy holds 1 episodes of a policy where 2 are asked for"):
        replace(small, episodes=2).run()
    (tmp_path / "work" / "behaviour").rename(tmp_path / "work" / "another")
    with pytest.raises(ConfigError, match=r"data-policy holds episodes of the run [0-9a-f]+, not of"):
        replace(small, behaviour_steps=264).run()
    learned = [Learned("bc", name, seed, -100.0 * seed, "") for name in DATASETS for seed in (1, 2)]
    text = table(OfflineBench(("bc",), 2, 256, 1, 100, tmp_path / "work"), learned).markdown()
    assert text.count("-150 (-785 to 485)") == 3


@pytest.mark.parametrize(
    ("changes", "problem"),
    [({"seeds": 0}, "seeds=0 and"), ({"algorithms": ("sac",)}, "'sac' is not known; choose among bc, cql, iql")],
)
def test_what_cannot_be_compared_is_refused(changes: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        OfflineTable(**changes, work=tmp_path / "work").run()
    assert not list(tmp_path.iterdir())
