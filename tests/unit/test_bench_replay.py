"""What a replay buffer takes, in small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from htsrl.errors import ConfigError
from htsrl_bench.replay_buffer import UNITS
from htsrl_bench.tables.replay_buffer import ReplayBufferTable


def test_a_small_buffer_is_measured_and_recorded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ReplayBufferTable(capacity=12_800, repetitions=1, minibatches=3, output=tmp_path).run() == 0

    (measured,) = json.loads((tmp_path / "replay-buffer.json").read_text())["repetitions"]
    num_bytes = 8 * 2 * 17 + 4 * (6 + 1) + 2  # two observations, an action and a reward; two flags
    assert measured["memory"] == pytest.approx(12_800 * num_bytes / 1e6)
    assert measured["first checkpoint, on the disk"] == pytest.approx(measured["memory"], rel=0.01)
    assert measured["next checkpoint, on the disk"] == pytest.approx(measured["memory"] / 4, rel=0.01)
    assert min(measured.values()) > 0
    assert list(measured) == list(UNITS)
    assert "12,800 transitions" in capsys.readouterr().out


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ConfigError, match="capacity=100 at least 3200"):
        ReplayBufferTable(capacity=100).run()
