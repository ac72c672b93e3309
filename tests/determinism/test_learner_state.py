"""What an update starts from beside the parameters is part of the digest: a resume from the last link starts there."""

from __future__ import annotations

from functools import cache

import pytest
from helpers import Outcome, run

from htsrl import A2C, Experiment
from htsrl.dataflow.parameters import ParameterRing
from htsrl.digest import first_difference

NUM_UPDATES = 3
EXPERIMENT = Experiment("CartPole-v1", algorithm=A2C(), num_envs=2, sync_interval=4, total_steps=NUM_UPDATES * 2 * 4)


@cache
def undisturbed() -> Outcome:
    return run(EXPERIMENT)


@pytest.mark.parametrize("part", ["vectors", "step count"])
def test_an_optimizer_that_is_off_after_the_last_update_changes_the_last_link_alone(
    monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    def commit(self: ParameterRing, version: int) -> None:
        if version == NUM_UPDATES:
            slot = self.slot_of(version)
            state = self.slots[slot, 1] if part == "vectors" else self.steps[slot].view(1)
            state[-1] += 1.0
        committed(self, version)

    expected, committed = undisturbed(), ParameterRing.commit
    monkeypatch.setattr(ParameterRing, "commit", commit)
    off = run(EXPERIMENT)
    assert off.policy == expected.policy
    assert first_difference(off.links, expected.links) == (
        f"barrier {NUM_UPDATES - 1}: batches and parameters are equal, the learner's state after the update is not "
        "(optimizer)"
    )
