"""Imported by the workers of a run (Experiment.imports): writing checkpoints in a folder `slow` takes a while."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from htsrl.checkpoint import background
from htsrl.checkpoint.files import Checkpoint, prepare_checkpoint

SLOW = "slow"
SECONDS = 0.5


def prepare_slowly(folder: Path, checkpoint: Checkpoint, on_part: Callable[[], None] = lambda: None) -> Path:
    if folder.parent.name == SLOW:
        time.sleep(SECONDS)
    return prepare_checkpoint(folder, checkpoint, on_part)


background.prepare_checkpoint = prepare_slowly  # type: ignore[attr-defined]
