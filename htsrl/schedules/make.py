"""The schedule that an experiment names."""

from __future__ import annotations

from htsrl.config import Experiment
from htsrl.config.schedule_names import checked_schedule
from htsrl.schedules.asynchronous import Async
from htsrl.schedules.fixed_lag import FixedLag
from htsrl.schedules.offline import Offline
from htsrl.schedules.recorded import RecordedSchedule
from htsrl.schedules.schedule import Schedule
from htsrl.sources.provenance import read_provenances, schedule_file


def make_schedule(experiment: Experiment) -> Schedule:
    if experiment.replay_schedule is not None:
        provenances = read_provenances(schedule_file(experiment.replay_schedule))[: experiment.num_intervals]
        sizes = experiment.num_simulators, experiment.interval_steps
        return RecordedSchedule(provenances, *sizes, num_storages=experiment.queue_length)
    schedule: Schedule = checked_schedule(experiment.schedule, experiment)
    return schedule


def hts(experiment: Experiment) -> FixedLag:
    return FixedLag(1 if experiment.lag is None else experiment.lag)


def sync(experiment: Experiment) -> FixedLag:
    return FixedLag(0)


def lockstep(experiment: Experiment) -> FixedLag:
    return FixedLag(0, step_barrier=True)


def asynchronous(experiment: Experiment) -> Async:
    return Async(experiment.queue_length)


def offline(experiment: Experiment) -> Offline:
    return Offline()
