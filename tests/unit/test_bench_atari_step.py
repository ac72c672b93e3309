"""`htsrl bench atari-step`: all take turns, and ratios are taken within a repetition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from htsrl.errors import ConfigError

ale_py = pytest.importorskip("ale_py")
pytest.importorskip("cv2")

from htsrl_bench.atari_step import (  # noqa: E402
    FLOOR,
    IN_PLACE,
    NATIVE,
    NATIVE_VECTOR,
    OURS,
    WRAPPERS,
    AtariStepBench,
    Measured,
    table,
)
from htsrl_bench.tables.atari_step import AtariStepTable  # noqa: E402


def test_bench_atari_step_lets_all_take_turns_and_writes_a_record(tmp_path: Path) -> None:
    AtariStepTable(games=("ALE/Pong-v5",), steps=8, repetitions=2, output=tmp_path).run()

    (path,) = tmp_path.glob("atari-step.json")
    record = json.loads(path.read_text())
    assert record["command"] == "htsrl bench atari-step --games ALE/Pong-v5 --steps 8 --repetitions 2"
    assert record["versions"]["ale-py"] == ale_py.__version__
    (measured,) = record["repetitions"]
    assert {OURS, IN_PLACE, WRAPPERS, NATIVE, NATIVE_VECTOR, FLOOR} < measured["microseconds"].keys()
    assert all(len(values) == 2 and min(values) > 0 for values in measured["microseconds"].values())
    assert record["summary"]["ALE/Pong-v5"][OURS]["times_ours"]["median"] == 1


def test_ratios_are_taken_within_a_repetition_and_held_against_the_goals() -> None:
    others = {WRAPPERS: [119.0, 357.0, 480.0], NATIVE: [100.0, 330.0, 360.0], NATIVE_VECTOR: [90.0, 300.0, 400.0]}
    measured = Measured("ALE/Pong-v5", {OURS: [100.0, 300.0, 400.0], **others})

    wrappers = measured.times_ours(WRAPPERS)
    assert (wrappers.lowest, wrappers.median, wrappers.highest) == (1.19, 1.19, 1.2)
    assert [measured.meets_goal(name) for name in (WRAPPERS, NATIVE, NATIVE_VECTOR)] == [False, True, True]
    cells = {row[1]: row[2:] for row in table([measured]).rows}
    assert cells[WRAPPERS] == ["357 (119 to 480)", "1.19 (1.19 to 1.20)", "1.2 missed"]
    assert cells[NATIVE] == ["330 (100 to 360)", "1.00 (0.90 to 1.10)", "1.0 met"]


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        ({"games": ()}, "games is empty"),
        ({"games": ("CartPole-v1",)}, "game 'CartPole-v1' is not one of ale-py's"),
        ({"repetitions": 0}, "repetitions=0 must be at least 1"),
        ({"steps": 12}, "steps=12 must be a multiple of 8"),
        ({"steps": 0}, "steps=0 must be a multiple of 8"),
    ],
)
def test_a_benchmark_that_measures_nothing_is_refused(mistake: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AtariStepBench(**{"games": ("ALE/Pong-v5",), "steps": 8, "repetitions": 1, **mistake})


def test_a_benchmark_of_an_unknown_game_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean ALE/Pong-v5"):
        AtariStepTable(games=("ALE/Pnog-v5",), output=tmp_path).run()
