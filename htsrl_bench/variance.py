"""The paper's figures with environments that sleep, each beside what the claims say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from htsrl.config import Config
from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.headline import Headline, headline_table
from htsrl_bench.lag import LagRow, lag_table
from htsrl_bench.points import Measured, Point, Run, lockstep, run_point
from htsrl_bench.record import Summary, Table


@dataclass(frozen=True)
class Figure:
    """HTS, and lockstep where it is compared with, over one setting."""

    name: str
    title: str
    setting: str
    """The field of a point that varies."""
    label: str
    hts: tuple[Point, ...]
    has_lockstep: bool

    @property
    def points(self) -> tuple[Point, ...]:
        """What is compared stands side by side."""
        return tuple(
            side for point in self.hts for side in ([point, lockstep(point)] if self.has_lockstep else [point])
        )


FIGURES = (
    Figure(
        "variance",
        "Speed-up over lockstep against the variance of steps",
        "cv",
        "standard deviation / mean of the step time",
        tuple(Point(cv=cv) for cv in (0.0, 0.25, 0.5, 1.0)),
        has_lockstep=True,
    ),
    Figure(
        "environments",
        "Steps per second against environments",
        "num_envs",
        "environments",
        tuple(Point(num_envs=n, sync_interval=128) for n in (4, 8, 16, 32, 64)),
        has_lockstep=True,
    ),
    Figure(
        "processes",
        "Steps per second against environments, a process for each",
        "num_envs",
        "environments",
        tuple(Point(num_envs=n, sync_interval=128, on_threads=False) for n in (4, 8, 16, 32, 64)),
        has_lockstep=False,
    ),
    Figure(
        "alpha",
        "Steps per second against alpha",
        "sync_interval",
        "alpha: steps between two barriers",
        tuple(Point(sync_interval=alpha) for alpha in (1, 2, 5, 20, 64, 128)),
        has_lockstep=False,
    ),
    Figure(
        "actors",
        "Steps per second against actors",
        "num_actors",
        "actors",
        tuple(Point(num_actors=actors) for actors in (1, 2, 4)),
        has_lockstep=False,
    ),
)


@dataclass(frozen=True)
class VarianceBench:
    """How much is measured."""

    figures: tuple[Figure, ...]
    mean_seconds: float
    seconds_per_run: float
    repetitions: int
    headline_repetitions: int

    def __post_init__(self) -> None:
        if self.repetitions < 1 or self.headline_repetitions < 0 or min(self.seconds_per_run, self.mean_seconds) <= 0:
            raise ConfigError(
                f"repetitions={self.repetitions} must be at least 1, headline_repetitions={self.headline_repetitions} "
                f"not negative, seconds_per_run={self.seconds_per_run:g} and mean_seconds={self.mean_seconds:g} above 0"
            )

    def points(self) -> list[Point]:
        """Each once, however many figures it is in."""
        return list(dict.fromkeys(point for figure in self.figures for point in figure.points))

    def configs(self, headline: Headline | None, lag_points: Sequence[Point] = ()) -> dict[str, Config]:
        points = [*self.points(), *([headline.point, lockstep(headline.point)] if headline else []), *lag_points]
        return {point.name: point.config(self.mean_seconds, self.seconds_per_run) for point in points}


def measure(bench: VarianceBench, run: Run = run_point) -> list[Measured]:
    """All points in turn, each repetition with a seed, hence with sleeps, of its own."""
    return measure_points(bench, bench.points(), run)


def measure_points(bench: VarianceBench, points: Sequence[Point], run: Run = run_point) -> list[Measured]:
    measured = []
    announcer = Announcer(bench.repetitions * len(points))
    for seed in range(1, bench.repetitions + 1):
        for point in points:
            announcer.begin(f"{point.name}, seed {seed}")
            measured.append(run(point, bench.mean_seconds, bench.seconds_per_run, seed))
            announcer.end(f"{measured[-1].steps_per_second:,.0f} steps/s")
    return measured


@dataclass(frozen=True)
class Row:
    """What is known at one value of a figure's setting."""

    value: float
    hts: Summary
    bound: float
    """Claim 1's."""
    soft_limit: float
    per_env: float
    """Steps per second of an environment, over that of the figure's first row."""
    lockstep: Summary | None = None
    lockstep_bound: float | None = None

    @property
    def ratio(self) -> float | None:
        return None if self.lockstep is None else self.hts.median / self.lockstep.median

    @property
    def claimed_ratio(self) -> float | None:
        return None if self.lockstep_bound is None else self.bound / self.lockstep_bound

    def document(self) -> dict[str, Any]:
        derived = {"share_of_bound": self.hts.median / self.bound, "ratio": self.ratio}
        return {**asdict(self), **derived, "claimed_ratio": self.claimed_ratio}


def rows(bench: VarianceBench, figure: Figure, measured: Sequence[Measured]) -> list[Row]:
    def speed(point: Point) -> Summary:
        return Summary.of([run.steps_per_second for run in measured if run.point == point])

    first = figure.hts[0]
    own = speed(first).median / first.num_envs
    return [
        Row(
            value=getattr(point, figure.setting),
            hts=speed(point),
            bound=point.bound(bench.mean_seconds),
            soft_limit=point.soft_limit(bench.mean_seconds),
            per_env=speed(point).median / point.num_envs / own,
            lockstep=speed(lockstep(point)) if figure.has_lockstep else None,
            lockstep_bound=lockstep(point).bound(bench.mean_seconds) if figure.has_lockstep else None,
        )
        for point in figure.hts
    ]


def summary(
    bench: VarianceBench, by_figure: Mapping[str, Sequence[Row]], headline: Headline | None, lags: Sequence[LagRow]
) -> dict[str, Any]:
    return {
        "figures": {name: [row.document() for row in rows] for name, rows in by_figure.items()},
        "headline": headline.document(bench.mean_seconds) if headline else None,
        "lag": [asdict(row) for row in lags],
    }


def repetitions(measured: Sequence[Measured]) -> list[dict[str, Any]]:
    return [{"config": run.point.name, **asdict(run)} for run in measured]


def tables(
    bench: VarianceBench, by_figure: Mapping[str, Sequence[Row]], headline: Headline | None, lags: Sequence[LagRow]
) -> list[Table]:
    return [
        *([headline_table(headline, bench.mean_seconds)] if headline else []),
        *(_table(bench, figure, by_figure[figure.name]) for figure in bench.figures),
        *([lag_table(lags)] if lags else []),
    ]


def _table(bench: VarianceBench, figure: Figure, rows: Sequence[Row]) -> Table:
    headings = [figure.label, "hts steps/s", "Claim 1", "share", "soft limit"]
    cells = [
        [
            f"{row.value:g}",
            str(row.hts),
            f"{row.bound:,.0f}",
            f"{row.hts.median / row.bound:.0%}",
            f"{row.soft_limit:,.0f}",
        ]
        for row in rows
    ]
    if figure.setting == "num_envs":
        headings.append("per environment")
        cells = [[*line, f"{row.per_env:.2f}"] for line, row in zip(cells, rows, strict=True)]
    if figure.has_lockstep:
        headings += ["lockstep steps/s", "Claim 1 ", "ratio", "Claim 1's ratio"]
        cells = [
            [*line, str(row.lockstep), f"{row.lockstep_bound:,.0f}", f"{row.ratio:.2f}", f"{row.claimed_ratio:.2f}"]
            for line, row in zip(cells, rows, strict=True)
        ]
    return Table(headings, cells, [_note(bench, figure)])


def _note(bench: VarianceBench, figure: Figure) -> str:
    same = figure.hts[0]
    settings = {
        "num_envs": f"{same.num_envs} environments",
        "sync_interval": f"alpha {same.sync_interval}",
        "cv": f"standard deviation {same.cv:g} of the mean",
        "num_actors": f"{same.num_actors} actor",
    }
    rest = ", ".join(text for name, text in settings.items() if name != figure.setting)
    return (
        f"{figure.title}: {rest}, {'a thread' if same.on_threads else 'an executor process'} for each environment, "
        f"steps that sleep {bench.mean_seconds * 1000:g} ms "
        f"on average, A2C. Median (lowest to highest) of {bench.repetitions} seeds. The soft limit is that of htsrl's "
        "own barrier, by simulation; it lies above Claim 1's."
        + (" Per environment is relative to the first row." if figure.setting == "num_envs" else "")
    )
