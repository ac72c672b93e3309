"""`htsrl train`: the flags of the experiment, its algorithm and its placement."""

from __future__ import annotations

import dataclasses
import json
import typing
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from htsrl.cli.arguments import Flags, refuse_names_from_elsewhere, with_new_names
from htsrl.cli.folder import ConsoleFlags, ObserverFlags, find_modules_here
from htsrl.config import NO_ENV, Config, Experiment, Network, Placement
from htsrl.config.algorithm_settings import (
    DEFAULT_ALGORITHM,
    NamedAlgorithm,
    algorithm_name,
    own_settings,
    registered,
    settings_class,
)
from htsrl.config.file import load_config, named_env, resolve_algorithm, resolve_typed_env
from htsrl.config.fit import choices, fitted
from htsrl.config.presets import KINDS, preset, preset_name, presets_of
from htsrl.config.schedule_names import registered as registered_schedules
from htsrl.config.sync_rule_names import EVERY
from htsrl.config.sync_rule_names import registered as registered_rules
from htsrl.dataflow.trajectory import SUCCESS
from htsrl.errors import ConfigError
from htsrl.evaluate import evaluate
from htsrl.metrics.episode_progress import EpisodeProgress
from htsrl.metrics.evaluation import Evaluation
from htsrl.metrics.line_file import warn_on_stderr
from htsrl.metrics.result import RunResult
from htsrl.observers.dispatch import Watching
from htsrl.plain_files import printable
from htsrl.runs.folder import RunFolder
from htsrl.runs.trust import Vouched, admit_file, admit_placement
from htsrl.train import resume_or_start, train_watched

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
    """A Gymnasium id such as CartPole-v1, module:Env-v0, or MODULE:FUNCTION that returns an environment."""
    imports: Annotated[Repeatable, tyro.conf.arg(name="import", metavar="MODULE")] = ()
    """Import this module in every process first, for environments that register themselves."""
    env_args: tyro.conf.Suppress[Mapping[str, Any]] = field(default_factory=dict)
    sync_args: tyro.conf.Suppress[Mapping[str, Any]] = field(default_factory=dict)
    network: _NetworkFlags = field(default_factory=_NetworkFlags)
    init_from: Annotated[str | None, tyro.conf.arg(metavar="RUN[@best|@N]")] = None
    """Begin with the weights of another run, taken over by name and shape: its newest version, the checkpoint with the
    best return, or version N. What starts new is listed, and the optimizer does."""
    schedule: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(registered_schedules()) + ",MODULE:CLASS}")] = "hts"
    """hts: learn while rolling out, `lag` versions behind. sync: in turn, lag 0. lockstep: sync with a barrier at every
    step, the classic baseline. async: nobody waits, and no two runs are alike, as IMPALA and GA3C."""
    sync_rule: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(registered_rules()) + ",MODULE:CLASS}")] = EVERY
    """When learners meet. every: gradients are averaged at each optimizer step, which is one learner's result. fixed,
    qsr, selsync: parameters are averaged now and then. sync_switch: after every update, later asynchronously."""


@dataclass(frozen=True)
class PlacementFlags(Placement):
    backend: Annotated[Literal["inline", "processes", "ray"], tyro.conf.arg(name="placement")] = "processes"
    """inline: everything in this process (debugger, oracle). processes: executors, actors and learner in their own.
    ray: executors and actors on the nodes of a Ray cluster, or of a local Ray. Needs `pip install 'htsrl[ray]'`."""
    sinks: Annotated[
        tyro.conf.UseAppendAction[tuple[Literal["csv", "wandb", "mlflow", "trackio"], ...]],
        tyro.conf.arg(name="sink"),
    ] = ()
    """Also write the metrics there, beside metrics.jsonl and TensorBoard; may be given several times. A sink that fails
    costs a warning, never the run."""
    log_info: Annotated[Repeatable, tyro.conf.arg(metavar="KEY")] = ()
    """A key of `info` whose number at an episode's end is logged, as a mean over the last hundred; `is_success` always
    is."""


@dataclass(frozen=True)
class _TrainFlags:
    algo: Annotated[str, tyro.conf.arg(metavar="{" + ",".join(registered()) + ",MODULE:CLASS}")]
    """Algorithm, by name or one of your own; its flags are listed below."""
    preset: Literal["auto", "none", "atari", "classic_control", "football", "mujoco"]
    """Settings to start from; auto takes those for the kind of environment, if there are any. Flags override it."""
    config: Path | None
    """Start from this file, such as the config.json of another run, and no preset; flags override it."""
    env_arg: Annotated[Repeatable, tyro.conf.arg(metavar="KEY=VALUE")]
    """An argument for the environment's constructor, the value in JSON."""
    sync_arg: Annotated[Repeatable, tyro.conf.arg(metavar="KEY=VALUE")]
    """A setting of the sync rule, the value in JSON, such as local_updates=8."""
    trust: bool
    """Run whatever code the file of --config names, as if you had written it."""
    named: tyro.conf.Suppress[tuple[str, ...]]
    """The environment and the modules on the command line: those are named by the user. Not each of its words, for a
    file may well name a module `train`."""
    resume_or_start: bool
    """For jobs that may be killed and begun again: start, resume what is in --run-dir, or show that it is complete."""
    seeds: Annotated[str | None, tyro.conf.arg(metavar="1..5")]
    """Train these seeds as a group, 1..5 or 1,2,7: RUN_DIR/seed-1 and so on, each the run it would be alone. The same
    line again, with --run-dir, continues."""
    parallel: int | None
    """With --seeds: runs at a time. None: one per core."""
    cores: int | None
    """With --seeds: cores for all of them together. None: all that there are."""
    observers: ObserverFlags
    console: ConsoleFlags
    placement: PlacementFlags
    given: tyro.conf.Suppress[tuple[str, ...]]
    """Settings that the command line names, which a preset's others are fitted to."""

    def run(self) -> int:
        flags: _ExperimentFlags = getattr(self, "experiment")  # noqa: B009  (`train_command` adds it)
        if self.config is not None:
            imports = tuple(module for module in flags.imports if module in self.named)
            vouched = Vouched(env=flags.env in self.named, imports=imports, everything=self.trust)
            admit_file(self.config, plain(Experiment, flags), vouched)
            admit_placement(self.config, plain(Placement, self.placement), vouched)
        find_modules_here()
        env_args = {**flags.env_args, **dict(parse_env_arg(text) for text in self.env_arg)}
        sync_args = {**flags.sync_args, **dict(parse_sync_arg(text) for text in self.sync_arg)}
        asked = dataclasses.replace(
            plain(Experiment, flags), env=resolve_typed_env(flags.env), env_args=env_args, sync_args=sync_args
        )
        experiment = asked
        preset = preset_name(flags.env) if self.preset == "auto" and self.config is None else self.preset
        if preset in presets_of(self.algo):
            warn_on_stderr(f"preset    {preset} ({self.algo}); --preset none starts from the plain defaults")
            experiment = fitted(asked, self.given)
            for line in choices(asked, experiment):
                warn_on_stderr(line)
        config = Config(experiment, self.console.applied(plain(Placement, self.placement)))
        if self.seeds is not None:
            self._train_group(config, self.seeds)
            return 0
        watching = self.observers.watching()
        result = resume_or_start(config, watching) if self.resume_or_start else train_watched(config, watching)
        print_result(result)
        print_score(result, config.placement, watching)
        return 0

    def _train_group(self, config: Config, seeds: str) -> None:
        from htsrl.cli.group import train_group
        from htsrl.sweeps.job import TrainJob

        if "seed" in self.given:
            raise ConfigError(f"--seed and --seeds {seeds} both say which seeds; give one of them")
        job = TrainJob(config, self.observers.watching, config.placement.eval_episodes)
        train_group(job, seeds, self.parallel, self.cores, keeps_placement="placement" in self.given)


@cache
def train_command(algo: str) -> Any:
    """The command with the flags of an algorithm: those of its settings."""
    settings = settings_class(algo)
    algorithm = ("algorithm", settings, field(default_factory=settings))
    experiment = make_dataclass("_Experiment", [algorithm], bases=(_ExperimentFlags,), frozen=True)
    namespace = {"__doc__": "Train an agent and write a folder of results."}
    return make_dataclass("Train", [("experiment", experiment)], bases=(_TrainFlags,), frozen=True, namespace=namespace)


def train_defaults(arguments: Sequence[str]) -> Any:
    """The command's defaults: those of the algorithm and the file that the arguments name."""
    known = _first_look(arguments)
    # The environment stays a name for now: one on the command line goes before it.
    base = load_config(known.config, env=named_env(known.config) or NO_ENV) if known.config else None
    if base is not None and known.algo is None and isinstance(base.experiment.algorithm, NamedAlgorithm):
        admit_file(known.config, base.experiment, Vouched(env=True, everything="--trust" in arguments))
    if known.algo is not None or base is not None:
        find_modules_here()
    algo = known.algo or (algorithm_name(base.experiment.algorithm) if base else DEFAULT_ALGORITHM)
    try:
        command = train_command(algo)
    except ConfigError as error:
        raise ConfigError(f"--algo {algo}: {error}") from error
    if list(arguments[:1]) == ["train"]:
        arguments = with_new_names(arguments, Flags(command))
    name = _preset(known.preset, base, arguments, algo)
    settings = preset(NO_ENV, algo, name) if name != "none" else base and base.experiment
    experiment = _experiment_flags(command, algo, settings)
    if experiment.env is tyro.MISSING and (known.source or experiment.source):
        experiment = dataclasses.replace(experiment, env=NO_ENV)  # for evaluations alone, and so it may be left out
    placement = dataclasses.replace(_flags(PlacementFlags, base and base.placement), run_dir=None)
    given = Flags(command).given(arguments)
    if list(arguments[:1]) == ["train"]:
        others = {other: Flags(train_command(other)) for other in own_settings() if other != algo}
        refuse_names_from_elsewhere(arguments, Flags(command), others, algo)
    return command(
        algo,
        name,
        known.config,
        (),
        (),
        trust=False,
        named=(*Flags(command).words(arguments)[1:], *filter(None, known.imports)),
        resume_or_start=False,
        seeds=None,
        parallel=None,
        cores=None,
        observers=ObserverFlags(),
        console=ConsoleFlags(),
        placement=placement,
        given=tuple(sorted(given)),
        experiment=experiment,
    )


def _first_look(arguments: Sequence[str]) -> Namespace:
    """What the flags themselves, or their defaults, follow from."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--algo", nargs="?")
    parser.add_argument("--config", nargs="?", type=Path)
    parser.add_argument("--preset", nargs="?", default="auto")
    parser.add_argument("--source", nargs="?")
    parser.add_argument("--import", nargs="?", action="append", default=[], dest="imports")
    return parser.parse_known_args(arguments)[0]


def _experiment_flags(command: Any, algo: str, settings: Any) -> Any:
    experiment = _flags(typing.get_type_hints(command)["experiment"], settings)
    # Another algorithm of the file's is not even imported: nobody has said that its code may run.
    is_files = algorithm_name(experiment.algorithm) == algo
    algorithm = resolve_algorithm(experiment.algorithm) if is_files else settings_class(algo)()
    return dataclasses.replace(experiment, algorithm=algorithm)


def _preset(asked: str | None, base: Config | None, arguments: Sequence[str], algo: str) -> Any:
    """The preset's name; with auto, it is that of the environment, which is one of the arguments."""
    if asked not in {"auto", "none", *KINDS}:
        return "none"  # the parser refuses it in a moment
    if asked != "auto":
        if base is not None and asked != "none":
            raise ConfigError(f"--preset {asked} and --config are both something to start from; use one of them")
        return asked
    if base is not None:
        return "none"
    names = [name for name in map(preset_name, Flags(train_command(algo)).words(arguments)) if name]
    return next((name for name in names if name in presets_of(algo)), "none")


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
    return _parse_arg(text, "--env-arg", "gravity=9.81")


def parse_sync_arg(text: str) -> tuple[str, Any]:
    """The same of a setting of the sync rule."""
    return _parse_arg(text, "--sync-arg", "local_updates=8")


def _parse_arg(text: str, flag: str, example: str) -> tuple[str, Any]:
    key, equals, value = text.partition("=")
    if not (key and equals):
        raise ConfigError(f"{flag} {text} must be KEY=VALUE, such as {flag} {example}")
    try:
        return key, json.loads(value)
    except json.JSONDecodeError:
        return key, value


def print_info(evaluation: Evaluation) -> None:
    """What environments told of the episodes."""
    for key, mean in evaluation.info_means.items():
        print(printable(f"{'success' if key == SUCCESS else key:9} {mean:.4g}"))


def print_score(result: RunResult, placement: Placement, watching: Watching) -> None:
    """What evaluations beside training found, or one that is made now."""
    if placement.eval_every is not None:
        if result.eval_return is not None:
            print(f"score     {result.eval_return:.2f}, the last of {result.evaluations} evaluations")
        if result.best_eval_return is not None:
            best = f"{result.best_eval_return:.2f}, version {result.best_eval_version}"
            print(f"best      {best}; htsrl eval {result.run_dir} --best plays it")
        return
    if not placement.eval_episodes:
        return
    with EpisodeProgress(placement.eval_episodes, placement.progress) as progress:
        evaluation = evaluate(result.run_dir, placement.eval_episodes, watch=progress.update, trust=True)
    print(f"score     {evaluation.mean_return:.2f} +- {evaluation.std_return:.2f}, {placement.eval_episodes} episodes")
    print_info(evaluation)
    watching.tell_evaluation(evaluation, warn_on_stderr)


def print_result(result: RunResult) -> None:
    folder = RunFolder(result.run_dir)
    mean_return = "no episode ended" if result.mean_return is None else f"{result.mean_return:.2f}"
    print(f"return    {mean_return} (mean of the last 100 training episodes)")
    starting = f" ({result.starting_seconds:.1f} s until the first update)" if result.starting_seconds >= 1 else ""
    print(f"steps     {result.steps:,} in {result.seconds:.1f} s{starting}, {result.steps_per_second:,.0f} steps/s")
    print(f"digest    {result.digest}")
    print(f"curve     {result.run_dir / folder.curve_file.name}")
    print(f"run       {result.run_dir}")
