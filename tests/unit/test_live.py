"""The live view: trend, how busy everybody is, the slowest environment and events, on lines that never wrap."""

from __future__ import annotations

import re

import numpy as np
import pytest
from terminal_run import run_on_terminal, screen_after

from htsrl.cli.folder import ConsoleFlags
from htsrl.config import Placement
from htsrl.errors import ConfigError
from htsrl.metrics import gauges, pace
from htsrl.metrics.gauges import Counters, Gauges
from htsrl.metrics.live import Trend
from htsrl.metrics.pace import MAX_PLAIN_SECONDS, PLAIN_SECONDS, Pace
from htsrl.metrics.progress import open_progress
from htsrl.metrics.readings import bar_of, sparkline

LIVE_RUN = """
import time
import numpy as np
from htsrl.metrics import gauges
from htsrl.metrics.gauges import Counters
from htsrl.metrics.progress import open_progress

gauges.GAUGE_SECONDS = 0.5
now, spent = 0.0, np.ones(16)
gauges.monotonic = lambda: now
spent[7] = 31.0

def read():
    return Counters({"executor": 0.5 * now, "learner": 0.75 * now}, spent * now / 16)

shown = open_progress("live", 100_000, "CartPole-v1", read)
for step in range(0, 4000, 500):
    shown.update(step, {"rollout/ep_rew_mean": float(step), "time/fps": 1000.0, "hts/lag": 1.0})
    time.sleep(0.13)
    now += 1.0
shown.note("restarts", "1")
shown.note("checkpoint", "of update 3 at 12:00")
shown.note("eval", "return 7.0 at 2,000 steps")
shown.note("eval", "return 9.5 at 3,000 steps")
shown.close()
"""


@pytest.mark.parametrize("columns", [140, 80, 40])
def test_the_live_view_has_four_lines_however_narrow_the_terminal(columns: int) -> None:
    screen = [row.rstrip() for row in screen_after(run_on_terminal(LIVE_RUN, columns).terminal, columns)]
    rows = [row for row in screen if row]
    assert len(rows) == 4
    assert all(len(row) <= columns for row in rows)
    _, readings, utilisation, events = rows
    assert readings.startswith("return 3500.0 ▁▂")
    assert re.match("executors ([█░]+ )? 50%", utilisation)
    assert events.startswith("restarts 1   checkpoint of update 3")
    if columns == 140:
        assert "learner ██░░░░░░  25%" in utilisation
        assert re.search(r"slowest env 7: [\d.e+]+ ms a step, 31\.0x the median$", utilisation)
        assert events.endswith("eval return 9.5 at 3,000 steps")
    if columns == 80:
        assert utilisation.endswith("x the median"), "bars are shortened before words are cut"


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    coloured = re.compile(r"\x1b\[[0-9;]*3[0-9]?[;m]")
    assert coloured.search(run_on_terminal(LIVE_RUN, 140).terminal)
    script = "import os; os.environ['NO_COLOR'] = '1'\n" + LIVE_RUN
    assert not coloured.search(run_on_terminal(script, 140).terminal)


def test_shares_are_of_the_time_between_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    now, counters = [100.0], [Counters({"learner": 50.0}, np.array([1.0, 1.0]))]
    monkeypatch.setattr(gauges, "monotonic", lambda: now[0])
    shown = Gauges(lambda: counters[0])
    shown.look(steps=0)
    assert (shown.busy, shown.slowest) == ({}, None)
    now[0], counters[0] = 110.0, Counters({"learner": 52.5}, np.array([2.0, 4.0]))
    shown.look(steps=20)
    assert shown.busy == {"learner": 0.75}
    assert (shown.slowest,) == (None,), "in one look it may be one that lost its core for a moment"
    now[0], counters[0] = 120.0, Counters({"learner": 55.0}, np.array([3.0, 7.0]))
    shown.look(steps=40)
    slowest = shown.slowest
    assert slowest is not None
    assert (slowest.env, slowest.step_seconds, slowest.ratio) == (1, 0.3, 3.0)
    now[0], counters[0] = 122.0, Counters({"learner": 55.5}, np.array([4.0, 8.4]))
    shown.look(steps=60)
    assert shown.slowest is None, "1.4 times the median is no straggler"
    now[0] += 0.5
    counters[0] = Counters({"learner": 99.0}, np.array([9.0, 9.0]))
    shown.look(steps=30)
    assert shown.busy == {"learner": 0.75}, "it was a moment ago"


def test_lines_grow_rarer_as_a_run_gets_long(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(pace, "monotonic", lambda: now[0])
    growing, printed = Pace(PLAIN_SECONDS, MAX_PLAIN_SECONDS), []
    while now[0] < 24 * 3600:
        if growing.is_due():
            printed.append(now[0])
        now[0] += 1.0
    gaps = np.diff(printed)
    assert list(gaps[:5]) == [2.0] * 5
    assert max(gaps) == MAX_PLAIN_SECONDS
    assert len(printed) < 400, "a day's run"


def test_a_trend_is_drawn_from_lowest_to_highest() -> None:
    assert sparkline([0.0, 7.0, 3.0]) == "▁█▄"
    assert sparkline([0.0, 4.0, 2.0], is_unicode=False) == "_^-"
    assert sparkline([5.0, 5.0]) == sparkline([]) == ""
    assert (bar_of(0.5, 4), bar_of(1.0, 4, is_unicode=False), bar_of(0.0, 2)) == ("██░░", "####", "░░")


def test_a_trend_keeps_points_evenly_apart_and_the_newest() -> None:
    trend = Trend(total_steps=2000)
    for step in range(1000):
        trend.add(step, float(step))
    trend.add(1000, None)
    assert len(trend.means) == 16
    assert trend.means[-1] == 999.0
    assert set(np.diff(trend.means[:-1])) == {10.0}


def test_plain_lines_tell_of_evaluations_and_verbose_ones_of_checkpoints(capsys: pytest.CaptureFixture[str]) -> None:
    for mode in ("plain", "verbose", "off"):
        shown = open_progress(mode, 10, mode)
        shown.note("checkpoint", "of update 3")
        shown.note("eval", "return 7.0")
        shown.close()
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["plain", "eval return 7.0", "verbose", "checkpoint of update 3", "eval return 7.0"]


def test_quiet_and_verbose_are_settings_of_progress() -> None:
    placement = Placement(progress="live")
    assert ConsoleFlags(quiet=True).applied(placement).progress == "off"
    assert ConsoleFlags(verbose=True).applied(placement).progress == "verbose"
    assert ConsoleFlags().applied(placement) is placement
    with pytest.raises(ConfigError, match="give one of them"):
        ConsoleFlags(quiet=True, verbose=True).applied(placement)
