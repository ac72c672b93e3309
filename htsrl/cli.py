"""The command line: `htsrl train`, `resume`, `eval`, `export`, `digest`, `compare`, `check-env`, `bench`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import tyro

from htsrl.bench.command import Bench
from htsrl.cli_check_env import CheckEnv
from htsrl.cli_export import Export
from htsrl.cli_resume import Resume, resume_defaults
from htsrl.cli_train import train_defaults
from htsrl.digest import first_difference, read_links
from htsrl.errors import ConfigError, HtsrlError, RunFolderError
from htsrl.evaluate import evaluate
from htsrl.interrupts import Terminated, end_at_second_signal
from htsrl.metrics.episode_progress import EpisodeProgress
from htsrl.run_folder import RunFolder

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143


@dataclass(frozen=True)
class Eval:
    """Play episodes with the final policy of a run and print the mean return."""

    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_DIR")]
    """Folder of the run."""
    episodes: int = 100
    """How many episodes."""
    seed: int = 0
    """Which episodes; the same seed plays the same ones."""
    sampled: bool = False
    """Sample actions instead of taking the most likely ones."""

    def run(self) -> int:
        with EpisodeProgress(self.episodes) as progress:
            evaluation = evaluate(self.run_dir, self.episodes, self.seed, self.sampled, watch=progress.update)
        print(f"score    {evaluation.mean_return:.2f} +- {evaluation.std_return:.2f} over {self.episodes} episodes")
        return 0


@dataclass(frozen=True)
class Digest:
    """Print the final digest of a run: equal digests, equal bits."""

    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_DIR")]
    """Folder of the run."""

    def run(self) -> int:
        print(read_links(self.run_dir)[-1].chain)
        return 0


@dataclass(frozen=True)
class Compare:
    """Say whether two runs are identical, or where they part: exit code 0 or 1."""

    run_a: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_A")]
    """Folder of one run."""
    run_b: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_B")]
    """Folder of the other."""

    def run(self) -> int:
        difference = first_difference(read_links(self.run_a), read_links(self.run_b))
        if difference is None:
            print("identical")
            return 0
        print(f"first difference at {difference}")
        for line in self._differences_of_numerics():
            print(f"note: {line}")
        return 1

    def _differences_of_numerics(self) -> list[str]:
        try:
            a, b = RunFolder(self.run_a).fingerprint(), RunFolder(self.run_b).fingerprint()
        except RunFolderError as error:
            return [str(error)]
        return [
            *(f"the runs were computed differently, {line}" for line in a.differences(b)),
            *(
                f"{run_dir} was resumed under other numerics after update {change['version']}"
                for run_dir in (self.run_a, self.run_b)
                for change in RunFolder(run_dir).numerics_changes()
            ),
        ]


class Command(Protocol):
    """What the user asked for."""

    def run(self) -> int:
        """Do it; returns the exit code."""


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    sys.path.insert(0, "")  # --import finds modules of the current folder, as `python -m` would
    end_at_second_signal()
    try:
        sys.exit(_parse(arguments).run())
    except ConfigError as error:
        _explain(error, EXIT_BAD_INPUT)
    except HtsrlError as error:
        _explain(error, EXIT_FAILED)
    except Terminated:
        sys.exit(EXIT_TERMINATED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _parse(arguments: Sequence[str]) -> Command:
    """The command asked for; `train` has the flags of the algorithm that is asked for with it."""
    defaults = train_defaults(arguments)
    resuming = Resume(tyro.MISSING, placement=resume_defaults(arguments))
    commands: Any = (
        Annotated[type(defaults), tyro.conf.subcommand("train", default=defaults)]
        | Annotated[Resume, tyro.conf.subcommand("resume", default=resuming)]
        | Annotated[Eval, tyro.conf.subcommand("eval")]
        | Annotated[Export, tyro.conf.subcommand("export")]
        | Annotated[Digest, tyro.conf.subcommand("digest")]
        | Annotated[Compare, tyro.conf.subcommand("compare")]
        | Annotated[CheckEnv, tyro.conf.subcommand("check-env")]
        | Annotated[Bench, tyro.conf.subcommand("bench")]
    )
    description = "Deep RL as fast as asynchronous training and as reproducible as a unit test."
    markers = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
    command: Command = tyro.cli(commands, prog="htsrl", description=description, args=arguments, config=markers)
    return command


def _explain(error: HtsrlError, exit_code: int) -> None:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(exit_code)
