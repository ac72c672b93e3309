"""`htsrl export`: a run's policy for those who do not have htsrl."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from htsrl.export import export
from htsrl.export.check import NUM_OBSERVATIONS


@dataclass(frozen=True)
class Export:
    """Write the final policy of a run as ONNX and as a torch.export program, and check both against the original."""

    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_DIR")]
    """Folder of the run."""
    format: Literal["onnx", "torch", "both"] = "both"
    """policy.onnx (needs `pip install 'htsrl[export]'`), policy.pt2, or both."""
    output: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for the files; must not exist yet. None: RUN_DIR/export."""

    def run(self) -> int:
        exported = export(self.run_dir, self.output, self.format)
        print(f"policy       {exported.folder}, version {exported.version}")
        for name, difference in exported.differences.items():
            print(
                f"{name:11}  the same actions as the policy on {NUM_OBSERVATIONS:,} observations, "
                f"largest difference {difference:.1e}"
            )
        return 0
