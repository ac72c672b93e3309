"""The picture of `htsrl bench variance`: measurements as dots, formulas as lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from htsrl.envs.check.claims import expected_lag
from htsrl_bench.plots import QUIET_COLOUR, SCHEDULE_COLOURS, empty_figure, finish, save
from htsrl_bench.simulations import simulate_lag

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from htsrl_bench.variance import Figure, Row, VarianceBench

HTS, LOCKSTEP = SCHEDULE_COLOURS["hts"], SCHEDULE_COLOURS["lockstep"]
MAX_LOAD = 0.9
SIMULATED_ACTORS = 16
SIMULATED_UPDATES = 20_000
LOG_SETTINGS = ("sync_interval", "num_envs", "num_actors")


def draw_variance(
    bench: VarianceBench, by_figure: Mapping[str, Sequence[Row]], summary: Mapping[str, Any], picture: Path
) -> None:
    headline = summary["headline"]
    num_plots = len(bench.figures) + 1 + (headline is not None)
    drawing, all_axes = empty_figure(columns=2, rows=-(-num_plots // 2), width=11, height=3.6 * -(-num_plots // 2))
    for figure, axes in zip(bench.figures, all_axes, strict=False):
        _draw_figure(axes, figure, by_figure[figure.name])
    rest = all_axes[len(bench.figures) :]
    if headline:
        _draw_headline(rest.pop(0), headline)
    _draw_lag(rest.pop(0), summary["lag"])
    for axes in rest:
        axes.remove()
    save(drawing, picture)


def _draw_figure(axes: Axes, figure: Figure, rows: Sequence[Row]) -> None:
    values = [row.value for row in rows]
    if figure.name == "variance":
        axes.plot(
            values, _present(row.claimed_ratio for row in rows), color=QUIET_COLOUR, linestyle="--", label="Claim 1"
        )
        axes.plot(values, _present(row.ratio for row in rows), "o-", color=HTS, label="measured")
        axes.set_ylim(bottom=0)
        finish(axes, figure.title, figure.label, "hts / lockstep")
        return
    axes.plot(values, [row.bound for row in rows], color=HTS, linestyle="--", label="Claim 1")
    axes.plot(values, [row.soft_limit for row in rows], color=HTS, linestyle=":", label="soft limit, simulated")
    axes.plot(values, [row.hts.median for row in rows], "o-", color=HTS, label="hts")
    if figure.has_lockstep:
        bounds = _present(row.lockstep_bound for row in rows)
        axes.plot(values, bounds, color=LOCKSTEP, linestyle="--", label="Claim 1, a barrier at every step")
        axes.plot(values, [row.lockstep.median for row in rows if row.lockstep], "o-", color=LOCKSTEP, label="lockstep")
    if figure.setting in LOG_SETTINGS:
        axes.set_xscale("log", base=2)
        axes.set_xticks(values, [f"{value:g}" for value in values])
    if figure.setting == "num_envs":
        axes.set_yscale("log", base=2)
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    else:
        axes.set_ylim(bottom=0)
    finish(axes, figure.title, figure.label, "steps/s")


def _draw_headline(axes: Axes, headline: Mapping[str, Any]) -> None:
    names = ("lockstep", "hts")
    medians = [headline[name]["median"] for name in names]
    axes.barh(names, medians, color=[SCHEDULE_COLOURS[name] for name in names], height=0.6)
    for place, median in enumerate(medians):
        axes.text(median, place, f" {median:,.0f} steps/s", va="center", fontsize=9)
    axes.set_xlim(0, 1.3 * max(medians))
    axes.grid(visible=False, axis="y")
    ratio = headline["ratio"]["median"]
    title = f"Learning as long as rolling out: {ratio:.1f}x"
    finish(axes, title, "steps/s", "")


def _draw_lag(axes: Axes, measured: Sequence[Mapping[str, Any]]) -> None:
    loads = np.linspace(0.0, MAX_LOAD, 100)
    axes.plot(loads, [expected_lag(1, load) for load in loads], color=QUIET_COLOUR, linestyle="--", label="Claim 2")
    seen = np.linspace(0.1, MAX_LOAD, 9)
    lags = [simulate_lag(SIMULATED_ACTORS, load / SIMULATED_ACTORS, SIMULATED_UPDATES) for load in seen]
    axes.plot(seen, lags, "+", color=QUIET_COLOUR, label="its queue, simulated")
    if measured:
        found = [row["lag"]["median"] for row in measured]
        axes.plot([row["load"] for row in measured], found, "o-", color=SCHEDULE_COLOURS["async"], label="async")
    axes.axhline(1, color=HTS, label="hts")
    finish(axes, "How many updates old the data are", "load of the learner: n rho", "lag")


def _present(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
