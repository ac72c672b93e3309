"""`htsrl replay`: a stretch of a run again, as a table, as arrays or as a video."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from htsrl.cli.folder import CodeFlags
from htsrl.errors import ConfigError
from htsrl.metrics.line_file import warn_on_stderr
from htsrl.metrics.line_progress import LineProgress
from htsrl.plain_files import printable
from htsrl.replay.replay import replay
from htsrl.replay.show import SUFFIXES, document, save, table
from htsrl.replay.stretch import Replay


@dataclass(frozen=True)
class ReplayCommand:
    """Rebuild a stretch of a run's trajectory, bit for bit, and verify it against the run's digest; exit code 0 or 1.

    The run's folder is only read, and the run may be under way.
    """

    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_DIR")]
    """Folder of the run."""
    update: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """The update that learned from the stretch; with --until, where to begin to look."""
    env: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Which environment, by its number; with --until, None is any."""
    until: Annotated[str | None, tyro.conf.arg(metavar="CONDITION")] = None
    """Find the first moment: nan, 'return>300', 'length<10', 'reward<0', 'value>5', or a metric by name."""
    episode: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Show this episode of --env, from its reset to its end."""
    video: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also film it, as .mp4 or .gif."""
    output: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write the arrays, as .npz or .safetensors."""
    json: bool = False
    """Print JSON, with all arrays, instead of a table."""
    from_start: bool = False
    """Begin with the run's first step, not with a checkpoint."""
    allow_different_numerics: bool = False
    """Rebuild with another machine, library, simulator or code of htsrl than the run's; the result is marked."""
    env_id: Annotated[str | None, tyro.conf.arg(metavar="ENV_ID")] = None
    """Make this environment, not the one that the folder names: an id, or MODULE:FUNCTION."""
    imports: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="import", metavar="MODULE")] = ()
    """A module that the folder may import, where htsrl did not write the folder for you."""
    trust: bool = False
    """Run whatever code the folder names, as if you had written it."""

    def run(self) -> int:
        if self.output is not None and self.output.suffix not in SUFFIXES:
            raise ConfigError(f"--output {self.output} must end in {' or '.join(SUFFIXES)}")
        if self.video is not None:
            from htsrl.video.writer import check_can_write

            check_can_write(self.video)
        code = CodeFlags(self.env_id, self.imports, self.trust)
        code.open(self.run_dir)
        with LineProgress() as progress:
            rebuilt = replay(
                self.run_dir,
                self.update,
                self.env,
                until=self.until,
                episode=self.episode,
                frames=self.video is not None,
                from_start=self.from_start,
                allow_different_numerics=self.allow_different_numerics,
                env_id=code.named_env,
                imports=self.imports,
                trust=self.trust,
                watch=lambda update, total: progress.show(f"rebuilt update {update} of {total}"),
            )
            self._write(rebuilt, progress)
        self._show(rebuilt)
        return 0 if rebuilt.is_verified else 1

    def _write(self, rebuilt: Replay, progress: LineProgress) -> None:
        if self.output is not None:
            save(rebuilt, self.output)
        if self.video is not None:
            from htsrl.video.replayed import film_replay

            film_replay(rebuilt, self.video, lambda done, total: progress.show(f"drawn {done} of {total} frames"))

    def _show(self, rebuilt: Replay) -> None:
        if self.json:
            json.dump(document(rebuilt), sys.stdout)
            print()
        else:
            print(printable(table(rebuilt)))
        if rebuilt.moment is not None:
            moment = rebuilt.moment
            at = f"update {moment.update}" if moment.step is None else f"update {moment.update}, step {moment.step}"
            warn_on_stderr(printable(f"found     {moment.text}: {at} of environment {moment.env}"))
        for change in rebuilt.verification.other_numerics:
            warn_on_stderr(printable(f"differs   {change} (run / now)"))
        for path in (self.output, self.video):
            if path is not None:
                warn_on_stderr(f"written   {path}")
        warn_on_stderr(printable(str(rebuilt.verification)))
