"""A run from its first barrier, or the one that it goes on from, to its end, and what it leaves behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

from htsrl.checkpoint.archive import Archive
from htsrl.checkpoint.background import Written
from htsrl.checkpoint.of_run import newest_checkpoint_of
from htsrl.config.file import env_name
from htsrl.dataflow.exchange import Cost, Exchange
from htsrl.dataflow.learner_slots import LearnerSlots
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.versions import is_intact
from htsrl.errors import EnvironmentFailure, StopRequested, TrainingDiverged
from htsrl.metrics.episode_progress import EpisodeProgress
from htsrl.metrics.episodes import Row
from htsrl.metrics.evaluation import Evaluation
from htsrl.metrics.gauges import Counters
from htsrl.metrics.report import UpdateReport
from htsrl.metrics.result import RunResult
from htsrl.observers.dispatch import Dispatch, Watching
from htsrl.observers.observer import ObservedRun
from htsrl.observers.parameters import read_parameters
from htsrl.placements.assignment import worker_layout
from htsrl.placements.blueprint import Blueprint
from htsrl.placements.inline import run_inline
from htsrl.placements.instruments import track_names
from htsrl.placements.processes import run_processes
from htsrl.placements.supervisor import Listeners
from htsrl.roles.shared import Shared
from htsrl.runs.beside_training import BesideTraining, EvaluationListeners
from htsrl.runs.filming import Filming
from htsrl.runs.folder import RunFolder
from htsrl.runs.recorder import Recorder, Standing
from htsrl.runs.reproducer import reproducer_of
from htsrl.timeline.document import TimelineFile

if TYPE_CHECKING:
    from torch import nn


def run_to_end(
    blueprint: Blueprint, block: SharedArrays, folder: RunFolder, standing: Standing, watching: Watching
) -> RunResult:
    """Train from where the memory stands; whatever ends the run, its results and its state are written."""
    from htsrl.metrics.curve import draw_learning_curve

    config, shared = blueprint.config, blueprint.shared(block)
    parameters = blueprint.build_parameters(block, device="cpu")
    exchange = shared.exchange
    recorder = Recorder(
        config,
        folder,
        lambda: _readings(blueprint, exchange),
        standing,
        lambda: _counters(blueprint, exchange),
        lambda version: _episodes_of(block, exchange, len(parameters.modules), version),
    )
    archive = Archive(folder.checkpoints_dir, config.placement.keep_checkpoints, recorder.say, recorder.sync)
    run = run_inline if config.placement.backend == "inline" else run_processes
    dispatch = Dispatch(watching, recorder.say, lambda version: read_parameters(parameters, shared, version))

    beside = _evaluation_beside(blueprint, folder, recorder, dispatch, standing)
    filming = Filming(config, blueprint.interface, folder, recorder.say)
    ended_in_order = False
    timeline = TimelineFile(block, track_names(blueprint), folder.path) if config.placement.timeline else None

    def at_the_end(what: str, write: Callable[[], None]) -> None:
        last_things.callback(_unless_the_disk_is_full, what, write, recorder.say)

    def on_report(report: UpdateReport) -> None:
        recorder.record(report)
        dispatch.update(report)
        filming.after_update(report.version)
        if beside is not None:
            beside.after_update(report)

    def on_checkpoint(written: Written) -> None:
        path = archive.take_in(written)
        if path is not None:
            recorder.note_checkpoint(written.version)
            dispatch.checkpoint(written.version, path)

    def end_evaluations() -> None:
        if beside is not None:
            policy = parameters.module(recorder.version)
            _end_evaluations(beside, recorder, policy if ended_in_order else None)

    def end_films() -> None:
        filming.finish(recorder.version, parameters.module(recorder.version) if ended_in_order else None)

    with ExitStack() as last_things:  # from the last to the first, and each of them even if another fails
        title = env_name(config.experiment.env)
        at_the_end("the curve", lambda: draw_learning_curve(folder.metrics_file, folder.curve_file, title))
        last_things.callback(recorder.close)
        last_things.callback(lambda: dispatch.close(recorder.result()))
        at_the_end("the films", end_films)
        at_the_end("the result", lambda: folder.save_result(recorder.result()))
        at_the_end("the evaluations", end_evaluations)  # last, for they may take long, but for the result
        at_the_end("the policy", lambda: folder.save_policy(parameters.module(recorder.version), recorder.version))
        if timeline:
            at_the_end("the timeline", timeline.write)
        at_the_end("the state", lambda: _save_state(archive, blueprint, block, recorder.version))
        try:
            if blueprint.on_threads and config.placement.executor_threads is None:
                recorder.say(
                    f"steps wait: {config.experiment.num_envs} environments step on threads; with --executor-threads "
                    "False, in turn in a process per core"
                )
            dispatch.start(ObservedRun(config, folder.path, standing.version, standing.steps, dispatch.request_stop))
            has_ended = standing.is_finished or (beside is not None and beside.goal_is_held(standing.version))
            if not has_ended:  # else it was killed with nothing left to do but to write the results
                listeners = Listeners(on_report, on_checkpoint, recorder.note_restart)
                if timeline:
                    listeners = replace(listeners, on_replaced=timeline.note_restart, on_look=timeline.write_if_due)
                run(blueprint, block, listeners)
            if recorder.goal_reached:
                goal, reached = config.experiment.stop_at_return, recorder.result().mean_return
                recorder.say(
                    f"stopped after update {recorder.version}: the mean return of {reached:g} reached stop_at_return="
                    f"{goal:g}; `htsrl resume {folder.shown} --stop-at-return none` goes on"
                )
            ended_in_order = True
        except StopRequested as request:
            ended_in_order = True
            recorder.note_stop(str(request))
            lifted = " --stop-at-eval-return None" if beside and beside.goal_is_held(recorder.version) else ""
            command = f"htsrl resume {folder.shown}{lifted}"
            recorder.say(f"stopped after update {recorder.version}: {request}; `{command}` goes on from there")
        except KeyboardInterrupt:
            recorder.say(
                f"interrupted after update {recorder.version}; `htsrl resume {folder.shown}` goes on from there"
            )
            raise
        except TrainingDiverged:
            update = shared.exchange.published_version
            fields = shared.source.fields(update)
            batch = {name: fields[name] for name in shared.storages.spec.hashed_names}
            at_the_end("the batch", lambda: folder.save_diverged_batch(update, batch))
            raise
        except EnvironmentFailure as failure:
            if failure.env is not None:
                _keep_reproducer(blueprint, shared, folder, failure.env, recorder)
            raise
    return recorder.result()


def _evaluation_beside(
    blueprint: Blueprint, folder: RunFolder, recorder: Recorder, dispatch: Dispatch, standing: Standing
) -> BesideTraining | None:
    if blueprint.config.placement.eval_every is None:
        return None

    def on_evaluation(evaluation: Evaluation, metrics: Mapping[str, float]) -> None:
        assert evaluation.steps is not None
        recorder.record_evaluation(evaluation.steps, metrics)
        dispatch.evaluation(evaluation)

    listeners = EvaluationListeners(recorder.say, on_evaluation)
    beside = BesideTraining(blueprint.config, blueprint.interface, folder, listeners)
    for past in beside.record.past:
        if past.steps > standing.steps:  # a sink that hides what follows that step would hide them too
            recorder.record_evaluation(past.steps, past.metrics)
    beside.begin(standing.version)
    return beside


def _end_evaluations(beside: BesideTraining, recorder: Recorder, last_policy: nn.Module | None) -> None:
    """Of a run that came to an end, the last version is evaluated; of one that was interrupted, it is not."""
    version = recorder.version
    try:
        if last_policy is not None:
            with EpisodeProgress(beside.num_episodes, "off") as progress:
                beside.finish(version, last_policy, progress.update)
    finally:
        beside.close(will_go_on=last_policy is None)
        recorder.note_evaluations(beside.summary(version))


def _save_state(archive: Archive, blueprint: Blueprint, block: SharedArrays, recorded_version: int) -> None:
    """Of what digest and metrics speak of: a version is whole when it is recorded, if perhaps not published yet."""
    shared = blueprint.shared(block)
    shared.exchange.published_version = max(shared.exchange.published_version, recorded_version)
    archive.save(newest_checkpoint_of(blueprint.config, block, shared))


def _keep_reproducer(blueprint: Blueprint, shared: Shared, folder: RunFolder, env: int, recorder: Recorder) -> None:
    path = folder.path / f"failed_environment_{env}.json"
    reproducer = reproducer_of(blueprint.config.experiment, blueprint.interface.actions, shared, env)
    _unless_the_disk_is_full("the reproducer", lambda: folder.save_json(path, reproducer), recorder.say)
    recorder.say(
        f"what led environment {env} there, seed {reproducer['reset_seed']} and its actions, is in "
        f"{folder.shown / path.name}; once it is mended, `htsrl resume {folder.shown}` goes on after update "
        f"{recorder.version}"
    )


def _unless_the_disk_is_full(what: str, write: Callable[[], None], say: Callable[[str], None]) -> None:
    try:
        write()
    except OSError as error:
        say(f"warning: {what} could not be written: {error}")


def _readings(blueprint: Blueprint, exchange: Exchange) -> dict[str, float]:
    """What the workers have written about themselves so far."""
    readings = _waited_seconds(blueprint, exchange)
    if blueprint.config.placement.measure_costs:
        spent = exchange.cpu_seconds.sum(axis=0)
        spent[Cost.TOTAL] += time.process_time()
        readings |= {f"cpu/{cost.name.lower()}_seconds": float(spent[cost]) for cost in Cost}
    return readings


def _episodes_of(block: SharedArrays, exchange: Exchange, num_slots: int, version: int) -> list[Row]:
    """The last episodes as of a version; none where a later version has taken its place."""
    rows = [tuple(row) for row in LearnerSlots(block).episodes(version)]
    return rows if is_intact(version, exchange.published_version, num_slots) else []


def _counters(blueprint: Blueprint, exchange: Exchange) -> Counters:
    """For the terminal; inline, everybody takes turns and nobody waits."""
    waited = {} if blueprint.config.placement.backend == "inline" else _waited_seconds(blueprint, exchange)
    by_kind = {name.removeprefix("wait/").removesuffix("_seconds"): seconds for name, seconds in waited.items()}
    return Counters(by_kind, exchange.env_seconds.copy())


def _waited_seconds(blueprint: Blueprint, exchange: Exchange) -> dict[str, float]:
    """Seconds waited so far, as the mean over the workers that host a role."""
    hosted = worker_layout(blueprint)
    kinds = {
        # On threads, environments wait each by itself, and their worker hardly ever for all of them.
        "executor": [i for i, of in enumerate(hosted) if of.executor is not None and not blueprint.on_threads],
        "actor": [i for i, worker in enumerate(hosted) if worker.actor is not None],
        "learner": [i for i, worker in enumerate(hosted) if worker.learner],
        "gradient_worker": [i for i, worker in enumerate(hosted) if worker.gradient_worker is not None],
    }
    waited = exchange.waited_seconds
    return {f"wait/{kind}_seconds": float(waited[workers].mean()) for kind, workers in kinds.items() if workers}
