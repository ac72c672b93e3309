"""Whole runs beside the limit: steps per second, CPU time and memory of every schedule on every work."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from htsrl.config import Config, Experiment, Placement, available_cores
from htsrl.errors import ConfigError
from htsrl.placements.survey import draw_blueprint
from htsrl_bench.announcer import Announcer
from htsrl_bench.env_memory import env_megabytes
from htsrl_bench.limits import StepCosts, measure_work
from htsrl_bench.live_run import LiveRun, live_run, rate
from htsrl_bench.part_process import part_processes
from htsrl_bench.process_tree import Memory, cpu_seconds, memory_of, tree_of, workers_named
from htsrl_bench.record import Summary, Table
from htsrl_bench.ways import WAYS, in_way
from htsrl_bench.works import IN_HALF, WORKS, known

SCHEDULES = ("hts", "sync", "lockstep", "async")
"""Those that are compared unless others, or other ways, are asked for."""
BASELINE = "sync"
SETTLING_SECONDS = 2.0
"""After the spare process has made its preparations, which happens once in a run."""
MIN_UPDATES = 5
"""Measured in a run, however slow."""
LOOK_SECONDS = 0.2
WORKERS = ("executor", "actor")


def check_schedules(names: Sequence[str]) -> None:
    """ConfigError for schedules, or ways, that there are none of."""
    strangers = [name for name in names if name not in WAYS]
    if strangers or not names:
        raise ConfigError(f"give schedules among {', '.join(WAYS)}, not {', '.join(strangers) or 'none'}")


def watched_config(work: str, schedule: str) -> Config:
    # A line for every update: between them the time is taken.
    return Config(in_way(WORKS[work], schedule), Placement(log_every_steps=1, tensorboard=False, progress="off"))


@dataclass(frozen=True)
class ThroughputBench:
    """The settings of all runs; what differs between them is the work and the schedule."""

    work: tuple[str, ...]
    schedules: tuple[str, ...]
    seconds_per_run: float
    seconds_per_part: float
    repetitions: int

    def __post_init__(self) -> None:
        known(self.work)
        check_schedules(self.schedules)
        known([limit_of(work, name) for work in self.work for name in self.schedules])
        self.configs()  # a way that a work's algorithm has not is refused before anything is measured
        if self.repetitions < 1 or self.seconds_per_run <= 0 or self.seconds_per_part <= 0:
            raise ConfigError(
                f"repetitions={self.repetitions} must be at least 1, seconds_per_run={self.seconds_per_run:g} and "
                f"seconds_per_part={self.seconds_per_part:g} above 0"
            )

    def configs(self) -> dict[str, Config]:
        return {f"{work}, {name}": watched_config(work, name) for work in self.work for name in self.schedules}


@dataclass(frozen=True)
class Watched:
    """What was seen of one run from outside."""

    steps_per_second: float
    utilisation: float
    """CPU time of all its processes over what the cores could have given."""
    processes: tuple[Memory, ...]

    @property
    def megabytes(self) -> float:
        return sum(process.pss for process in self.processes)

    @property
    def worker_megabytes(self) -> float:
        """Private memory of the largest executor or actor."""
        return max(process.private for process in self.processes if process.name.startswith(WORKERS))


@dataclass(frozen=True)
class Measured:
    """One run beside the limit, which was measured before and after it."""

    work: str
    schedule: str
    repetition: int
    watched: Watched
    roofline: float
    env_megabytes: float
    """Of the environments of one executor."""

    @property
    def share(self) -> float:
        return self.watched.steps_per_second / self.roofline

    @property
    def worker_megabytes(self) -> float:
        """Of the largest executor or actor, beyond what its environments need."""
        return self.watched.worker_megabytes - self.env_megabytes


def measure(bench: ThroughputBench) -> list[Measured]:
    """The schedules take turns within a work, the works within a repetition, and the limit stands around each."""
    announcer = Announcer(bench.repetitions * len(bench.work) * len(bench.schedules))
    needs = {work: env_megabytes(work, _envs_per_executor(WORKS[work])) for work in bench.work}
    measured = []
    for repetition in range(bench.repetitions):
        for work in bench.work:
            limits = tuple(dict.fromkeys(limit_of(work, schedule) for schedule in bench.schedules))
            before, watched = {limit: costs_of(limit, bench.seconds_per_part) for limit in limits}, {}
            for schedule in bench.schedules:
                announcer.begin(f"{work}, {schedule}")
                with live_run(watched_config(work, schedule)) as run:
                    watched[schedule] = watch(run, bench.seconds_per_run)
                announcer.end(f"{watched[schedule].steps_per_second:,.0f} steps/s")
            around = {limit: (before[limit], costs_of(limit, bench.seconds_per_part)) for limit in limits}
            measured += [
                beside(around[limit_of(work, name)], work, name, repetition, of, needs[work])
                for name, of in watched.items()
            ]
    return measured


def limit_of(work: str, schedule: str) -> str:
    """The work whose parts are what a run consists of."""
    return work + IN_HALF if schedule.endswith(IN_HALF) else work


def costs_of(work: str, seconds_per_part: float) -> StepCosts:
    """Now, in processes that are gone afterwards: memory that they map would count as shared."""
    with part_processes(available_cores()) as processes:
        return measure_work(work, seconds_per_part, processes)


def beside(
    around: Sequence[StepCosts], work: str, schedule: str, repetition: int, watched: Watched, env_megabytes: float
) -> Measured:
    """One run and the limit, as it was before and after."""
    roofline = fmean(costs.roofline(available_cores()) for costs in around)
    return Measured(work, schedule, repetition, watched, roofline, env_megabytes)


def watch(run: LiveRun, seconds: float, has_spare: bool = True) -> Watched:
    """Once all is started, so many seconds of it, and more where updates are slow."""
    settle(run, has_spare)
    updates_before, cpu_before, begin = len(run.updates()), cpu_seconds(tree_of(run.pid)), time.monotonic()
    time.sleep(seconds)
    run.wait_until(lambda: len(run.updates()) >= updates_before + MIN_UPDATES, LOOK_SECONDS)
    pids = tree_of(run.pid)
    used, passed = cpu_seconds(pids) - cpu_before, time.monotonic() - begin
    return Watched(
        steps_per_second=rate(run.updates()[updates_before - 1 :]),
        utilisation=used / (passed * available_cores()),
        processes=tuple(map(memory_of, pids)),
    )


def settle(run: LiveRun, has_spare: bool = True) -> None:
    """Wait until the run learns and has its spare process, if it will have one."""
    run.wait_until(lambda: len(run.updates()) >= 2 and (not has_spare or _spare_is_ready(run)), LOOK_SECONDS)
    time.sleep(SETTLING_SECONDS)


def summary(bench: ThroughputBench, measured: Sequence[Measured]) -> dict[str, Any]:
    return {work: _summary_of([of for of in measured if of.work == work], bench.schedules) for work in bench.work}


def _summary_of(measured: Sequence[Measured], schedules: Sequence[str]) -> dict[str, Any]:
    rates = {name: [of.watched.steps_per_second for of in measured if of.schedule == name] for name in schedules}
    usual = [of.roofline for of in measured if not of.schedule.endswith(IN_HALF)] or [of.roofline for of in measured]
    document: dict[str, Any] = {"roofline": asdict(Summary.of(usual)), "schedules": {}}
    for name in schedules:
        own = [of for of in measured if of.schedule == name]
        document["schedules"][name] = {
            "steps_per_second": asdict(Summary.of(rates[name])),
            "utilisation": asdict(Summary.of([of.watched.utilisation for of in own])),
            "roofline": asdict(Summary.of([of.roofline for of in own])),
            "share_of_roofline": asdict(Summary.of([of.share for of in own])),
            "megabytes": asdict(Summary.of([of.watched.megabytes for of in own])),
            "worker_megabytes": asdict(Summary.of([of.worker_megabytes for of in own])),
        }
        for ratio, other in (("ratio", BASELINE), ("over_float32", name.removesuffix(IN_HALF))):
            if other in schedules and (ratio == "ratio" or other != name):
                ratios = [mine / theirs for mine, theirs in zip(rates[name], rates[other], strict=True)]
                document["schedules"][name][ratio] = asdict(Summary.of(ratios))
    return document


def repetitions(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    return [asdict(of) for of in measured]


def table(bench: ThroughputBench, document: Mapping[str, Any], notes: Sequence[str] = ()) -> Table:
    rows, in_half = [], any(name.endswith(IN_HALF) for name in bench.schedules)
    for work, of in document.items():
        for schedule, own in of["schedules"].items():
            rows.append(
                [
                    work,
                    schedule,
                    str(Summary(**own["steps_per_second"])),
                    f"{Summary(**own.get('roofline', of['roofline'])).median:,.0f}",
                    _percent(own["share_of_roofline"]),
                    f"{own['ratio']['median']:.2f}" if "ratio" in own else "",
                    *([_times(own["over_float32"]) if "over_float32" in own else ""] if in_half else []),
                    f"{own['utilisation']['median']:.0%}",
                    f"{own['megabytes']['median']:,.0f}",
                    f"{own['worker_megabytes']['median']:,.0f}",
                ]
            )
    return Table(
        [
            "work",
            "schedule",
            "steps/s",
            "roofline",
            "share",
            f"/ {BASELINE}",
            *["/ float32"] * in_half,
            "CPU",
            "MB",
            "MB of a worker",
        ],
        rows,
        [
            f"Median (lowest to highest) of {bench.repetitions} repetitions in which the schedules took turns, "
            f"{bench.seconds_per_run:g} s each from when the run had settled. The roofline was measured right before "
            "and after the runs of a work; the share is that of each run. CPU is the time of all processes over what "
            "the cores could give; MB their memory in all (PSS); MB of a worker what the largest executor or "
            "actor has for itself beyond what its environments need.",
            *[
                "The roofline of a way in bfloat16 is that of its own parts; / float32 compares it with the same "
                "schedule in the same repetition."
            ]
            * in_half,
            *notes,
        ],
    )


def _times(of: Mapping[str, float]) -> str:
    return f"{of['median']:.2f} ({of['lowest']:.2f} to {of['highest']:.2f})"


def _percent(of: Mapping[str, float]) -> str:
    return f"{of['median']:.0%} ({of['lowest']:.0%} to {of['highest']:.0%})"


def _spare_is_ready(run: LiveRun) -> bool:
    return bool(workers_named("spare", run.pid))


def _envs_per_executor(experiment: Experiment) -> int:
    return max(len(envs) for envs in draw_blueprint(Config(experiment)).executor_envs)
