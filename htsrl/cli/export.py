"""`htsrl export`: a run's policy for those who do not have htsrl."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from htsrl.cli.folder import CodeFlags, VersionFlags
from htsrl.export import export
from htsrl.export.check import NUM_OBSERVATIONS
from htsrl.metrics.line_file import warn_on_stderr
from htsrl.plain_files import printable


@dataclass(frozen=True)
class Export:
    """Write the newest policy of a run, or another, as ONNX and as a torch.export program, and check both."""

    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_DIR")]
    """Folder of the run."""
    format: Literal["onnx", "torch", "both"] = "both"
    """policy.onnx (needs `pip install 'htsrl[export]'`), policy.pt2, or both."""
    output: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Folder for the files; must not exist yet. None: RUN_DIR/export."""
    policy: VersionFlags = field(default_factory=VersionFlags)
    code: CodeFlags = field(default_factory=CodeFlags)

    def run(self) -> int:
        self.code.open(self.run_dir)
        exported = export(
            self.run_dir,
            self.output,
            self.format,
            self.code.named_env,
            self.policy.choice,
            self.code.imports,
            self.code.trust,
            announce=_announce,
        )
        print(f"policy       {exported.folder}, version {exported.version} of {exported.source}")
        self.policy.explain_best(self.run_dir, "best        ")
        for name, difference in exported.differences.items():
            print(
                f"{name:11}  the same actions as the policy on {NUM_OBSERVATIONS:,} observations, "
                f"largest difference {difference:.1e}"
            )
        return 0


def _announce(stage: str) -> None:
    warn_on_stderr(f"{printable(stage)} ...")
