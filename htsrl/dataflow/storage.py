"""The storages: one is written by executors and actors while the learner reads the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
    active, and clears ends and bootstrap values (told to, it poisons all) when a rollout begins; its actor writes the
    versions, actions, log-probabilities, values and activations. The recurrent state before row t is written by the
    actor that answers row t-1, and by the executor where a rollout or an episode begins. To a complete rollout the
    learner adds the bootstrap value of what follows, log-probabilities and values where those are left to it, and
    activations that a checkpoint left out; else it only reads.
    """

    def __init__(self, spec: TrajectorySpec, block: SharedArrays | Mapping[str, NDArray[Any]]) -> None:
        self.spec = spec
        self.fields: dict[str, NDArray[Any]] = {field.name: block[field.name] for field in spec.fields}
        self.observations = {name: self.fields[name] for name in spec.observation_names}
        self.inputs = {name: self.fields[name] for name in spec.input_names}
        self.lasting = {field.name: self.fields[field.name] for field in spec.fields if not field.derived}
        """What the others can be made from again."""

    @property
    def cells(self) -> dict[str, NDArray[Any]]:
        """The fields with storages, rows and columns as one axis; only of all columns, for others would be copies."""
        return {name: array.reshape(-1, *array.shape[3:]) for name, array in self.fields.items()}

    def of_envs(self, envs: range) -> Storages:
        """The columns of some environments that are neighbours, without a copy."""
        return Storages(replace(self.spec, num_envs=len(envs)), self._columns_of(envs, self.fields, columns_axis=2))

    def batch_of_envs(self, envs: range, fields: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Their part of the fields `[T, B, ...]` of a batch, without a copy."""
        return self._columns_of(envs, fields, columns_axis=1)

    def _columns_of(
        self, envs: range, fields: Mapping[str, NDArray[Any]], columns_axis: int
    ) -> dict[str, NDArray[Any]]:
        columns = slice(envs.start * self.spec.num_agents, envs.stop * self.spec.num_agents)
        place = (*[slice(None)] * columns_axis, columns)
        return {name: array[place] for name, array in fields.items()}

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
