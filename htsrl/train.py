"""Training, from a configuration to a folder of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from htsrl.checkpoint.of_run import experiment_document
from htsrl.config import Config, EnvFactory, Experiment, as_experiment
from htsrl.config.check import check
from htsrl.config.file import differences, with_settings
from htsrl.config.fit import choices
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.envs.lanes.look import warn_unless_lane_repeats
from htsrl.envs.looked_at import identity_of
from htsrl.envs.make import is_of_a_family
from htsrl.envs.repeats import warn_unless_it_repeats
from htsrl.errors import ConfigError
from htsrl.metrics.line_file import warn_on_stderr
from htsrl.metrics.result import RunResult
from htsrl.metrics.trackers import check_sinks
from htsrl.numerics import single_threaded
from htsrl.observers.dispatch import Watching
from htsrl.observers.observer import Observer
from htsrl.policies.choice import choices_for
from htsrl.processes.current_folder import current_folder_kept
from htsrl.processes.warnings_once import warnings_once
from htsrl.runs.data_source import with_dataset
from htsrl.runs.folder import RunFolder
from htsrl.runs.lock import RunLock
from htsrl.runs.recorded_schedule import with_recorded_schedule
from htsrl.runs.recorder import Standing
from htsrl.runs.resume import Changes, resume_watched
from htsrl.runs.run import run_to_end
from htsrl.runs.start import fingerprint_for, has_begun, initialise, survey
from htsrl.runs.trust import Vouched
from htsrl.runs.warm_start import as_begun, beginning_of, read_source, with_source


def train(
    config: Config | Experiment | str | EnvFactory,
    observers: Sequence[Observer] = (),
    strict_observers: bool = False,
    **settings: Any,
) -> RunResult:
    """Train an agent and write the run's folder.

    An environment in place of the configuration stands for one with the plain defaults. `settings` go before those of
    the configuration; they are fields of Experiment and of Placement by name.

    Observers are told what happens, on a thread beside the run; an exception of theirs ends the run only where they are
    strict.

    Raises ConfigError before anything starts if it cannot work. Ctrl-C ends the run, writes what there is, and is
    passed on.
    """
    asked = with_settings(config if isinstance(config, Config) else Config(as_experiment(config)), settings)
    return train_watched(asked, Watching(observers, strict_observers))


def train_watched(asked: Config, watching: Watching) -> RunResult:
    """The same for those who have more to tell the observers when the run is over."""
    if asked.placement.auto_tune:
        from htsrl.planning.tune import train_tuned

        return train_tuned(asked, watching, train_watched)
    checked = check(asked)
    check_sinks(checked.placement.sinks)
    source = read_source(checked.experiment)
    config = with_dataset(with_recorded_schedule(with_source(checked, source)))
    folder = RunFolder.planned(config)
    for line in choices(asked.experiment, config.experiment):
        warn_on_stderr(line)
    with current_folder_kept(), single_threaded(), warnings_once():
        blueprint = survey(config, folder, watching.is_watched)
        if config.experiment.network.precision == "auto":
            config = replace(config, experiment=blueprint.experiment)
            warn_on_stderr(f"chosen    --precision {config.experiment.network.precision}")
        if blueprint.collector is None:
            for line in choices_for(blueprint.interface.observations, config.experiment.network):
                warn_on_stderr(f"chosen    {line}")
        block = SharedArrays(blueprint.block_specs())
        try:
            has_envs = blueprint.collector is None and config.experiment.source is None
            if config.placement.check_env and blueprint.lane:
                warn_unless_lane_repeats(config.experiment)
            elif has_envs and config.placement.check_env and not is_of_a_family(config.experiment.env):
                experiment = config.experiment
                identity = identity_of(experiment.env, experiment.env_args, blueprint.origins)
                warn_unless_it_repeats(blueprint.make_env, identity)
            beginning = beginning_of(source, blueprint.build_policy(), folder, warn_on_stderr) if source else {}
            folder.create(config, fingerprint_for(blueprint), blueprint.interface, beginning)
            with RunLock.acquire(folder.path):
                initialise(blueprint, block, folder)
                return run_to_end(blueprint, block, folder, Standing(), watching)
        finally:
            block.close()


def resume_or_start(config: Config, watching: Watching | None = None) -> RunResult:
    """What a job that may be killed and begun again asks for: start, resume, or the result of a run that is complete.

    A folder that holds another experiment is refused.
    """
    path, watching = config.placement.run_dir, watching or Watching()
    if path is None:
        raise ConfigError("to resume or start a run, name its folder with run_dir (--run-dir)")
    if not has_begun(path):
        return train_watched(config, watching)
    folder, config = RunFolder.existing(path), check(config)
    config = with_dataset(replace(config, experiment=as_begun(config.experiment, folder)))
    env = None if isinstance(config.experiment.env, str) else config.experiment.env
    config = _with_precision_of(folder, env, config)
    # What the folder names is compared, not imported: it may be somebody else's.
    changed = list(differences(experiment_document(folder.load_config(env)), experiment_document(config)))
    if changed:
        raise ConfigError(
            f"{path} holds a run of another experiment; these settings differ:\n  "
            + "\n  ".join(changed)
            + f"\nSet them back, choose another run_dir, or change the run's length with `htsrl resume {path}`"
        )
    if folder.is_complete():
        return folder.run_result()
    changes = Changes(placement=config.placement, env=env, vouched=Vouched(placement=True))
    return resume_watched(folder, changes, watching)


def _with_precision_of(folder: RunFolder, env: EnvFactory | None, config: Config) -> Config:
    """`auto` is what it was when the run began."""
    network = config.experiment.network
    if network.precision != "auto":
        return config
    begun = folder.load_config(env).experiment.network.precision
    return replace(config, experiment=replace(config.experiment, network=replace(network, precision=begun)))
