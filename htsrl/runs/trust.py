"""Whether the code that a configuration names may run: what htsrl wrote for this user, and what the user names himself.

A configuration names code in eight places: a callable or `module:` as the environment, modules to import, a network, an
algorithm, a schedule and a sync rule of one's own, a run on text, and a Ray cluster, whose head may run code here. From
a file of unknown origin only environments of known simulators are made, with plain arguments, on this machine.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from htsrl.config import NO_ENV, Config, EnvFactory, Experiment, Placement
from htsrl.config.algorithm_settings import NamedAlgorithm, registered
from htsrl.config.file import CALLABLE, parse_config, read_config, resolve_algorithm, resolve_env
from htsrl.config.schedule_names import is_named_code
from htsrl.config.sync_rule_names import is_named_code as is_named_rule
from htsrl.errors import ConfigError, UntrustedFolder
from htsrl.placements.collector import collector_of
from htsrl.runs.signatures import why_unsigned

KNOWN_PACKAGES = frozenset({"gymnasium", "htsrl", "ale_py", "minigrid", "vizdoom", "nle", "gfootball", "mpe2"})
PETTINGZOO_FAMILIES = frozenset({"atari", "butterfly", "classic", "magent", "mpe", "mpe2", "sisl"})
PLAIN_ID = re.compile(r"[\w-]+(/[\w.-]+)?")
PLAIN_TEXT = re.compile(r"(?![.~])[\w .,+-]*")
"""No path and no `module:`: simulators take files by name, and some of them contain more than numbers."""


@dataclass(frozen=True)
class Vouched:
    """What the user has named on the command line or in Python."""

    env: bool = False
    """An environment of the user's own is in place of the file's; not so its arguments."""
    imports: Sequence[str] = ()
    everything: bool = False
    placement: bool = False
    """The placement is the user's own, and not the file's."""


NOTHING = Vouched()


def admitted_config(config_file: Path, env: str | EnvFactory | None = None, vouched: Vouched = NOTHING) -> Config:
    """The configuration with its environment's callable imported; UntrustedFolder before any strange code runs."""
    data = read_config(config_file)
    config = parse_config(data, config_file, env)
    _admit(config_file, data, strange_code(config.experiment, replace(vouched, env=env is not None)), vouched)
    experiment = config.experiment
    resolved = replace(experiment, env=resolve_env(experiment.env), algorithm=resolve_algorithm(experiment.algorithm))
    return replace(config, experiment=resolved)


def admitted_network(config_file: Path, vouched: Vouched = NOTHING) -> Config:
    """The configuration for those who build its network, but not its environment, which stays a name.

    A schedule of the user's own is left out: no network depends on it, and asking it anything would import it. Only
    an algorithm that may run can say how its policy draws actions.
    """
    data = read_config(config_file)
    config = parse_config(data, config_file)
    _admit(config_file, data, _strange_network(config.experiment), vouched)
    experiment = config.experiment
    if is_named_code(experiment.schedule):
        experiment = replace(experiment, schedule=Experiment.schedule, lag=None)
    if isinstance(algorithm := experiment.algorithm, NamedAlgorithm):
        is_admitted = vouched.everything or not _is_strange(algorithm.name, set(vouched.imports))
        if is_admitted or why_unsigned(config_file, data) is None:
            with suppress(ConfigError):  # where its module is gone, most policies can be built without
                experiment = replace(experiment, algorithm=resolve_algorithm(algorithm))
    return replace(config, experiment=experiment)


def admit_file(config_file: Path, experiment: Experiment, vouched: Vouched) -> None:
    """For `train --config`: `experiment` is what came of the file and the flags beside it."""
    _admit(config_file, read_config(config_file), strange_code(experiment, vouched), vouched)


def admit_placement(config_file: Path, used: Placement, vouched: Vouched = NOTHING) -> None:
    """For those who train: `used` is what came of the file and the flags beside it."""
    data = read_config(config_file)
    before = parse_config(data, config_file, env=NO_ENV).placement
    _admit(config_file, data, () if vouched.placement else strange_cluster(before, used), vouched)


def admit_folder(config_file: Path, vouched: Vouched = NOTHING) -> None:
    """For those who write to a run's folder: what they append or cut would be the file that a link leads to."""
    if vouched.everything or (link := _not_plain(config_file.parent)) is None:
        return
    if reason := why_unsigned(config_file, read_config(config_file)):
        raise UntrustedFolder(
            f"{config_file} was not written by htsrl for you ({reason}), and {link} is a link, a pipe or a device, "
            "which a run would write to; remove it, or, if you trust whoever made the folder, say --trust (trust=True)"
        )


def _not_plain(folder: Path) -> Path | None:
    """The first that is neither a file nor a folder."""
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            place = Path(path, name)
            mode = place.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                return place
    return None


def strange_cluster(of_file: Placement, used: Placement) -> Iterator[str]:
    """The cluster that a run would join because the file says so, in words: what it sends is unpickled here."""
    if used.backend == "ray" and used.ray_address is not None and used.ray_address == of_file.ray_address:
        yield f"that of the Ray cluster {used.ray_address!r}"


def strange_code(experiment: Experiment, vouched: Vouched) -> Iterator[str]:
    """What would run that is neither a known simulator's nor named by the user, in words."""
    yield from _strange_network(experiment)
    named = set(vouched.imports)
    if isinstance(algorithm := experiment.algorithm, NamedAlgorithm) and _is_strange(algorithm.name, named):
        yield f"the algorithm {algorithm.name!r}"
    if is_named_code(experiment.schedule) and experiment.schedule not in named:
        yield f"the schedule {experiment.schedule!r}"
    if is_named_rule(experiment.sync_rule) and experiment.sync_rule not in named:
        yield f"the sync rule {experiment.sync_rule!r}"
    yield from (f"the module {module!r}" for module in experiment.imports if module not in named)
    is_of_file = isinstance(experiment.env, str) and experiment.env != NO_ENV and not vouched.env
    if is_of_file and (problem := _strange_env(str(experiment.env), named)):
        yield problem
    # Also for an environment that the user names: its arguments are still the file's.
    yield from (
        f"the environment's argument {name}={value!r}"
        for name, value in experiment.env_args.items()
        if not _is_plain(value)
    )


def _is_strange(algorithm: str, named: set[str]) -> bool:
    """Neither installed under this name, nor named by the user, whole or by its module."""
    return algorithm not in registered() and not {algorithm, algorithm.partition(":")[0]} & named


def is_trusted(config_file: Path) -> bool:
    """Whether htsrl wrote this file for this user."""
    return why_unsigned(config_file, read_config(config_file)) is None


def _admit(config_file: Path, data: bytes, strange: Iterable[str], vouched: Vouched) -> None:
    if vouched.everything or not (found := list(strange)):
        return
    if reason := why_unsigned(config_file, data):
        raise UntrustedFolder(
            f"{config_file} was not written by htsrl for you ({reason}), and names code to run: {', '.join(found)}; "
            "name the environment and its modules yourself (--env, --import; in Python env, imports), or, if you trust "
            "whoever wrote the file, say --trust (trust=True)"
        )


def _strange_network(experiment: Experiment) -> Iterator[str]:
    if isinstance(experiment.network.policy, str):
        yield f"the network {experiment.network.policy!r}"


def _strange_env(name: str, named: set[str]) -> str | None:
    import gymnasium

    from htsrl.envs.make import FAMILIES, import_modules

    if name.startswith(CALLABLE):
        return f"the environment {name!r}"
    module, _, env_id = name.rpartition(":")
    if module and module not in named:
        return f"the module {module!r} of the environment {name!r}"
    if not PLAIN_ID.fullmatch(env_id) or collector_of(env_id) is not None:
        return f"the environment {name!r}"
    if env_id.startswith("pettingzoo/"):
        family = env_id.removeprefix("pettingzoo/").partition(".")[0]
        return None if family in PETTINGZOO_FAMILIES else f"the environment {name!r}"
    if any(env_id.startswith(prefix) for prefix in FAMILIES):
        return None
    import_modules(sorted(named))  # the user's own modules may register it
    spec = gymnasium.registry.get(env_id)
    if spec is None:
        return None  # nothing can run, and whoever makes the environment says so
    entry_point: Any = spec.entry_point
    maker = entry_point if isinstance(entry_point, str) else getattr(entry_point, "__module__", "")
    package = str(maker).partition(":")[0].partition(".")[0]
    is_known = package in KNOWN_PACKAGES or package in {module.partition(".")[0] for module in named}
    return None if is_known else f"the environment {name!r} of {package or 'an unknown package'}"


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return PLAIN_TEXT.fullmatch(value) is not None
    if isinstance(value, dict):
        return all(_is_plain(part) for pair in value.items() for part in pair)
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float)
