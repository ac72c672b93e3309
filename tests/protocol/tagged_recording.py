"""An environment whose every number can be recomputed, and a learner that keeps all that it reads and writes.

Named in `imports`: registers the environment everywhere, and in worker processes makes the learner record into the
folder that RECORD_BATCHES_TO names. In the tests' own process they say themselves what is recorded, and when.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
from gymnasium import spaces
from helpers import in_worker_process
from numpy.typing import NDArray

from htsrl.digest import BatchHash, DigestChain, VersionState, hash_batch
from htsrl.envs.toy import Tagged
from htsrl.placements.blueprint import Blueprint

FOLDER_VARIABLE = "RECORD_BATCHES_TO"
SCALES = np.array([2.0**-20, 2.0**-4, 2.0**-10, 2.0**-2], dtype=np.float32)
"""Powers of two, so nothing is rounded; without them a tag would saturate every neuron."""


class ScaledTagged(gymnasium.ObservationWrapper[NDArray[np.float32], np.int64, NDArray[np.float32]]):
    """The numbers of Tagged, brought to a size that a network can tell apart."""

    def __init__(self) -> None:
        super().__init__(Tagged())
        space = Tagged().observation_space
        assert isinstance(space, spaces.Box)
        self.observation_space = spaces.Box(space.low * SCALES, space.high * SCALES, dtype=np.float32)

    def observation(self, observation: NDArray[np.float32]) -> NDArray[np.float32]:
        return observation * SCALES


gymnasium.register(id="ScaledTagged-v0", entry_point=f"{__name__}:ScaledTagged")


@dataclass(frozen=True)
class Recording:
    """A folder of the batches that were read and of the parameters of every version, as flat vectors."""

    folder: Path

    def batch(self, update: int) -> dict[str, NDArray[Any]]:
        with np.load(self.folder / f"batch{update}.npz") as arrays:
            return dict(arrays)

    def version(self, version: int) -> NDArray[np.float32]:
        flat: NDArray[np.float32] = np.load(self.folder / f"version{version}.npy")
        return flat

    @property
    def num_updates(self) -> int:
        return len(list(self.folder.glob("batch*.npz")))

    def hash_batch(self, fields: Mapping[str, NDArray[Any]], num_envs: int) -> BatchHash:
        """The learner calls this once per update, when it begins to read."""
        arrays: dict[str, Any] = dict(fields)
        np.savez(self.folder / f"batch{self.num_updates}.npz", **arrays)
        return hash_batch(fields, num_envs)


class RecordingChain(DigestChain):
    """The learner extends it by every version that it has made."""

    folder: ClassVar[Path]

    @classmethod
    def begin(cls, initial_parameters: Sequence[NDArray[Any]], source: str = "") -> DigestChain:
        np.save(cls.folder / "version0.npy", initial_parameters[0])
        return super().begin(initial_parameters, source)

    def extend(self, update: int, state: VersionState, batch: BatchHash) -> Any:
        np.save(self.folder / f"version{update + 1}.npy", state.parameters[0])
        return super().extend(update, state, batch)


def install(recording: Recording) -> None:
    """For the rest of this process, let learners record."""
    from htsrl.roles import learner

    RecordingChain.folder = recording.folder
    vars(learner).update(hash_batch=recording.hash_batch, DigestChain=RecordingChain)


if in_worker_process() and FOLDER_VARIABLE in os.environ:
    build_learner = Blueprint.build_learner

    def build_recording_learner(self: Blueprint, *arguments: Any, **named: Any) -> Any:
        # Here and not above: only the learner's process should pay for importing torch.
        install(Recording(Path(os.environ[FOLDER_VARIABLE])))
        return build_learner(self, *arguments, **named)

    Blueprint.build_learner = build_recording_learner  # type: ignore[method-assign]
