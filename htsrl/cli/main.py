"""Commands: `htsrl train`, `resume`, `eval`, `export`, `digest`, `compare`, `check-env`, `bench`, `timeline`."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol, Union

import tyro

from htsrl.cli.arguments import HELP_FLAGS, Flags, whole_numbers, with_new_names
from htsrl.cli.check_env import CheckEnv
from htsrl.cli.commands import later_commands
from htsrl.cli.export import Export
from htsrl.cli.folder import CodeFlags, VersionFlags, find_modules_here
from htsrl.cli.help import show_help
from htsrl.cli.resume import Resume, resume_defaults
from htsrl.cli.train import Repeatable, parse_env_arg, print_info, train_defaults
from htsrl.config.old_names import note_old_name
from htsrl.digest import read_links
from htsrl.errors import ConfigError, HtsrlError
from htsrl.evaluate import evaluate
from htsrl.metrics.episode_progress import EpisodeProgress
from htsrl.metrics.line_file import warn_on_stderr
from htsrl.metrics.line_progress import LineProgress
from htsrl.placements.collector import collector_of
from htsrl.plain_files import printable
from htsrl.processes.interrupts import Terminated, end_at_second_signal
from htsrl.runs.comparison import compare
from htsrl.runs.folder import RunFolder

EXIT_FAILED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
EXIT_TERMINATED = 143


@dataclass(frozen=True)
class Eval:
    """Play episodes with the newest policy of a run, or another, and print the mean return."""

    run_dir: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_DIR")]
    """Folder of the run."""
    episodes: int = 100
    """How many episodes."""
    seed: int = 0
    """Which episodes; the same seed plays the same ones, however many."""
    sampled: bool = False
    """Sample actions instead of taking the most likely ones."""
    env_arg: Annotated[Repeatable, tyro.conf.arg(metavar="KEY=VALUE")] = ()
    """An argument for the environment's constructor, the value in JSON, beside the run's or in place of one of them."""
    log_info: Annotated[Repeatable, tyro.conf.arg(metavar="KEY")] = ()
    """Also print the mean of this key's number in `info` at an episode's end; `is_success`, and what the run logs, are
    printed anyway."""
    reward: Annotated[Repeatable, tyro.conf.arg(metavar="MODULE:FUNCTION")] = ()
    """Of a run on text: what scores completions in place of the run's own rewards."""
    policy: VersionFlags = field(default_factory=VersionFlags)
    code: CodeFlags = field(default_factory=CodeFlags)

    def run(self) -> int:
        self.code.open(self.run_dir)
        if collector_of(RunFolder.existing(self.run_dir).load_config().experiment.env):
            from htsrl.cli.evaluate_text import TextPrompts, print_text_evaluation

            which = TextPrompts(self.episodes, self.seed, self.sampled, self.reward)
            return print_text_evaluation(self.run_dir, which, self.policy, self.code)
        if self.reward:
            raise ConfigError("--reward is for runs on text; an environment gives rewards itself")
        with EpisodeProgress(self.episodes) as progress:
            evaluation = evaluate(
                self.run_dir,
                self.episodes,
                self.seed,
                self.sampled,
                self.code.named_env,
                progress.update,
                self.policy.choice,
                self.code.imports,
                self.code.trust,
                env_args=dict(parse_env_arg(text) for text in self.env_arg),
                log_info=self.log_info,
            )
        print(f"score    {evaluation.mean_return:.2f} +- {evaluation.std_return:.2f} over {self.episodes} episodes")
        print_info(evaluation)
        print(f"policy   version {evaluation.version}, {evaluation.source}")
        self.policy.explain_best(self.run_dir, "best    ")
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
    """Say whether two runs are identical, or in which settings they differ and where they part: exit code 0 or 1."""

    run_a: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_A")]
    """Folder of one run."""
    run_b: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN_B")]
    """Folder of the other."""

    def run(self) -> int:
        with LineProgress() as progress:
            comparison = compare(self.run_a, self.run_b, lambda line: progress.show(printable(line)))
        print(printable("\n".join(comparison.lines)))
        return 0 if comparison.are_identical else 1


@dataclass(frozen=True)
class _Version:
    """Print the version."""

    def run(self) -> int:
        from htsrl import __version__

        print(f"htsrl {__version__}")
        return 0


class Command(Protocol):
    """What the user asked for."""

    def run(self) -> int:
        """Do it; returns the exit code."""


def main(arguments: Sequence[str] | None = None) -> None:
    arguments = sys.argv[1:] if arguments is None else arguments
    end_at_second_signal()
    try:
        command = _parse(arguments)
        if list(arguments[:1]) in (["check-env"], ["bench"]):  # the others look first whose code it is
            find_modules_here()
        try:
            exit_code = command.run()
        finally:
            sys.stdout.flush()  # here, where a reader that has gone away is understood
        sys.exit(exit_code)
    except ConfigError as error:
        _explain(error, EXIT_BAD_INPUT)
    except HtsrlError as error:
        _explain(error, EXIT_FAILED)
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # nothing to complain about at exit
        sys.exit(EXIT_BROKEN_PIPE)
    except Terminated:
        sys.exit(EXIT_TERMINATED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)


def _parse(arguments: Sequence[str]) -> Command:
    """The command asked for; `train` has the flags of the algorithm that is asked for with it."""
    if list(arguments) == ["--version"]:
        return _Version()
    if list(arguments[:2]) == ["bench", "replay"]:
        note_old_name("the command line", "bench replay", "bench replay-buffer")
        arguments = ["bench", "replay-buffer", *arguments[2:]]
    wants_all = "--help-all" in arguments
    arguments = ["--help" if argument == "--help-all" else argument for argument in arguments]
    # Other commands have an --algo of their own.
    defaults = train_defaults(arguments if arguments[:1] != ["rlhf"] else [])
    if arguments[:1] == ["train"]:
        arguments = with_new_names(arguments, Flags(type(defaults)))
    resuming = Resume(tyro.MISSING, placement=resume_defaults(arguments))
    if arguments[:1] in (["train"], ["resume"]) and not HELP_FLAGS.isdisjoint(arguments):
        show_help(arguments[0], defaults if arguments[0] == "train" else resuming, wants_all)
    choices = [
        Annotated[type(defaults), tyro.conf.subcommand("train", default=defaults)],
        Annotated[Resume, tyro.conf.subcommand("resume", default=resuming)],
        Annotated[Eval, tyro.conf.subcommand("eval")],
        Annotated[Export, tyro.conf.subcommand("export")],
        Annotated[Digest, tyro.conf.subcommand("digest")],
        Annotated[Compare, tyro.conf.subcommand("compare")],
        Annotated[CheckEnv, tyro.conf.subcommand("check-env")],
        *(Annotated[kind, tyro.conf.subcommand(name)] for name, kind in later_commands(arguments[:1])),
    ]
    commands: Any = Union[tuple(choices)]  # noqa: UP007  (there is no `|` over a list)
    description = "Deep RL as fast as asynchronous training and as reproducible as a unit test."
    markers = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)
    command: Command = tyro.cli(
        commands, prog="htsrl", description=description, args=arguments, config=markers, registry=whole_numbers()
    )
    return command


def _explain(error: HtsrlError, exit_code: int) -> None:
    text = str(error)
    if error.details_were_shown:
        text = f"{text.splitlines()[0]} (again; the traceback is above)"
    warn_on_stderr(printable(f"error: {text}"))
    sys.exit(exit_code)
