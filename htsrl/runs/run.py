"""A run from its first barrier, or the one that it is resumed from, to its end, and what it leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from htsrl.checkpoint.archive import Archive
from htsrl.checkpoint.background import Written
from htsrl.checkpoint.of_run import newest_checkpoint_of
from htsrl.config.file import env_name
from htsrl.dataflow.exchange import Exchange
from htsrl.dataflow.learner_slots import LearnerSlots
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.versions import is_intact
from htsrl.errors import EnvironmentFailure, StopRequested, TrainingDiverged
from htsrl.metrics.episodes import Row
from htsrl.metrics.evaluation import Evaluation
from htsrl.metrics.pace import PLAIN_SECONDS, Pace
from htsrl.metrics.report import UpdateReport
from htsrl.metrics.result import RunResult
from htsrl.observers.dispatch import Dispatch, Watching
from htsrl.observers.observer import ObservedRun
from htsrl.observers.parameters import read_parameters
from htsrl.placements.assignment import worker_counts
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
from htsrl.runs.stall import StallFile, StallWatch
from htsrl.runs.worker_counters import counters, readings
from htsrl.timeline.document import TimelineFile

if TYPE_CHECKING:
    from torch import nn


def run_to_end(
    blueprint: Blueprint, block: SharedArrays, folder: RunFolder, standing: Standing, watching: Watching
) -> RunResult:
    """Train from where the memory stands; whatever ends the run, its results and its state are written."""
    run = _Run(blueprint, block, folder, standing, watching)
    with ExitStack() as last_things:
        run.write_at_the_end(last_things)
        run.train()
    run.raise_what_observers_failed_with()
    return run.recorder.result()


class _Run:
    """A run with all who hear of it."""

    def __init__(
        self, blueprint: Blueprint, block: SharedArrays, folder: RunFolder, standing: Standing, watching: Watching
    ) -> None:
        config, shared = blueprint.config, blueprint.shared(block)
        parameters, exchange = blueprint.build_parameters(block, device="cpu"), shared.exchange
        self._blueprint, self._block, self._shared = blueprint, block, shared
        self._folder, self._standing, self._parameters = folder, standing, parameters
        self.recorder = Recorder(
            config,
            folder,
            lambda: readings(blueprint, exchange),
            standing,
            lambda: counters(blueprint, exchange),
            lambda version: _episodes_of(block, exchange, len(parameters.modules), version),
        )
        say = self.recorder.say
        keep = config.placement.keep_checkpoints
        self._archive = Archive(folder.checkpoints_dir, keep, say, self.recorder.sync, standing.version)
        self._dispatch = Dispatch(
            watching,
            say,
            lambda version: read_parameters(parameters, shared, version),
            config.placement.deadline_seconds,
            takes_turns=config.placement.backend == "inline",
        )
        self._beside = _evaluation_beside(blueprint, folder, self.recorder, self._dispatch, standing)
        self._filming = Filming(config, blueprint.interface, folder, say)
        has_timeline = config.placement.timeline
        self._timeline = TimelineFile(block, track_names(blueprint), folder.path) if has_timeline else None
        self._workers = worker_counts(blueprint)
        env_workers = {env: track.name for track in track_names(blueprint) for env in track.envs}
        self._stalls = StallWatch(shared, [env_workers[env] for env in sorted(env_workers)])
        self._stall_file = StallFile(folder.path)
        self._ended_in_order = False

    def write_at_the_end(self, last_things: ExitStack) -> None:
        """From the last to the first, and each of them even if another fails."""
        from htsrl.metrics.curve import draw_learning_curve

        recorder, folder, title = self.recorder, self._folder, env_name(self._blueprint.experiment.env)
        self._last_things = last_things
        self._at_the_end("the curve", lambda: draw_learning_curve(folder.metrics_file, folder.curve_file, title))
        last_things.callback(recorder.close)
        last_things.callback(self._stall_file.remove)
        last_things.callback(lambda: self._dispatch.close(recorder.result()))
        self._at_the_end("the films", lambda: self._filming.finish(recorder.version, self._last_policy()))
        self._at_the_end("the result", lambda: folder.save_result(recorder.result()))
        self._at_the_end("the evaluations", self._end_evaluations)  # last, for they may take long, but for the result
        self._at_the_end("the policy", lambda: folder.save_policy(self._policy(), recorder.version))
        if collector := self._blueprint.collector:
            self._at_the_end("the model", lambda: collector.save_result(folder.path, self._policy()))
        if self._timeline:
            self._at_the_end("the timeline", self._timeline.write)
        self._at_the_end(
            "the state", lambda: _save_state(self._archive, self._blueprint, self._block, recorder.version)
        )

    def train(self) -> None:
        recorder, folder = self.recorder, self._folder.shown
        try:
            self._train()
            self._ended_in_order = True
        except StopRequested as request:
            self._ended_in_order = True
            recorder.note_stop(str(request))
            lifted = self._beside is not None and self._beside.goal_is_held(recorder.version)
            command = f"htsrl resume {folder}{' --stop-at-eval-return None' if lifted else ''}"
            recorder.say(f"stopped after update {recorder.version}: {request}; `{command}` continues from there")
        except KeyboardInterrupt:
            recorder.say(f"interrupted after update {recorder.version}; `htsrl resume {folder}` continues from there")
            raise
        except TrainingDiverged:
            self._keep_diverged_batch()
            raise
        except EnvironmentFailure as failure:
            if failure.env is not None:
                _keep_reproducer(self._blueprint, self._shared, self._folder, failure.env, recorder)
            raise

    def raise_what_observers_failed_with(self) -> None:
        self._dispatch.raise_failure()

    def _train(self) -> None:
        config, standing, recorder = self._blueprint.config, self._standing, self.recorder
        if self._blueprint.on_threads and config.placement.executor_threads is None:
            recorder.say(
                f"steps wait: {config.experiment.num_envs} environments step on threads; with --executor-threads "
                "False, in turn in a process per core"
            )
        stop = self._dispatch.request_stop
        self._dispatch.start(ObservedRun(config, self._folder.path, standing.version, standing.steps, stop))
        goal_is_held = self._beside is not None and self._beside.goal_is_held(standing.version)
        if not (standing.is_finished or goal_is_held):  # else it was killed with only the results left to write
            run = _run_of(config.placement.backend)
            run(self._blueprint, self._block, self._listeners())
        if recorder.goal_reached:
            goal, reached = config.experiment.stop_at_return, recorder.result().mean_return
            recorder.say(
                f"stopped after update {recorder.version}: the mean return of {reached:g} reached stop_at_return="
                f"{goal:g}; `htsrl resume {self._folder.shown} --stop-at-return none` continues"
            )

    def _listeners(self) -> Listeners:
        note_restart = self.recorder.note_restart
        listeners = Listeners(
            self._on_report,
            self._on_checkpoint,
            note_restart,
            on_line=self.recorder.say,
            on_other_numerics=self._on_other_numerics,
            on_look=self._on_look,
        )
        return replace(listeners, on_replaced=self._timeline.note_restart) if self._timeline else listeners

    def _on_report(self, report: UpdateReport) -> None:
        is_new = report.version > self.recorder.version
        self._stalls.note_update()
        self._stall_file.remove()
        self.recorder.record(report)
        if is_new:
            self._dispatch.update(report)
        self._filming.after_update(report.version)
        if self._beside is not None:
            self._beside.after_update(report)

    def _on_checkpoint(self, written: Written) -> None:
        path = self._archive.take_in(written)
        if path is not None:
            self.recorder.note_checkpoint(written.version)
            self._dispatch.checkpoint(written.version, path)

    def _on_other_numerics(self, version: int, changes: Sequence[str]) -> None:
        self._folder.note_other_numerics(version, changes)
        self.recorder.say("\n  ".join([f"from update {version} on, the run is marked for its numerics:", *changes]))

    def _on_look(self) -> None:
        self._dispatch.take_turn()
        self.recorder.note_starting(self._workers)
        if stall := self._stalls.look():
            self.recorder.note_stall(stall.seconds, stall.text)
            self._stall_file.write(stall)
        if self._timeline:
            self._timeline.write_if_due()

    def _at_the_end(self, what: str, write: Callable[[], None]) -> None:
        self._last_things.callback(_unless_the_disk_is_full, what, write, self.recorder.say)

    def _end_evaluations(self) -> None:
        if self._beside is not None:
            _end_evaluations(self._beside, self.recorder, self._last_policy())

    def _policy(self) -> Any:
        """The newest version's."""
        return self._parameters.module(self.recorder.version)

    def _last_policy(self) -> Any:
        """Of a run that ended in order."""
        return self._policy() if self._ended_in_order else None

    def _keep_diverged_batch(self) -> None:
        update = self._shared.exchange.published_version
        fields = self._shared.source.fields(update)
        batch = {name: fields[name] for name in self._shared.storages.spec.hashed_names}
        self._at_the_end("the batch", lambda: self._folder.save_diverged_batch(update, batch))


def _run_of(backend: str) -> Callable[[Blueprint, SharedArrays, Listeners], None]:
    if backend == "ray":
        from htsrl.cluster.run import run_ray

        return run_ray
    return run_inline if backend == "inline" else run_processes


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
            pace = Pace(PLAIN_SECONDS)
            pace.is_due()  # the first time is now, and too early

            def watch(played: int, steps: int) -> None:
                if pace.is_due():
                    recorder.note_played(played, beside.num_episodes)

            beside.finish(version, last_policy, watch)
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
        f"{folder.shown / path.name}; once it is mended, `htsrl resume {folder.shown}` continues after update "
        f"{recorder.version}"
    )


def _unless_the_disk_is_full(what: str, write: Callable[[], None], say: Callable[[str], None]) -> None:
    try:
        write()
    except OSError as error:
        say(f"warning: {what} could not be written: {error}")


def _episodes_of(block: SharedArrays, exchange: Exchange, num_slots: int, version: int) -> list[Row]:
    """The last episodes as of a version; none where a later version has taken its place."""
    rows = [tuple(row) for row in LearnerSlots(block).episodes(version)]
    return rows if is_intact(version, exchange.published_version, num_slots) else []
