"""What a lag costs in learning: the same tasks with 0, 1, 2, 4 versions between acting and learning, seed by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.ppo import PPO
from htsrl.config import Experiment
from htsrl.config.presets import preset
from htsrl.statistics.intervals import Interval, mean_interval, paired_interval
from htsrl_bench.learned import Learned
from htsrl_bench.record import Table
from htsrl_bench.ways import in_way

# A quarter of the preset's optimizer steps, which are most of its time on one core.
HALFCHEETAH_PPO = replace(preset("HalfCheetah-v5", "ppo"), algorithm=PPO(num_minibatches=8, normalize_rewards=True))


@dataclass(frozen=True)
class LagTask:
    """Something to learn in so few steps that a lag shows."""

    name: str
    experiment: Experiment

    def with_seed(self, seed: int, way: str) -> Experiment:
        return in_way(replace(self.experiment, seed=seed), way)


_ALL = (
    LagTask("cartpole-ppo", Experiment("CartPole-v1", algorithm=PPO(), total_steps=49 * 2048)),
    LagTask("cartpole-a2c", Experiment("CartPole-v1", algorithm=A2C(), total_steps=100_000)),
    LagTask("halfcheetah-ppo", replace(HALFCHEETAH_PPO, total_steps=50 * 2048)),
    LagTask("halfcheetah-a2c", replace(preset("HalfCheetah-v5", "a2c"), total_steps=50 * 2048)),
)
LAG_TASKS: Mapping[str, LagTask] = {task.name: task for task in _ALL}


def way_of(lag: int) -> str:
    return f"lag-{lag}"


Quantity = Interval | float
"""With an interval over the seeds, unless there is a single one, which shows no spread."""


@dataclass(frozen=True)
class LagRow:
    """What came of one lag."""

    lag: int
    over_run: Quantity
    """Mean return over the run."""
    score: float
    """Mean over the seeds of what the final policies are worth."""
    over_run_less_first: Quantity | None
    """Less that of the first lag, seed by seed; None for that one itself."""
    score_less_first: Quantity | None


def lag_rows(lags: Sequence[int], learned: Sequence[Learned]) -> list[LagRow]:
    """In the order of `lags`; each is compared with the first of them."""
    over_run = {lag: {x.seed: x.mean_over_run for x in learned if x.way == way_of(lag)} for lag in lags}
    scores = {lag: {x.seed: x.score for x in learned if x.way == way_of(lag)} for lag in lags}
    return [
        LagRow(
            lag=lag,
            over_run=mean_interval(list(over_run[lag].values())) or _mean(over_run[lag]),
            score=_mean(scores[lag]),
            over_run_less_first=None if lag == lags[0] else _difference(over_run[lag], over_run[lags[0]]),
            score_less_first=None if lag == lags[0] else _difference(scores[lag], scores[lags[0]]),
        )
        for lag in lags
    ]


def _mean(by_seed: Mapping[int, float]) -> float:
    return sum(by_seed.values()) / len(by_seed)


def _difference(later: Mapping[int, float], first: Mapping[int, float]) -> Quantity:
    return paired_interval(later, first) or _mean(later) - _mean(first)


def summary(lags: Sequence[int], learned: Sequence[Learned]) -> dict[str, Any]:
    rows = lag_rows(lags, learned)
    return {"num_seeds": len({run.seed for run in learned}), "steps": learned[0].steps, "lags": [*map(asdict, rows)]}


def tables(lags: Sequence[int], learned: Sequence[Learned], episodes: int) -> list[Table]:
    first, num_seeds = lags[0], len({run.seed for run in learned})
    rows = [
        [
            f"{row.lag}",
            f"{row.over_run.mean if isinstance(row.over_run, Interval) else row.over_run:.4g}",
            shown(row.over_run_less_first),
            f"{row.score:.4g}",
            shown(row.score_less_first),
        ]
        for row in lag_rows(lags, learned)
    ]
    headings = ["lag", "mean over run", f"less lag {first}", "score", f"less lag {first}"]
    note = (
        f"{learned[0].steps:,} steps, {num_seeds} seed{'s' if num_seeds > 1 else ''}. Mean over run: of the mean "
        f"return of the last 100 training episodes. Score: mean return of {episodes} episodes of the final policy, "
        f"most likely actions. Differences: {_kind_of_difference(num_seeds)}. With a lag of K the first K + 1 "
        "rollouts are made by the initial policy."
    )
    commands = Table(
        ["way", "seed", "mean over run", "score", "command", "digest", "commit", "code"],
        [
            [
                run.way,
                f"{run.seed}",
                f"{run.mean_over_run:.4g}",
                f"{run.score:.4g}",
                f"`{run.command}`",
                *run.origin,
            ]
            for run in learned
        ],
    )
    return [Table(headings, rows, [note]), commands]


def _kind_of_difference(num_seeds: int) -> str:
    if num_seeds == 1:
        return "of one seed, which says nothing about noise"
    return "mean over paired seeds and its 95 % interval (Student's t); `*` where it leaves out 0"


def shown(difference: Quantity | None) -> str:
    if difference is None:
        return "-"
    if not isinstance(difference, Interval):
        return f"{difference:+.4g}"
    star = "" if difference.has_zero else " *"
    return f"{difference.mean:+.4g} ({difference.low:+.4g} to {difference.high:+.4g}){star}"
