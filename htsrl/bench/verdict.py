"""What many runs of one task say about the ways in which it was learned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from htsrl.bench.bootstrap import Difference, bootstrap_difference
from htsrl.bench.learned import Learned
from htsrl.bench.tasks import Task

OURS = "hts"


@dataclass(frozen=True)
class Comparison:
    """One quantity, by way."""

    means: Mapping[str, float]
    differences: Mapping[str, Difference]
    """hts less each other way; none for a single seed, which has no noise."""

    @classmethod
    def of(cls, values: Mapping[str, Sequence[float]]) -> Comparison:
        ours = values.get(OURS, [])
        return cls(
            means={way: float(np.mean(of_way)) for way, of_way in values.items()},
            differences={
                way: bootstrap_difference(ours, theirs)
                for way, theirs in values.items()
                if way != OURS and len(ours) > 1 and len(theirs) > 1
            },
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
    reached: Mapping[str, int]
    """Seeds that reached the goal, by way."""
    over_run: Comparison
    """Of the mean return over the run."""
    scores: Comparison
    """Of the final policies."""

    @classmethod
    def of(cls, task: Task, learned: Sequence[Learned]) -> Verdict:
        runs = {way: [run for run in learned if run.way == way] for way in ways_of(learned)}
        return cls(
            goal=task.goal,
            reached={way: sum(run.score >= task.goal for run in of_way) for way, of_way in runs.items()},
            over_run=Comparison.of({way: [run.mean_over_run for run in of_way] for way, of_way in runs.items()}),
            scores=Comparison.of({way: [run.score for run in of_way] for way, of_way in runs.items()}),
        )

    def document(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self) -> list[str]:
        return [*self.over_run.sentences("Mean return over the run"), *self.scores.sentences("Score")]


def ways_of(learned: Sequence[Learned]) -> list[str]:
    return list(dict.fromkeys(run.way for run in learned))


def _sentence(way: str, difference: Difference) -> str:
    where = "within" if difference.within_noise else "outside"
    return (
        f"{OURS} less {way} is {difference.mean:+.4g}, 95 % interval {difference.low:+.4g} to {difference.high:+.4g} "
        f"(bootstrap over seeds): {where} noise."
    )
