"""Sinks beside metrics.jsonl: whatever they do, the run ends as it would have, and says once what is wrong."""

from __future__ import annotations

import csv
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from helpers import Outcome, assert_same_run, run

from htsrl import Config, ConfigError, Experiment, Placement, train
from htsrl.metrics import trackers
from htsrl.metrics.csv_file import CsvFile
from htsrl.metrics.guarded_sinks import MAX_QUEUE, ThreadedSink
from htsrl.metrics.histograms import Histogram, Histograms, episode_histograms
from htsrl.metrics.sinks import TensorBoard, read_json_lines

EXPERIMENT = Experiment("CartPole-v1", num_envs=4, sync_interval=32, total_steps=512)


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self, fails_in: str = "") -> None:
        self.fails_in = fails_in
        self.steps: list[int] = []
        self.histograms: list[Histograms] = []
        self._maybe_fail("start")

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._maybe_fail("write")
        self.steps.append(step)

    def write_histograms(self, step: int, histograms: Histograms) -> None:
        self._maybe_fail("write")
        self.histograms.append(histograms)

    def close(self) -> None:
        self._maybe_fail("close")

    def _maybe_fail(self, where: str) -> None:
        if self.fails_in == where:
            raise RuntimeError(f"no server in {where}")


def train_with(tmp_path: Path, **placement: Any) -> Any:
    settings: dict[str, Any] = {"backend": "inline", "tensorboard": False, "progress": "off", "log_every_steps": 1}
    return train(Config(EXPERIMENT, Placement(**(settings | {"run_dir": tmp_path / "run"} | placement))))


@pytest.mark.parametrize("fails_in", ["start", "write", "close"])
def test_a_sink_that_fails_costs_a_warning_and_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], fails_in: str
) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: True)
    monkeypatch.setitem(trackers.TRACKERS, "wandb", lambda tracked: Kept(fails_in))
    result = train_with(tmp_path, sinks=("wandb",))
    assert_same_run(Outcome.read(tmp_path / "run"), run(EXPERIMENT, log_every_steps=1))
    # Four lines and their histograms.
    assert result.sink_failures == {"start": 1, "write": 8, "close": 1}[fails_in]
    assert capsys.readouterr().err.count("warning: the sink wandb") == 1


def test_a_sink_that_hangs_is_left_alone(capsys: pytest.CaptureFixture[str]) -> None:
    forever = threading.Event()

    class Hanging(Kept):
        def write(self, step: int, metrics: Mapping[str, float]) -> None:
            forever.wait()

    said: list[str] = []
    sink = ThreadedSink("slow", Hanging, said.append, close_seconds=0.05)
    for step in range(MAX_QUEUE + 10):
        sink.write(step, {})
    sink.close()
    assert sink.failures >= 9
    assert [line for line in said if "misses some" in line]
    assert [line for line in said if "did not end within 0.05 seconds" in line]
    assert len(said) == 2
    forever.set()


def test_a_sink_gets_everything_in_order() -> None:
    kept = Kept()
    sink = ThreadedSink("kept", lambda: kept, print)
    for step in range(50):
        sink.write(step, {"a": 1.0})
    sink.close()
    assert (kept.steps, sink.failures) == (list(range(50)), 0)


def test_a_missing_package_is_named_before_anything_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trackers, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'htsrl\[mlflow\]'"):
        train_with(tmp_path, sinks=("mlflow",))
    with pytest.raises(ConfigError, match=r"sinks\[0\]='carrier pigeon' must be csv, wandb"):
        train_with(tmp_path, sinks=("carrier pigeon",))
    assert not (tmp_path / "run").exists()


def test_the_table_has_the_metrics_of_the_lines(tmp_path: Path) -> None:
    result = train_with(tmp_path, sinks=("csv",))
    lines = read_json_lines(tmp_path / "run" / "metrics.jsonl")
    with (tmp_path / "run" / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [{name: float(cell) for name, cell in row.items() if cell} for row in rows] == lines
    assert result.sink_failures == 0


def test_a_table_grows_columns_and_is_continued_where_a_run_is(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    table = CsvFile(path)
    table.write(1, {"a": 1.0})
    table.write(2, {"a": 2.0, "b": float("nan")})
    table.write(3, {"b": 3.0})
    table.close()
    path.write_text(path.read_text() + "4,1")  # cut by a kill
    table = CsvFile(path, last_step=2)
    table.write(3, {"c": 4.0})
    table.close()
    assert path.read_text() == "step,a,b,c\n1,1.0,,\n2,2.0,,\n3,,,4.0\n"


def test_histograms_count_every_episode(tmp_path: Path) -> None:
    train_with(tmp_path, tensorboard=True)
    lines = [json.loads(line) for line in (tmp_path / "run" / "histograms.jsonl").read_text().splitlines()]
    means = read_json_lines(tmp_path / "run" / "metrics.jsonl")
    assert lines[-1]["step"] == means[-1]["step"] == 512
    lengths = lines[-1]["rollout/ep_len"]
    assert 0 < sum(lengths["counts"]) <= 100
    mean_length = means[-1]["rollout/ep_len_mean"]
    assert mean_length is not None
    assert lengths["low"] <= mean_length <= lengths["high"]


def test_bins_by_hand() -> None:
    found = episode_histograms([(0.0, 5), (16.0, 5), (15.5, 5), (float("nan"), 5)])
    returns, lengths = found["rollout/ep_rew"], found["rollout/ep_len"]
    assert returns.counts == (1, *[0] * 14, 2)
    assert (returns.low, returns.high, returns.total, returns.sum_of_squares) == (0.0, 16.0, 31.5, 496.25)
    assert returns.upper_edges == [float(edge) for edge in range(1, 17)]
    assert (lengths.counts, lengths.upper_edges) == ((4,), [5.0])
    assert episode_histograms([]) == {}


def test_tensorboard_shows_histograms(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
        EventAccumulator,
    )

    histogram = Histogram.of([1.0, 2.0, 3.0])
    assert histogram is not None
    sink = TensorBoard(tmp_path)
    sink.write_histograms(7, {"rollout/ep_rew": histogram})
    sink.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    (name,) = events.Tags()["distributions"] or events.Tags()["histograms"]
    assert name == "rollout/ep_rew_hist"


@pytest.mark.parametrize("tracker", ["wandb", "mlflow", "trackio"])
def test_a_tracker_works_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracker: str) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))  # which it reads when it is imported
    pytest.importorskip(tracker)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    result = train_with(tmp_path, sinks=(tracker,))
    assert result.sink_failures == 0
    assert_same_run(Outcome.read(tmp_path / "run"), run(EXPERIMENT, log_every_steps=1))
    left = {"wandb": "run/wandb/offline-run-*/*.wandb", "mlflow": "run/ml*", "trackio": "trackio/*"}[tracker]
    assert list(tmp_path.glob(left))
