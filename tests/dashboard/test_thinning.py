"""What is thinned for show keeps every extreme, and what a file says is followed as it grows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from dashboard_runs import add_metrics, make_run
from hypothesis import given
from hypothesis import strategies as st

from htsrl.dashboard import metrics_reader
from htsrl.dashboard.metrics_reader import METRICS_FILE, MetricsReader, last_record, sampled
from htsrl.dashboard.run_files import RunFiles
from htsrl.dashboard.series import CAPACITY, Series

RETURN = "rollout/ep_rew_mean"


def series_of(values: list[float], pieces: int = 1) -> Series:
    series = Series()
    for piece in np.array_split(np.arange(len(values)), pieces):
        series.extend(piece.astype(float), piece / 10, np.array(values)[piece])
    return series


def reader_of(path: Path) -> MetricsReader:
    reader = MetricsReader(RunFiles(path.parent, (path.name,)))
    while reader.advance():
        pass
    return reader


@given(st.integers(1, 5 * CAPACITY), st.integers(1, 9), st.integers(2, CAPACITY), st.randoms(use_true_random=False))
def test_thinning_keeps_minimum_maximum_mean_and_end(num: int, pieces: int, buckets: int, random: object) -> None:
    values = np.random.default_rng(num).normal(size=num)
    view = series_of(values.tolist(), pieces).view(buckets)
    assert len(view["step"]) <= buckets
    assert view["step"][-1] == num - 1
    lows, highs = view.get("low", view["mean"]), view.get("high", view["mean"])
    assert min(lows) == pytest.approx(values.min(), rel=1e-5)
    assert max(highs) == pytest.approx(values.max(), rel=1e-5)
    counts = np.minimum(view["stride"], num - view["stride"] * np.arange(len(lows)))
    assert np.dot(view["mean"], counts) / num == pytest.approx(values.mean(), abs=1e-5)


def test_few_points_are_shown_as_they_are() -> None:
    view = series_of([3.0, 1.0, 2.0]).view(600)
    assert (view["step"], view["mean"], view["stride"]) == ([0, 1, 2], [3.0, 1.0, 2.0], 1)
    assert "low" not in view


def test_a_single_spike_among_a_million_points_is_seen() -> None:
    series, nothing = Series(), np.zeros(1000)
    for i in range(1000):
        series.extend(nothing + i, nothing, nothing + 7.0 * (np.arange(1000) == 321) * (i == 654))
    view = series.view(300)
    assert (series.num_points, max(view["high"]), max(view["mean"])) == (1_000_000, 7.0, pytest.approx(0, abs=0.01))


def test_the_reader_follows_a_file_that_grows(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", returns=[1.0])
    reader = reader_of(run)
    add_metrics(run, [{RETURN: 2.0}])
    with open(run / METRICS_FILE, "a") as file:
        file.write('{"step": 3000, "rollout/ep_rew')  # in the middle of being written
    reader.advance()
    assert reader.series[RETURN].view(10)["mean"] == [1.0, 2.0]
    with open(run / METRICS_FILE, "a") as file:
        file.write('_mean": 3.0}\n')
    reader.advance()
    assert reader.series[RETURN].view(10)["mean"] == [1.0, 2.0, 3.0]
    assert reader.notes() == []


@pytest.mark.parametrize("grows_beyond", [False, True])
def test_a_resumed_run_that_cuts_its_file_is_read_again(tmp_path: Path, grows_beyond: bool) -> None:
    run = make_run(tmp_path / "run", returns=[1.0, 2.0, 3.0])
    reader = reader_of(run)
    lines = (run / METRICS_FILE).read_text().splitlines(keepends=True)
    (run / METRICS_FILE).write_text(lines[0])
    add_metrics(run, [{RETURN: 9.5}] * (5 if grows_beyond else 1))
    reader.advance()
    assert reader.series[RETURN].view(10)["mean"] == [1.0] + [9.5] * (5 if grows_beyond else 1)


def test_lines_that_are_no_metrics_are_named_and_the_others_shown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", returns=[1.0])
    with open(run / METRICS_FILE, "a") as file:
        file.write('garbage\n{"step": "2"}\n{"step": 1},{"step": 2}\n')
        file.write(json.dumps({"step": 5000, RETURN: "high", "other": None, "huge": 10**400, "yes": True}) + "\n")
    add_metrics(run, [{RETURN: 2.0}])
    reader = reader_of(run)
    assert reader.series[RETURN].view(10)["mean"] == [1.0, 2.0]
    notes = "\n".join(reader.notes())
    assert "3 lines are not metrics and were left out (line 2, 3, 4)" in notes
    assert f"'{RETURN}' is not always a number" in notes
    assert "'huge' is not always a number" in notes
    assert "values were not finite" in notes


def test_a_line_without_an_end_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_reader, "CHUNK_BYTES", 1000)
    run = make_run(tmp_path / "run", returns=[1.0])
    with open(run / METRICS_FILE, "a") as file:
        file.write("x" * 5000 + "\n")
    add_metrics(run, [{RETURN: 2.0}])
    reader = reader_of(run)
    assert reader.series[RETURN].view(10)["mean"] == [1.0, 2.0]
    assert "1 lines are not metrics" in reader.notes()[0]


def test_memory_is_bounded_however_many_metrics_a_file_names(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run")
    add_metrics(run, [{f"m{i}": 1.0 for i in range(2 * metrics_reader.MAX_METRICS)}])
    reader = reader_of(run)
    assert len(reader.series) == metrics_reader.MAX_METRICS
    assert "more than 400 metrics" in reader.notes()[0]


def test_a_sample_of_a_long_file_has_its_ends_and_the_last_line_is_found(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", returns=[float(i) for i in range(2000)])
    files = RunFiles(tmp_path, ("run",))
    view = sampled(files, 50)[RETURN].view(600)
    assert view["step"][0] == 1000
    assert view["step"][-1] > 1_900_000
    assert 45 <= len(view["step"]) <= 50
    assert last_record(files)["step"] == 2_000_000
    assert run.exists()


def test_evaluations_have_the_time_of_the_metrics_around_them(tmp_path: Path) -> None:
    from htsrl.dashboard.run import Run

    run_dir = make_run(tmp_path / "run", returns=[1.0, 2.0, 3.0])
    (run_dir / "evaluations.jsonl").write_text('{"step": 2500, "eval/mean_reward": 42.0, "returns": [42.0]}\n')
    run = Run(RunFiles(tmp_path, ("run",)))
    run.read_while(lambda: True)
    curve = run.curve("eval/mean_reward", 100)
    assert curve is not None
    assert (curve["step"], curve["mean"], curve["seconds"]) == ([2500], [42.0], [2.5])
