"""Where the time went: shares of the workers' time, the slowest environment, and a sentence of advice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from htsrl.metrics.readings import counted
from htsrl.metrics.stragglers import are_stragglers, median
from htsrl.timeline.kinds import OVERHEAD, SHARES, Kind
from htsrl.timeline.read import Environment, Timeline, Worker

ALONE_SHARE = 0.5
"""One whose own steps fill so much of the time bounds the run by itself."""
GROUPS = {
    "executors": ("executor", "environment"),
    "actors": ("actor",),
    "gradient workers": ("gradient worker",),
    "learner": ("learner",),
    "inline": ("inline",),
}
Shares = Mapping[str, float]


@dataclass(frozen=True)
class Straggler:
    """The slowest environment beside the median of all."""

    environment: Environment
    factor: float
    median_seconds: float

    @property
    def stands_out(self) -> bool:
        return are_stragglers([self.factor])[0]

    def describe(self) -> str:
        slowest, name = self.environment, f"environment {self.environment.env}"
        who = name if slowest.worker == name else f"{name} of {slowest.worker}"
        return (
            f"{who}: {_time(slowest.mean_seconds)} a step with its share of "
            f"the resets, {self.factor:.1f} times the median of {_time(self.median_seconds)}; the longest step "
            f"{_time(slowest.max_seconds)}; the others waited for it at {counted(slowest.times_slowest, 'barrier')}"
        )


def shares_of(workers: Sequence[Worker]) -> Shares:
    """The parts of these workers' time; they sum to 1."""
    seconds = sum(worker.seconds for worker in workers)
    parts = {
        name: sum(worker.totals.get(kind, 0.0) for worker in workers for kind in kinds)
        for name, kinds in SHARES.items()
    }
    parts[OVERHEAD] = max(seconds - sum(parts.values()), 0.0)
    whole = max(sum(parts.values()), 1e-9)
    return {name: part / whole for name, part in parts.items()}


def groups_of(timeline: Timeline) -> dict[str, list[Worker]]:
    """Workers by what they are, as far as there are any."""
    groups = {name: [worker for worker in timeline.workers if worker.role in roles] for name, roles in GROUPS.items()}
    return {name: workers for name, workers in groups.items() if workers}


def straggler_of(timeline: Timeline) -> Straggler | None:
    """None where there are no two environments that were stepped."""
    stepped = [environment for environment in timeline.environments if environment.steps]
    if len(stepped) < 2:
        return None
    slowest = max(stepped, key=lambda environment: environment.mean_seconds)
    usual = median([environment.mean_seconds for environment in stepped])
    return Straggler(slowest, slowest.mean_seconds / max(usual, 1e-9), usual)


def summary_lines(timeline: Timeline) -> list[str]:
    """What `htsrl timeline` prints."""
    groups = groups_of(timeline)
    columns = {"all workers": list(timeline.workers), **(groups if len(groups) > 1 else {})}
    shares = {name: shares_of(workers) for name, workers in columns.items()}
    names = [*SHARES, OVERHEAD]
    width = max(map(len, names))
    lines = [f"{'where the time went':{width}}  " + "  ".join(f"{name:>11}" for name in shares)]
    for name in names:
        if any(of[name] >= 0.0005 for of in shares.values()):
            cells = (f"{of[name]:>{max(len(column), 11)}.1%}" for column, of in shares.items())
            lines.append(f"{name:{width}}  " + "  ".join(cells))
    if (straggler := straggler_of(timeline)) and straggler.stands_out and _steps_side_by_side(timeline):
        lines.append(f"slowest   {straggler.describe()}")
    if restarts := [event for event in timeline.events if event.what == "restart"]:
        last = restarts[-1]
        lines.append(f"restarts  {len(restarts)}, the last of {last.worker} at {last.time:.1f} s")
    return [*lines, f"advice    {advice(timeline)}"]


def advice(timeline: Timeline) -> str:
    """One sentence on what holds the run up most, from its numbers alone."""
    groups = groups_of(timeline)
    executors, learners = groups.get("executors", []), groups.get("learner", [])
    if not executors or not learners:
        return _inline_advice(timeline)
    of_executors, of_learner, straggler = shares_of(executors), shares_of(learners), straggler_of(timeline)
    for_slowest = max(of["waiting for the slowest environment"] for of in (of_executors, of_learner))
    if straggler and straggler.stands_out and for_slowest >= 0.1:
        return _straggler_advice(straggler, for_slowest, timeline)
    if (for_learner := of_executors["waiting for the learner"]) >= 0.25:
        return _learning_advice(for_learner, 1 + len(groups.get("gradient workers", [])), timeline.cores)
    if (for_answers := _share(executors, Kind.WAIT_ANSWERS)) >= 0.25:
        return (
            f"inference is the bottleneck: executors wait {for_answers:.0%} of their time for answers; --num-actors 0 "
            "lets them act for themselves, or take more actors"
        )
    for_environments = _share(learners, Kind.WAIT_ENVIRONMENTS, Kind.WAIT_SLOWEST)
    if for_environments >= 0.25:
        return _environments_advice(timeline, executors, for_environments)
    if (for_gradients := _share(learners, Kind.WAIT_GRADIENTS)) >= 0.25:
        return (
            f"the learner waits {for_gradients:.0%} of its time for gradient workers; with fewer --learner-workers "
            "than cores each has one to itself"
        )
    busy = sum(shares_of(timeline.workers)[name] for name in ("simulator", "inference", "learning"))
    return f"nothing stands out: {busy:.0%} of the workers' time goes into simulator, inference and learning"


def _learning_advice(waited: float, num_workers: int, cores: int) -> str:
    begin = f"learning is the bottleneck: executors wait {waited:.0%} of their time for the learner; "
    if num_workers >= cores:  # more of them would take turns
        return begin + "every core has a learner worker, so only less to do (fewer --epochs) or more cores help"
    return begin + (
        f"give it more processes (--learner-workers, up to the {cores} cores, and to --gradient-shards, which is part "
        "of the experiment), or less to do (fewer --epochs)"
    )


def _inline_advice(timeline: Timeline) -> str:
    shares = shares_of(timeline.workers)
    most = max(("simulator", "inference", "learning"), key=lambda name: shares[name])
    return (
        f"{most} takes most, {shares[most]:.0%}; all roles took turns in one process: with --placement processes "
        "environments are stepped while the learner works"
    )


def _steps_side_by_side(timeline: Timeline) -> bool:
    """Whether an environment can be waited for: stepped in turn by one process, none is."""
    return sum(worker.role in GROUPS["executors"] for worker in timeline.workers) > 1


def _straggler_advice(straggler: Straggler, waited: float, timeline: Timeline) -> str:
    slowest = straggler.environment
    num_intervals = sum(environment.times_slowest for environment in timeline.environments)
    elapsed = max((worker.seconds for worker in timeline.workers if worker.name == slowest.worker), default=0.0)
    if num_intervals and slowest.total_seconds >= ALONE_SHARE * elapsed > 0:
        steps_per_second = sum(environment.steps for environment in timeline.environments) / slowest.total_seconds
        return (
            f"environment {slowest.env} alone needs {_time(slowest.total_seconds / num_intervals)} of every interval, "
            f"{straggler.factor:.1f} times the median: at most {steps_per_second:,.0f} steps/s until it is faster, "
            "however many executors or threads there are"
        )
    env, alone = slowest.env, len(timeline.environments)
    way_out = f"--num-executors {alone} lets it delay nobody else's steps"
    if _steps_wait([worker for worker in timeline.workers if worker.name == slowest.worker]):
        way_out = "its steps wait for something, so --executor-threads True lets others step meanwhile"
    return (
        f"environment {env} is {straggler.factor:.1f} times slower than the median, and up to {waited:.0%} of a "
        f"worker's time is spent waiting for the slowest; see what it does, or {way_out}"
    )


def _environments_advice(timeline: Timeline, executors: Sequence[Worker], waited: float) -> str:
    begin = f"environments are the bottleneck: the learner waits {waited:.0%} of its time for rollouts; "
    processes = [worker for worker in executors if worker.role == "executor"]
    if processes and _steps_wait(processes):
        return begin + "their steps wait and hardly compute, so step them side by side with --executor-threads True"
    if processes and len(processes) < timeline.cores:
        executors_now = "one executor" if len(processes) == 1 else f"{len(processes)} executors"
        return begin + f"there are {timeline.cores} cores for {executors_now}, so try more --num-executors"
    return begin + "every core has an executor, so only faster steps or more cores help"


def _steps_wait(workers: Sequence[Worker]) -> bool:
    """Whether most of the time inside of steps is not this process's own computing."""
    inside = sum(worker.totals.get(kind, 0.0) for worker in workers for kind in (Kind.STEP, Kind.RESET))
    return inside > 0.1 * sum(worker.seconds for worker in workers) and (
        sum(worker.cpu_seconds for worker in workers) < 0.5 * inside
    )


def _share(workers: Sequence[Worker], *kinds: Kind) -> float:
    spent = sum(worker.totals.get(kind, 0.0) for worker in workers for kind in kinds)
    return spent / max(sum(worker.seconds for worker in workers), 1e-9)


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"
