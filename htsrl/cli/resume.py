"""`htsrl resume`: continue with a run, its placement changed or not."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from htsrl.cli.arguments import Flags
from htsrl.cli.folder import CodeFlags, ConsoleFlags, ObserverFlags
from htsrl.cli.train import PlacementFlags, plain, print_result, print_score
from htsrl.config import Placement
from htsrl.errors import HtsrlError
from htsrl.runs.folder import RunFolder
from htsrl.runs.resume import Changes, resume_watched
from htsrl.runs.trust import Vouched


@dataclass(frozen=True)
class _ResumedPlacementFlags(PlacementFlags):
    run_dir: tyro.conf.Suppress[Path | None] = None
    log_info: tyro.conf.Suppress[tuple[str, ...]] = ()
    allow_different_numerics: tyro.conf.Suppress[bool] = False


@dataclass(frozen=True)
class Resume:
    """Go on with a run from its newest checkpoint, to the same bits as if it had never stopped."""

    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_DIR")]
    """Folder of the run."""
    total_steps: int | None = None
    """Environment steps in all, if not as many as before."""
    stop_at_return: float | Literal["none", "as before"] = "as before"
    """End early at this mean return; none lifts the limit."""
    source: Annotated[str | None, tyro.conf.arg(metavar="FOLDER")] = None
    """Where the run's dataset lies now, if it was moved."""
    allow_different_numerics: bool = False
    """Resume with another machine, library, simulator or code of htsrl than before, or with nodes that have others; the
    run is marked for good."""
    code: CodeFlags = field(default_factory=CodeFlags)
    observers: ObserverFlags = field(default_factory=ObserverFlags)
    console: ConsoleFlags = field(default_factory=ConsoleFlags)
    placement: _ResumedPlacementFlags = field(default_factory=_ResumedPlacementFlags)

    def run(self) -> int:
        self.code.open(self.run_dir)
        placement = self.console.applied(plain(Placement, self.placement))
        changes = Changes(
            self.total_steps,
            None if self.stop_at_return == "none" else self.stop_at_return,
            placement,
            self.code.named_env,
            self.allow_different_numerics,
            Vouched(imports=self.code.imports, everything=self.code.trust),
            self.source,
        )
        watching = self.observers.watching()
        result = resume_watched(RunFolder.existing(self.run_dir), changes, watching)
        print_result(result)
        print_score(result, placement, watching)
        return 0


def resume_defaults(arguments: Sequence[str]) -> _ResumedPlacementFlags:
    """The placement that the run had so far, if the arguments name one."""
    command, *words = Flags(Resume).words(arguments) or [""]
    if command != "resume" or not words:
        return _ResumedPlacementFlags()
    try:
        before = RunFolder.existing(Path(words[0])).load_config(env="").placement
    except HtsrlError:  # said again, and better, when the run is looked at
        return _ResumedPlacementFlags()
    values = {f.name: getattr(before, f.name) for f in dataclasses.fields(Placement)}
    return _ResumedPlacementFlags(**{**values, "run_dir": None})
