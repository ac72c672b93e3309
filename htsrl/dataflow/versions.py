"""Where a version's state lies: in a ring of slots.

While update u runs, version u+1 is being written. Version u-lag made the update's data, and those from there to u act.
"""

from __future__ import annotations

POLICY = "policy"
"""The name of the model that acts."""


def num_slots_for(max_lag: int | None) -> int:
    """Without a bound, the newest version acts, the one before may still be answering, and the next is written."""
    return 3 if max_lag is None else max_lag + 2


def slot_of(version: int, num_slots: int) -> int:
    return version % num_slots


def is_intact(version: int, published_version: int, num_slots: int) -> bool:
    """Whether what was read of a version was its own, `published_version` having been read after it: the slot may be
    written again as soon as the version that takes it over is the next."""
    return published_version + 1 < version + num_slots
