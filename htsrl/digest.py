"""The digest: a hash chain over batches, parameters and the learner's state, one link per barrier.

Two runs are identical when their last links are equal. A link also keeps short hashes by tensor and by environment,
so that two runs that differ can be told where they parted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from numpy.typing import NDArray

from htsrl.errors import RunFolderError
from htsrl.plain_files import parsed, read_plain

HEX_DIGITS = frozenset("0123456789abcdef")
LINKS_BETWEEN_LOOKS = 1000
SHORT = 8  # hex digits of a hash that only helps to locate a difference


@dataclass(frozen=True)
class Link:
    """The state of a run after one update."""

    update: int
    chain: str
    """Hash of everything up to here."""
    parameters: str
    """Hash of the parameters after the update."""
    tensors: Mapping[str, str]
    """Short hash of every field of the batch."""
    envs: str
    """Short hashes of every environment's part of the batch, one after another."""
    learner: Mapping[str, str] = field(default_factory=dict)
    """Short hash of every part of what the next update starts from beside the parameters, the optimizer's state above
    all. Nothing in links of runs from before that was part of the chain."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> Link:
        return cls(**parsed(line))

    def env_hashes(self) -> list[str]:
        return [self.envs[i : i + SHORT] for i in range(0, len(self.envs), SHORT)]


@dataclass(frozen=True)
class BatchHash:
    """Short hashes of a batch by tensor and by environment, and one over all of it."""

    tensors: Mapping[str, str]
    envs: str
    whole: bytes


def hash_batch(fields: Mapping[str, NDArray[Any]], num_envs: int) -> BatchHash:
    """Hash fields `[T, B, ...]` cell by cell, a cell being one tensor of one environment with all its columns."""
    cells = np.array(
        [[xxhash.xxh3_64_intdigest(part) for part in _bytes_by_env(array, num_envs)] for array in fields.values()],
        dtype=np.uint64,
    ).reshape(len(fields), num_envs)
    return BatchHash(
        tensors={name: _short(cells[i]) for i, name in enumerate(fields)},
        envs="".join(_short(np.ascontiguousarray(cells[:, env])) for env in range(num_envs)),
        whole=cells.tobytes(),
    )


@dataclass(frozen=True)
class VersionState:
    """All that a run would be resumed from after an update, beside its environments."""

    parameters: Sequence[NDArray[Any]]
    """All that acting with the version depends on, running statistics included."""
    learner: Mapping[str, Sequence[NDArray[Any]]]
    """What else the next update starts from, by name."""


class DigestChain:
    """Grows by a link at every barrier."""

    def __init__(self, chain: str) -> None:
        self.chain = chain

    @classmethod
    def begin(cls, initial_parameters: Sequence[NDArray[Any]], source: str = "") -> DigestChain:
        """`source` identifies what a warm start took them from: equal weights of another history make another run."""
        chain = _hash_of(initial_parameters)
        return cls(xxhash.xxh3_128_hexdigest(f"{chain} {source}".encode()) if source else chain)

    def extend(self, update: int, state: VersionState, batch: BatchHash) -> Link:
        parameters = _hash_of(state.parameters)
        learner = {name: _hash_of(arrays) for name, arrays in state.learner.items()}
        before = "".join([self.chain, str(update), parameters, *learner.values()])
        self.chain = xxhash.xxh3_128_hexdigest(before.encode() + batch.whole)
        short = {name: whole[:SHORT] for name, whole in learner.items()}
        return Link(update, self.chain, parameters, batch.tensors, batch.envs, short)


def read_links(run_dir: Path, watch: Callable[[int], None] = lambda num_read: None) -> list[Link]:
    """The links of a run, oldest first; the last line may have been cut by a kill, any other damage is an error.
    `watch` is told now and then how many were read."""
    path = run_dir / "digest.jsonl"
    if not path.is_file():
        raise RunFolderError(f"{run_dir} holds no digest.jsonl; is it the folder of a run?")
    try:
        *lines, _ = read_plain(path).split(b"\n")
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}") from error
    if not lines:
        raise RunFolderError(f"{path} is empty: the run finished no update")
    links = []
    for update, line in enumerate(lines):
        links.append(_parsed(line, update, path))
        if update % LINKS_BETWEEN_LOOKS == 0:
            watch(update)
    return links


def _parsed(line: bytes, update: int, path: Path) -> Link:
    try:
        link = Link.from_json(line.decode())
    except (ValueError, TypeError) as error:
        raise RunFolderError(f"{path} is damaged in line {update + 1}: {error}") from error
    hashes: list[object] = [link.chain, link.parameters, link.envs]
    for by_name in (link.tensors, link.learner):
        hashes += by_name.values() if isinstance(by_name, dict) else [by_name]
    if not all(isinstance(text, str) and set(text) <= HEX_DIGITS for text in hashes):
        raise RunFolderError(f"{path} is damaged in line {update + 1}: its hashes are not hexadecimal digits")
    if type(link.update) is not int or link.update != update:
        raise RunFolderError(
            f"{path} is damaged in line {update + 1}: it is of update {link.update}, not of update {update}"
        )
    return link


def first_difference(links_a: list[Link], links_b: list[Link]) -> str | None:
    """Where two runs part, in words; None where they are identical."""
    chains_agree_on_what_they_hash = True
    for a, b in zip(links_a, links_b, strict=False):
        # Of two runs that were begun alike, one may be older than the learner's part, or have been resumed since.
        chains_agree_on_what_they_hash &= bool(a.learner) == bool(b.learner)
        if a.chain != b.chain if chains_agree_on_what_they_hash else _known_of_both(a, b) != _known_of_both(b, a):
            return f"barrier {a.update}: {what_differs(a, b)}"
    shorter, longer = sorted((len(links_a), len(links_b)))
    if shorter != longer:
        return f"barrier {shorter}: one run ends here, the other has {longer} barriers"
    return None


def _known_of_both(link: Link, other: Link) -> tuple[object, ...]:
    """All of a link but the chain, without what the other does not say."""
    return link.parameters, link.tensors, link.envs, link.learner if other.learner else {}


def what_differs(a: Link, b: Link) -> str:
    """Of two links of one barrier, in words."""
    if len(a.envs) != len(b.envs):
        return f"the runs have {len(a.env_hashes())} and {len(b.env_hashes())} environments"
    tensors = [name for name in a.tensors if a.tensors[name] != b.tensors.get(name)]
    envs = [str(i) for i, (x, y) in enumerate(zip(a.env_hashes(), b.env_hashes(), strict=True)) if x != y]
    if tensors and envs:
        rest = f" (in all: tensors {', '.join(tensors)}; environments {', '.join(envs)})"
        return f"environment {envs[0]}, tensor {tensors[0]}" + (rest if len(tensors) + len(envs) > 2 else "")
    if tensors or envs:
        return f"{', '.join([*tensors, *envs])} alone; one of the digests is damaged"
    if a.parameters != b.parameters:
        return "the batches are equal, the parameters after the update are not"
    parts = [name for name in a.learner if a.learner[name] != b.learner.get(name)] if b.learner else []
    if parts:
        return f"batches and parameters are equal, the learner's state after the update is not ({', '.join(parts)})"
    if a.update == 0:
        return "the initial parameters, or what they were taken from (init_from), differ"
    return "only the chain differs; one of the digests is damaged"


def _bytes_by_env(array_TB: NDArray[Any], num_envs: int) -> NDArray[np.uint8]:
    """A row of bytes for each environment, whose columns are neighbours."""
    if not num_envs:  # a run that learns from a dataset
        return np.empty((0, 0), np.uint8)
    return np.ascontiguousarray(array_TB.swapaxes(0, 1)).reshape(num_envs, -1).view(np.uint8)


def _hash_of(arrays: Sequence[NDArray[Any]]) -> str:
    hasher = xxhash.xxh3_128()
    for array in arrays:
        hasher.update(np.ascontiguousarray(array).data)
    return hasher.hexdigest()


def _short(cells: NDArray[np.uint64]) -> str:
    return xxhash.xxh3_64_hexdigest(cells.tobytes())[:SHORT]
