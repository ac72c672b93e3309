"""The checkpoints of a run: which count, and which are kept."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

from htsrl.checkpoint.background import Written, write
from htsrl.checkpoint.files import Checkpoint, commit_checkpoint, name_of, newest_first, prune, whole_documents


class Archive:
    """Takes in what was written, once all that is said about the run up to there is on disk too."""

    def __init__(
        self,
        folder: Path,
        keep: int,
        say: Callable[[str], None],
        before_commit: Callable[[], None],
        begun_at: int,
    ) -> None:
        """`begun_at` is the version that the run continues from: newer ones are damaged, or it would be one of them."""
        self._folder = folder
        self._keep = keep
        self._say = say
        self._before_commit = before_commit
        self._has_failed = False
        self._damaged = {path.name for version, path in newest_first(folder) if version > begun_at}
        self._best_return, self._best_name = -math.inf, ""
        for document in whole_documents(folder):
            self._compare(name_of(document["version"]), document.get("mean_return"))

    def take_in(self, written: Written) -> Path | None:
        """Make it count; returns where it is, or None where it could not be written."""
        try:
            return self._commit(written)
        except OSError as error:
            self._has_failed = True
            self._say(
                f"warning: no checkpoint of version {written.version}: {error}; training continues, the one before it "
                "stays, and it is tried again"
            )
            return None

    def save(self, checkpoint: Checkpoint) -> None:
        """Write one now."""
        self.take_in(write(self._folder, checkpoint))

    def _commit(self, written: Written) -> Path:
        if written.path is None:
            raise OSError(written.problem)
        try:
            self._before_commit()
        except OSError:
            shutil.rmtree(written.path, ignore_errors=True)
            raise
        path = commit_checkpoint(Path(written.path))
        self._compare(path.name, written.mean_return)
        self._damaged.discard(path.name)  # replaced
        prune(path, self._keep, self._best_name, self._damaged)
        if self._has_failed:
            self._say("checkpoints are being written again")
            self._has_failed = False
        return path

    def _compare(self, name: str, mean_return: float | None) -> None:
        if mean_return is not None and mean_return >= self._best_return:
            self._best_return, self._best_name = mean_return, name
