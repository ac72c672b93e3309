"""The ways in which the benches learn the same thing: the schedule, its lag, and what is done about it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, get_args, get_type_hints

from htsrl.config import Experiment
from htsrl.errors import ConfigError


@dataclass(frozen=True)
class Way:
    """A schedule and a correction."""

    schedule: Literal["hts", "sync", "lockstep", "async"]
    lag_correction: str = "auto"
    """Of the algorithm, or `auto`."""
    lag: int | None = None
    """Versions between acting and learning, where hts shall have others than one."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """In which images' encoders multiply."""


WAYS: Mapping[str, Way] = {
    "hts": Way("hts"),
    "sync": Way("sync"),
    "lockstep": Way("lockstep"),
    "async": Way("async"),
    "hts-bfloat16": Way("hts", precision="bfloat16"),
    "sync-bfloat16": Way("sync", precision="bfloat16"),
    "hts-importance": Way("hts", "importance"),
    "hts-vtrace": Way("hts", "vtrace"),
    "hts-recentered": Way("hts", "recentered"),
    "hts-decoupled": Way("hts", "decoupled"),
    "hts-delayed-update": Way("hts", "delayed_update"),
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
    network = replace(experiment.network, precision=way.precision)
    experiment = replace(experiment, schedule=way.schedule, lag=way.lag, network=network)
    if way.lag_correction == "auto":
        return experiment
    known = get_args(get_type_hints(type(experiment.algorithm)).get("lag_correction"))
    if way.lag_correction not in known:
        raise ConfigError(
            f"{name} has lag_correction={way.lag_correction}, and {experiment.env} is learned by an algorithm that "
            f"knows {', '.join(known) or 'none'}; leave it out"
        )
    return replace(experiment, algorithm=replace(experiment.algorithm, lag_correction=way.lag_correction))
