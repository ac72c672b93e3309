"""The folder of a run: everything a run leaves behind, each file complete or absent."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from htsrl.checkpoint.files import checkpoints_in
from htsrl.checkpoint.policy_file import policy_bytes
from htsrl.checkpoint.snapshots import snapshots_in
from htsrl.config import Config, EnvFactory
from htsrl.config.file import load_config, read_config, to_json
from htsrl.errors import ConfigError, RunFolderError
from htsrl.fingerprint import Fingerprint
from htsrl.metrics.result import RunResult
from htsrl.plain_files import read_document
from htsrl.runs.default_path import default_path
from htsrl.runs.private_file import json_bytes, write_private
from htsrl.runs.signatures import sign, signature_file, why_unsigned
from htsrl.sources.provenance import schedule_file
from htsrl.spaces import Interface
from htsrl.spaces.document import interface_document, read_interface

if TYPE_CHECKING:
    from torch import nn

NOTHING: Mapping[Path, bytes] = {}


@dataclass(frozen=True)
class RunFolder:
    """Where a run's files are."""

    path: Path
    """Absolute, whatever it is made with: an environment may change the current folder."""
    _given: Path = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_given", self.path)
        object.__setattr__(self, "path", self.path.absolute())

    @property
    def shown(self) -> Path:
        """As the user gave it, for as long as that leads there."""
        try:
            return self._given if self._given.absolute() == self.path else self.path
        except OSError:  # the current folder is gone
            return self.path

    @classmethod
    def planned(cls, config: Config) -> RunFolder:
        """The folder a run will use; refuses one that exists."""
        path = config.placement.run_dir or default_path(config)
        if path.exists():
            raise ConfigError(
                f"run_dir={path} exists already; choose another, or resume the run in it: htsrl resume {path}"
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
    def histograms_file(self) -> Path:
        """How returns and lengths of the last episodes were spread, a line for each of the metrics'."""
        return self.path / "histograms.jsonl"

    @property
    def csv_file(self) -> Path:
        return self.path / "metrics.csv"

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
    def evaluations_file(self) -> Path:
        """What evaluations beside training found, a line each."""
        return self.path / "evaluations.jsonl"

    @property
    def best_policy_file(self) -> Path:
        """The version with the best evaluation beside training."""
        return self.path / "best_policy.safetensors"

    @property
    def initial_policy_file(self) -> Path:
        """Version 0 of a warm start, so that nobody needs the run again that it was taken from."""
        return self.path / "initial_policy.safetensors"

    @property
    def init_from_file(self) -> Path:
        """What a warm start took over, and from where."""
        return self.path / "init_from.json"

    @property
    def curve_file(self) -> Path:
        return self.path / "learning_curve.png"

    @property
    def interface_file(self) -> Path:
        return self.path / "interface.json"

    @property
    def checkpoints_dir(self) -> Path:
        return checkpoints_in(self.path)

    @property
    def videos_dir(self) -> Path:
        return self.path / "videos"

    @property
    def tensorboard_dir(self) -> Path:
        return self.path / "tensorboard"

    def create(
        self, config: Config, fingerprint: Fingerprint, interface: Interface, beginning: Mapping[Path, bytes] = NOTHING
    ) -> None:
        """Make it, or leave nothing of it, so that the same command can be given again.

        `beginning` is written before the configuration: a folder with that has all that the run starts from.
        """
        try:
            self.path.mkdir(0o700, parents=True)
        except OSError as error:
            raise ConfigError(f"cannot make run_dir={self.shown}: {error.strerror}") from error
        try:
            for path, data in beginning.items():
                write_private(path, data)
            self.save_config(config)
            self._save_fingerprint(fingerprint)
            self._save_interface(interface)
        except OSError as error:
            shutil.rmtree(self.path, ignore_errors=True)
            raise RunFolderError(
                f"cannot write to run_dir={self.shown}: {error.strerror}; make room there, or choose another folder"
            ) from error

    def clear(
        self, config: Config, fingerprint: Fingerprint, interface: Interface, changes: Sequence[str] = ()
    ) -> None:
        """Remove what a run wrote that starts over; what others have put there stays.

        `changes` of numerics are noted for version 0: none of the bits before them are left.
        """
        self.save_config(config)
        # Before the fingerprint: whoever starts over after a kill in between finds the same changes once more.
        self._note_starts_over(changes)
        self._save_fingerprint(fingerprint)
        self._save_interface(interface)
        for folder in (self.checkpoints_dir, self.tensorboard_dir, snapshots_in(self.path)):
            shutil.rmtree(folder, ignore_errors=True)
        files = (self.metrics_file, self.digest_file, self.schedule_file, self.policy_file, self.curve_file)
        watched = (self.evaluations_file, self.best_policy_file, self.histograms_file, self.csv_file)
        for file in (
            *files,
            *watched,
            self.path / "timeline.json",
            self.path / "stall.json",
            self.path / "result.json",
            *self.path.glob("*.tmp"),
        ):
            file.unlink(missing_ok=True)

    def save_config(self, config: Config) -> None:
        """With this account's signature, so that later commands know whose code it names."""
        data = to_json(config).encode()
        if (signature := sign(data)) is not None:
            # First and beside the one before: a kill between the two files leaves a signed configuration.
            lines = [line for line in (self._signature(), signature) if line is not None]
            write_private(signature_file(self.config_file), "".join(f"{line}\n" for line in lines).encode())
        write_private(self.config_file, data)

    def _signature(self) -> str | None:
        """Of the configuration as it is now, if it is this account's."""
        if not self.config_file.exists():
            return None
        data = read_config(self.config_file)
        return sign(data) if why_unsigned(self.config_file, data) is None else None

    def _save_interface(self, interface: Interface) -> None:
        """The spaces, so that the policy can be built without the environment's code; not those of strange kinds."""
        if (document := interface_document(interface)) is not None:
            self.save_json(self.interface_file, document)

    def interface(self) -> Interface | None:
        """The spaces of the environment; None where the folder does not describe them."""
        if not self.interface_file.exists():
            return None
        try:
            return read_interface(read_document(self.interface_file))
        except RunFolderError as error:
            raise RunFolderError(f"{self.interface_file} {error}") from error
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.interface_file} cannot be read: {error}") from error

    def _save_fingerprint(self, fingerprint: Fingerprint) -> None:
        self.save_json(self.path / "fingerprint.json", asdict(fingerprint))

    def note_change_of_numerics(self, version: int, changes: Sequence[str], fingerprint: Fingerprint) -> None:
        """Mark the run for good: from here on its bits are those of another machine, library or code."""
        self.note_other_numerics(version, changes)
        self._save_fingerprint(fingerprint)

    def note_other_numerics(self, version: int, changes: Sequence[str]) -> None:
        """The same of what computes beside the machine that has the fingerprint."""
        noted = self.numerics_changes()
        self.save_json(self._numerics_changes_file, [*noted, {"version": version, "changes": list(changes)}])

    def _note_starts_over(self, changes: Sequence[str]) -> None:
        """Changes after version 0 were of bits that are gone."""
        noted = [change for change in self.numerics_changes() if change["version"] == 0]
        if changes:
            noted.append({"version": 0, "changes": list(changes)})
        if noted:
            self.save_json(self._numerics_changes_file, noted)
        else:
            self._numerics_changes_file.unlink(missing_ok=True)

    def numerics_changes(self) -> list[dict[str, Any]]:
        path = self._numerics_changes_file
        try:
            changes: list[dict[str, Any]] = read_document(path) if path.exists() else []
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path} cannot be read: {error}") from error
        if not isinstance(changes, list) or not all(map(_is_change_of_numerics, changes)):
            raise RunFolderError(f"{path} is not a list of changes; the run was marked by them, so put back the file")
        return changes

    @property
    def _numerics_changes_file(self) -> Path:
        return self.path / "numerics_changes.json"

    def save_json(self, path: Path, document: Any) -> None:
        write_private(path, json_bytes(document))

    def load_config(self, env: str | EnvFactory | None = None) -> Config:
        return load_config(self.config_file, env)

    def has_fingerprint(self) -> bool:
        """A run that was killed while it made its folder may have none."""
        return (self.path / "fingerprint.json").exists()

    def fingerprint(self) -> Fingerprint:
        path = self.path / "fingerprint.json"
        try:
            return Fingerprint.from_document(read_document(path))
        except (OSError, ValueError, TypeError) as error:
            raise RunFolderError(f"{path} cannot be read: {error}") from error

    def save_policy(self, policy: nn.Module, version: int) -> None:
        write_private(self.policy_file, policy_bytes(policy, version))

    def keep_best_policy(self, data: bytes) -> None:
        """A crash leaves the one before or this one."""
        write_private(self.best_policy_file, data)

    def save_diverged_batch(self, update: int, batch: Mapping[str, NDArray[Any]]) -> None:
        from safetensors.numpy import save

        arrays = {name: np.ascontiguousarray(array) for name, array in batch.items()}
        write_private(self.path / "diverged_batch.safetensors", save(arrays, metadata={"update": str(update)}))

    def result(self) -> dict[str, Any]:
        path = self.path / "result.json"
        try:
            result: dict[str, Any] = read_document(path)
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{path} cannot be read: {error}; did the run end?") from error
        if not isinstance(result, dict) or not {"updates", "interrupted"} <= result.keys():
            raise RunFolderError(f"{path} is not the result of a run; `htsrl resume` writes it again")
        return result

    def run_result(self) -> RunResult:
        """How the run ended, where its folder is now."""
        known = {known_field.name for known_field in fields(RunResult)}
        values = {name: value for name, value in self.result().items() if name in known}
        try:
            return RunResult(**{**values, "run_dir": self.shown})
        except TypeError as error:
            raise RunFolderError(f"{self.path / 'result.json'} is not whole: {error}") from error

    def is_complete(self) -> bool:
        """Whether the run came to its end and wrote so."""
        return self.has_result() and not self.result()["interrupted"]

    def has_result(self) -> bool:
        return (self.path / "result.json").exists()

    def save_result(self, result: RunResult) -> None:
        self.save_json(self.path / "result.json", result.summary())

    def forget_result(self) -> None:
        """Of a run that is resumed: it has none until it ends."""
        (self.path / "result.json").unlink(missing_ok=True)


def _is_change_of_numerics(document: object) -> bool:
    """Whether it is an entry that `note_change_of_numerics` could have made."""
    if not isinstance(document, dict) or type(document.get("version")) is not int:
        return False
    changes = document.get("changes", [])
    return isinstance(changes, list) and all(isinstance(line, str) for line in changes)
