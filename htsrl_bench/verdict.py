"""What many runs of one task say about the ways in which it was learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from htsrl.statistics.intervals import Interval, paired_interval
from htsrl_bench.learned import Learned

OURS = "hts"


@dataclass(frozen=True)
class Comparison:
    """One quantity, by way."""

    means: Mapping[str, float]
    differences: Mapping[str, Interval]
    """hts less each other way, seed by seed; none for a single seed, which shows no spread."""

    @classmethod
    def of(cls, values: Mapping[str, Mapping[int, float]]) -> Comparison:
        """`values` by way, then by seed."""
        ours = values.get(OURS, {})
        intervals = {way: paired_interval(ours, theirs) for way, theirs in values.items() if way != OURS}
        return cls(
            means={way: float(np.mean(list(by_seed.values()))) for way, by_seed in values.items()},
            differences={way: interval for way, interval in intervals.items() if interval is not None},
        )

    def sentences(self, what: str) -> list[str]:
        means = f"{what}: {', '.join(f'{way} {mean:.4g}' for way, mean in self.means.items())}"
        if not self.differences:
            return [f"{means}; one seed says nothing about noise."]
        return [f"{means}.", *(_sentence(way, difference) for way, difference in self.differences.items())]


@dataclass(frozen=True)
class Verdict:
    """The ways side by side, over all seeds."""

    goal: float
    num_seeds: int
    reached: Mapping[str, int]
    """Seeds that reached the goal, by way."""
    over_run: Comparison
    """Of the mean return over the run."""
    scores: Comparison
    """Of the final policies."""

    @classmethod
    def of(cls, goal: float, learned: Sequence[Learned]) -> Verdict:
        runs = {way: [run for run in learned if run.way == way] for way in ways_of(learned)}
        return cls(
            goal=goal,
            num_seeds=len({run.seed for run in learned}),
            reached={way: sum(run.score >= goal for run in of_way) for way, of_way in runs.items()},
            over_run=Comparison.of({way: {run.seed: run.mean_over_run for run in own} for way, own in runs.items()}),
            scores=Comparison.of({way: {run.seed: run.score for run in own} for way, own in runs.items()}),
        )

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self) -> list[str]:
        return [*self.over_run.sentences("Mean return over the run"), *self.scores.sentences("Score")]


def ways_of(learned: Sequence[Learned]) -> list[str]:
    return list(dict.fromkeys(run.way for run in learned))


def _sentence(way: str, difference: Interval) -> str:
    if difference.is_constant:
        return f"{OURS} less {way} is {difference.mean:+.4g} on each of {difference.num_seeds} seeds."
    verdict = (
        "no difference shown" if difference.has_zero else f"{OURS} is {'higher' if difference.low > 0 else 'lower'}"
    )
    return (
        f"{OURS} less {way} is {difference.mean:+.4g}, 95 % interval {difference.low:+.4g} to {difference.high:+.4g} "
        f"(Student's t over {difference.num_seeds} paired seeds): {verdict}."
    )
