"""A run again, in this process and in memory of its own: its folder is read and never written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from htsrl.checkpoint.cut import restore_cut
from htsrl.checkpoint.files import Checkpoint
from htsrl.config import Config, Placement
from htsrl.dataflow.learner_slots import LearnerSlots
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.digest import BatchHash, Link, hash_batch
from htsrl.errors import ConfigError, TrainingDiverged
from htsrl.metrics.report import UpdateReport
from htsrl.placements.blueprint import Blueprint
from htsrl.replay.film import Film
from htsrl.replay.origin import Origin
from htsrl.replay.outputs import KeptPolicies, OutputsOfActors
from htsrl.roles.executor import NO_BELLS, Executor
from htsrl.roles.role import advance_all
from htsrl.roles.shared import Shared
from htsrl.runs.folder import RunFolder
from htsrl.runs.resume import arrays_for
from htsrl.runs.start import fingerprint_for, initialise, survey
from htsrl.sources.provenance import BatchProvenance, read_provenances
from htsrl.sources.source import Fields


@dataclass(frozen=True)
class RebuiltUpdate:
    """One update as it was made again; its arrays are those of the next one as soon as that is asked for."""

    update: int
    fields: Fields
    """All that it learned from, `[T, B, ...]`."""
    outputs: OutputsOfActors
    provenance: BatchProvenance | None
    """Which rollouts are in the batch, where the update's number does not say it."""
    metrics: Mapping[str, float]
    link: Link | None
    """None where the update failed, as it did in the run."""
    batch_hash: BatchHash | None = None
    """Instead of a link."""
    failure: str = ""


def rebuilt_config(config: Config, folder: RunFolder) -> Config:
    """The same experiment, inline and silent; an asynchronous one repeats what it has written down."""
    # It may have ended at another goal than that of now; whoever rebuilds knows how far to go.
    if config.experiment.num_replicas > 1:
        raise ConfigError(
            f"the run has learners={config.experiment.learners} under sync_rule={config.experiment.sync_rule}, and "
            "only runs whose learners share their parameters (one, or sync_rule=every) can be rebuilt"
        )
    experiment = replace(config.experiment, stop_at_return=None, replay_schedule=None)
    if experiment.mixes_versions and not experiment.is_recorded:
        raise ConfigError(
            f"under schedule={experiment.schedule} updates learn from other rollouts than those of their numbers "
            "(mixes_versions), and nothing is written down of them; such a run cannot be rebuilt"
        )
    if experiment.is_recorded:
        if not read_provenances(folder.schedule_file):
            raise ConfigError(f"{folder.schedule_file} is empty: the run finished no update that could be rebuilt")
        experiment = replace(experiment, replay_schedule=folder.path)
    before = config.placement
    quiet = Placement("inline", num_executors=1, device=before.device, log_info=before.log_info, progress="off")
    return Config(experiment, replace(quiet, tensorboard=False, check_env=False))


def blueprint_of(config: Config, folder: RunFolder, allow_different_numerics: bool) -> tuple[Blueprint, list[str]]:
    """The blueprint, and what it is computed by that the run was not; ConfigError where that is not allowed."""
    blueprint = survey(config, folder)
    changes = folder.fingerprint().differences(fingerprint_for(blueprint))
    if changes and not allow_different_numerics:
        raise ConfigError(
            "the run was computed differently (then / now):\n  "
            + "\n  ".join(changes)
            + "\nIt cannot be rebuilt to the same bits here: put back what it was computed by. "
            "--allow-different-numerics (allow_different_numerics=True) rebuilds it all the same, and says where it "
            "parts from the run's digest"
        )
    return blueprint, changes


class Rebuild:
    """Makes updates again, one after another, from an origin on."""

    def __init__(self, blueprint: Blueprint, folder: RunFolder, origin: Origin, film: Film | None = None) -> None:
        self._blueprint = blueprint
        self._folder = folder
        self._origin = origin
        self._film = film
        self._report: UpdateReport | None = None
        self._fields: Fields = {}
        self.first_chain: str | None = None
        """The digest's chain as the checkpoint has it; at the start it follows from version 0."""

    @contextmanager
    def updates(self) -> Iterator[Iterator[RebuiltUpdate]]:
        """All that follow; environments are closed and memory is given back in the end."""
        block = SharedArrays(self._blueprint.block_specs())
        try:
            shared = self._blueprint.shared(block)
            if self._origin.checkpoint is None:
                initialise(self._blueprint, block, self._folder)
            else:
                self._restore(self._origin.checkpoint, block, shared)
            executor = self._build_executor(shared)
            try:
                yield self._made(block, shared, executor)
            finally:
                executor.close()
        finally:
            block.close()

    def _restore(self, checkpoint: Checkpoint, block: SharedArrays, shared: Shared) -> None:
        version = self._origin.version
        restore_cut(arrays_for(checkpoint, self._blueprint), version, shared, block)
        self.first_chain = LearnerSlots(block).chain(version)

    def _build_executor(self, shared: Shared) -> Executor:
        blueprint, film = self._blueprint, self._film
        if blueprint.lane:
            if film is not None:
                raise ConfigError("lanes draw nothing, so there are no frames; ask without frames (--video)")
            return blueprint.build_executor(0, shared, NO_BELLS)
        makers = [blueprint.make_env] * blueprint.experiment.num_envs
        if film is not None:
            makers[film.env] = film.make_env
        runners = [blueprint.build_env_runner(env, shared, make) for env, make in enumerate(makers)]
        return Executor(runners, NO_BELLS)

    def _made(self, block: SharedArrays, shared: Shared, executor: Executor) -> Iterator[RebuiltUpdate]:
        blueprint, parameters = self._blueprint, self._blueprint.build_parameters(block)
        actor = blueprint.build_actor(0, shared, block, lambda envs: None, parameters)
        source = shared.source

        def keep_fields(update: int) -> None:
            self._fields = source.fields(update)

        def keep_report(report: UpdateReport) -> None:
            self._report = report

        learner = blueprint.build_learner(block, shared, parameters, lambda: None, keep_report, keep_fields)
        recorded = read_provenances(self._folder.schedule_file) if shared.schedule.repeats else []
        snapshots = KeptPolicies(blueprint, parameters, recorded)
        snapshots.keep(learner.update)
        while not learner.finished:
            update, self._report = learner.update, None
            outputs = OutputsOfActors(blueprint, snapshots, source.behaviour_version(update))
            provenance = recorded[update] if recorded else None
            try:
                progressed = executor.advance()
                if self._film is not None:
                    self._film.look(executor)
                progressed |= advance_all([actor, learner])
            except TrainingDiverged as error:
                hashed = {name: self._fields[name] for name in blueprint.trajectory.hashed_names}
                whole = hash_batch(hashed, blueprint.experiment.num_envs)
                yield RebuiltUpdate(update, self._fields, outputs, provenance, {}, None, whole, str(error))
                return
            assert progressed, f"nobody can proceed: {executor.waits_for()}; {learner.waits_for()}"
            report: UpdateReport | None = self._report  # the learner has written it meanwhile
            if report is not None:
                yield RebuiltUpdate(update, self._fields, outputs, provenance, report.metrics, report.link)
                snapshots.keep(report.version)
