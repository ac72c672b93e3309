"""The manifest of a dataset: what its numbers mean, and the sum of the file that holds them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from htsrl.errors import DatasetError
from htsrl.plain_files import parsed
from htsrl.spaces import Interface
from htsrl.spaces.document import interface_document, read_interface

FORMAT = "htsrl dataset 1"
MANIFEST_FILE = "manifest.json"
DATA_FILE = "transitions.safetensors"
MANIFEST_LIMIT_BYTES = 64 * 2**20
IDENTITY_DIGITS = 32


@dataclass(frozen=True)
class Manifest:
    """What a dataset says of itself."""

    interface: Interface
    episode_lengths: Sequence[int]
    """Steps of every episode, in the order in which they lie in the file."""
    env: Mapping[str, Any]
    """`id` and `args` of the environment, as a note: nothing is ever made from it."""
    origins: Sequence[Mapping[str, Any]]
    """Who played: a run's digest and version, a random policy, a Minari dataset; with seed and number of episodes."""
    data_bytes: int
    data_sha256: str

    @property
    def num_steps(self) -> int:
        return sum(self.episode_lengths)

    @property
    def identity(self) -> str:
        """What tells datasets apart, wherever they lie."""
        return self._sha256[:IDENTITY_DIGITS]

    @cached_property
    def _content(self) -> dict[str, Any]:
        spaces = interface_document(self.interface)
        if spaces is None:
            raise DatasetError(
                f"the spaces {self.interface.observation_space} and {self.interface.action_space} are of a kind that "
                "only their own code knows; a dataset describes Gymnasium's own spaces"
            )
        return {
            "format": FORMAT,
            "env": dict(self.env),
            "spaces": spaces,
            "episode_lengths": list(self.episode_lengths),
            "origins": [dict(origin) for origin in self.origins],
            "files": {DATA_FILE: {"bytes": self.data_bytes, "sha256": self.data_sha256}},
        }

    @cached_property
    def _sha256(self) -> str:
        return hashlib.sha256(_canonical(self._content)).hexdigest()

    def to_bytes(self) -> bytes:
        """The one way to write this manifest: sorted keys, no spaces, ASCII, and the sum over all of it."""
        return _canonical({**self._content, "sha256": self._sha256}) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """The manifest that `to_bytes` wrote; ValueError for any other bytes."""
        match parsed(data):
            case {"format": str(other)} if other != FORMAT:
                raise ValueError(f"is of the format {other[:40]!r}; this version of htsrl reads {FORMAT!r}")
            case {
                "env": dict(env),
                "spaces": dict(spaces),
                "episode_lengths": list(lengths),
                "origins": list(origins),
                "files": {"transitions.safetensors": {"bytes": int(num_bytes), "sha256": str(sha256)}},
            }:
                pass
            case _:
                raise ValueError("lacks an entry that every manifest has")
        if not lengths or not all(type(length) is int and 0 < length < 2**40 for length in lengths):
            raise ValueError("has episode_lengths that are not all whole numbers above 0, or none at all")
        if not all(isinstance(origin, dict) for origin in origins):
            raise ValueError("has origins that are no objects")
        manifest = cls(read_interface(spaces), tuple(lengths), env, tuple(origins), num_bytes, sha256)
        # One comparison for all there is to doubt: the sum, unknown or doubled entries, another order, a stray space.
        if manifest.to_bytes() != data:
            raise ValueError("does not match its own SHA-256")
        return manifest


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
