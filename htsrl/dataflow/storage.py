"""The storages: one is written by executors and actors while the learner reads the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.queue import Rollout
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.trajectory import TrajectorySpec

POISON_BYTE = 0xA5


class Storages:
    """The fields of all storages, as arrays `[storage, T, B, ...]`.

    Who writes what: of environment b, its executor writes the observations, noise, rewards, episode ends and who is
    active, and clears the bootstrap values (told to, it poisons all) when a rollout begins; its actor writes the
    versions, actions, log-probabilities, values and activations. The recurrent state before row t is written by the
    actor that answers row t-1, and by the executor where a rollout or an episode begins. To a complete rollout the
    learner adds the bootstrap value of what follows, log-probabilities and values where those are left to it, and
    activations that a checkpoint left out; else it only reads.
    """

    def __init__(self, spec: TrajectorySpec, block: SharedArrays) -> None:
        self.spec = spec
        self.fields: dict[str, NDArray[Any]] = {field.name: block[field.name] for field in spec.fields}
        self.observations = {name: self.fields[name] for name in spec.observation_names}
        self.inputs = {name: self.fields[name] for name in spec.input_names}
        self.lasting = {field.name: self.fields[field.name] for field in spec.fields if not field.derived}
        """What the others can be made from again."""
        self.cells = {name: array.reshape(-1, *array.shape[3:]) for name, array in self.fields.items()}
        """The fields with storages, rows and columns as one axis."""

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self.fields[name]

    def of_rollout(self, rollout: int) -> int:
        """The storage that a rollout fills."""
        return rollout % self.spec.num_storages

    def batch(self, storage: int) -> dict[str, NDArray[Any]]:
        """The fields `[T, B, ...]` that one update learns from, without a copy."""
        return {
            field.name: self.fields[field.name][storage, : self.spec.num_steps]
            for field in self.spec.fields
            if field.learned_from
        }

    def gathered(self, rollouts: Sequence[Rollout]) -> dict[str, NDArray[Any]]:
        """The same of rollouts that lie in several storages, copied side by side."""
        spec, places = self.spec, [(self.of_rollout(rollout.number), rollout.env) for rollout in rollouts]
        columns = [(storage, slice(env * spec.num_agents, (env + 1) * spec.num_agents)) for storage, env in places]
        return {
            field.name: np.concatenate(
                [self.fields[field.name][storage, : spec.num_steps, agents] for storage, agents in columns], axis=1
            )
            for field in spec.fields
            if field.learned_from
        }

    def poison(self, storage: int, columns: int | slice) -> None:
        """Fill what will be learned from with nonsense, so that a place left unwritten cannot go unnoticed."""
        for name in self.batch(storage):
            array = self.fields[name]
            nonsense = np.full(array.itemsize, POISON_BYTE, np.uint8).view(array.dtype)[0]
            array[storage, : self.spec.num_steps, columns] = nonsense
