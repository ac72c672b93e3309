"""`htsrl timeline`: where a run's time went, and a trace for Perfetto."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from htsrl.plain_files import printable
from htsrl.timeline.read import read_timeline
from htsrl.timeline.summary import summary_lines
from htsrl.timeline.trace import write_trace


@dataclass(frozen=True)
class TimelineCommand:
    """Print where the time of a run went, and write its last moments as a trace for Perfetto or Chrome."""

    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_DIR")]
    """Folder of the run, which may still be under way."""
    output: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """The trace's file. None: RUN_DIR/trace.json."""

    def run(self) -> int:
        timeline, path = read_timeline(self.run_dir), self.output or self.run_dir / "trace.json"
        print(printable("\n".join(summary_lines(timeline))))
        write_trace(timeline, f"htsrl {self.run_dir.name}", path)
        print(f"trace     {path}, for https://ui.perfetto.dev or chrome://tracing")
        return 0
