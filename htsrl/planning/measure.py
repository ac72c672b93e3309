"""What an experiment's parts take on this machine: its own roles at work in this process, for a few seconds."""

from __future__ import annotations

import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from htsrl.config import Config, Experiment, Placement
from htsrl.config.check import check
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.envs.pace import COMPUTES_FROM, MIN_WAIT_SECONDS
from htsrl.numerics import OwnNumerics, single_threaded
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.survey import draw_blueprint
from htsrl.roles.executor import NO_BELLS
from htsrl.runs.folder import RunFolder
from htsrl.runs.start import initialise

DEFAULT_SECONDS = 6.0
INFERENCE_SECONDS = 0.15
MIN_UPDATES = 2
"""The first pays for what is made and found on the way; it is not counted."""


@dataclass(frozen=True)
class StepCosts:
    """Seconds for one step of one environment; of one core, but for what waits."""

    simulator: float
    simulator_wall: float
    """By the clock: more than the CPU time where steps wait."""
    simulator_cv: float
    """Standard deviation of a call's time over its mean: by the clock where it waits, else of CPU time."""
    inference: Mapping[int, float]
    """By how many simulators are answered at once."""
    collecting: float
    """All that executors and actors do for a step, simulator and inference included, all answered at once."""
    learning: float
    """All that the learner does for a step."""
    gradient: float
    """The part of learning that gradient workers can share."""
    waits: bool = False
    """Whether steps wait, for a clock, a server or another process, rather than compute."""

    def collecting_at(self, batch: int) -> float:
        """The same where so many simulators are answered at once."""
        most = max(self.inference)
        nearest = min(self.inference, key=lambda size: abs(np.log(size / max(batch, 1))))
        return self.collecting - self.inference[most] + self.inference[nearest]


@dataclass
class _Clock:
    """Adds up what calls take."""

    cpu: float = 0.0
    wall: float = 0.0
    calls: int = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        cpu, wall = time.process_time(), time.perf_counter()
        try:
            yield
        finally:
            self.cpu += time.process_time() - cpu
            self.wall += time.perf_counter() - wall
            self.calls += 1


def measure(experiment: Experiment, seconds: float = DEFAULT_SECONDS) -> StepCosts:
    """Let the experiment's own roles collect and learn, in turn, and time them."""
    long_enough = replace(experiment, total_steps=10**12)
    with tempfile.TemporaryDirectory() as folder, single_threaded():
        placement = Placement(backend="inline", run_dir=Path(folder) / "run", timeline=False, check_env=False)
        blueprint = draw_blueprint(check(Config(long_enough, replace(placement, num_executors=1))))
        block = SharedArrays(blueprint.block_specs())
        try:
            initialise(blueprint, block, RunFolder(Path(folder)))
            return _measure(blueprint, block, seconds)
        finally:
            block.close()


def _measure(blueprint: Blueprint, block: SharedArrays, seconds: float) -> StepCosts:
    shared, parameters = blueprint.shared(block), blueprint.build_parameters(block)
    executor = blueprint.build_executor(0, shared, NO_BELLS)
    actor = blueprint.build_actor(0, shared, block, lambda envs: None, parameters)
    learner = blueprint.build_learner(
        block, shared, parameters, lambda: None, lambda report: None, lambda version: None
    )
    collecting, simulating, inferring = _Clock(), _Clock(), _Clock()
    learning, gradients = _Clock(), _Clock()
    step_seconds: list[tuple[float, float]] = []  # of the CPU and by the clock
    has_seen_enough = _patience(simulating, seconds)
    for runner in executor.env_runners:
        _time(runner.agents, "step", simulating, step_seconds.append, has_seen_enough)
        _time(runner.agents, "reset", simulating)
    _time(actor.answers, "act", inferring)
    _time(learner.gradient.shards, "take", gradients)
    clocks = (collecting, simulating, inferring, learning, gradients)
    end, updates, naps = time.monotonic() + seconds, 0, 0
    try:
        with OwnNumerics():
            while updates < MIN_UPDATES or time.monotonic() < end:
                naps_before = _naps()
                with collecting.running():
                    while executor.advance() | actor.advance():
                        pass
                naps_of_rollout = _naps() - naps_before
                with learning.running():
                    has_learned = learner.advance()
                    assert has_learned, "a rollout was collected and there is nothing to learn from"
                updates += 1
                naps += 0 if updates == 1 else naps_of_rollout
                if updates == 1:
                    for clock in clocks:
                        clock.cpu = clock.wall = clock.calls = 0
                    step_seconds.clear()
            inferring_seconds = inferring.cpu
            inference = _inference_by_batch(blueprint, actor)
    finally:
        executor.close()
    experiment, steps = blueprint.experiment, (updates - 1) * blueprint.experiment.batch_steps
    # Of those that were not skipped.
    simulator = simulating.cpu / (len(step_seconds) * experiment.envs_per_simulator)
    waits = _waits(simulating, naps)
    cv = _cv([wall if waits else cpu for cpu, wall in step_seconds])
    scale = inferring_seconds / steps / max(inference[experiment.num_simulators], 1e-12)
    return StepCosts(
        simulator=simulator,
        simulator_wall=max(simulator * simulating.wall / max(simulating.cpu, 1e-12), simulator),
        simulator_cv=cv,
        # Beside everything else, inference takes longer than alone, whatever its batch.
        inference={batch: scale * of_batch for batch, of_batch in inference.items()},
        collecting=(collecting.cpu - simulating.cpu) / steps + simulator,
        learning=learning.cpu / steps,
        gradient=min(gradients.cpu, learning.cpu) / steps,
        waits=waits,
    )


def _waits(simulating: _Clock, naps: int) -> bool:
    """By the clock a step also takes long where others have the core; who waits lets go of it by itself."""
    is_long = simulating.wall >= MIN_WAIT_SECONDS * simulating.calls
    return is_long and simulating.cpu < COMPUTES_FROM * simulating.wall and naps >= simulating.calls / 2


def _patience(simulating: _Clock, seconds: float) -> Callable[[], bool]:
    """Whether steps have been waited for long enough: a thousand environments in turn would take an hour."""

    def has_seen_enough() -> bool:
        waits = simulating.wall >= MIN_WAIT_SECONDS * simulating.calls and simulating.cpu < simulating.wall / 2
        return waits and simulating.wall > seconds

    return has_seen_enough


def _naps() -> int:
    """How often this process has let go of its core by itself."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw


def _cv(numbers: list[float]) -> float:
    return statistics.pstdev(numbers) / max(statistics.fmean(numbers), 1e-12)


def _inference_by_batch(blueprint: Blueprint, actor: Any) -> dict[int, float]:
    """Seconds for a step, of answers to all simulators, half of them, a quarter and so on."""
    num, columns = blueprint.experiment.num_simulators, blueprint.trajectory.num_agents
    sizes = sorted({max(num >> halvings, 1) for halvings in range(num.bit_length())})
    found = {}
    for size in sizes:
        cells, clock = np.arange(size * columns), _Clock()
        shown, _ = blueprint.shape.lay_out(cells, cells)
        actor.answers.act(0, shown)
        end = time.monotonic() + INFERENCE_SECONDS / len(sizes)
        while not clock.calls or time.monotonic() < end:
            with clock.running():
                actor.answers.act(0, shown)
        found[size] = clock.cpu / clock.calls / (size * blueprint.experiment.envs_per_simulator)
    return found


def _time(
    subject: Any,
    method: str,
    clock: _Clock,
    tell: Callable[[tuple[float, float]], None] | None = None,
    has_seen_enough: Callable[[], bool] = lambda: False,
) -> None:
    """From now on, count what `subject.method(...)` takes; once enough was seen, its last result but an end of an
    episode stands for it."""
    call = getattr(subject, method)
    last: Any = None

    def timed(*arguments: Any, **named: Any) -> Any:
        nonlocal last
        if last is not None and has_seen_enough():
            return last
        before = clock.cpu, clock.wall
        with clock.running():
            result = call(*arguments, **named)
        if tell:
            tell((clock.cpu - before[0], clock.wall - before[1]))
        last = None if getattr(result, "over", True) else result
        return result

    setattr(subject, method, timed)
