"""Metrics reach the disk, whatever happens to the run."""

from __future__ import annotations

import json
import math
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from child_environment import child_environment

from htsrl.errors import RunFolderError
from htsrl.metrics.sinks import JsonLines, TensorBoard, read_json_lines


def test_every_write_is_one_json_object_in_the_order_given(tmp_path: Path) -> None:
    sink = JsonLines(tmp_path / "metrics.jsonl")
    sink.write(2048, {"time/fps": 8000.5, "hts/lag": 1})
    sink.write(4096, {"a": 2.0})
    sink.close()

    assert (tmp_path / "metrics.jsonl").read_text() == (
        '{"step": 2048, "time/fps": 8000.5, "hts/lag": 1.0}\n{"step": 4096, "a": 2.0}\n'
    )
    assert read_json_lines(tmp_path / "metrics.jsonl") == [
        {"step": 2048, "time/fps": 8000.5, "hts/lag": 1.0},
        {"step": 4096, "a": 2.0},
    ]


def test_values_that_are_not_finite_are_written_as_null(tmp_path: Path) -> None:
    float32_half: float = np.float32(0.5)  # type: ignore[assignment]  # json alone cannot write it
    sink = JsonLines(tmp_path / "metrics.jsonl")
    sink.write(1, {"nan": math.nan, "inf": math.inf, "minus_inf": -math.inf, "numpy": float32_half})
    sink.close()

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    record = json.loads((tmp_path / "metrics.jsonl").read_text(), parse_constant=refuse)
    assert record == {"step": 1, "nan": None, "inf": None, "minus_inf": None, "numpy": 0.5}


def test_a_killed_run_keeps_every_line(tmp_path: Path) -> None:
    script = f"""
import os, signal
from pathlib import Path
from htsrl.metrics.sinks import JsonLines, TensorBoard
sinks = JsonLines(Path({str(tmp_path / "metrics.jsonl")!r})), TensorBoard(Path({str(tmp_path / "tensorboard")!r}))
for step in range(5):
    for sink in sinks:
        sink.write(step, {{"a": 1.0}})
os.kill(os.getpid(), signal.SIGKILL)
"""
    ended = subprocess.run([sys.executable, "-c", script], env=child_environment(), timeout=60, check=False)

    assert ended.returncode == -signal.SIGKILL
    assert [record["step"] for record in read_json_lines(tmp_path / "metrics.jsonl")] == [0, 1, 2, 3, 4]
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("a")] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("cut", ['{"step": 3, "na', "{", '{"step": 3}'])
def test_a_cut_last_line_is_tolerated(tmp_path: Path, cut: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1, "a": 1.0}\n{"step": 2, "a": null}\n' + cut)

    assert read_json_lines(path) == [{"step": 1, "a": 1.0}, {"step": 2, "a": None}]


def test_a_file_with_a_cut_last_line_can_be_continued(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "na')
    sink = JsonLines(path)
    sink.write(2, {"a": 1.0})
    sink.close()

    assert read_json_lines(path) == [{"step": 1}, {"step": 2, "a": 1.0}]


@pytest.mark.parametrize("broken", ['{"step": 2, "na', "[2]", ""])
def test_a_broken_line_before_the_last_is_named(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{broken}\n{{"step": 3}}\n')

    with pytest.raises(RunFolderError, match=r"metrics\.jsonl, line 2"):
        read_json_lines(path)


def test_tensorboard_files_hold_every_scalar_at_its_step(tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    sink = TensorBoard(tmp_path / "tensorboard")
    sink.write(2048, {"rollout/ep_rew_mean": math.nan, "time/fps": 8000.0})
    sink.write(4096, {"rollout/ep_rew_mean": 21.5, "time/fps": 8100.0})
    sink.close()

    events = event_accumulator.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert sorted(events.Tags()["scalars"]) == ["rollout/ep_rew_mean", "time/fps"]
    assert [(event.step, event.value) for event in events.Scalars("time/fps")] == [(2048, 8000.0), (4096, 8100.0)]
    first, second = events.Scalars("rollout/ep_rew_mean")
    assert math.isnan(first.value)
    assert (second.step, second.value) == (4096, 21.5)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1" + "0" * 400, '"1"'])
def test_what_is_no_finite_number_was_never_written_and_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text(f'{{"step": 1}}\n{{"step": {value}}}\n')
    with pytest.raises(RunFolderError, match="line 2: 'step' is no finite number"):
        read_json_lines(path)


def test_a_continued_run_hides_the_steps_after_the_one_it_goes_on_from(tmp_path: Path) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    killed = TensorBoard(tmp_path)
    for step in (1, 2, 3, 4):
        killed.write(step, {"time/fps": 1.0})
    resumed = TensorBoard(tmp_path, purge_step=3)
    resumed.write(3, {"time/fps": 2.0})
    resumed.close()

    events = event_accumulator.EventAccumulator(str(tmp_path)).Reload()
    assert [(event.step, event.value) for event in events.Scalars("time/fps")] == [(1, 1.0), (2, 1.0), (3, 2.0)]


def test_only_its_user_can_read_what_tensorboard_shows(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        TensorBoard(tmp_path / "tensorboard").close()
    finally:
        os.umask(umask)
    (file,) = (tmp_path / "tensorboard").iterdir()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (file.parent, file)] == [0o700, 0o600]


def test_importing_the_package_does_not_import_tensorboard_matplotlib_or_rich() -> None:
    script = """
import sys, htsrl.metrics.sinks, htsrl.metrics.curve, htsrl.metrics.progress
print([name for name in ("tensorboard", "matplotlib", "rich") if name in sys.modules])
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], env=child_environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "[]\n"
