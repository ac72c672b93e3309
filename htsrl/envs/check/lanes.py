"""`htsrl check-env --lanes`: what a batched simulator keeps of the rules, and how fast it is."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator
from contextlib import closing

import numpy as np

from htsrl.config import Experiment
from htsrl.config.file import env_name
from htsrl.envs.check.findings import Finding, Report
from htsrl.envs.lanes.lane import LaneSimulator
from htsrl.envs.lanes.look import look_at_lane, play, same
from htsrl.envs.lanes.make import make_lane
from htsrl.errors import ConfigError
from htsrl.spaces import Interface


def check_lanes(experiment: Experiment, steps: int) -> Report:
    """Play one lane of the experiment for about so many steps of all its environments, twice."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what they say is found below
            look = look_at_lane(experiment)
    except ConfigError as error:
        return Report(env_name(experiment.env), (Finding("fail", "contract", str(error)),))
    return Report(env_name(experiment.env), tuple(_findings(experiment, look.interface, steps)))


def _findings(experiment: Experiment, interface: Interface, steps: int) -> Iterator[Finding]:
    num_envs = experiment.envs_per_simulator
    calls = max(-(-steps // num_envs), 1)
    yield Finding("ok", "contract", f"a lane of {num_envs} environments keeps its shapes, dtypes and bounds")
    with closing(make_lane(experiment)) as ours, closing(make_lane(experiment)) as theirs:
        begin = time.perf_counter()
        played = play(ours, interface, calls)
        seconds = time.perf_counter() - begin
        again = play(theirs, interface, calls)
        different = next((call for call, pair in enumerate(zip(played, again, strict=True)) if not same(*pair)), None)
        if different is None:
            yield Finding("ok", "same seed", f"two lanes with the same seeds and actions agree in {calls} calls")
        else:
            yield Finding(
                "fail", "same seed", f"two lanes with the same seeds and actions part at call {different}; draw all "
                "randomness from the seeds that reset is given",
            )  # fmt: skip
        ended = np.array([outcome.ended for _, outcome in played])
        yield _ends_finding(ours, ended, all(outcome.has_finals for _, outcome in played))
        yield _state_finding(ours)
    yield Finding("ok", "timing", f"{calls * num_envs / seconds:,.0f} steps/s of one core, checked and copied")


def _ends_finding(lane: LaneSimulator, ended: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], finals: bool) -> Finding:
    if not ended.any():
        return Finding("warn", "episodes", "no episode ended; play longer with --steps to see how the next ones begin")
    if not finals:
        return Finding(
            "warn", "episodes", "final observations are not shown: where a time limit cuts an episode, the value of "
            "the observation before its last step stands in; put them into info['final_obs']",
        )  # fmt: skip
    how = (
        "the next episode begins in a step of its own, from which nothing is learned"
        if lane.idles
        else "the next episode begins at once"
    )
    return Finding("ok", "episodes", f"{int(ended.sum())} ended; final observations are shown, and {how}")


def _state_finding(lane: LaneSimulator) -> Finding:
    if lane.can_save_state():
        return Finding("ok", "state", "can be saved and restored: a lane comes back at once when its process has died")
    return Finding(
        "warn", "state", "cannot be saved: when its process has died, or a run is resumed, all steps since the start "
        "are played again; give the simulator save_state and restore_state",
    )  # fmt: skip
