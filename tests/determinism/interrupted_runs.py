"""Runs that end before their time, for those who resume them."""

from __future__ import annotations

from typing import Any

import pytest

from htsrl import Config, Experiment, Placement, train
from htsrl.roles.rollout_finisher import RolloutFinisher


class Enough(Exception):
    """Ends a run before its time."""


def interrupted(experiment: Experiment, before_update: int, **placement: Any) -> None:
    """Train inline until the learner is about to begin an update, and leave the run's folder as it is then."""

    def stop_early(self: RolloutFinisher, rollout: int) -> None:
        if rollout == before_update:
            raise Enough
        complete(self, rollout)

    complete = RolloutFinisher.complete
    quietly: dict[str, Any] = {"backend": "inline", "tensorboard": False, "progress": "off"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RolloutFinisher, "complete", stop_early)
        with pytest.raises(Enough):
            train(Config(experiment, Placement(**(quietly | placement))))
