"""Metrics reach the disk, the terminal and the picture, whatever happens to the run."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import matplotlib.image
import numpy as np
import pytest
from matplotlib.figure import Figure

import htsrl
from htsrl.errors import RunFolderError
from htsrl.metrics import curve, progress
from htsrl.metrics.curve import draw_learning_curve
from htsrl.metrics.progress import open_progress
from htsrl.metrics.sinks import JsonLines, TensorBoard, read_json_lines

REPOSITORY = Path(next(iter(htsrl.__path__))).parent
READINGS = {"rollout/ep_rew_mean": 153.24, "rollout/ep_len_mean": 153.0, "time/fps": 8123.4, "hts/lag": 1.0}


# Sinks


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
    ended = subprocess.run([sys.executable, "-c", script], env=_environment(), timeout=60, check=False)

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
        [sys.executable, "-c", script], env=_environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert ended.stdout == "[]\n"


# Plain progress


class _Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(progress, "monotonic", clock)
    return clock


def test_plain_progress_is_one_line_of_readings_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    shown = open_progress("plain", 100_000, "ppo CartPole-v1")
    shown.update(20_480, READINGS)
    shown.close()

    out, err = capsys.readouterr()
    assert out == ""
    assert err == "ppo CartPole-v1\nstep 20480/100000  return 153.2  length 153  8123 steps/s\n"


def test_plain_progress_prints_every_two_seconds_and_the_last_step(
    capsys: pytest.CaptureFixture[str], clock: _Clock
) -> None:
    shown = open_progress("plain", 100, "title")
    for step in range(1, 52):
        shown.update(step, {})
        clock.now += 0.1
    shown.close()
    shown.close()

    assert capsys.readouterr().err.splitlines() == ["title", "step 1/100", "step 21/100", "step 41/100", "step 51/100"]


@pytest.mark.parametrize(
    "metrics",
    [
        {},
        {"time/fps": math.nan},
        {"rollout/ep_rew_mean": math.nan, "rollout/ep_len_mean": math.nan, "hts/lag": math.inf},
    ],
)
def test_plain_progress_leaves_out_what_is_not_known_yet(
    capsys: pytest.CaptureFixture[str], metrics: Mapping[str, float]
) -> None:
    shown = open_progress("plain", 100, "title")
    shown.update(1, metrics)
    shown.close()

    assert capsys.readouterr().err == "title\nstep 1/100\n"


@pytest.mark.parametrize("mode", ["plain", "off", "live", "auto"])
def test_a_said_line_is_never_lost(capsys: pytest.CaptureFixture[str], mode: str) -> None:
    line = "executor 3 (pid 4121) was killed by SIGKILL: [red]:smile: 100%[/red] " + "long " * 40
    shown = open_progress(mode, 100, "title")  # type: ignore[arg-type]
    shown.update(1, READINGS)
    shown.say(line)
    shown.close()

    out, err = capsys.readouterr()
    assert out == ""
    assert line in err.splitlines()


def test_progress_off_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    shown = open_progress("off", 100, "title")
    shown.update(1, READINGS)
    shown.close()

    assert capsys.readouterr() == ("", "")


def test_auto_is_plain_where_stderr_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    shown = open_progress("auto", 100, "title")
    shown.update(1, {})
    shown.close()

    assert capsys.readouterr().err == "title\nstep 1/100\n"


# Live progress, in a child process on a pseudo-terminal

LIVE_RUN = """
import sys, threading, time
from htsrl.metrics.progress import open_progress

metrics = {"rollout/ep_rew_mean": 153.24, "rollout/ep_len_mean": 153.0, "time/fps": 1000.0, "hts/lag": 1.0}
shown = open_progress("auto", 100_000, "[ppo] CartPole-v1")
shown.update(100, {"rollout/ep_rew_mean": float("nan")})
started = time.monotonic()
step = 100
while time.monotonic() < started + 0.5:
    step += 1
    shown.update(step, metrics)
print("a result")
threads = threading.active_count()
shown.say("executor 3 was killed " + "and replaced " * 12 + "at once")
print("a warning", file=sys.stderr)
time.sleep(0.2)
shown.update(40_000, metrics)
shown.update(40_960, metrics)
shown.close()
shown.close()
print(time.monotonic() - started, threads)
print("after the run", file=sys.stderr)
"""
SAID = "executor 3 was killed " + "and replaced " * 12 + "at once"


@pytest.mark.parametrize("columns", [120, 40])
def test_live_progress_redraws_two_lines_in_place_below_what_was_said(columns: int) -> None:
    run = _run_on_terminal(LIVE_RUN, columns)
    said_rows = [SAID[start : start + columns] for start in range(0, len(SAID), columns)]

    screen = _screen(run.terminal, columns)
    assert [row.rstrip() for row in screen[: len(said_rows) + 1]] == [row.rstrip() for row in [*said_rows, "a warning"]]
    bar, readings, after, *rest = screen[len(said_rows) + 1 :]
    assert bar.startswith("[ppo]")
    assert "40,960" in bar
    assert readings.startswith("return 153.2   length 153   1,000 step")
    assert after == "after the run"
    assert not any(rest)
    assert run.terminal.rstrip().count("\x1b[?25h") == 1, "the cursor is shown again"
    if columns == 120:
        assert bar.endswith("40,960/100,000 steps")
        assert readings == "return 153.2   length 153   1,000 steps/s   lag 1"


def test_live_progress_leaves_stdout_to_results_and_starts_no_thread() -> None:
    run = _run_on_terminal(LIVE_RUN, columns=120)

    result, timing = run.stdout.splitlines()
    assert result == "a result"
    assert timing.split()[1] == "1"
    assert "a result" not in run.terminal


def test_live_progress_redraws_at_most_eight_times_a_second() -> None:
    run = _run_on_terminal(LIVE_RUN, columns=120)

    seconds = float(run.stdout.splitlines()[-1].split()[0])
    drawings = run.terminal.count("/100,000 steps")
    # On top of the paced ones: at the start, at the first update, below the two printed lines, at close; and rounding.
    assert 5 <= drawings <= 8 * seconds + 6


def test_live_progress_tells_the_time_left_once_the_speed_is_known() -> None:
    run = _run_on_terminal(LIVE_RUN, columns=120)

    etas = re.findall(r"ETA ([-:0-9]+)", run.terminal)
    assert etas[0] == "-"
    assert "0:01:00" in etas, "60,000 steps are left at 1,000 a second"


def test_auto_is_plain_on_a_dumb_terminal() -> None:
    run = _run_on_terminal(LIVE_RUN, columns=120, term="dumb")

    assert "\x1b" not in run.terminal
    assert "step 40960/100000  return 153.2  length 153  1000 steps/s" in run.terminal.splitlines()


class _Run:
    """What a child process wrote to stdout (a pipe) and to stderr (a terminal)."""

    def __init__(self, stdout: str, terminal: str) -> None:
        self.stdout = stdout
        self.terminal = terminal


def _run_on_terminal(script: str, columns: int, term: str = "xterm-256color") -> _Run:
    pty = pytest.importorskip("pty")
    termios = pytest.importorskip("termios")
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (40, columns))
    child = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=theirs, text=True, env=_environment(term)
    )
    os.close(theirs)
    written = bytearray()
    reader = threading.Thread(target=_read_to_the_end, args=(ours, written))
    reader.start()
    try:
        stdout, _ = child.communicate(timeout=60)
    finally:
        child.kill()
        child.wait()
        reader.join(timeout=10)
        os.close(ours)
    assert child.returncode == 0, written.decode()
    return _Run(stdout, written.decode())


def _read_to_the_end(descriptor: int, written: bytearray) -> None:
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # EIO: Linux's way to say that nobody holds the other side any more.
            return
        if not chunk:
            return
        written += chunk


def _environment(term: str = "xterm-256color") -> dict[str, str]:
    unwanted = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE")
    inherited = {name: value for name, value in os.environ.items() if name not in unwanted}
    return {**inherited, "TERM": term, "PYTHONPATH": str(REPOSITORY), "PYTHONIOENCODING": "utf-8"}


def _screen(terminal: str, columns: int) -> list[str]:
    """The rows a terminal shows after these characters: just enough of one for what rich sends."""
    rows, row, column = [""], 0, 0
    for token in re.findall(r"\x1b\[\??[0-9;]*[a-zA-Z]|.|\n", terminal):
        if token == "\r":
            column = 0
        elif token == "\n":
            row += 1
            rows += [""] * (row + 1 - len(rows))
        elif token == "\x1b[2K":
            rows[row] = ""
        elif token.startswith("\x1b[") and token.endswith("A"):
            row -= int(token[2:-1])
        elif not token.startswith("\x1b"):
            if column == columns:
                row, column = row + 1, 0
                rows += [""] * (row + 1 - len(rows))
            rows[row] = rows[row][:column].ljust(column) + token + rows[row][column + 1 :]
            column += 1
    return rows


# The learning curve


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
        [sys.executable, "-c", script], env=_environment(), capture_output=True, text=True, timeout=120, check=True
    )
    assert ended.stdout == "False\n"
