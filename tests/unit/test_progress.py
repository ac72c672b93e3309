"""Progress in the terminal: plain lines, or two that are redrawn in place; nothing said is lost."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

import pytest
from terminal_run import run_on_terminal, screen_after

from htsrl.metrics import pace
from htsrl.metrics.progress import open_progress

READINGS = {"rollout/ep_rew_mean": 153.24, "rollout/ep_len_mean": 153.0, "time/fps": 8123.4, "hts/lag": 1.0}


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
    monkeypatch.setattr(pace, "monotonic", clock)
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


def test_plain_progress_says_rarer_and_rarer_that_nothing_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    shown = open_progress("plain", 100, "title")
    for _ in range(2):
        shown.update(1, {})
        for seconds in range(5, 60):
            shown.stall(seconds, f"no update for {seconds} s")
    said = [line for line in capsys.readouterr().err.splitlines() if "no update" in line]
    assert said == 2 * [f"no update for {seconds} s" for seconds in (5, 10, 20, 40)]


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
from htsrl.metrics.live import LIVE_SECONDS
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
time.sleep(2 * LIVE_SECONDS)
shown.stall(42.0, "no update for 42 s: environment 7")
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
    run = run_on_terminal(LIVE_RUN, columns)
    said_rows = [SAID[start : start + columns] for start in range(0, len(SAID), columns)]

    screen = screen_after(run.terminal, columns)
    assert [row.rstrip() for row in screen[: len(said_rows) + 1]] == [row.rstrip() for row in [*said_rows, "a warning"]]
    assert "no update for 42 s" in run.terminal  # drawn without a report, and gone with the next
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
    run = run_on_terminal(LIVE_RUN, columns=120)

    result, timing = run.stdout.splitlines()
    assert result == "a result"
    assert timing.split()[1] == "1"
    assert "a result" not in run.terminal


def test_live_progress_redraws_at_most_eight_times_a_second() -> None:
    run = run_on_terminal(LIVE_RUN, columns=120)

    seconds = float(run.stdout.splitlines()[-1].split()[0])
    drawings = run.terminal.count("/100,000 steps")
    # On top of the paced ones: at the start, at the first update, below the two printed lines, of what is waited for,
    # at close; and rounding.
    assert 5 <= drawings <= 8 * seconds + 7


def test_live_progress_tells_the_time_left_once_the_speed_is_known() -> None:
    run = run_on_terminal(LIVE_RUN, columns=120)

    etas = re.findall(r"ETA ([-:0-9]+)", run.terminal)
    assert etas[0] == "-"
    assert "0:01:00" in etas, "60,000 steps are left at 1,000 a second"


def test_auto_is_plain_on_a_dumb_terminal() -> None:
    run = run_on_terminal(LIVE_RUN, columns=120, term="dumb")

    assert "\x1b" not in run.terminal
    assert "step 40960/100000  return 153.2  length 153  1000 steps/s" in run.terminal.splitlines()
