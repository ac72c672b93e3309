"""So many processes at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Generic, Protocol, TypeVar

from htsrl.config import Config, Placement, available_cores
from htsrl.errors import ConfigError
from htsrl.sweeps.job import JobEnd, JobProcess, TrainJob

POLL_SECONDS = 0.05
Key = TypeVar("Key", bound=Hashable)


class Running(Protocol):
    """A job under way."""

    def has_ended(self) -> bool: ...

    def terminate(self) -> None: ...

    def end(self) -> JobEnd: ...


Launch = Callable[[TrainJob], Running]


@dataclass(frozen=True)
class Budget:
    """How many runs at a time, on how many cores together."""

    parallel: int
    cores: int

    @classmethod
    def of(cls, num_runs: int, parallel: int | None, cores: int | None) -> Budget:
        """By default a run per core, or more cores for each where there are fewer runs."""
        for name, value in (("parallel", parallel), ("cores", cores)):
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} must be at least 1")
        cores = cores or available_cores()
        return cls(min(parallel or cores, num_runs), cores)

    def placed(self, config: Config, is_given: bool = False) -> Config:
        """With this share of the cores; a placement that the user gives is left alone."""
        share = max(self.cores // self.parallel, 1)
        placement = config.placement
        if is_given or placement.num_executors is not None or placement.backend == "inline":
            return config
        if share == 1 and not placement.executor_threads and not placement.measure_costs:
            return replace(config, placement=replace(placement, backend="inline"))
        leave_a_core = config.experiment.overlaps_learning and share > 1
        executors = min(max(share - leave_a_core, 1), config.experiment.num_simulators)
        workers = min(config.experiment.gradient_shards, share) if placement.device.startswith("cpu") else None
        return replace(config, placement=_with(placement, executors, workers))


def _with(placement: Placement, executors: int, workers: int | None) -> Placement:
    return replace(placement, num_executors=executors, learner_workers=placement.learner_workers or workers)


class Pool(Generic[Key]):
    """Jobs under way, each under a key; those that are left when it closes are asked to end, and waited for."""

    def __init__(self, size: int, launch: Launch = JobProcess) -> None:
        self._size = size
        self._launch = launch
        self._running: dict[Key, Running] = {}

    @property
    def has_room(self) -> bool:
        return len(self._running) < self._size

    @property
    def is_empty(self) -> bool:
        return not self._running

    def __contains__(self, key: Key) -> bool:
        return key in self._running

    def start(self, key: Key, job: TrainJob) -> None:
        self._running[key] = self._launch(job)

    def terminate(self, key: Key) -> None:
        if key in self._running:
            self._running[key].terminate()

    def ended(self, wait_seconds: float) -> Iterator[tuple[Key, JobEnd]]:
        """Those that have ended; waits so long at most for the first."""
        deadline = time.monotonic() + wait_seconds
        while not any(running.has_ended() for running in self._running.values()) and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        for key in [key for key, running in self._running.items() if running.has_ended()]:
            yield key, self._running.pop(key).end()

    def __enter__(self) -> Pool[Key]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for running in self._running.values():
            running.terminate()
        for running in self._running.values():
            running.end()
