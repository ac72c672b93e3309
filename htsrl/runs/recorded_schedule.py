"""Repeating an asynchronous run from its recorded schedule: looked at before anything starts."""

from __future__ import annotations

from dataclasses import replace

from htsrl.checkpoint.of_run import experiment_document
from htsrl.config import Config
from htsrl.config.file import differences
from htsrl.errors import ConfigError
from htsrl.runs.folder import RunFolder
from htsrl.sources.provenance import read_provenances


def with_recorded_schedule(config: Config) -> Config:
    """The configuration as it is, unless it is to replay a run: then of the same experiment, and without restarts.

    An environment that was brought back would ask for answers of versions that are gone by then.
    """
    run_dir = config.experiment.replay_schedule
    if run_dir is None:
        return config
    folder = RunFolder.existing(run_dir)
    experiment = replace(config.experiment, replay_schedule=run_dir.absolute())
    recorded = folder.load_config(env=None if isinstance(experiment.env, str) else experiment.env)
    before, now = experiment_document(recorded), experiment_document(replace(config, experiment=experiment))
    changed = [line for line in differences(before, now) if not line.startswith("replay_schedule:")]
    if changed:
        raise ConfigError(
            f"{run_dir} can only be replayed as the experiment that it was; these settings differ:\n  "
            + "\n  ".join(changed)
            + f"\nTake them all from there: `htsrl train --config {folder.config_file} --replay-schedule {run_dir}`"
        )
    if not read_provenances(folder.schedule_file):
        raise ConfigError(f"{folder.schedule_file} is empty: the run finished no update that could be replayed")
    return Config(experiment, replace(config.placement, restart_workers=False))
