"""The schedule that an experiment names."""

from __future__ import annotations

from htsrl.config import Experiment
from htsrl.schedules.asynchronous import Async
from htsrl.schedules.hts import Hts
from htsrl.schedules.replay import Replay, read_feedings, schedule_file
from htsrl.schedules.schedule import LooseSchedule, Schedule
from htsrl.schedules.sync import Sync


def make_schedule(experiment: Experiment) -> Schedule | LooseSchedule:
    if experiment.replay_schedule is not None:
        feedings = read_feedings(schedule_file(experiment.replay_schedule))
        return Replay(feedings[: experiment.num_intervals], experiment.num_envs, experiment.interval_steps)
    if experiment.schedule == "async":
        return Async()
    return Hts() if experiment.schedule == "hts" else Sync(step_barrier=experiment.schedule == "lockstep")
