"""`htsrl train`: the flags of the experiment, its algorithm and its placement."""

from __future__ import annotations

import dataclasses
import json
import sys
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from htsrl.config import A2C, ALGORITHMS, PPO, Config, Experiment, Network, Placement
from htsrl.config_file import load_config, named_env, resolve_env
from htsrl.errors import ConfigError
from htsrl.evaluate import evaluate
from htsrl.metrics.episode_progress import EpisodeProgress
from htsrl.presets import PRESETS, preset, preset_name
from htsrl.run_folder import RunFolder, RunResult
from htsrl.train import train

NO_ENV = ""
Repeatable = tyro.conf.UseAppendAction[tuple[str, ...]]


@dataclass(frozen=True)
class _NetworkFlags(Network):
    """The network as flags: on a command line, a network of one's own is a name."""

    policy: Annotated[str | None, tyro.conf.arg(metavar="MODULE:CLASS")] = None
    """A network of your own in place of the encoder."""


@dataclass(frozen=True)
class _ExperimentFlags(Experiment):
    """The experiment as flags: on a command line, an environment is a name."""

    env: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="ENV_ID")] = tyro.MISSING
    """A Gymnasium id such as CartPole-v1, or module:Env-v0."""
    imports: Annotated[Repeatable, tyro.conf.arg(name="import", metavar="MODULE")] = ()
    """Import this module in every process first, for environments that register themselves."""
    env_args: tyro.conf.Suppress[Mapping[str, Any]] = field(default_factory=dict)
    network: _NetworkFlags = field(default_factory=_NetworkFlags)


@dataclass(frozen=True)
class _A2CExperimentFlags(_ExperimentFlags):
    algorithm: A2C = field(default_factory=A2C)


@dataclass(frozen=True)
class _PPOExperimentFlags(_ExperimentFlags):
    algorithm: PPO = field(default_factory=PPO)


@dataclass(frozen=True)
class PlacementFlags(Placement):
    backend: Annotated[Literal["inline", "processes"], tyro.conf.arg(name="placement")] = "processes"
    """inline: everything in this process (debugger, oracle). processes: executors, actors and learner in their own."""


@dataclass(frozen=True)
class _TrainFlags:
    algo: Literal["ppo", "a2c"]
    """Algorithm; its own flags are listed below."""
    preset: Literal["auto", "none", "atari", "football", "mujoco"]
    """Settings to start from; auto takes those for the kind of environment, if there are any. Flags override it."""
    config: Path | None
    """Start from this file, such as the config.json of another run, and no preset; flags override it."""
    env_arg: Annotated[Repeatable, tyro.conf.arg(metavar="KEY=VALUE")]
    """An argument for the environment's constructor, the value in JSON."""
    eval_episodes: int
    """After training, play so many episodes with the final policy and print the score."""
    placement: PlacementFlags

    def _train(self, flags: _ExperimentFlags) -> int:
        env_args = {**flags.env_args, **dict(parse_env_arg(text) for text in self.env_arg)}
        experiment = dataclasses.replace(plain(Experiment, flags), env=resolve_env(flags.env), env_args=env_args)
        preset = preset_name(flags.env) if self.preset == "auto" and self.config is None else self.preset
        if preset in PRESETS:
            print(f"preset    {preset} ({self.algo}); --preset none starts from the plain defaults", file=sys.stderr)
        result = train(Config(experiment, plain(Placement, self.placement)))
        print_result(result)
        if self.eval_episodes:
            with EpisodeProgress(self.eval_episodes, self.placement.progress) as progress:
                evaluation = evaluate(result.run_dir, self.eval_episodes, watch=progress.update)
            print(
                f"score     {evaluation.mean_return:.2f} +- {evaluation.std_return:.2f}, {self.eval_episodes} episodes"
            )
        return 0


@dataclass(frozen=True)
class TrainA2C(_TrainFlags):
    """Train an agent and write a folder of results."""

    experiment: _A2CExperimentFlags

    def run(self) -> int:
        return self._train(self.experiment)


@dataclass(frozen=True)
class TrainPPO(_TrainFlags):
    """Train an agent and write a folder of results."""

    experiment: _PPOExperimentFlags

    def run(self) -> int:
        return self._train(self.experiment)


def train_defaults(arguments: Sequence[str]) -> TrainA2C | TrainPPO:
    """The command's defaults: those of the algorithm and the file that the arguments name."""
    first_look = ArgumentParser(add_help=False, allow_abbrev=False)
    first_look.add_argument("--algo", nargs="?")
    first_look.add_argument("--config", nargs="?", type=Path)
    first_look.add_argument("--preset", nargs="?", default="auto")
    known, _ = first_look.parse_known_args(arguments)
    # The environment stays a name for now: one on the command line goes before it.
    base = load_config(known.config, env=named_env(known.config) or NO_ENV) if known.config else None
    algo: Any = known.algo or (base.experiment.algorithm.name if base else "ppo")
    if algo not in ALGORITHMS:
        raise ConfigError(f"--algo {algo} is not known; use {' or '.join(ALGORITHMS)}")
    name = _preset(known.preset, base, arguments)
    settings = preset(NO_ENV, algo, name) if name != "none" else base and base.experiment
    experiment = _flags(_A2CExperimentFlags if algo == "a2c" else _PPOExperimentFlags, settings)
    if not isinstance(experiment.algorithm, ALGORITHMS[algo]):
        experiment = dataclasses.replace(experiment, algorithm=ALGORITHMS[algo]())
    placement = dataclasses.replace(_flags(PlacementFlags, base and base.placement), run_dir=None)
    command = TrainA2C if algo == "a2c" else TrainPPO
    return command(algo, name, known.config, (), 0, placement, experiment)


def _preset(asked: str | None, base: Config | None, arguments: Sequence[str]) -> Any:
    """The preset's name; with auto, it is that of the environment, which is one of the arguments."""
    if asked not in {"auto", "none", *PRESETS}:
        return "none"  # the parser refuses it in a moment
    if asked != "auto":
        if base is not None and asked != "none":
            raise ConfigError(f"--preset {asked} and --config are both something to start from; use one of them")
        return asked
    names = [] if base is not None else [name for name in map(preset_name, plain_words(arguments)) if name]
    return names[0] if names else "none"


def plain_words(arguments: Sequence[str]) -> list[str]:
    """The arguments that are neither flags nor the values of flags."""
    sections: tuple[Any, ...] = (Experiment, Placement, Network, A2C, PPO)
    switches = {field.name for section in sections for field in dataclasses.fields(section) if field.type == "bool"}
    words, before = [], ""
    for argument in arguments:
        flag = before.removeprefix("--").removeprefix("no-").replace("-", "_")
        takes_value = before.startswith("--") and "=" not in before and flag not in {*switches, "help"}
        if not argument.startswith("-") and not takes_value:
            words.append(argument)
        before = argument
    return words


def _flags(cls: Any, values: Any) -> Any:
    """`values` as flags with these defaults; an environment that is not named must be given."""
    given = {f.name: getattr(values, f.name) for f in dataclasses.fields(values)} if values else {}
    if isinstance(given.get("network"), Network):
        given["network"] = _NetworkFlags(**vars(given["network"]))
    return cls(**{name: value for name, value in given.items() if value != NO_ENV})


def plain(cls: Any, flags: Any) -> Any:
    """Flags as the plain dataclass that they extend."""
    values = {f.name: getattr(flags, f.name) for f in dataclasses.fields(cls)}
    return cls(**{name: plain(Network, x) if isinstance(x, _NetworkFlags) else x for name, x in values.items()})


def parse_env_arg(text: str) -> tuple[str, Any]:
    """`key=value`, the value as JSON where it is, else as the text itself."""
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ConfigError(f"--env-arg {text} must be KEY=VALUE, such as --env-arg gravity=9.81")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def print_result(result: RunResult) -> None:
    folder = RunFolder(result.run_dir)
    mean_return = "no episode ended" if result.mean_return is None else f"{result.mean_return:.2f}"
    print(f"return    {mean_return} (mean of the last 100 training episodes)")
    print(f"steps     {result.steps:,} in {result.seconds:.1f} s, {result.steps_per_second:,.0f} steps/s")
    print(f"digest    {result.digest}")
    print(f"curve     {folder.curve_file}")
    print(f"run       {result.run_dir}")
