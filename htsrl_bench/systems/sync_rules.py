"""The sync rules in their papers' own setting, in small: a classifier of digits, trained by four replicas.

Beside QSR, SelSync and Sync-Switch stand controls at the same budget: as many rounds at equal distances, and as many
after updates that were drawn.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tyro

from htsrl.config.command_line import flags
from htsrl.errors import ConfigError
from htsrl.learners.fixed import Fixed
from htsrl.learners.qsr import Qsr
from htsrl.learners.rule import RuleFacts, SyncRule
from htsrl.learners.selsync import SelSync
from htsrl.learners.sync_switch import SyncSwitch
from htsrl.statistics.intervals import Interval, mean_interval
from htsrl_bench.announcer import Announcer
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, Table, publish
from htsrl_bench.systems.digits import Trained, Training, train_classifier
from htsrl_bench.systems.planned_rounds import PlannedRounds, controls_of

EVERY_UPDATE = "every update"
RULES: Mapping[str, tuple[Any, Any]] = {
    EVERY_UPDATE: (Fixed, Fixed.Settings(local_updates=1)),
    "fixed, H = 4": (Fixed, Fixed.Settings(local_updates=4)),
    "fixed, H = 16": (Fixed, Fixed.Settings(local_updates=16)),
    "fixed, H = 64": (Fixed, Fixed.Settings(local_updates=64)),
    "qsr, base 4": (Qsr, Qsr.Settings(base_updates=4)),
    "selsync, delta 0.3": (SelSync, SelSync.Settings()),
    "selsync, delta 0.05": (SelSync, SelSync.Settings(delta=0.05)),
    "sync_switch": (SyncSwitch, SyncSwitch.Settings()),
    "sync_switch, learning rate kept": (SyncSwitch, SyncSwitch.Settings(learning_rate_factor=1.0)),
    "never, but at the end": (Fixed, Fixed.Settings(local_updates=1_000_000)),
}
CONTROLLED = ("qsr, base 4", "selsync, delta 0.3", "selsync, delta 0.05")
"""Those whose number of rounds follows from what they see."""


@dataclass(frozen=True)
class Result:
    """One training."""

    way: str
    seed: int
    accuracy: float
    rounds: int
    bytes: int


@dataclass(frozen=True)
class SyncRulesExperiment:
    """Test accuracy and communication of a classifier of digits under each sync rule, with controls."""

    seeds: int = 10
    """Trainings with each rule, the same seeds for all."""
    learners: int = 4
    """Replicas."""
    num_updates: int = 600
    """Of each replica."""
    learning_rate: float = 0.2
    """At the start; it falls as a cosine to 0."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        if self.seeds < 2:
            raise ConfigError(f"seeds={self.seeds} shows no spread; use 2 or more")
        provenance, announcer, results = Provenance.take(), Announcer(self.seeds), list[Result]()
        for seed in range(1, self.seeds + 1):
            announcer.begin(f"seed {seed}")
            results += self._results(seed)
            announcer.end(f"{np.mean([result.accuracy for result in results if result.seed == seed]):.1%} on average")
        publish(self._record(provenance, results), self.output)
        return 0

    @property
    def training(self) -> Training:
        return Training(self.learners, self.num_updates, learning_rate=self.learning_rate)

    def _results(self, seed: int) -> list[Result]:
        facts, results = RuleFacts(self.learners, self.num_updates), list[Result]()

        def train(way: str, rule: SyncRule) -> Trained:
            trained = train_classifier(self.training, rule, seed)
            results.append(Result(way, seed, *trained))
            return trained

        for way, (rule, settings) in RULES.items():
            trained = train(way, rule(settings, facts))
            if way in CONTROLLED:
                for control, planned in controls_of(way, trained.rounds, seed).items():
                    train(control, PlannedRounds(planned, facts))
        return results

    def _record(self, provenance: Provenance, results: Sequence[Result]) -> Record:
        ways = list(dict.fromkeys(result.way for result in results))
        less = {way: _less_every_update(results, way) for way in ways}
        summary = {way: asdict(interval) for way, interval in less.items()}
        words = ["python", "-m", "htsrl_bench.systems.sync_rules"]
        words += flags(self, SyncRulesExperiment(), leave_out=("output",))
        return Record(
            name="sync-rules",
            command=shlex.join(words),
            provenance=provenance,
            configs={},
            repetitions=[asdict(result) for result in results],
            summary={"accuracy_less_every_update": summary},
            tables=[self._table(results, ways, less)],
        )

    def _table(self, results: Sequence[Result], ways: Sequence[str], less: Mapping[str, Interval]) -> Table:
        rows = []
        for way in ways:
            own = [result for result in results if result.way == way]
            accuracy, rounds = np.mean([r.accuracy for r in own]), np.mean([r.rounds for r in own])
            kilobytes, difference = np.mean([r.bytes for r in own]) / 1000, less[way]
            shown = f"{difference.mean:+.2%} ({difference.low:+.2%} to {difference.high:+.2%})"
            shown = "-" if way == EVERY_UPDATE else shown
            rows.append([way, f"{rounds:.1f}", f"{kilobytes:,.0f}", f"{accuracy:.2%}", shown])
        headings = ["rule", "rounds", "kB sent", "test accuracy", "less that of every update"]
        training = self.training
        note = (
            f"Scikit-learn's digits, 1,347 images to train on in equal shares of {self.learners} replicas and 450 to "
            f"test on, both drawn by the seed; a perceptron with {training.hidden} hidden units; {self.num_updates} "
            f"updates of {training.batch} images at each replica, momentum {training.momentum}, learning rate "
            f"{self.learning_rate:g} falling as a cosine to 0. Means over {self.seeds} seeds; differences with their "
            "95 % intervals (Student's t over paired seeds). All end with a round."
        )
        return Table(headings, rows, [note])


def _less_every_update(results: Sequence[Result], way: str) -> Interval:
    accuracies = {(result.way, result.seed): result.accuracy for result in results}
    seeds = sorted({result.seed for result in results})
    interval = mean_interval([accuracies[way, seed] - accuracies[EVERY_UPDATE, seed] for seed in seeds])
    assert interval is not None, "there are two seeds or more"
    return interval


if __name__ == "__main__":
    sys.exit(tyro.cli(SyncRulesExperiment).run())
