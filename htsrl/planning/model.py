"""How fast a placement is: the slowest of three things, and who waits for whom at the barrier.

Per step of one environment, executors take what they take over the number of them, the learner what it takes with its
gradient shared out, and all together no less than all CPU time over all cores: the roofline. Under hts the first two
happen at once, else in turn. To that comes the barrier: under sync everybody waits for the slowest, as in Claim 1,
under hts only who is a whole interval ahead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

from htsrl.config import MAX_ENVS_ON_THREADS, MAX_THREADS, Experiment
from htsrl.envs.check.claims import Barrier, StepTime, slowest_interval_seconds
from htsrl.planning.measure import StepCosts
from htsrl.planning.soft_barrier import soft_interval_seconds

Bottleneck = Literal["environments", "learning", "cores"]
MAX_CV = 10.0
"""Beyond it, what was measured was a stray moment of the machine."""


@dataclass(frozen=True)
class Layout:
    """The part of a placement that decides about speed."""

    executors: int
    learner_workers: int = 1
    on_threads: bool = False

    @property
    def flags(self) -> str:
        threads = f"--executor-threads True --num-executors {self.executors}"
        plain = f"--num-executors {self.executors} --num-actors 0 --executor-threads False"
        return f"{threads if self.on_threads else plain} --learner-workers {self.learner_workers}"


@dataclass(frozen=True)
class Prediction:
    """What a layout would come to."""

    layout: Layout
    steps_per_second: float
    bottleneck: Bottleneck
    collecting_seconds: float
    """For one step, of all environments together."""
    learning_seconds: float
    cores_seconds: float


def predict(experiment: Experiment, costs: StepCosts, layout: Layout, cores: int) -> Prediction:
    batch = max(experiment.num_simulators // layout.executors, 1)
    cpu = costs.collecting_at(experiment.num_simulators if layout.on_threads else batch)
    waiting = costs.simulator_wall - costs.simulator if costs.waits else 0.0
    collecting = _collecting_seconds(experiment, costs, layout, cpu, waiting)
    learning = costs.learning - costs.gradient + costs.gradient / layout.learner_workers
    cores_seconds = (cpu + costs.learning) / cores
    if experiment.overlaps_learning:
        terms: dict[Bottleneck, float] = {"environments": collecting, "learning": learning, "cores": cores_seconds}
        seconds = max(terms.values())
    else:
        terms = {"environments": collecting, "learning": learning, "cores": cores_seconds}
        seconds = max(max(collecting, cpu / cores) + learning, cores_seconds)
    bottleneck = max(terms, key=lambda name: terms[name])
    return Prediction(layout, 1 / seconds, bottleneck, collecting, learning, cores_seconds)


def _collecting_seconds(experiment: Experiment, costs: StepCosts, layout: Layout, cpu: float, waiting: float) -> float:
    """With a core for every executor, for a step of all environments together, with what is waited at the barrier."""
    envs, alpha, cv = experiment.envs_per_simulator, experiment.interval_steps, min(costs.simulator_cv, MAX_CV)
    call = (cpu + waiting) * envs  # of one simulator, with its share of the rest
    share = costs.simulator_wall * envs / max(call, 1e-12)
    if layout.on_threads:
        barrier, each = Barrier(experiment.num_simulators, alpha), 1
    else:
        each = -(-experiment.num_simulators // layout.executors)
        barrier = Barrier(layout.executors, alpha * each)
    # Of the time of a call only the simulator's part varies.
    seconds_of = soft_interval_seconds if experiment.overlaps_learning else slowest_interval_seconds
    interval = seconds_of(barrier, StepTime(max(call, 1e-12), cv * min(share, 1.0)))
    return interval / (alpha * experiment.num_envs)


def layouts(experiment: Experiment, costs: StepCosts, cores: int) -> Iterator[Layout]:
    """Those that could be the best."""
    num, workers = experiment.num_simulators, range(1, min(experiment.gradient_shards, cores) + 1)
    if costs.waits and experiment.lanes is None and num <= MAX_ENVS_ON_THREADS:
        yield from (Layout(-(-num // MAX_THREADS), count, on_threads=True) for count in workers)
    executors = {count for count in (*range(1, cores + 1), num if costs.waits and num <= 64 else 1) if count <= num}
    yield from (Layout(count, learners) for count in sorted(executors) for learners in workers)


def best(experiment: Experiment, costs: StepCosts, cores: int) -> list[Prediction]:
    """All predictions, the fastest first; of equals, the one with the fewest processes."""
    found = [predict(experiment, costs, layout, cores) for layout in layouts(experiment, costs, cores)]
    order = {"environments": 0, "learning": 1, "cores": 2}
    return sorted(
        found,
        key=lambda of: (
            -round(of.steps_per_second, 3),
            of.layout.executors + of.layout.learner_workers,
            order[of.bottleneck],
        ),
    )


@dataclass(frozen=True)
class Change:
    """What would help, and how much."""

    what: str
    gain: float
    """Share of the speed that it adds."""
    changes_experiment: bool


def changes(experiment: Experiment, costs: StepCosts, cores: int, smallest_gain: float = 0.05) -> list[Change]:
    """What would make it faster by more than a little, the most first."""
    now = best(experiment, costs, cores)[0].steps_per_second
    alpha, learner = experiment.interval_steps, replace(costs, learning=costs.learning / 2, gradient=costs.gradient / 2)
    tried = [
        (Change("2 more cores", 0, False), best(experiment, costs, cores + 2)),
        (Change(f"--sync-interval {4 * alpha} instead of {alpha}", 0, True), _with_interval(experiment, costs, cores)),
        (Change("half the learning (fewer --epochs)", 0, True), best(experiment, learner, cores)),
    ]
    if experiment.gradient_shards < cores:
        shards = replace(experiment, gradient_shards=cores)
        tried.append((Change(f"--gradient-shards {cores}", 0, True), best(shards, costs, cores)))
    if experiment.lanes is None:
        more = replace(experiment, num_envs=2 * experiment.num_envs)
        tried.append((Change(f"--num-envs {more.num_envs}", 0, True), best(more, costs, cores)))
    gains = [replace(change, gain=found[0].steps_per_second / now - 1) for change, found in tried]
    return sorted((change for change in gains if change.gain >= smallest_gain), key=lambda change: -change.gain)


def _with_interval(experiment: Experiment, costs: StepCosts, cores: int) -> list[Prediction]:
    return best(replace(experiment, sync_interval=4 * experiment.interval_steps), costs, cores)
