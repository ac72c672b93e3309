"""The ways in which the benches learn the same thing: the schedule, its lag, and what is done about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from htsrl.config import A2C, Experiment
from htsrl.errors import ConfigError


@dataclass(frozen=True)
class Way:
    """A schedule and a correction."""

    schedule: Literal["hts", "sync", "lockstep", "async"]
    lag_correction: Literal["auto", "importance", "vtrace", "none"] = "auto"
    lag: int | None = None
    """Versions between acting and learning, where hts shall have others than one."""


WAYS: Mapping[str, Way] = {
    "hts": Way("hts"),
    "sync": Way("sync"),
    "lockstep": Way("lockstep"),
    "async": Way("async"),
    "hts-importance": Way("hts", "importance"),
    "hts-vtrace": Way("hts", "vtrace"),
    "hts-uncorrected": Way("hts", "none"),
    "async-importance": Way("async", "importance"),
    "async-uncorrected": Way("async", "none"),
}
"""Unless the name says otherwise, the correction is what `auto` is: of A2C the delayed gradient under hts and V-trace
under async, of PPO the recentered clip. `lag-K` is hts with a lag of K."""


def way_named(name: str) -> Way:
    if numbered := re.fullmatch(r"lag-(\d{1,3})", name):
        return Way("hts", lag=int(numbered[1]))
    if name not in WAYS:
        raise ConfigError(f"way {name!r} is not known; choose among {', '.join(WAYS)}, lag-K")
    return WAYS[name]


def in_way(experiment: Experiment, name: str) -> Experiment:
    """The same experiment, learned in this way; ConfigError where its algorithm has no such correction."""
    way = way_named(name)
    experiment = replace(experiment, schedule=way.schedule, lag=way.lag)
    if way.lag_correction == "auto":
        return experiment
    if way.lag_correction == "none":
        return replace(experiment, algorithm=replace(experiment.algorithm, lag_correction="none"))
    if not isinstance(experiment.algorithm, A2C):
        raise ConfigError(f"{name} corrects the lag of A2C, and {experiment.env} is learned by PPO; leave it out")
    return replace(experiment, algorithm=replace(experiment.algorithm, lag_correction=way.lag_correction))
