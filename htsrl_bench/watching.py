"""What it costs to watch a run: nothing shown, the timeline alone, everything shown, and evaluated beside that."""

from __future__ import annotations

import json
import os
import pty
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from htsrl.config import Config, Placement
from htsrl.config.file import to_json
from htsrl.config.placement import available_cores
from htsrl.digest import read_links
from htsrl.errors import ConfigError, HtsrlError
from htsrl.metrics.sinks import read_json_lines
from htsrl_bench.announcer import Announcer
from htsrl_bench.chromium import open_chromium
from htsrl_bench.dashboard import serving
from htsrl_bench.process_tree import cpu_seconds, tree_of, workers_named
from htsrl_bench.record import Summary, Table
from htsrl_bench.works import WORKS, known

OFF, TIMELINE, SHOWN, EVALUATED = "off", "timeline", "shown", "shown and evaluated"
SIDES = (OFF, TIMELINE, SHOWN, EVALUATED)
WARM_UP_UPDATES = 5
SETTLE_SECONDS = 3.0
"""Until the page is loaded and drawn: it is open before the run begins."""
GOAL = 0.97


@dataclass(frozen=True)
class WatchingBench:
    """The settings of all runs; what differs between them is what is shown."""

    work: tuple[str, ...]
    steps_per_run: tuple[int, ...]
    """For each work."""
    eval_every: int
    repetitions: int
    sides: tuple[str, ...] = SIDES

    def __post_init__(self) -> None:
        known(self.work)
        if OFF not in self.sides or not set(self.sides) <= set(SIDES):
            raise ConfigError(f"sides={self.sides} must be of {SIDES}, {OFF!r} among them")
        for name in ("eval_every", "repetitions"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 1")
        if len(self.steps_per_run) != len(self.work) or min(self.steps_per_run) < 1:
            raise ConfigError(
                f"steps_per_run={self.steps_per_run} must have a number from 1 on for each of {self.work}"
            )

    def config(self, work: str, side: str) -> Config:
        steps = self.steps_per_run[self.work.index(work)]
        experiment = replace(WORKS[work], total_steps=steps)
        if side in (OFF, TIMELINE):
            timeline = side == TIMELINE
            return Config(
                experiment, Placement(timeline=timeline, tensorboard=False, progress="off", measure_costs=True)
            )
        evaluated = self.eval_every if side == EVALUATED else None
        return Config(experiment, Placement(progress="live", eval_every=evaluated, measure_costs=True))

    def configs(self, work: str) -> dict[str, Config]:
        return {side: self.config(work, side) for side in self.sides}


@dataclass(frozen=True)
class Watched:
    """One run to its end."""

    work: str
    side: str
    repetition: int
    steps_per_second: float
    cpu_us_per_step: float
    """Of all processes of the run but the evaluator: what else continues, on the machine, moves it little."""
    digest: str
    evaluator_cores: float
    """CPU seconds in a second of training; the evaluation of the last version, after it, is not counted."""
    viewer_cores: float
    """Of the dashboard's server and of the browser that shows its page."""

    @property
    def apart_from_evaluation(self) -> float:
        """Steps per second by the cores that the evaluator left."""
        return self.steps_per_second / (1 - self.evaluator_cores / available_cores())


def measure(bench: WatchingBench) -> list[Watched]:
    """The sides take turns, each of them first in its turn."""
    sides = bench.sides
    announcer, watched = Announcer(len(bench.work) * len(sides) * bench.repetitions), list[Watched]()
    for repetition in range(bench.repetitions):
        for work in bench.work:
            first = repetition % len(sides)
            for side in (*sides[first:], *sides[:first]):
                announcer.begin(f"{work}, {side}")
                watched.append(_watch(bench.config(work, side), work, side, repetition))
                announcer.end(f"{watched[-1].steps_per_second:,.0f} steps/s")
    _check_digests(watched)
    return watched


def _watch(config: Config, work: str, side: str, repetition: int) -> Watched:
    with TemporaryDirectory(prefix="htsrl-bench-") as name:
        config_file, run_dir = Path(name) / "config.json", Path(name) / "runs" / "run"
        run_dir.parent.mkdir()
        config_file.write_text(to_json(config))
        is_seen = side in (SHOWN, EVALUATED)
        shown: AbstractContextManager[list[int]] = _shown(run_dir.parent) if is_seen else nullcontext([])
        with shown as viewers:
            before, begin = _cpu_of_all(viewers), time.monotonic()
            with _on_terminal(config_file, run_dir):
                pass
            viewer, seconds = _cpu_of_all(viewers) - before, time.monotonic() - begin
        lines = read_json_lines(run_dir / "metrics.jsonl")
        begun, ended = lines[WARM_UP_UPDATES], lines[-1]
        steps, training_seconds, cpu = (
            _grown(begun, ended, name) for name in ("step", "time/time_elapsed", "cpu/total_seconds")
        )
        return Watched(
            work,
            side,
            repetition,
            steps_per_second=steps / training_seconds,
            cpu_us_per_step=1e6 * cpu / steps,
            digest=read_links(run_dir)[-1].chain,
            evaluator_cores=_evaluator_cpu(run_dir) / _grown({}, ended, "time/time_elapsed"),
            viewer_cores=viewer / seconds,
        )


def _grown(begun: Mapping[str, float | None], ended: Mapping[str, float | None], name: str) -> float:
    return (ended[name] or 0.0) - (begun.get(name) or 0.0)


def _evaluator_cpu(run_dir: Path) -> float:
    """CPU seconds beside training; of an evaluation that training has not waited for, the part until training ended."""
    path, training_ended_at = run_dir / "evaluations.jsonl", (run_dir / "metrics.jsonl").stat().st_mtime
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    spent = 0.0
    for line in lines:
        late = line["ended_at"] - training_ended_at
        spent += line["cpu_seconds"] * min(max(1 - late / max(line["seconds"], 1e-9), 0.0), 1.0)
    return float(spent)


def _cpu_of_all(pids: Sequence[int]) -> float:
    return cpu_seconds([below for pid in pids for below in tree_of(pid)])


@contextmanager
def _on_terminal(config_file: Path, run_dir: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A run whose terminal somebody looks at; HtsrlError if it does not come to its end."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "htsrl", "train", "--config", str(config_file), "--run-dir", str(run_dir)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    written = bytearray()
    reader = threading.Thread(target=_read_to_the_end, args=(ours, written), daemon=True)
    reader.start()
    try:
        yield process
        process.wait()
        reader.join()
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    if process.returncode:
        raise HtsrlError(f"the run ended with {process.returncode}: {written.decode(errors='replace')[-2000:]}")


def _read_to_the_end(descriptor: int, written: bytearray) -> None:
    while True:
        try:
            chunk = os.read(descriptor, 65536)
        except OSError:  # EIO: nobody holds the other side any more
            return
        if not chunk:
            return
        written += chunk


@contextmanager
def _shown(folder: Path) -> Iterator[list[int]]:
    """The dashboard of a folder, open in a browser; yields the processes that show it."""
    with open_chromium() as browser, serving(folder) as (address, server):
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.goto(address, wait_until="load")
        page.wait_for_timeout(SETTLE_SECONDS * 1000)
        yield [server, *workers_named("chrom", os.getpid()), *workers_named("node", os.getpid())]


def _check_digests(watched: Sequence[Watched]) -> None:
    for work in {of.work for of in watched}:
        digests = {of.side: of.digest for of in watched if of.work == work}
        if len({of.digest for of in watched if of.work == work}) > 1:
            raise HtsrlError(f"watching {work} has changed its digest: {digests}")


def repetitions(watched: Sequence[Watched]) -> list[dict[str, Any]]:
    return [asdict(of) for of in watched]


def summary(watched: Sequence[Watched]) -> dict[str, Any]:
    """The sides of every work, and what of the speed is left, pair by pair."""
    document: dict[str, Any] = {}
    for work in dict.fromkeys(of.work for of in watched):
        shown = [side for side in SIDES if any((of.work, of.side) == (work, side) for of in watched)]
        sides = {side: [of for of in watched if (of.work, of.side) == (work, side)] for side in shown}
        document[work] = {"digest": sides[OFF][0].digest}
        for side, own in sides.items():
            pairs = list(zip(own, sides[OFF], strict=True))
            ratios = [of.steps_per_second / off.steps_per_second for of, off in pairs]
            apart = [of.apart_from_evaluation / off.steps_per_second for of, off in pairs]
            document[work][side] = {
                "steps_per_second": asdict(Summary.of([of.steps_per_second for of in own])),
                "of_off": asdict(Summary.of(ratios)),
                "of_off_apart_from_evaluation": asdict(Summary.of(apart)),
                "cpu_us_per_step": asdict(Summary.of([of.cpu_us_per_step for of in own])),
                "cpu_of_off": asdict(Summary.of([of.cpu_us_per_step / off.cpu_us_per_step for of, off in pairs])),
                "evaluator_cores": statistics.median(of.evaluator_cores for of in own),
                "viewer_cores": statistics.median(of.viewer_cores for of in own),
            }
    return document


def table(bench: WatchingBench, work: str, sides: Mapping[str, Any]) -> Table:
    rows = []
    for side in filter(sides.__contains__, SIDES):
        own = sides[side]
        rows.append(
            [
                side,
                str(Summary(**own["steps_per_second"])),
                _percent(own["of_off"]),
                _percent(own["of_off_apart_from_evaluation"]),
                str(Summary(**own["cpu_us_per_step"])),
                _percent(own["cpu_of_off"]),
                f"{own['evaluator_cores']:.2f}",
                f"{own['viewer_cores']:.2f}",
            ]
        )
    steps = bench.steps_per_run[bench.work.index(work)]
    return Table(
        [
            "side",
            "steps/s",
            "of off",
            "apart from evaluation",
            "CPU us/step",
            "of off's CPU",
            "cores: evaluation",
            "cores: server, browser",
        ],
        rows,
        [
            f"Steps of a run: {steps:,}. Median (lowest to highest), {bench.repetitions} repetitions; sides "
            "took turns; the ratio is that of each repetition. Off writes metrics.jsonl and nothing else. Shown has a "
            "console on a terminal, TensorBoard, the timeline, the dashboard open in a browser on the same machine. "
            f"Evaluated plays 10 episodes every {bench.eval_every:,} steps beside that; apart from evaluation is the "
            f"ratio by the cores that the evaluating process left ({available_cores()} in all). CPU time is that "
            "of the run's own processes without the evaluating one; every side measures it. All runs have "
            f"one digest. The goal is {GOAL:.0%} of off.",
        ],
    )


def _percent(ratio: Mapping[str, float]) -> str:
    return "{median:.1%} ({lowest:.1%} to {highest:.1%})".format(**ratio)
