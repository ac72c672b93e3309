"""Resuming a run from its newest checkpoint, to the bits that it would have had anyway."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from htsrl.checkpoint.cut import restore_cut, with_info_of
from htsrl.checkpoint.files import Checkpoint, holds_any, newest_valid
from htsrl.checkpoint.of_run import experiment_document
from htsrl.config import Config, EnvFactory, Experiment, Placement
from htsrl.config.algorithm_settings import algorithm_name, is_own
from htsrl.config.check import check
from htsrl.config.data_source import DataSource, data_identity
from htsrl.config.file import differences, from_document
from htsrl.dataflow.learner_slots import LearnerSlots
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.errors import CheckpointDamaged, ConfigError, RunFolderError
from htsrl.metrics.line_file import drop_lines_after, warn_on_stderr
from htsrl.metrics.result import RunResult
from htsrl.metrics.sinks import read_json_lines
from htsrl.metrics.trackers import check_sinks
from htsrl.numerics import single_threaded
from htsrl.observers.dispatch import Watching
from htsrl.observers.observer import Observer
from htsrl.placements.blueprint import Blueprint
from htsrl.processes.current_folder import current_folder_kept
from htsrl.processes.warnings_once import warnings_once
from htsrl.runs.changes_of_numerics import changes_of_numerics
from htsrl.runs.evaluations import EvaluationRecord, drop_evaluations_after
from htsrl.runs.filming import drop_films_after
from htsrl.runs.folder import RunFolder
from htsrl.runs.lock import RunLock
from htsrl.runs.recorder import Standing
from htsrl.runs.run import run_to_end
from htsrl.runs.saved_policy import drop_policy_after
from htsrl.runs.start import fingerprint_for, survey
from htsrl.runs.starting_over import or_as_it_was, start_over
from htsrl.runs.trust import NOTHING, Vouched, admit_folder, admit_placement, admitted_config

MAY_CHANGE = ("total_steps:", "stop_at_return:")
"""They say when a run ends; what it is up to there has the same bits."""
DOCUMENT_KEYS = {"version", "steps", "mean_return", "goal_reached", "experiment"}


def resume(
    run_dir: Path | str,
    total_steps: int | None = None,
    placement: Placement | None = None,
    env: str | EnvFactory | None = None,
    allow_different_numerics: bool = False,
    observers: Sequence[Observer] = (),
    strict_observers: bool = False,
    imports: Sequence[str] = (),
    trust: bool = False,
    stop_at_return: float | Literal["as before"] | None = "as before",
    source: str | None = None,
) -> RunResult:
    """Resume the run in `run_dir`, to the same bits as if it had never stopped.

    One that ended before its first checkpoint starts over. Only `total_steps`, `stop_at_return` (None lifts it) and
    the placement may differ from before. `env` is for a run whose environment was a callable that cannot be imported,
    `source` for one whose dataset was moved.
    docs/security.md tells of `imports` and `trust`.
    """
    vouched = Vouched(imports=imports, everything=trust, placement=placement is not None)
    changes = Changes(total_steps, stop_at_return, placement, env, allow_different_numerics, vouched, source)
    return resume_watched(RunFolder.existing(Path(run_dir)), changes, Watching(observers, strict_observers))


@dataclass(frozen=True)
class Changes:
    """How a run is resumed otherwise than before."""

    total_steps: int | None = None
    stop_at_return: float | Literal["as before"] | None = "as before"
    placement: Placement | None = None
    env: str | EnvFactory | None = None
    allow_different_numerics: bool = False
    vouched: Vouched = NOTHING
    source: str | None = None
    """Where the dataset lies now; it must be the same one."""

    def experiment(self, before: Experiment) -> Experiment:
        planned = before
        if self.total_steps is not None:
            planned = replace(planned, total_steps=self.total_steps)
        if self.source is not None and before.source is not None:
            place = DataSource.parse(self.source).absolute().place
            planned = replace(planned, source=str(DataSource(place, data_identity(before.source))))
        if self.stop_at_return != "as before":
            planned = replace(planned, stop_at_return=self.stop_at_return)
        return planned


def resume_watched(folder: RunFolder, changed: Changes, watching: Watching) -> RunResult:
    """The same for those who have more to tell the observers when the run is over."""
    admit_folder(folder.config_file, changed.vouched)  # the lock is a file in it
    with RunLock.acquire(folder.path), current_folder_kept(), single_threaded(), warnings_once():
        config = admitted_config(folder.config_file, changed.env, changed.vouched)
        config = check(replace(config, placement=changed.placement or config.placement))
        admit_placement(folder.config_file, config.placement, changed.vouched)
        check_sinks(config.placement.sinks)
        before, config = config.experiment, check(replace(config, experiment=changed.experiment(config.experiment)))
        _check_is_no_replay(folder, config)
        # Results without a checkpoint are those of a run that somebody has tidied up: they are worth more than a start.
        if not holds_any(folder.checkpoints_dir) and not folder.has_result():
            return start_over(config, before, folder, watching, changed.allow_different_numerics)
        checkpoint = _checkpoint(folder)
        _check_same_experiment(checkpoint, config)
        _check_there_is_work(folder, checkpoint, config)
        blueprint = survey(config, folder, watching.is_watched, changed.allow_different_numerics)
        fingerprint = fingerprint_for(blueprint)
        changes = changes_of_numerics(folder, fingerprint, changed.allow_different_numerics)
        block = SharedArrays(blueprint.block_specs())
        try:
            version = int(checkpoint.document["version"])
            _say_what_annealing_does(before, config.experiment, version)
            restore_cut(arrays_for(checkpoint, blueprint), version, blueprint.shared(block), block)
            standing = _standing(folder, checkpoint, config, LearnerSlots(block))
            with or_as_it_was(folder):
                folder.forget_result()  # of a run that was complete: a job would take it for that of this one
                if changes or config.experiment.is_recorded or _is_of_other_length(before, config.experiment):
                    # Before the change is noted: whoever resumes after a kill in between finds it, and drops them too.
                    drop_evaluations_after(folder, version, warn_on_stderr)
                    drop_films_after(folder, checkpoint.document["steps"])
                    drop_policy_after(folder, version)
                folder.save_config(config)
                if changes:
                    folder.note_change_of_numerics(version, changes, fingerprint)
            return run_to_end(blueprint, block, folder, standing, watching)
        finally:
            block.close()


def _is_of_other_length(before: Experiment, now: Experiment) -> bool:
    """From here on it may come to other versions: what is annealed is so over the whole run."""
    return before.num_intervals != now.num_intervals


def _say_what_annealing_does(before: Experiment, now: Experiment, version: int) -> None:
    """What is annealed over a run is annealed over more of it, so it does not continue from where it was."""
    if now.num_replicas > 1 and _is_of_other_length(before, now):
        warn_on_stderr(
            f"total_steps={now.total_steps:,} instead of {before.total_steps:,}: parameters of learners are averaged "
            "after its last update, so the rounds are not those of a run that was as long from the start"
        )
    algorithm = now.algorithm
    if not is_own(algorithm_name(algorithm)) and _is_of_other_length(before, now):
        left_was, left = (max(1 - version / of.num_intervals, 0.0) for of in (before, now))
        warn_on_stderr(
            f"total_steps={now.total_steps:,} instead of {before.total_steps:,}: whatever {algorithm_name(algorithm)} "
            f"anneals by run.remaining is stretched, which was {left_was:.3g} at update {version} until now and "
            f"continues from {left:.3g}"
        )
        return
    for name in ("learning_rate", "clip_range"):
        if not getattr(algorithm, f"anneal_{name}", False) or not _is_of_other_length(before, now):
            continue
        was, will_be = (getattr(algorithm, name) * (1 - version / of.num_intervals) for of in (before, now))
        warn_on_stderr(
            f"total_steps={now.total_steps:,} instead of {before.total_steps:,} stretches the annealing: the "
            f"{name.replace('_', ' ')}, {max(was, 0.0):.3g} at update {version} until now, continues from "
            f"{will_be:.3g} and falls to 0"
        )


def _checkpoint(folder: RunFolder) -> Checkpoint:
    found = newest_valid(folder.checkpoints_dir, lambda line: warn_on_stderr(f"warning: {line}"))
    if found is None:
        raise RunFolderError(
            f"{folder.shown} holds no whole checkpoint to resume from; `htsrl train --config "
            f"{folder.config_file}` starts the same run over"
        )
    missing = DOCUMENT_KEYS - found[1].document.keys()
    if missing:
        raise CheckpointDamaged(
            f"{found[0]} does not say its {', '.join(sorted(missing))}; it was written by an incompatible htsrl version"
        )
    return found[1]


def experiment_changes(checkpoint: Checkpoint, config: Config) -> list[str]:
    """What makes the configuration another experiment than the checkpoint is of, in words."""
    # What it does not say was not there yet when it was written, and so is the default.
    document = checkpoint.document.get("experiment")
    if not isinstance(document, dict):
        raise CheckpointDamaged(f"the checkpoint is of no experiment, but of {str(document)[:40]!r}")
    complete = experiment_document(from_document({"experiment": document}, env="its own"))
    before, now = {**complete, "env": document.get("env")}, experiment_document(config)
    return [line for line in differences(before, now) if not line.startswith(MAY_CHANGE)]


def _check_same_experiment(checkpoint: Checkpoint, config: Config) -> None:
    if changed := experiment_changes(checkpoint, config):
        raise ConfigError(
            "a run is resumed only as the experiment that it was; these settings were changed:\n  "
            + "\n  ".join(changed)
            + "\nSet them back, or begin a new run with `htsrl train --config`"
        )


def arrays_for(checkpoint: Checkpoint, blueprint: Blueprint) -> Mapping[str, NDArray[Any]]:
    """As the run logs infos now, which is a matter of placement."""
    now = tuple(blueprint.trajectory.info_names)
    before = checkpoint.document.get("info_keys", now)  # unknown of older ones
    if not isinstance(before, list | tuple) or not all(isinstance(key, str) for key in before):
        raise CheckpointDamaged(f"the checkpoint says that it logs {before!r}, which are no names")
    return with_info_of(checkpoint.arrays, before, now)


def _has_all_it_wanted(checkpoint: Checkpoint, config: Config) -> bool:
    version, goal_reached = checkpoint.document["version"], _goal_is_reached(checkpoint, config)
    return bool(goal_reached or version >= config.experiment.num_intervals)


def _goal_is_reached(checkpoint: Checkpoint, config: Config) -> bool:
    """By the goal of now: the checkpoint speaks of the one that it was written with, and of the return."""
    goal, reached = config.experiment.stop_at_return, checkpoint.document["mean_return"]
    if goal == checkpoint.document["experiment"].get("stop_at_return"):
        return bool(checkpoint.document["goal_reached"])
    # A higher goal may be met by the episodes so far all the same; the learner looks after its next update.
    return goal is not None and bool(checkpoint.document["goal_reached"]) and reached is not None and reached >= goal


def _check_is_no_replay(folder: RunFolder, config: Config) -> None:
    """Its environments may need versions once more that are gone."""
    if config.experiment.replay_schedule is not None:
        raise ConfigError(
            f"{folder.shown} replays {config.experiment.replay_schedule}, which can only be done from the beginning; "
            f"start it over with `htsrl train --config {folder.config_file}`"
        )


def _check_there_is_work(folder: RunFolder, checkpoint: Checkpoint, config: Config) -> None:
    """Training, or at least the results of a run that was killed before it could write them."""
    experiment, document = config.experiment, checkpoint.document
    if folder.is_complete():
        _check_eval_goal(folder, document["version"], config)
    if not _has_all_it_wanted(checkpoint, config) or not folder.is_complete():
        return
    if _goal_is_reached(checkpoint, config):
        raise ConfigError(
            f"the run has ended: its mean return of {document['mean_return']:g} reached "
            f"stop_at_return={experiment.stop_at_return:g}; continue with --stop-at-return none or a higher number, or "
            f"evaluate it with `htsrl eval {folder.shown}`"
        )
    raise ConfigError(
        f"the run has made its {document['steps']:,} steps; ask for more with total_steps (--total-steps), which is "
        f"{experiment.total_steps:,}"
    )


def _check_eval_goal(folder: RunFolder, version: int, config: Config) -> None:
    goal, times = config.placement.stop_at_eval_return, config.placement.eval_goal_held
    if EvaluationRecord(folder, warn_on_stderr).holds(goal, times, version):
        raise ConfigError(
            f"the run has ended: its last evaluation{'s' * (times > 1)} reached stop_at_eval_return={goal:g}; continue "
            f"with --stop-at-eval-return None or a higher number, or play its best with `htsrl eval {folder.shown} "
            "--best`"
        )


def _standing(folder: RunFolder, checkpoint: Checkpoint, config: Config, slots: LearnerSlots) -> Standing:
    """Where the run stands; what its files say of later barriers is removed, for they will be written again."""
    version, steps = checkpoint.document["version"], checkpoint.document["steps"]
    for file in [folder.digest_file, *([folder.schedule_file] if config.experiment.is_recorded else [])]:
        if drop_lines_after(file, "update", version - 1) != (version - 1 if version else None):
            raise RunFolderError(
                f"{file} lacks barriers before version {version}, which the checkpoint is of; put back the "
                "file that belongs there, or start over with `htsrl train --config`"
            )
    for file in (folder.metrics_file, folder.histograms_file):
        drop_lines_after(file, "step", steps)
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
