"""`htsrl sweep`: search for better settings."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from htsrl.cli.folder import find_modules_here
from htsrl.runs.trust import Vouched
from htsrl.sweeps.results import RESULT_FILE, SweepResult
from htsrl.sweeps.spec import read_spec
from htsrl.sweeps.sweep import run_sweep
from htsrl.sweeps.table import short


@dataclass(frozen=True)
class SweepCommand:
    """Search for better settings: the same trials and result whatever the timing, kills and number of workers."""

    spec: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="SPEC.toml")]
    """What to train, which settings to search, and how (docs/sweeps.md)."""
    run_dir: Path | None = None
    """Folder of the sweep; the same command again continues what is in it. None: runs/sweep-SPEC."""
    parallel: int | None = None
    """Runs at a time. None: one per core."""
    cores: int | None = None
    """Cores for all of them together. None: all that there are."""
    trust: bool = False
    """Run whatever code the specification names, as if you had written it."""

    def run(self) -> int:
        if self.trust:
            find_modules_here()
        spec = read_spec(self.spec, Vouched(everything=self.trust))
        folder = self.run_dir or Path("runs") / f"sweep-{spec.name}"
        _print(run_sweep(spec, folder, self.parallel, self.cores))
        return 0


def _print(result: SweepResult) -> None:
    states = [trial.state for trial in result.trials]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    print(f"trials    {len(states)}: {counts}")
    if result.best is None:
        print("best      none: no trial was completed")
    else:
        settings = "  ".join(f"{name} {short(value)}" for name, value in result.best.settings.items())
        print(f"best      {short(result.best.value)} in trial {result.best.number}: {settings}")
    if result.importance:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in result.importance.items())
        print(f"mattered  {shares}")
    if result.command is not None:
        print(f"train     {result.command}")
    print(f"result    {result.folder / RESULT_FILE}")
