"""`htsrl resume`: go on with a run, its placement changed or not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from htsrl.cli_train import PlacementFlags, plain, plain_words, print_result
from htsrl.config import Placement
from htsrl.errors import HtsrlError
from htsrl.resume import resume
from htsrl.run_folder import RunFolder


@dataclass(frozen=True)
class _ResumedPlacementFlags(PlacementFlags):
    run_dir: tyro.conf.Suppress[Path | None] = None


@dataclass(frozen=True)
class Resume:
    """Go on with a run from its newest checkpoint, to the same bits as if it had never stopped."""

    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_DIR")]
    """Folder of the run."""
    total_steps: int | None = None
    """Environment steps in all, if not as many as before."""
    allow_different_numerics: bool = False
    """Go on where numbers are computed differently (other machine, other torch); the run is marked for good."""
    placement: _ResumedPlacementFlags = field(default_factory=_ResumedPlacementFlags)

    def run(self) -> int:
        placement = plain(Placement, self.placement)
        result = resume(
            self.run_dir, self.total_steps, placement, allow_different_numerics=self.allow_different_numerics
        )
        print_result(result)
        return 0


def resume_defaults(arguments: Sequence[str]) -> _ResumedPlacementFlags:
    """The placement that the run had so far, if the arguments name one."""
    command, *words = plain_words(arguments) or [""]
    if command != "resume" or not words:
        return _ResumedPlacementFlags()
    try:
        before = RunFolder.existing(Path(words[0])).load_config(env="").placement
    except HtsrlError:  # said again, and better, when the run is looked at
        return _ResumedPlacementFlags()
    values = {f.name: getattr(before, f.name) for f in dataclasses.fields(Placement)}
    return _ResumedPlacementFlags(**{**values, "run_dir": None})
