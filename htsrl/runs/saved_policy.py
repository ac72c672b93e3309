"""The versions of a run's policy that its folder holds: the last one it wrote, and those in its checkpoints.

They are read without the run's lock, also while it continues: what vanishes meanwhile is looked for again.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from htsrl.checkpoint.cut import with_versions_named
from htsrl.checkpoint.files import Checkpoint, newest_first, read_checkpoint
from htsrl.checkpoint.manifest import STATE_FILE
from htsrl.errors import CheckpointDamaged, ConfigError, RunFolderError
from htsrl.metrics.line_file import warn_on_stderr
from htsrl.plain_files import parsed, read_plain
from htsrl.runs.folder import RunFolder

if TYPE_CHECKING:
    import torch

    from htsrl.policies.policy import Policy

Choice = Literal["newest", "best"] | int
"""The newest version that is whole, the best, or the version of this number. The best is that with the best evaluation
beside training, or where there were none the checkpoint with the best return of training episodes."""
ATTEMPTS = 20
"""A run under way may remove a checkpoint while it is read, but hardly so often in a row."""


@dataclass(frozen=True)
class SavedPolicy:
    """One version of a policy, as a file has it."""

    version: int
    path: Path
    tensors: Mapping[str, torch.Tensor]
    """By name, or `parameters` and `statistics` as the run has them in memory."""
    is_flat: bool
    mean_return: float | None = None
    """Of the last training episodes before it, where the checkpoint knows; of a best policy, of its evaluation."""

    def num_columns(self, outline: Policy) -> int:
        """How many agents the reward's statistics are of; `outline` is the policy for none."""
        from htsrl.dataflow.parameters import statistics_of

        if not self.is_flat or outline.reward_scale is None:
            return 0
        return max(0, len(self.tensors["statistics"]) - sum(x.numel() for x in statistics_of(outline).values()))

    def check(self, outline: Policy) -> None:
        """RunFolderError where this is not a policy of that shape; `outline` need not have any memory of its own."""
        from htsrl.dataflow.parameters import FlatLayout, statistics_of

        if self.is_flat:
            sizes = FlatLayout.of(outline).size, sum(x.numel() for x in statistics_of(outline).values())
            found = tuple(self.tensors[name].numel() for name in ("parameters", "statistics"))
            if found != sizes:
                self._refuse(f"it has {found} numbers where the policy has {sizes}")
            return
        expected = {name: (tuple(x.shape), x.dtype) for name, x in outline.state_dict().items()}
        found_tensors = {name: (tuple(x.shape), x.dtype) for name, x in self.tensors.items()}
        for name in sorted(expected.keys() | found_tensors.keys()):
            if expected.get(name) != found_tensors.get(name):
                self._refuse(f"its {name!r} is {found_tensors.get(name)}, the policy's is {expected.get(name)}")

    def fill(self, policy: Policy) -> None:
        """Give the policy these numbers."""
        import torch

        from htsrl.dataflow.parameters import FlatLayout, statistics_of

        self.check(policy)
        if not self.is_flat:
            policy.load_state_dict(dict(self.tensors))
            return
        views = FlatLayout.of(policy).views(self.tensors["parameters"], policy)
        statistics = torch.split(self.tensors["statistics"], [x.numel() for x in statistics_of(policy).values()])
        with torch.no_grad():
            for parameter, view in zip(policy.parameters(), views, strict=True):
                parameter.copy_(view)
            for buffer, values in zip(statistics_of(policy).values(), statistics, strict=True):
                buffer.copy_(values.view(buffer.shape))

    def _refuse(self, why: str) -> None:
        raise RunFolderError(f"{self.path} does not fit this run: {why}; was its config.json changed?")


def saved_policy(folder: RunFolder, choice: Choice = "newest") -> SavedPolicy:
    """The version asked for; RunFolderError where it is not there, which names those that are."""
    if choice not in ("newest", "best") and (not isinstance(choice, int) or isinstance(choice, bool) or choice < 0):
        raise ConfigError(f"checkpoint={choice!r} must be newest, best or the number of a version")
    for _ in range(ATTEMPTS):
        try:
            return _Look(folder, warn_on_stderr).find(choice)
        except _Vanished:
            continue
    raise RunFolderError(f"the checkpoints of {folder.path} vanish faster than they can be read; try again")


class _Vanished(Exception):
    """A checkpoint was removed while it was read."""


class _Look:
    """One look at what there is."""

    def __init__(self, folder: RunFolder, warn: Callable[[str], None]) -> None:
        self._folder = folder
        self._warn = warn
        self._checkpoints = newest_first(folder.checkpoints_dir)
        self._last = self._read_last()

    def find(self, choice: Choice) -> SavedPolicy:
        if choice == "best":
            return self._best()
        if choice != "newest":
            return self._numbered(choice)
        # Where there are two of one version, the small file.
        for version, path in self._checkpoints:
            if self._last is not None and self._last.version >= version:
                break
            if (found := self._read(path)) is not None:
                return self._learned(found)
        if self._last is None:
            raise RunFolderError(
                f"{self._folder.path} holds no policy.safetensors and no whole checkpoint; was it stopped before?"
            )
        return self._learned(self._last)

    def _best(self) -> SavedPolicy:
        if (evaluated := self._read_best()) is not None:
            return evaluated
        found = [saved for _, path in self._checkpoints if (saved := self._read(path)) is not None]
        rated = [saved for saved in found if saved.mean_return is not None]
        if not rated:
            raise RunFolderError(
                f"no checkpoint of {self._folder.path} knows a return, for no episode had ended; leave out the best"
            )
        return max(rated, key=lambda saved: (saved.mean_return, saved.version))

    def _read_best(self) -> SavedPolicy | None:
        """By evaluation; None where there was none, or its policy is damaged, of which the user is told."""
        path = self._folder.best_policy_file
        if not path.exists():
            return None
        try:
            return read_policy_file(path)
        except (OSError, ValueError) as error:
            self._warn(f"warning: passed over a damaged policy: {path} cannot be read: {str(error)[:200]}")
            return None

    def _numbered(self, version: int) -> SavedPolicy:
        if self._last is not None and self._last.version == version:
            return self._last
        there = dict(self._checkpoints)
        if version in there and (found := self._read(there[version])) is not None:
            return found
        others = sorted({*there, *([self._last.version] if self._last else [])} - {version})
        known = f"there are {', '.join(map(str, others))}" if others else "there is none"
        raise RunFolderError(f"{self._folder.path} holds no version {version}; {known}")

    def _learned(self, saved: SavedPolicy) -> SavedPolicy:
        if saved.version == 0:
            raise RunFolderError(
                f"{self._folder.path} ended before its first update, or has not come to it yet: nothing was learned; "
                "train it further, or ask for version 0"
            )
        return saved

    def _read(self, path: Path) -> SavedPolicy | None:
        """None for a damaged one, of which the user is told."""
        try:
            return _of_checkpoint(path, read_checkpoint(path, with_rollouts=False))
        except CheckpointDamaged as damage:
            if not os.path.lexists(path):
                raise _Vanished from damage
            self._warn(f"warning: passed over a damaged checkpoint: {damage}")
            return None

    def _read_last(self) -> SavedPolicy | None:
        path = self._folder.policy_file
        if not path.exists():
            return None
        try:
            return read_policy_file(path)
        except (OSError, ValueError) as error:
            damage = f"{path} cannot be read as a policy: {str(error)[:200]}"
            if not self._checkpoints:
                raise RunFolderError(damage) from error
            self._warn(f"warning: passed over a damaged policy: {damage}")
            return None


def _of_checkpoint(path: Path, checkpoint: Checkpoint) -> SavedPolicy:
    import torch

    version = int(checkpoint.document["version"])
    arrays = with_versions_named(checkpoint.arrays, version)
    parameters, statistics = (arrays.get(f"version {version}/{name}") for name in ("parameter_slots", "statistics"))
    if parameters is None or statistics is None or parameters.ndim != 2 or statistics.ndim != 1:
        raise CheckpointDamaged(f"{path / STATE_FILE} holds no policy; was it written by another version of htsrl?")
    if parameters.dtype != "float32" or statistics.dtype != "float64" or not len(parameters):
        raise CheckpointDamaged(f"{path / STATE_FILE} holds a policy of other numbers than htsrl's")
    tensors = {"parameters": torch.from_numpy(parameters[0].copy()), "statistics": torch.from_numpy(statistics.copy())}
    return SavedPolicy(version, path, tensors, True, _finite(checkpoint.document.get("mean_return")))


def read_policy_file(path: Path) -> SavedPolicy:
    """ValueError where it is none."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    data = read_plain(path)
    try:
        tensors = load(data)
    except (SafetensorError, ValueError, KeyError, RuntimeError, TypeError, OverflowError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error
    facts = _facts_in(data)
    version = facts.get("version", "")
    if not (version.isascii() and version.isdigit() and len(version) < 19):
        raise ValueError(f"it does not say which version it is of: {version[:40]!r}")
    return SavedPolicy(int(version), path, tensors, False, _number(facts.get("eval_return", "")))


def drop_policy_after(folder: RunFolder, version: int) -> None:
    """For a run that continues from there to other bits: the last policy is not one of those to come."""
    try:
        is_later = read_policy_file(folder.policy_file).version > version
    except FileNotFoundError:
        return
    except (OSError, ValueError):
        is_later = True
    if is_later:
        folder.policy_file.unlink(missing_ok=True)


def _facts_in(data: bytes) -> dict[str, str]:
    """From the header, which the reader has found to be sound."""
    header = parsed(data[8 : 8 + int.from_bytes(data[:8], "little")])
    facts: dict[str, str] = header.get("__metadata__", {})
    return facts


def _number(text: str) -> float | None:
    try:
        return _finite(float(text))
    except ValueError:
        return None


def _finite(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    try:
        return float(value) if is_number and math.isfinite(value) else None
    except OverflowError:
        return None
