"""`htsrl record`: film episodes of a run's policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from htsrl.cli.folder import CodeFlags, VersionFlags
from htsrl.cli.train import Repeatable, parse_env_arg
from htsrl.metrics.line_progress import LineProgress
from htsrl.video import record


@dataclass(frozen=True)
class Record:
    """Film episodes of a run's policy, with return, value and action probabilities beside the frame."""

    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_DIR")]
    """Folder of the run."""
    episodes: int = 1
    """How many episodes, each a film of its own."""
    seed: int = 0
    """Which episodes: those that `htsrl eval` plays with this seed."""
    sampled: bool = False
    """Sample actions instead of taking the most likely ones."""
    format: Literal["mp4", "gif"] = "mp4"
    """Without --output: what to write."""
    output: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """File that ends in .mp4 or .gif. None: RUN_DIR/videos/step-STEPS-seed-SEED.mp4, with
    -sampled behind the seed where that is asked for."""
    env_arg: Annotated[Repeatable, tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """An argument for the environment's constructor, the value in JSON, beside the run's or in place of one of them."""
    policy: VersionFlags = field(default_factory=VersionFlags)
    code: CodeFlags = field(default_factory=CodeFlags)

    def run(self) -> int:
        self.code.open(self.run_dir)
        with LineProgress() as progress:
            made = record(
                self.run_dir,
                self.episodes,
                self.seed,
                self.sampled,
                self.format,
                self.output,
                self.policy.choice,
                self.code.named_env,
                self.code.imports,
                self.code.trust,
                dict(parse_env_arg(text) for text in self.env_arg),
                progress.show,
            )
        for film in made:
            print(
                f"episode  {film.episode}: return {film.episode_return:g} after {film.length:,} steps, policy version "
                f"{film.version}, {film.path}"
            )
        return 0
