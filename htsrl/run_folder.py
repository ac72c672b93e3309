"""The folder of a run: everything a run leaves behind, each file complete or absent."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from htsrl.config import Config, EnvFactory
from htsrl.config_file import env_name, load_config, to_json
from htsrl.errors import ConfigError, RunFolderError
from htsrl.numerics import Fingerprint
from htsrl.schedules.replay import schedule_file

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    run_dir: Path
    steps: int
    updates: int
    digest: str
    mean_return: float | None
    """Of the last hundred episodes; None where none has ended."""
    steps_per_second: float
    seconds: float
    interrupted: bool = False
    """Ended before its time, by Ctrl-C, a signal or an error."""
    env_errors: int = 0
    """Episodes that an exception in their environment cut short, with on_env_error="truncate"."""
    restarts: int = 0
    """How often a worker died and was started again, since the run was last started or resumed."""
    numerics_changes: int = 0
    """How often it was resumed where numbers are computed differently; above 0, its digest is nobody else's."""

    def summary(self) -> dict[str, Any]:
        return {**asdict(self), "run_dir": str(self.run_dir)}


@dataclass(frozen=True)
class RunFolder:
    """Where a run's files are."""

    path: Path

    @classmethod
    def planned(cls, config: Config) -> RunFolder:
        """The folder a run will use; refuses one that exists."""
        path = config.placement.run_dir or _default_path(config)
        if path.exists():
            raise ConfigError(
                f"run_dir={path} exists already; choose another, or go on with the run in it: htsrl resume {path}"
            )
        return cls(path)

    @classmethod
    def existing(cls, path: Path) -> RunFolder:
        if not (path / "config.json").is_file():
            raise RunFolderError(f"{path} is not the folder of a run: it holds no config.json")
        return cls(path)

    @property
    def config_file(self) -> Path:
        return self.path / "config.json"

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def digest_file(self) -> Path:
        return self.path / "digest.jsonl"

    @property
    def schedule_file(self) -> Path:
        """What an asynchronous run saw, for those who replay it."""
        return schedule_file(self.path)

    @property
    def policy_file(self) -> Path:
        return self.path / "policy.safetensors"

    @property
    def curve_file(self) -> Path:
        return self.path / "learning_curve.png"

    @property
    def checkpoints_dir(self) -> Path:
        return self.path / "checkpoints"

    @property
    def tensorboard_dir(self) -> Path:
        return self.path / "tensorboard"

    def create(self, config: Config, fingerprint: Fingerprint) -> None:
        """Make it, or leave nothing of it, so that the same command can be given again."""
        try:
            self.path.mkdir(0o700, parents=True)
        except OSError as error:
            raise ConfigError(f"cannot make run_dir={self.path}: {error.strerror}") from error
        try:
            self.save_config(config)
            self._save_fingerprint(fingerprint)
        except OSError as error:
            shutil.rmtree(self.path, ignore_errors=True)
            raise RunFolderError(
                f"cannot write to run_dir={self.path}: {error.strerror}; make room there, or choose another folder"
            ) from error

    def save_config(self, config: Config) -> None:
        _write(self.config_file, to_json(config).encode())

    def _save_fingerprint(self, fingerprint: Fingerprint) -> None:
        self.save_json(self.path / "fingerprint.json", asdict(fingerprint))

    def note_change_of_numerics(self, version: int, changes: Sequence[str], fingerprint: Fingerprint) -> None:
        """Mark the run for good: from here on its bits are those of another machine or library."""
        noted = self.numerics_changes()
        self.save_json(self._numerics_changes_file, [*noted, {"version": version, "changes": list(changes)}])
        self._save_fingerprint(fingerprint)

    def numerics_changes(self) -> list[dict[str, Any]]:
        path = self._numerics_changes_file
        try:
            changes: list[dict[str, Any]] = json.loads(path.read_bytes()) if path.exists() else []
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path} cannot be read: {error}") from error
        return changes

    @property
    def _numerics_changes_file(self) -> Path:
        return self.path / "numerics_changes.json"

    def save_json(self, path: Path, document: Any) -> None:
        _write(path, (json.dumps(document, indent=2) + "\n").encode())

    def load_config(self, env: str | EnvFactory | None = None) -> Config:
        return load_config(self.config_file, env)

    def fingerprint(self) -> Fingerprint:
        path = self.path / "fingerprint.json"
        try:
            return Fingerprint(**json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise RunFolderError(f"{path} cannot be read: {error}") from error

    def save_policy(self, policy: nn.Module, version: int) -> None:
        import torch
        from safetensors.torch import save

        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in policy.state_dict().items()
        }
        _write(self.policy_file, save(tensors, metadata={"version": str(version)}))

    def save_diverged_batch(self, update: int, batch: Mapping[str, NDArray[Any]]) -> None:
        from safetensors.numpy import save

        arrays = {name: np.ascontiguousarray(array) for name, array in batch.items()}
        _write(self.path / "diverged_batch.safetensors", save(arrays, metadata={"update": str(update)}))

    def load_policy(self, policy: nn.Module) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        if not self.policy_file.is_file():
            raise RunFolderError(f"{self.path} holds no policy.safetensors; did the run end?")
        try:
            policy.load_state_dict(load_file(self.policy_file))
        except (SafetensorError, RuntimeError) as error:
            raise RunFolderError(f"{self.policy_file} does not fit this run: {error}") from error

    def result(self) -> dict[str, Any]:
        path = self.path / "result.json"
        try:
            result: dict[str, Any] = json.loads(path.read_bytes())
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path} cannot be read: {error}; did the run end?") from error
        return result

    def is_complete(self) -> bool:
        """Whether the run came to its end and wrote so."""
        return (self.path / "result.json").exists() and not self.result()["interrupted"]

    def save_result(self, result: RunResult) -> None:
        self.save_json(self.path / "result.json", result.summary())


def _default_path(config: Config) -> Path:
    experiment = config.experiment
    env = re.sub(r"[^A-Za-z0-9._-]+", "-", env_name(experiment.env))[:80]
    stamp = time.strftime("%Y%m%d-%H%M%S")
    name = f"{env}-{experiment.algorithm.name}-{experiment.schedule}-seed{experiment.seed}-{stamp}"
    path, attempt = Path("runs") / name, 1
    while path.exists():
        attempt += 1
        path = Path("runs") / f"{name}-{attempt}"
    return path


def _write(path: Path, data: bytes) -> None:
    """All of it or nothing: a crash leaves the old file or the new one, never half of either."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        with open(temporary, "wb", opener=_private) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
