"""How old the data of asynchronous training get: measured, beside what Claim 2 says of the same load."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from htsrl.envs.check.claims import expected_lag
from htsrl_bench.points import Measured, Point
from htsrl_bench.record import Summary, Table

QUEUE_LENGTH = 16
"""Long enough that what the queue holds is seen, and not its end."""
LAG_POINTS = tuple(
    Point(schedule="async", sync_interval=16, epochs=epochs, queue_length=QUEUE_LENGTH) for epochs in (1, 2, 4, 8, 16)
)
"""From a learner that mostly waits to one that cannot keep up, on most machines."""


@dataclass(frozen=True)
class LagRow:
    """What is known of one load."""

    epochs: int
    load: float
    """The share of the time that the learner does not wait: `n rho` of the claim."""
    lag: Summary
    """In updates."""
    claimed: float | None
    """Claim 2's; None where the learner cannot keep up, for then it has no bound."""


def lag_rows(measured: Sequence[Measured]) -> list[LagRow]:
    """In the order of their load."""
    rows = []
    for point in dict.fromkeys(run.point for run in measured):
        runs = [run for run in measured if run.point == point]
        load = Summary.of([run.load for run in runs if run.load is not None]).median
        claimed = expected_lag(1, load)
        lag = Summary.of([run.lag for run in runs if run.lag is not None])
        rows.append(LagRow(point.epochs, load, lag, claimed if math.isfinite(claimed) else None))
    return sorted(rows, key=lambda row: row.load)


def lag_table(rows: Sequence[LagRow]) -> Table:
    cells = [
        [
            f"{row.epochs}",
            f"{row.load:.2f}",
            f"{row.lag.median:.2f} ({row.lag.lowest:.2f} to {row.lag.highest:.2f})",
            "no bound" if row.claimed is None else f"{row.claimed:.2f}",
        ]
        for row in rows
    ]
    return Table(
        ["epochs", "load of the learner", "lag of async, in updates", "Claim 2"],
        cells,
        [
            f"Asynchronous PPO with {LAG_POINTS[0].num_envs} sleeping environments, rollouts of "
            f"{LAG_POINTS[0].sync_interval} steps and room for {QUEUE_LENGTH} of each; more epochs make the learner "
            "slower. The load is the share of the time that it does not wait. Claim 2 is about data that arrive at "
            "random times, one update for each, and counts from their arrival; here a batch is all environments' "
            "rollouts, which come more evenly, and the lag counts from every step, so that the time of a rollout is "
            "in it. Median (lowest to highest) of the runs of a point. Under hts the lag is 1, whatever the load.",
        ],
    )
