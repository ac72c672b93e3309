"""The paper's headline: HTS against the synchronous baseline, where learning takes as long as rolling out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from htsrl.envs.check.claims import Barrier, StepTime, slowest_interval_seconds
from htsrl_bench.announcer import Announcer
from htsrl_bench.points import Measured, Point, Run, lockstep, run_point
from htsrl_bench.record import Summary, Table

HEADLINE = Point(num_envs=32, sync_interval=128, epochs=4)
"""With as many epochs as calibration starts from."""
HEADLINE_GOAL = 3.5
CALIBRATION_SEED = 0


@dataclass(frozen=True)
class Headline:
    """HTS against the synchronous baseline where learning takes as long as rolling out."""

    point: Point
    """With the epochs that calibration found."""
    rollout_seconds: float
    """Claim 1's, of one interval of HTS."""
    measured: Sequence[Measured]

    def of(self, point: Point) -> list[Measured]:
        return [run for run in self.measured if run.point == point]

    def ratios(self) -> list[float]:
        sides = zip(self.of(self.point), self.of(lockstep(self.point)), strict=True)
        return [ours.steps_per_second / theirs.steps_per_second for ours, theirs in sides]

    def learning_seconds(self) -> float:
        """Of the baseline, whose learner has the machine for itself."""
        return Summary.of([run.learning_seconds or 0.0 for run in self.of(lockstep(self.point))]).median

    def claimed_ratio(self, mean_seconds: float) -> float:
        """Of the baseline's time for an interval, a barrier at every step and then learning, to that of HTS."""
        steps = self.point.num_envs * self.point.sync_interval
        in_turn = steps / lockstep(self.point).bound(mean_seconds) + self.learning_seconds()
        return in_turn / max(self.rollout_seconds, self.learning_seconds())

    def document(self, mean_seconds: float) -> dict[str, Any]:
        sides = {"hts": self.point, "lockstep": lockstep(self.point)}
        return {
            **{
                name: asdict(Summary.of([run.steps_per_second for run in self.of(point)]))
                for name, point in sides.items()
            },
            "ratio": asdict(Summary.of(self.ratios())),
            "claimed_ratio": self.claimed_ratio(mean_seconds),
            "goal": HEADLINE_GOAL,
            "epochs": self.point.epochs,
            "learning_seconds": self.learning_seconds(),
            "rollout_seconds": self.rollout_seconds,
        }


def measure_headline(
    mean_seconds: float, seconds_per_run: float, repetitions: int, run: Run = run_point
) -> Headline | None:
    """Calibrate the learner by a short run, then both sides in turn."""
    if not repetitions:
        return None
    announcer, measured = Announcer(1 + 2 * repetitions), []
    rollout_seconds = slowest_interval_seconds(
        Barrier(HEADLINE.num_envs, HEADLINE.sync_interval), StepTime(mean_seconds, HEADLINE.cv)
    )
    announcer.begin(f"calibration: {lockstep(HEADLINE).name}")
    trial = run(lockstep(HEADLINE), mean_seconds, seconds_per_run, CALIBRATION_SEED)
    assert trial.learning_seconds is not None
    point = replace(HEADLINE, epochs=max(1, round(HEADLINE.epochs * rollout_seconds / trial.learning_seconds)))
    announcer.end(f"{point.epochs} epochs would take as long as rolling out")
    for seed in range(1, repetitions + 1):
        for side in (point, lockstep(point)):
            announcer.begin(f"headline: {side.name}, seed {seed}")
            measured.append(run(side, mean_seconds, seconds_per_run, seed))
            announcer.end(f"{measured[-1].steps_per_second:,.0f} steps/s")
    return Headline(point, rollout_seconds, measured)


def headline_table(headline: Headline, mean_seconds: float) -> Table:
    of = headline.document(mean_seconds)
    ratio = of["ratio"]
    return Table(
        ["hts steps/s", "lockstep steps/s", "ratio", "Claim 1's ratio", "goal", "learning", "rolling out"],
        [
            [
                str(Summary(**of["hts"])),
                str(Summary(**of["lockstep"])),
                f"{ratio['median']:.2f} ({ratio['lowest']:.2f} to {ratio['highest']:.2f})",
                f"{of['claimed_ratio']:.2f}",
                f"{HEADLINE_GOAL:g} {'met' if ratio['median'] >= HEADLINE_GOAL else 'missed'}",
                f"{of['learning_seconds']:.2f} s",
                f"{of['rollout_seconds']:.2f} s",
            ]
        ],
        [
            f"The paper's headline: {headline.point.num_envs} environments, alpha {headline.point.sync_interval}, "
            f"steps that sleep Exp({mean_seconds * 1000:g} ms) on a thread each, and learning as long as rolling out, "
            "against a barrier at every step with the learner in turn. Learning is PPO with "
            f"{headline.point.epochs} epochs, a number "
            "that a short run beforehand found to take as long as Claim 1 says that an interval takes; the seconds of "
            "learning are those of an update in the runs with a barrier at every step, whose learner has the machine "
            "for itself. Median (lowest to highest); ratios of "
            "runs with the same seed, one after the other.",
        ],
    )
