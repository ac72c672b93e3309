"""The picture of a run's returns shows what the metrics say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from child_environment import child_environment
from matplotlib.figure import Figure

from htsrl.metrics import curve
from htsrl.metrics.curve import draw_learning_curve


def _write_metrics(path: Path, returns: list[float | None]) -> Path:
    lines = [json.dumps({"step": 1000 * i, "rollout/ep_rew_mean": value}) for i, value in enumerate(returns)]
    path.write_text("".join(line + "\n" for line in lines))
    return path


def _pixels(picture: Path) -> np.ndarray:
    assert picture.read_bytes().startswith(b"\x89PNG")
    return np.asarray(matplotlib.image.imread(picture))[:, :, :3]


def _is_curve(picture: Path) -> np.ndarray:
    """Which pixels have the colour of the curve."""
    pixels = _pixels(picture)
    is_blue: np.ndarray = (pixels[:, :, 2] - pixels[:, :, 0]) > 0.3
    return is_blue


def test_the_learning_curve_spans_the_picture(tmp_path: Path) -> None:
    metrics = _write_metrics(tmp_path / "metrics.jsonl", [None, *(10.0 * i for i in range(30))])
    draw_learning_curve(metrics, tmp_path / "curve.png", "ppo on CartPole-v1")

    has_curve: np.ndarray = np.any(_is_curve(tmp_path / "curve.png"), axis=0)
    columns = np.flatnonzero(has_curve) / len(has_curve)
    assert columns.min() < 0.2
    assert columns.max() > 0.9
    assert has_curve.mean() > 0.75, "the line has no holes"


def test_a_rising_return_is_drawn_rising(tmp_path: Path) -> None:
    metrics = _write_metrics(tmp_path / "metrics.jsonl", [float(i) for i in range(30)])
    draw_learning_curve(metrics, tmp_path / "curve.png", "title")

    rows, columns = np.nonzero(_is_curve(tmp_path / "curve.png"))
    assert np.corrcoef(columns, -rows)[0, 1] > 0.99


def test_a_single_finished_episode_is_a_visible_point(tmp_path: Path) -> None:
    metrics = _write_metrics(tmp_path / "metrics.jsonl", [None, 21.0])
    draw_learning_curve(metrics, tmp_path / "curve.png", "title")

    squares = np.lib.stride_tricks.sliding_window_view(_is_curve(tmp_path / "curve.png"), (6, 6))
    assert squares.all(axis=(2, 3)).any(), "a dot; the strokes of the number beside it are thinner"


@pytest.mark.parametrize("returns", [[], [None, None]])
def test_a_run_without_a_finished_episode_gets_a_picture_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, returns: list[float | None]
) -> None:
    metrics = _write_metrics(tmp_path / "metrics.jsonl", returns)
    saved: list[Figure] = []
    save_whole = curve._save_whole

    def save_and_keep(figure: Figure, picture: Path) -> None:
        saved.append(figure)
        save_whole(figure, picture)

    monkeypatch.setattr(curve, "_save_whole", save_and_keep)
    draw_learning_curve(metrics, tmp_path / "curve.png", "title")

    [figure] = saved
    assert [text.get_text() for text in figure.axes[0].texts] == ["no episode has finished"]
    height, width, _ = _pixels(tmp_path / "curve.png").shape
    middle = _pixels(tmp_path / "curve.png")[height // 3 : 2 * height // 3, width // 3 : 2 * width // 3]
    assert (middle < 0.6).any(), "the words are in the picture"


def test_a_title_with_dollar_signs_and_an_unfinished_metrics_file_are_drawn(tmp_path: Path) -> None:
    metrics = _write_metrics(tmp_path / "metrics.jsonl", [1.0, 2.0])
    metrics.write_text(metrics.read_text() + '{"step": 2000, "ro')
    draw_learning_curve(metrics, tmp_path / "curve.png", r"a $\frac$ of the price")

    assert _is_curve(tmp_path / "curve.png").any()


def test_a_picture_that_fails_leaves_the_old_one_and_no_rubbish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = _write_metrics(tmp_path / "metrics.jsonl", [1.0, 2.0])
    draw_learning_curve(metrics, tmp_path / "curve.png", "title")
    before = (tmp_path / "curve.png").read_bytes()

    def disk_is_full(descriptor: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", disk_is_full)
    with pytest.raises(OSError, match="no space left"):
        draw_learning_curve(metrics, tmp_path / "curve.png", "another title")

    assert (tmp_path / "curve.png").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["curve.png", "metrics.jsonl"]


def test_drawing_leaves_no_global_state() -> None:
    script = """
import sys, tempfile
from pathlib import Path
from htsrl.metrics.curve import draw_learning_curve
folder = Path(tempfile.mkdtemp())
(folder / "m.jsonl").write_text('{"step": 1, "rollout/ep_rew_mean": 1.0}\\n')
draw_learning_curve(folder / "m.jsonl", folder / "c.png", "title")
print("matplotlib.pyplot" in sys.modules)
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], env=child_environment(), capture_output=True, text=True, timeout=120, check=True
    )
    assert ended.stdout == "False\n"
