"""Flags that several commands have: which policy of a folder, whose code may run, and who watches."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from htsrl.config import Placement
from htsrl.config.file import load_config, resolve_typed_env
from htsrl.config.plugins import import_named
from htsrl.errors import ConfigError
from htsrl.metrics.line_file import warn_on_stderr
from htsrl.observers.dispatch import Watching
from htsrl.plain_files import printable
from htsrl.runs.evaluations import best_evaluated
from htsrl.runs.folder import RunFolder
from htsrl.runs.saved_policy import Choice
from htsrl.runs.trust import Vouched, is_trusted, strange_code


@dataclass(frozen=True)
class CodeFlags:
    """Whose code a command may run for a folder; docs/security.md has the rules."""

    env: Annotated[str | None, tyro.conf.arg(metavar="ENV_ID")] = None
    """Make this environment, not the one that the folder names: an id, or MODULE:FUNCTION."""
    imports: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(name="import", metavar="MODULE")] = ()
    """A module that the folder may import, where htsrl did not write the folder for you."""
    trust: bool = False
    """Run whatever code the folder names, as if you had written it."""

    @property
    def named_env(self) -> Any:
        """The environment of --env, imported if it is a function."""
        return None if self.env is None else resolve_typed_env(self.env)

    def open(self, run_dir: Path) -> None:
        """Say whose code is about to run, and let modules of the current folder be found, if that is the user's wish.

        Where the folder is a stranger's, the current folder may well be the same, and nothing in it is imported.
        """
        config_file = RunFolder.existing(run_dir).config_file
        vouched = Vouched(env=self.env is not None, imports=self.imports, everything=self.trust)
        if self.trust or self.env is not None or self.imports or is_trusted(config_file):
            find_modules_here()
        whose = "runs code of yours" if is_trusted(config_file) or self.trust else "names code"
        for code in strange_code(load_config(config_file).experiment, vouched):
            warn_on_stderr(printable(f"{whose}: {code}, which {config_file} names"))


@dataclass(frozen=True)
class VersionFlags:
    """Which version of a run's policy."""

    version: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """The policy after N updates, if a checkpoint of it is there. None: the newest whole one."""
    best: bool = False
    """The version with the best evaluation beside training; where there were none, the checkpoint with the best mean
    return of training episodes."""

    @property
    def choice(self) -> Choice:
        if self.best and self.version is not None:
            raise ConfigError(f"--best and --version {self.version} are two policies; ask for one of them")
        return "best" if self.best else "newest" if self.version is None else self.version

    def explain_best(self, run_dir: Path, label: str) -> None:
        """Say by what the best was chosen, if it was asked for."""
        if not self.best:
            return
        best = best_evaluated(RunFolder.existing(run_dir))
        by_training = "the return of training episodes, for there are no evaluations beside training"
        print(f"{label} by " + (by_training if best is None else f"evaluation beside training, return {best[1]:.2f}"))


@dataclass(frozen=True)
class ObserverFlags:
    """Who watches the run."""

    observer: Annotated[tyro.conf.UseAppendAction[tuple[str, ...]], tyro.conf.arg(metavar="MODULE:CLASS")] = ()
    """An observer of your own, made without arguments: it is told of updates, episodes and checkpoints."""
    strict_observers: bool = False
    """End the run when an observer raises; otherwise it continues without."""

    def watching(self) -> Watching:
        if self.observer:
            find_modules_here()  # they are named by the user
        return Watching([_made_observer(name) for name in self.observer], self.strict_observers)


@dataclass(frozen=True)
class ConsoleFlags:
    """Two short names for settings of --progress."""

    quiet: Annotated[bool, tyro.conf.arg(aliases=["-q"])] = False
    """Show results and warnings only: --progress off."""
    verbose: Annotated[bool, tyro.conf.arg(aliases=["-v"])] = False
    """Show plain lines all along, and checkpoints: --progress verbose."""

    def applied(self, placement: Placement) -> Placement:
        if self.quiet and self.verbose:
            raise ConfigError("--quiet and --verbose ask for less and for more; give one of them")
        if not (self.quiet or self.verbose):
            return placement
        return replace(placement, progress="off" if self.quiet else "verbose")


def _made_observer(name: str) -> Any:
    make = import_named("observer", name, {})
    try:
        return make()
    except Exception as error:
        raise ConfigError(
            f"observer {name!r} cannot be made ({type(error).__name__}: {error}); it must be a class that takes no "
            "arguments"
        ) from error


def find_modules_here() -> None:
    """Modules of the current folder can be imported, as with `python -m`.

    Absolute, for environments may change it, and last, so that nothing here stands in for a library.
    """
    with suppress(FileNotFoundError):  # a folder that was removed has no modules
        if (here := os.getcwd()) not in sys.path:
            sys.path.append(here)
