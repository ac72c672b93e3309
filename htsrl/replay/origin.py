"""Where a rebuild begins: a checkpoint of the run, or its first step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from htsrl.checkpoint.files import Checkpoint, newest_first, read_checkpoint
from htsrl.config import Config
from htsrl.errors import CheckpointDamaged, RunFolderError
from htsrl.runs.folder import RunFolder
from htsrl.runs.resume import experiment_changes

Accepts = Callable[[Checkpoint], bool]


@dataclass(frozen=True)
class Origin:
    """The state that a rebuild starts from."""

    version: int = 0
    path: Path | None = None
    checkpoint: Checkpoint | None = None
    """None: the run's beginning."""

    def __str__(self) -> str:
        return "the start of the run" if self.path is None else f"the checkpoint of version {self.version}"


def find_origin(
    folder: RunFolder, config: Config, last_version: int, accepts: Accepts, warn: Callable[[str], None]
) -> Origin:
    """The newest whole checkpoint up to `last_version` that will do, else the start.

    A run under way may remove one while it is read; then an older one does.
    """
    for version, path in newest_first(folder.checkpoints_dir):
        if not 0 < version <= last_version:
            continue
        try:
            checkpoint = read_checkpoint(path)
            changed = experiment_changes(checkpoint, config)
        except CheckpointDamaged as damage:
            if os.path.lexists(path):
                warn(f"warning: passed over a damaged checkpoint: {damage}")
            continue
        if changed:
            raise RunFolderError(
                f"{path} is of another experiment than {folder.config_file}, which has been changed since:\n  "
                + "\n  ".join(changed)
            )
        if accepts(checkpoint):
            return Origin(version, path, checkpoint)
    return Origin()


def rollouts_made(checkpoint: Checkpoint, env: int) -> int:
    """How many of an environment's rollouts a checkpoint has behind it, and so nobody makes again."""
    completed = checkpoint.arrays.get("completed_rollouts")
    if completed is None or completed.ndim != 1 or env >= len(completed):
        raise CheckpointDamaged("the checkpoint does not say how far environments have come")
    return int(completed[env])


def episode_before(checkpoint: Checkpoint, env: int, num_agents: int, num_storages: int) -> int:
    """The number of the episode that an environment is in when the checkpoint's first batch begins."""
    numbers, version = checkpoint.arrays.get("capsule_episodes"), int(checkpoint.document["version"])
    if numbers is None or numbers.ndim != 1 or env >= len(numbers):
        raise CheckpointDamaged("the checkpoint does not say which episodes environments are in")
    columns = slice(env * num_agents, (env + 1) * num_agents)
    ends = 0
    for rollout in range(version, rollouts_made(checkpoint, env)):
        kept = {
            name.partition("/")[2]: array[:, columns]
            for name, array in checkpoint.arrays.items()
            if name.startswith(f"storage {rollout % num_storages}/") and array.ndim >= 2
        }
        ends += int(sum(episode_ends(kept)))
    return int(numbers[env]) - ends


def episode_ends(fields_of_env: Mapping[str, NDArray[Any]]) -> Iterator[bool]:
    """Row by row, whether an environment's episode ended there: of a team, when the last who was active ended."""
    ended_TA = fields_of_env["terminated"] | fields_of_env["truncated"]
    active_TA = fields_of_env.get("active", np.ones_like(ended_TA))
    for ended, active in zip(ended_TA, active_TA, strict=True):
        yield bool(not (active & ~ended).any())
