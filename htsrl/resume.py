"""Going on with a run from its newest checkpoint, to the bits that it would have had anyway."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from htsrl.checkpoint.cut import restore_cut
from htsrl.checkpoint.files import Checkpoint, newest_valid
from htsrl.checkpoint.of_run import experiment_document
from htsrl.config import Config, EnvFactory, Placement
from htsrl.config_check import check
from htsrl.config_file import differences, from_document
from htsrl.dataflow.learner_slots import LearnerSlots
from htsrl.dataflow.memory import SharedArrays
from htsrl.errors import CheckpointDamaged, ConfigError, RunFolderError
from htsrl.metrics.line_file import drop_lines_after, warn_on_stderr
from htsrl.metrics.recorder import Standing
from htsrl.metrics.sinks import read_json_lines
from htsrl.numerics import single_threaded
from htsrl.run import run_to_end
from htsrl.run_folder import RunFolder, RunResult
from htsrl.run_lock import RunLock
from htsrl.train import fingerprint_for, survey

DOCUMENT_KEYS = {"version", "steps", "mean_return", "goal_reached", "experiment"}


def resume(
    run_dir: Path | str,
    total_steps: int | None = None,
    placement: Placement | None = None,
    env: str | EnvFactory | None = None,
    allow_different_numerics: bool = False,
) -> RunResult:
    """Go on with the run in `run_dir`, to the same bits as if it had never stopped.

    Only `total_steps` and the placement may differ from before. `env` is for a run whose environment was a callable
    that cannot be imported.
    """
    folder = RunFolder.existing(Path(run_dir))
    with RunLock.acquire(folder.path), single_threaded():
        config = _config(folder, total_steps, placement, env)
        _check_is_no_replay(folder, config)
        checkpoint = _checkpoint(folder)
        _check_same_experiment(checkpoint, config)
        _check_there_is_work(folder, checkpoint, config)
        changes = _changes_of_numerics(folder, config, allow_different_numerics)
        blueprint = survey(config, folder)
        memory = SharedArrays(blueprint.memory_specs())
        try:
            version = int(checkpoint.document["version"])
            restore_cut(checkpoint.arrays, version, blueprint.shared(memory), memory)
            standing = _standing(folder, checkpoint, config, LearnerSlots(memory))
            with _or_as_it_was(folder):
                folder.save_config(config)
                if changes:
                    folder.note_change_of_numerics(version, changes, fingerprint_for(config.placement))
            return run_to_end(blueprint, memory, folder, standing)
        finally:
            memory.close_fd()


@contextmanager
def _or_as_it_was(folder: RunFolder) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunFolderError(
            f"cannot write to {folder.path}: {error.strerror}; make room there and resume again, nothing is lost"
        ) from error


def _config(
    folder: RunFolder, total_steps: int | None, placement: Placement | None, env: str | EnvFactory | None
) -> Config:
    config = folder.load_config(env)
    if total_steps is not None:
        config = replace(config, experiment=replace(config.experiment, total_steps=total_steps))
    return check(replace(config, placement=placement or config.placement))


def _checkpoint(folder: RunFolder) -> Checkpoint:
    found = newest_valid(folder.checkpoints_dir, lambda line: warn_on_stderr(f"warning: {line}"))
    if found is None:
        raise RunFolderError(
            f"{folder.path} holds no whole checkpoint to go on from; `htsrl train --config "
            f"{folder.config_file}` begins the same run anew"
        )
    missing = DOCUMENT_KEYS - found[1].document.keys()
    if missing:
        raise CheckpointDamaged(f"{found[0]} does not say its {', '.join(sorted(missing))}; it is of another htsrl")
    return found[1]


def _check_same_experiment(checkpoint: Checkpoint, config: Config) -> None:
    # What it does not say was not there yet when it was written, and so is the default.
    document = checkpoint.document["experiment"]
    complete = experiment_document(from_document({"experiment": document}, env="its own"))
    before, now = {**complete, "env": document.get("env")}, experiment_document(config)
    changed = [line for line in differences(before, now) if not line.startswith("total_steps:")]
    if changed:
        raise ConfigError(
            "a run goes on only as the experiment that it was; these settings were changed:\n  "
            + "\n  ".join(changed)
            + "\nSet them back, or begin a new run with `htsrl train --config`"
        )


def _has_all_it_wanted(checkpoint: Checkpoint, config: Config) -> bool:
    version, goal_reached = checkpoint.document["version"], checkpoint.document["goal_reached"]
    return bool(goal_reached or version >= config.experiment.num_intervals)


def _check_is_no_replay(folder: RunFolder, config: Config) -> None:
    """Its environments may need versions once more that are gone."""
    if config.experiment.replay_schedule is not None:
        raise ConfigError(
            f"{folder.path} replays {config.experiment.replay_schedule}, which can only be done from the beginning; "
            f"begin it anew with `htsrl train --config {folder.config_file}`"
        )


def _check_there_is_work(folder: RunFolder, checkpoint: Checkpoint, config: Config) -> None:
    """Training, or at least the results of a run that was killed before it could write them."""
    experiment, document = config.experiment, checkpoint.document
    if not _has_all_it_wanted(checkpoint, config) or not folder.is_complete():
        return
    if document["goal_reached"]:
        raise ConfigError(
            f"the run has ended: its mean return of {document['mean_return']:g} reached "
            f"stop_at_return={experiment.stop_at_return:g}; evaluate it with `htsrl eval {folder.path}`"
        )
    raise ConfigError(
        f"the run has made its {document['steps']:,} steps; ask for more with total_steps (--total-steps), which is "
        f"{experiment.total_steps:,}"
    )


def _changes_of_numerics(folder: RunFolder, config: Config, allowed: bool) -> list[str]:
    changes = folder.fingerprint().differences(fingerprint_for(config.placement))
    if changes and not allowed:
        raise ConfigError(
            "the run was computed differently before:\n  "
            + "\n  ".join(changes)
            + "\nIt cannot go on to the same bits here; --allow-different-numerics goes on all the same, and marks the "
            "run for good"
        )
    return changes


def _standing(folder: RunFolder, checkpoint: Checkpoint, config: Config, slots: LearnerSlots) -> Standing:
    """Where the run stands; what its files say of later barriers is removed, for they will be written again."""
    version, steps = checkpoint.document["version"], checkpoint.document["steps"]
    for file in [folder.digest_file, *([folder.schedule_file] if config.experiment.queues else [])]:
        if drop_lines_after(file, "update", version - 1) != (version - 1 if version else None):
            raise RunFolderError(
                f"{file} lacks barriers before version {version}, which the checkpoint is of; put back the "
                "file that belongs there, or begin anew with `htsrl train --config`"
            )
    drop_lines_after(folder.metrics_file, "step", steps)
    lines = read_json_lines(folder.metrics_file) if folder.metrics_file.exists() else []
    seconds = (lines[-1].get("time/time_elapsed") or 0.0) if lines else 0.0
    return Standing(
        version=version,
        steps=steps,
        digest=slots.chain(version) if version else "",
        mean_return=checkpoint.document["mean_return"],
        seconds=seconds,
        env_errors=slots.env_errors(version),
        is_finished=_has_all_it_wanted(checkpoint, config),
    )
