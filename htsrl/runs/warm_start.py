"""Warm starts: a run begins with the weights of another, taken over by name and shape.

The source is read once, before anything starts, and none of its code runs. What came of it is kept in the new run's
folder, so that starting over and resuming never look at the source again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import xxhash

from htsrl.checkpoint.policy_file import policy_bytes
from htsrl.config import Config, Experiment
from htsrl.config.init_from import InitFrom
from htsrl.digest import read_links
from htsrl.errors import ConfigError, RunFolderError, UntrustedFolder
from htsrl.numerics import single_threaded
from htsrl.plain_files import read_document
from htsrl.runs.folder import RunFolder
from htsrl.runs.private_file import json_bytes
from htsrl.runs.saved_policy import SavedPolicy, read_policy_file, saved_policy
from htsrl.runs.trust import admitted_network

if TYPE_CHECKING:
    from torch import Tensor

    from htsrl.policies.policy import Policy


@dataclass(frozen=True)
class Source:
    """The weights of a run by name, and what identifies them."""

    asked: InitFrom
    """With the absolute path of its folder."""
    version: int
    digest: str | None
    """The run's digest at that version; None where its folder does not say."""
    parameters: str
    """Hash of the weights."""
    tensors: Mapping[str, Tensor]

    @property
    def pinned(self) -> InitFrom:
        """The same weights and no others, whatever becomes of the run."""
        known = f"{self.digest} {self.version} {self.parameters}"
        return InitFrom(self.asked.run, self.version, xxhash.xxh3_128_hexdigest(known.encode()))


@dataclass(frozen=True)
class Handover:
    """What a policy was given of a source, by name."""

    taken_over: list[str]
    with_statistics: bool
    """Whether running statistics, of observations or rewards, are among them."""
    new: dict[str, str]
    """What the policy has of its own, and why."""
    unused: list[str]
    """What the source has beside it."""


def read_source(experiment: Experiment) -> Source | None:
    """The weights that an experiment asks for; ConfigError or RunFolderError where they cannot be had."""
    if experiment.init_from is None:
        return None
    asked = InitFrom.parse(experiment.init_from).absolute()
    folder = RunFolder.existing(asked.run)
    saved = saved_policy(folder, asked.version)
    tensors = saved.tensors if not saved.is_flat else _named(folder, saved)
    source = Source(asked, saved.version, _digest_at(folder, saved.version), _hash_of(tensors), tensors)
    if asked.identity not in ("", source.pinned.identity):
        raise ConfigError(
            f"version {saved.version} of {asked.run} is not what it was when init_from={asked} was written; to begin "
            f"with what is there now, use {asked.run}@{saved.version}"
        )
    return source


def with_source(config: Config, source: Source | None) -> Config:
    """The configuration, which says to the bit what it begins with."""
    if source is None:
        return config
    return replace(config, experiment=replace(config.experiment, init_from=str(source.pinned)))


def beginning_of(source: Source, policy: Policy, folder: RunFolder, say: Callable[[str], None]) -> dict[Path, bytes]:
    """The files that a run begins from, for its folder; says what the policy was given."""
    handover = hand_over(source, policy)
    say("\n".join(_described(source, handover)))
    identified = {"digest": source.digest, "parameters": source.parameters, "version": source.version}
    document = {"asked": str(source.asked), "run": str(source.asked.run), **identified, **asdict(handover)}
    return {folder.initial_policy_file: policy_bytes(policy, version=0), folder.init_from_file: json_bytes(document)}


def initial_policy(experiment: Experiment, policy: Policy, folder: RunFolder) -> Policy:
    """Version 0: the policy as it was built, or what a warm start has left in the folder."""
    if experiment.init_from is None:
        return policy
    path = folder.initial_policy_file
    try:
        read_policy_file(path).fill(policy)
    except (OSError, ValueError) as error:
        raise RunFolderError(
            f"{path}, which the run begins with, cannot be read: {error}; start over with `htsrl train --config "
            f"{folder.config_file}` and another run_dir"
        ) from error
    return policy


def as_begun(experiment: Experiment, folder: RunFolder) -> Experiment:
    """An experiment that asks for what the run in the folder has asked for, as that has found it."""
    if experiment.init_from is None or not folder.init_from_file.exists():
        return experiment
    try:
        found = read_document(folder.init_from_file)
        is_same = found["asked"] == str(InitFrom.parse(experiment.init_from).absolute())
        source = Source(InitFrom(Path(found["run"])), found["version"], found["digest"], found["parameters"], {})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise RunFolderError(f"{folder.init_from_file} cannot be read: {error}") from error
    return replace(experiment, init_from=str(source.pinned)) if is_same else experiment


def hand_over(source: Source, policy: Policy) -> Handover:
    """Give the policy what fits; statistics that belong together, such as mean and count, together or not at all."""
    import torch

    own, there, statistics = policy.state_dict(), source.tensors, _statistics(policy)
    new: dict[str, str] = {}
    for names in [*([name] for name, _ in policy.named_parameters()), *statistics]:
        if misfits := {name: why for name in names if (why := _misfit(own[name], there.get(name)))}:
            new |= {name: misfits.get(name, f"as {', '.join(misfits)}") for name in names}
            continue
        for name in names:
            if not torch.isfinite(there[name]).all():
                raise ConfigError(f"init_from={source.asked}: its {name} holds numbers that are not finite")
            with torch.no_grad():
                own[name].copy_(there[name])
    known = [*(name for name, _ in policy.named_parameters()), *(name for names in statistics for name in names)]
    taken_over = [name for name in known if name not in new]
    # A bias of one number fits everywhere.
    if not any(own[name].ndim > 1 for name in taken_over):
        raise ConfigError(
            f"init_from={source.asked}: nothing of it fits, for none of its weight matrices has the name and the shape "
            f"of one here ({_some(f'{name} {why}' for name, why in new.items())}); use a run with the same kind of "
            "network, or leave it out"
        )
    in_groups = {name for names in statistics for name in names}
    return Handover(taken_over, not in_groups.isdisjoint(taken_over), new, sorted(there.keys() - own.keys()))


def _statistics(policy: Policy) -> list[list[str]]:
    """The names of running statistics, module by module."""
    kept = policy.state_dict().keys()
    owners = [(path, owner) for path, owner in policy.named_modules() if getattr(owner, "holds_statistics", False)]
    groups = [[f"{path}.{name}" for name, _ in owner.named_buffers(recurse=False)] for path, owner in owners]
    return [kept_names for names in groups if (kept_names := [name for name in names if name in kept])]


def _misfit(here: Tensor, there: Tensor | None) -> str | None:
    if there is None:
        return "is not there"
    if here.shape != there.shape:
        return f"is {_shown(there.shape)} there, {_shown(here.shape)} here"
    return None if here.dtype == there.dtype else f"is {there.dtype} there, {here.dtype} here"


def _shown(shape: Iterable[int]) -> str:
    return "x".join(map(str, shape)) or "a number"


def _some(texts: Iterable[str], most: int = 3) -> str:
    first = list(texts)
    return ", ".join(first[:most]) + (", ..." if len(first) > most else "")


def _described(source: Source, handover: Handover) -> Iterable[str]:
    taken, all_of_it = len(handover.taken_over), len(handover.taken_over) + len(handover.new)
    statistics = ", running statistics among them" if handover.with_statistics else ""
    yield (
        f"init      {source.asked.run}, version {source.version}: {taken} of {all_of_it} tensors taken over"
        f"{statistics}; the optimizer starts new"
    )
    lines = {name: f"starts new: {why}" for name, why in handover.new.items()}
    lines |= dict.fromkeys(handover.unused, "is left: not here")
    width = max(map(len, lines), default=0)
    yield from (f"          {name:{width}}  {line}" for name, line in lines.items())


def _named(folder: RunFolder, saved: SavedPolicy) -> Mapping[str, Tensor]:
    """Checkpoints are flat: the names are those of the policy that the folder describes."""
    from htsrl.runs.trained_policy import TrainedPolicy

    interface = folder.interface()
    way_out = f"begin with the run's last policy, whose file has the names: init_from={folder.path}"
    if interface is None:
        raise RunFolderError(
            f"{saved.path} holds no names, and its run describes no spaces (interface.json); {way_out}"
        )
    try:
        experiment = admitted_network(folder.config_file).experiment
    except UntrustedFolder as error:
        raise UntrustedFolder(
            f"{saved.path} holds no names, and the network {folder.load_config().experiment.network.policy!r}, which "
            f"has them, is code of a folder that htsrl did not write for you; {way_out}"
        ) from error
    with single_threaded():
        return TrainedPolicy.of(experiment, interface, saved).policy.state_dict()


def _digest_at(folder: RunFolder, version: int) -> str | None:
    if version == 0 or not folder.digest_file.exists():
        return None
    links = read_links(folder.path)
    return links[version - 1].chain if version <= len(links) else None


def _hash_of(tensors: Mapping[str, Any]) -> str:
    hasher = xxhash.xxh3_128()
    for name, tensor in sorted(tensors.items()):
        array = tensor.detach().contiguous().cpu().numpy()
        hasher.update(f"{name} {array.dtype} {array.shape} ".encode())
        hasher.update(array.tobytes())
    return hasher.hexdigest()
