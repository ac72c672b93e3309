"""A saved game as bytes: a header, then JSON, emulator, frames and screen, one after the other."""

from __future__ import annotations

import itertools
import json
import struct
from dataclasses import dataclass
from typing import Any

from htsrl.errors import ConfigError

MAGIC = b"ATR1"
HEADER = struct.Struct("<4s4I")  # the sizes of the parts


@dataclass(frozen=True)
class SavedState:
    """All that the future of a game depends on."""

    document: dict[str, Any]
    emulator: bytes
    frames: bytes
    screen: bytes

    def to_bytes(self) -> bytes:
        parts = json.dumps(self.document).encode(), self.emulator, self.frames, self.screen
        return HEADER.pack(MAGIC, *map(len, parts)) + b"".join(parts)

    @classmethod
    def from_bytes(cls, state: bytes) -> SavedState:
        magic, *sizes = HEADER.unpack_from(state) if len(state) >= HEADER.size else (b"",)
        if magic != MAGIC or len(state) != HEADER.size + sum(sizes):
            raise ConfigError(
                f"these {len(state)} bytes are not a whole state of an Atari; use what save_state returned"
            )
        ends = itertools.accumulate(sizes, initial=HEADER.size)
        text, emulator, frames, screen = (state[begin:end] for begin, end in itertools.pairwise(ends))
        return cls(json.loads(text), emulator, frames, screen)
