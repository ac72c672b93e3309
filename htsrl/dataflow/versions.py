"""Where a version's state lies: in a ring of three slots.

While update u runs, version u-1 made its data, version u acts, and version u+1 is being written.
"""

NUM_SLOTS = 3


def slot_of(version: int) -> int:
    return version % NUM_SLOTS
