"""What a replay buffer takes: memory, time to put and to draw, and what it adds to checkpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ParamSpec, TypeVar

import numpy as np
from gymnasium import spaces

from htsrl.checkpoint.files import Checkpoint, commit_checkpoint, prepare_checkpoint, read_checkpoint
from htsrl.checkpoint.rollouts import Rollouts, take_rollouts
from htsrl.dataflow.exchange import Exchange, control_arrays
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.trajectory import Stored, TrajectorySpec, final_observations, trajectory_spec
from htsrl.errors import ConfigError
from htsrl.sources.priorities import PriorityRule
from htsrl.sources.replay_buffer import Fields, ReplayBuffer, replay_arrays, rows_of
from htsrl.spaces import Interface
from htsrl_bench.record import Summary, Table

NUM_SEEN, NUM_DONE = 17, 6
"""HalfCheetah's numbers; those seen are of 64 bits."""
NUM_ENVS, NUM_STEPS = 4, 8
"""Of a rollout, as in the preset of SAC for MuJoCo."""
MINIBATCH_SIZE, DISCOUNT, N_STEPS = 256, 0.99, 3
PRIORITY_EXPONENT = 0.6
NEW_ROLLOUTS = 100
"""Between two checkpoints."""
UNITS: Mapping[str, str] = {
    "memory": "MB",
    "put a rollout": "ms",
    "minibatch": "ms",
    f"minibatch over {N_STEPS} steps": "ms",
    "minibatch by priority": "ms",
    "first checkpoint, at the barrier": "ms",
    "first checkpoint, in the background": "ms",
    "first checkpoint, on the disk": "MB",
    "next checkpoint, at the barrier": "ms",
    "next checkpoint, in the background": "ms",
    "next checkpoint, on the disk": "MB",
    "read for a resume": "ms",
}
Measured = Mapping[str, float]
P = ParamSpec("P")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ReplayBench:
    """How much is measured."""

    capacity: int
    repetitions: int
    minibatches: int
    """In each repetition, of each kind."""

    def __post_init__(self) -> None:
        if min(self.repetitions, self.minibatches) < 1 or self.capacity < NUM_ENVS * NUM_STEPS * NEW_ROLLOUTS:
            raise ConfigError(
                f"repetitions={self.repetitions} and minibatches={self.minibatches} must be at least 1, capacity="
                f"{self.capacity} at least {NUM_ENVS * NUM_STEPS * NEW_ROLLOUTS}"
            )

    @cached_property
    def spec(self) -> TrajectorySpec:
        seen = spaces.Box(-1, 1, (NUM_SEEN,), np.float64)
        interface = Interface(seen, spaces.Box(-1, 1, (NUM_DONE,), np.float32))
        return trajectory_spec(interface, NUM_STEPS, NUM_ENVS, Stored(own_fields=final_observations(interface)))

    @property
    def num_rollouts(self) -> int:
        return rows_of(self.spec, self.capacity) // NUM_STEPS

    def measure(self) -> list[Measured]:
        return [self._measure_once() for _ in range(self.repetitions)]

    def _measure_once(self) -> Measured:
        rule = PriorityRule(PRIORITY_EXPONENT, MINIBATCH_SIZE, self.minibatches)
        found: dict[str, float] = {}
        for priorities in (rule, None):  # the buffer that goes into checkpoints last
            arrays = replay_arrays(self.spec, self.capacity, priorities)
            block = SharedArrays([*control_arrays(1, 1), *arrays])
            try:
                buffer = ReplayBuffer(block, self.spec, self.capacity, priorities)
                rollout = rollout_of(self.spec)
                _, seconds = timed(self._fill, buffer, rollout)
                found["put a rollout"] = 1e3 * seconds / self.num_rollouts
                found["memory"] = sum(block[spec.name].nbytes for spec in arrays) / 1e6
                found |= self._draws(buffer)
                if priorities is None:
                    found |= self._checkpoints(block, buffer, rollout)
            finally:
                block.close()
        return {name: found[name] for name in UNITS}

    def _fill(self, buffer: ReplayBuffer, rollout: Fields) -> None:
        for update in range(self.num_rollouts):
            buffer.put(update, rollout)

    def _draws(self, buffer: ReplayBuffer) -> dict[str, float]:
        kinds = {"minibatch": 1, f"minibatch over {N_STEPS} steps": N_STEPS}
        if buffer.priorities is not None:
            kinds = {"minibatch by priority": 1}
        return {name: 1e3 * timed(self._draw, buffer, n)[1] / self.minibatches for name, n in kinds.items()}

    def _draw(self, buffer: ReplayBuffer, n: int) -> None:
        for step in range(self.minibatches):
            buffer.sample(1, self.num_rollouts - 1, step, MINIBATCH_SIZE, DISCOUNT, n)

    def _checkpoints(self, block: SharedArrays, buffer: ReplayBuffer, rollout: Fields) -> dict[str, float]:
        exchange = Exchange(block, num_steps=NUM_STEPS)
        with TemporaryDirectory(prefix="htsrl-bench-") as name:
            folder, version = Path(name), self.num_rollouts
            _, first = checkpoint(block, exchange, folder, version)
            for update in range(version, version + NEW_ROLLOUTS):
                buffer.put(update, rollout)
            path, after = checkpoint(block, exchange, folder, version + NEW_ROLLOUTS)
            _, reading = timed(read_checkpoint, path)
        both = {"first": first, "next": after}
        found = {f"{which} checkpoint, {part}": x for which, parts in both.items() for part, x in parts.items()}
        return {**found, "read for a resume": 1e3 * reading}


def checkpoint(block: SharedArrays, exchange: Exchange, folder: Path, version: int) -> tuple[Path, Measured]:
    """As a run writes one, with nothing but the buffer in it."""
    taken, at_barrier = timed(take_rollouts, block, exchange, folder, version)
    path, behind = timed(write, folder, version, taken)
    megabytes = new_bytes(path) / 1e6
    return path, {"at the barrier": 1e3 * at_barrier, "in the background": 1e3 * behind, "on the disk": megabytes}


def rollout_of(spec: TrajectorySpec) -> Fields:
    """Numbers of no meaning; an episode ends in a hundredth of the steps."""
    generator = np.random.default_rng(0)
    fields: dict[str, Any] = {}
    for field in spec.fields:
        shape = (spec.num_steps, spec.num_columns, *field.shape)
        values = generator.random(shape) < 0.01 if field.dtype == "bool" else generator.normal(size=shape)
        fields[field.name] = values.astype(field.dtype)
    return fields


def write(folder: Path, version: int, taken: Rollouts) -> Path:
    document = {"version": version, **taken.facts}
    return commit_checkpoint(prepare_checkpoint(folder, Checkpoint(document, {}, taken.new, taken.linked)))


def new_bytes(path: Path) -> int:
    """Of the files that only this checkpoint has."""
    return sum(stat.st_size for file in path.iterdir() if (stat := file.stat()).st_nlink == 1)


def timed(work: Callable[P, Result], *arguments: P.args, **named: P.kwargs) -> tuple[Result, float]:
    start = time.process_time()
    result = work(*arguments, **named)
    return result, time.process_time() - start


def summaries(measured: Sequence[Measured]) -> dict[str, Summary]:
    return {name: Summary.of([one[name] for one in measured]) for name in UNITS}


def table(bench: ReplayBench, measured: Sequence[Measured]) -> Table:
    rows = [
        [name, f"{of.median:,.3g} {UNITS[name]}", f"{of.lowest:,.3g} to {of.highest:,.3g}"]
        for name, of in summaries(measured).items()
    ]
    note = (
        f"{bench.num_rollouts * NUM_ENVS * NUM_STEPS:,} transitions of {NUM_SEEN} numbers seen, in 64 bits, and "
        f"{NUM_DONE} done, rollouts of {NUM_ENVS} environments x {NUM_STEPS} steps, minibatches of {MINIBATCH_SIZE} "
        f"({bench.minibatches} of each kind, priorities with an exponent of {PRIORITY_EXPONENT}; one look at all of "
        "them is shared by the minibatches of an update), "
        f"{NEW_ROLLOUTS * NUM_ENVS * NUM_STEPS:,} new transitions between the checkpoints. CPU time; median "
        f"and range of {len(measured)} repetitions in one process."
    )
    return Table(["", "median", "range"], rows, [note])
