"""The manifest of a checkpoint: a document and the sum of the file beside it, so written that any changed bit shows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
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

    def to_bytes(self) -> bytes:
        """The one way to write this manifest: sorted keys, no spaces, ASCII, and the sum over all of it."""
        content: dict[str, Any] = {
            "format": FORMAT,
            "document": self.document,
            "files": {STATE_FILE: {"bytes": self.state.bytes, "sha256": self.state.sha256}},
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
                "files": {"state.safetensors": {"bytes": int(num_bytes), "sha256": str(sha256)}},
            } if not isinstance(version, bool):
                manifest = cls(document, FileSum(num_bytes, sha256))
            case _:
                raise ValueError("lacks an entry that every manifest has")
        # One comparison for all there is to doubt: the sum, unknown or doubled entries, another order, a stray space.
        if manifest.to_bytes() != data:
            raise ValueError("does not match its own SHA-256")
        return manifest


def _canonical(content: Mapping[str, Any]) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError as error:
        raise ValueError(f"is not JSON: {error}") from error
