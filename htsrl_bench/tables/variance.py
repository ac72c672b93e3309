"""`htsrl bench variance`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from htsrl.errors import ConfigError
from htsrl_bench import variance
from htsrl_bench.command_line import bench_command
from htsrl_bench.headline import measure_headline
from htsrl_bench.lag import LAG_POINTS, lag_rows
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, publish
from htsrl_bench.variance_plots import draw_variance

FIGURES = {figure.name: figure for figure in variance.FIGURES}


@dataclass(frozen=True)
class VarianceTable:
    """The paper's figures with environments that sleep, its headline, and the claims beside them."""

    figures: tuple[str, ...] = tuple(FIGURES)
    """Which figures."""
    seconds_per_run: float = 4.0
    """About how long each run is measured."""
    repetitions: int = 1
    """Runs of each point, with seeds 1, 2 ...; the points take turns."""
    headline_repetitions: int = 3
    """Pairs of runs for the headline; 0 leaves it out."""
    lag: bool = True
    """Also measure the lag of asynchronous runs, for Claim 2."""
    mean_seconds: float = 0.005
    """How long a step sleeps on average."""
    output: Path = Path("benchmarks")
    """Folder for the record and its picture."""

    def run(self) -> int:
        unknown = [name for name in self.figures if name not in FIGURES]
        if unknown:
            raise ConfigError(f"figure {unknown[0]!r} is not known; choose among {', '.join(FIGURES)}")
        bench = variance.VarianceBench(
            tuple(FIGURES[name] for name in self.figures),
            self.mean_seconds,
            self.seconds_per_run,
            self.repetitions,
            self.headline_repetitions,
        )
        provenance = Provenance.take()
        headline = measure_headline(self.mean_seconds, self.seconds_per_run, self.headline_repetitions)
        measured = variance.measure(bench)
        by_figure = {figure.name: variance.rows(bench, figure, measured) for figure in bench.figures}
        asynchronous = variance.measure_points(bench, LAG_POINTS) if self.lag else []
        lags = lag_rows(asynchronous)
        summary = variance.summary(bench, by_figure, headline, lags)
        record = Record(
            name="variance" if self.figures or self.lag else "variance-headline",
            command=bench_command("variance", self),
            provenance=provenance,
            configs=bench.configs(headline, LAG_POINTS if self.lag else ()),
            repetitions=variance.repetitions([*(headline.measured if headline else []), *measured, *asynchronous]),
            summary=summary,
            tables=variance.tables(bench, by_figure, headline, lags),
        )
        publish(record, self.output, lambda picture: draw_variance(bench, by_figure, summary, picture))
        return 0
