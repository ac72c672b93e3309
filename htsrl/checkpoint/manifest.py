"""The manifest of a checkpoint: a document and the sum of the file beside it, so written that any changed bit shows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FORMAT = "htsrl checkpoint 1"
STATE_FILE = "state.safetensors"
MANIFEST_FILE = "manifest.json"
MANIFEST_LIMIT_BYTES = 16 * 2**20


@dataclass(frozen=True)
class FileSum:
    """What a file must be to be the one that was written."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint says of itself."""

    document: Mapping[str, Any]
    state: FileSum
    segments: Mapping[str, FileSum] = field(default_factory=dict)
    """The rollouts of a replay buffer, by the names of their files."""

    def to_bytes(self) -> bytes:
        """The one way to write this manifest: sorted keys, no spaces, ASCII, and the sum over all of it."""
        files = {STATE_FILE: self.state, **self.segments}
        content: dict[str, Any] = {
            "format": FORMAT,
            "document": self.document,
            "files": {name: {"bytes": of.bytes, "sha256": of.sha256} for name, of in files.items()},
        }
        content["sha256"] = hashlib.sha256(_canonical(content)).hexdigest()
        return _canonical(content) + b"\n"

    @classmethod
    def from_bytes(cls, data: bytes) -> Manifest:
        """The manifest that `to_bytes` wrote; ValueError, or RecursionError if nested deeply, for any other bytes."""
        match _parsed(data):
            case {"format": str(other)} if other != FORMAT:
                raise ValueError(f"is of the format {other[:40]!r}; this version of htsrl reads {FORMAT!r}")
            case {
                "document": {"version": int(version)} as document,
                "files": {"state.safetensors": dict(state), **segments},
            } if not isinstance(version, bool):
                manifest = cls(document, _sum(state), {str(name): _sum(of) for name, of in segments.items()})
            case _:
                raise ValueError("lacks an entry that every manifest has")
        # One comparison for all there is to doubt: the sum, unknown or doubled entries, another order, a stray space.
        if manifest.to_bytes() != data:
            raise ValueError("does not match its own SHA-256")
        return manifest


def _sum(entry: Any) -> FileSum:
    match entry:
        case {"bytes": int(num_bytes), "sha256": str(sha256)} if not isinstance(num_bytes, bool):
            return FileSum(num_bytes, sha256)
    raise ValueError("lacks an entry that every manifest has")


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error
