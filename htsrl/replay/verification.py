"""What was rebuilt against what the run has written down of itself: link by link of its digest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from htsrl.digest import BatchHash, Link, hash_batch, what_differs
from htsrl.errors import RunFolderError
from htsrl.plain_files import read_plain
from htsrl.replay.origin import Origin
from htsrl.replay.rebuild import RebuiltUpdate
from htsrl.runs.folder import RunFolder


@dataclass(frozen=True)
class Verification:
    """Whether a rebuild is what happened."""

    origin: str
    """What it was rebuilt from, in words."""
    first_update: int
    last_update: int
    """The updates that were made again and compared."""
    digest: str
    """The digest's chain after the last of them, as the run has it."""
    parted: str | None
    """Where the rebuild parts from the run, in words; None where all of it is the same to the bit."""
    other_numerics: tuple[str, ...] = ()
    """What it was computed by that the run was not, where that was allowed."""

    @property
    def is_verified(self) -> bool:
        return self.parted is None

    def __str__(self) -> str:
        by = ", though computed differently than the run" if self.other_numerics else ""
        if self.parted is not None:
            return f"NOT verified: it parts from the run at {self.parted}{by} (rebuilt from {self.origin})"
        updates = f"updates {self.first_update} to {self.last_update}"
        if self.first_update == self.last_update:
            updates = f"update {self.last_update}"
        return f"verified: {updates}, rebuilt from {self.origin}, with digest {self.digest}{by}"


class Verifier:
    """Compares as updates are made again."""

    def __init__(self, folder: RunFolder, links: Sequence[Link], origin: Origin) -> None:
        self._folder = folder
        self._links = links
        self._origin = origin
        self._last_update = origin.version
        self.parted: str | None = None

    def check_origin(self, chain: str | None) -> None:
        """Whether the checkpoint has the digest that the run had there."""
        version = self._origin.version
        if chain is not None and self._links[version - 1].chain != chain:
            self.parted = f"barrier {version - 1}: the checkpoint has another digest there than digest.jsonl"

    def check(self, rebuilt: RebuiltUpdate) -> None:
        """The first difference is what counts: all that follows it differs too."""
        self._last_update = rebuilt.update
        if self.parted is None:
            self.parted = self._difference(rebuilt)

    def result(self, other_numerics: Sequence[str]) -> Verification:
        known = self._links[self._last_update].chain if self._last_update < len(self._links) else ""
        return Verification(
            str(self._origin), self._origin.version, self._last_update, known, self.parted, tuple(other_numerics)
        )

    def _difference(self, rebuilt: RebuiltUpdate) -> str | None:
        update = rebuilt.update
        if rebuilt.link is None:
            return self._difference_of_failure(rebuilt)
        if update >= len(self._links):
            return f"barrier {update}: digest.jsonl ends before it"
        recorded = self._links[update]
        if recorded.chain == rebuilt.link.chain and recorded == rebuilt.link:
            return None
        return f"barrier {update}: {what_differs(recorded, rebuilt.link)}"

    def _difference_of_failure(self, rebuilt: RebuiltUpdate) -> str | None:
        """An update that did not come about has no link; the run keeps its batch, though."""
        if rebuilt.update < len(self._links):
            return f"barrier {rebuilt.update}: it failed when it was made again ({rebuilt.failure})"
        path, ours = self._folder.path / "diverged_batch.safetensors", rebuilt.batch_hash
        if not path.exists() or ours is None:
            return f"barrier {rebuilt.update}: the run has kept nothing of it"
        theirs = _hash_of_kept_batch(self._folder, list(ours.tensors), len(ours.envs) // 8)
        return None if theirs.whole == ours.whole else f"barrier {rebuilt.update}: {path.name} is another batch"


def _hash_of_kept_batch(folder: RunFolder, names: Sequence[str], num_envs: int) -> BatchHash:
    from htsrl.array_file import from_bytes

    path = folder.path / "diverged_batch.safetensors"
    try:
        arrays: dict[str, Any] = from_bytes(read_plain(path))
        return hash_batch({name: arrays[name] for name in names}, num_envs)
    except (OSError, ValueError, KeyError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}") from error
