"""How quick the dashboard is with many long runs: until something is seen, and from an action to the next picture."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.chromium import open_chromium
from htsrl_bench.record import Summary, Table

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FIRST_PAINT = "first paint"
FIRST_CURVES = "first curves drawn"
ALL_CURVES = "all runs selected, curves drawn"
OTHER_METRIC = "another metric of all runs drawn"
INTERACTIONS = {
    "a run taken away": "document.querySelector('#table tbody input').click()",
    "smoothing": "const s = document.querySelector('#smoothing'); s.value = 0.9; s.dispatchEvent(new Event('input'))",
    "wall-clock axis": "document.querySelector('input[value=seconds]').click()",
    "grouped by settings": "const g = document.querySelector('#group'); g.value = '*'; "
    "g.dispatchEvent(new Event('change'))",
    "sorted by return": "document.querySelector('th[data-key=return] button').click()",
    "filtered": "const f = document.querySelector('#filter'); f.value = 'seed=3'; f.dispatchEvent(new Event('input'))",
    "crosshair moved": "const c = document.querySelector('.large canvas'); const b = c.getBoundingClientRect(); "
    "c.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + b.width / 2, clientY: b.top + 50}))",
}
"""With all runs selected, while the server still reads their files."""
GOAL_SECONDS = {FIRST_PAINT: 2.0, FIRST_CURVES: 2.0}
INTERACTION_GOAL_SECONDS = 0.2
NUM_FILES = 4
"""Different ones; runs share them as hard links, for the server reads each of its own all the same."""
UNTIL_PAINTED = """async () => {
    const begin = performance.now();
    {ACTION};
    await new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)));
    return performance.now() - begin;
}"""


@dataclass(frozen=True)
class DashboardBench:
    """How much is shown."""

    num_runs: int
    points: int
    """Lines of each run's metrics."""
    repetitions: int

    def __post_init__(self) -> None:
        for name in ("num_runs", "points", "repetitions"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")


Seconds = Mapping[str, Sequence[float]]
"""By what was done, in every repetition."""


def measure(bench: DashboardBench) -> Seconds:
    """Each repetition has a server and a page of its own, which know nothing yet."""
    seconds: dict[str, list[float]] = {}
    announcer = Announcer(bench.repetitions)
    with tempfile.TemporaryDirectory() as folder, open_chromium() as browser:
        make_runs(Path(folder), bench)
        for repetition in range(bench.repetitions):
            announcer.begin(f"repetition {repetition + 1}")
            with serving(Path(folder)) as (address, _):
                for name, value in _look(browser, address, bench.num_runs):
                    seconds.setdefault(name, []).append(value)
            announcer.end(", ".join(f"{name} {values[-1]:.3f} s" for name, values in seconds.items()))
    return seconds


def make_runs(folder: Path, bench: DashboardBench) -> None:
    """Folders as runs leave them, with four metrics in every line."""
    files = [folder / f"metrics-{i}.jsonl" for i in range(min(NUM_FILES, bench.num_runs))]
    for i, file in enumerate(files):
        _write_metrics(file, bench.points, seed=i)
    for i in range(bench.num_runs):
        run = folder / f"run-{i:03d}"
        run.mkdir()
        os.link(files[i % len(files)], run / "metrics.jsonl")
        algorithm = {"name": ("a2c", "ppo")[i // 5 % 2], "learning_rate": 1e-4 * (1 + i // 10)}
        experiment = {"env": "CartPole-v1", "algorithm": algorithm, "schedule": "hts", "seed": i % 5}
        (run / "config.json").write_text(json.dumps({"experiment": {**experiment, "total_steps": 1000 * bench.points}}))
        (run / "result.json").write_text(json.dumps({"updates": bench.points, "interrupted": False, "restarts": 0}))


def _write_metrics(file: Path, points: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with open(file, "w") as out:
        for begin in range(0, points, 10_000):
            noise = rng.normal(size=(min(10_000, points - begin), 2))
            out.writelines(
                f'{{"step": {1000 * i}, "rollout/ep_rew_mean": {500 * i / points + 10 * a:.6f}, '
                f'"train/loss": {b:.6f}, "time/fps": 5000.0, "time/time_elapsed": {i / 5:.1f}}}\n'
                for i, (a, b) in enumerate(noise, start=begin + 1)
            )


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, int]]:
    """The dashboard of a folder: its address, and the pid of its server."""
    command = [sys.executable, "-m", "htsrl", "dashboard", str(folder), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1], process.pid
        finally:
            process.terminate()


def _look(browser: Browser, address: str, num_runs: int) -> Iterator[tuple[str, float]]:
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    try:
        begin = time.monotonic()
        page.goto(address, wait_until="commit")
        page.wait_for_function("() => document.querySelectorAll('.chart.large .legend li').length > 0")
        yield FIRST_CURVES, time.monotonic() - begin
        page.wait_for_function("() => performance.getEntriesByName('first-contentful-paint').length > 0")
        yield FIRST_PAINT, page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
        yield ALL_CURVES, _until_drawn(page, "() => document.querySelector('#select-shown').click()", num_runs)
        for name, action in INTERACTIONS.items():
            yield name, page.evaluate(UNTIL_PAINTED.replace("{ACTION}", action)) / 1000
        yield OTHER_METRIC, _other_metric(page)
    finally:
        page.close()


def _until_drawn(page: Page, action: str, num_curves: int) -> float:
    begin = time.monotonic()
    page.evaluate(action)
    page.wait_for_function(
        "count => Number(document.querySelector('.chart.large').dataset.drawn) >= count", arg=num_curves
    )
    return time.monotonic() - begin


def _other_metric(page: Page) -> float:
    begin = time.monotonic()
    page.locator(".chart.large select").select_option("train/loss")
    page.wait_for_function("() => document.querySelector('.chart.large').dataset.metric === 'train/loss'")
    return time.monotonic() - begin


def goal_of(name: str) -> float | None:
    return INTERACTION_GOAL_SECONDS if name in INTERACTIONS else GOAL_SECONDS.get(name)


def table(seconds: Seconds, bench: DashboardBench) -> Table:
    rows = []
    for name, values in seconds.items():
        summary, goal = Summary.of([1000 * value for value in values]), goal_of(name)
        verdict = (
            "" if goal is None else f"under {1000 * goal:.0f} ms: {'yes' if summary.median < 1000 * goal else 'no'}"
        )
        rows.append([name, str(summary), verdict])
    notes = [
        f"{bench.num_runs} runs of {bench.points:,} lines with four metrics each, median and range of "
        f"{bench.repetitions} servers that knew nothing yet. Interactions are from the event to the next picture, with "
        "all runs selected and while the server still reads their files.",
    ]
    return Table(["what", "milliseconds", "goal"], rows, notes)
