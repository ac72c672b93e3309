"""`htsrl dashboard`: all runs of a folder on a local page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Dashboard:
    """Show all runs of a folder on a page of this machine: curves, timeline, settings, videos, live."""

    runs_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="[RUNS_DIR]")] = Path("runs")
    """Folder that holds run folders, at any depth up to four, or the folder of one run."""
    port: int = 0
    """Where the page is served, on 127.0.0.1 only; 0 takes any free port."""
    no_browser: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Only print the address."""

    def run(self) -> int:
        from htsrl.dashboard.serve import serve  # what few need is imported late

        serve(self.runs_dir, self.port, not self.no_browser, _announce)
        return 0


def _announce(address: str) -> None:
    print(f"dashboard {address}", flush=True)
    print("end it with Ctrl-C; the address is a secret: whoever has it, on this machine, sees the page", flush=True)
