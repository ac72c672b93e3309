"""How a lane is brought back: from a state that it saved, or by all its actions since the start.

Environments of a lane end their episodes at different steps, so where there is no state to save there is no moment to
begin again from but the first: the log of actions grows with the run, and is as long to play again as it was to play.
"""

from __future__ import annotations

import numpy as np

from htsrl.dataflow.capsules import Capsule
from htsrl.envs.observing import Rows
from htsrl.errors import NotReproduced
from htsrl.roles.lane_envs import LaneEnvs
from htsrl.roles.recall import SEGMENT, HeapPart, hash_of, segments
from htsrl.roles.shared import Shared
from htsrl.spaces.many_actions import ToEnvs


class LaneStateRecall:
    """Of a lane whose simulator saves its state."""

    is_log = False

    def __init__(self, lane: int, envs: LaneEnvs, shared: Shared) -> None:
        self._lane = lane
        self._envs = envs
        self._capsules = shared.capsules

    def keep(self, before: Capsule | None, storage: int) -> HeapPart:
        state, heap = self._envs.save(), self._capsules.heap_after(before)
        self._capsules.write(self._lane, heap, 0, state)
        return heap, len(state)

    def bring_back(self, capsule: Capsule, rows: Rows) -> None:
        self._envs.reset(rows)
        self._envs.restore(self._capsules.read(self._lane, capsule))


class LaneLogRecall:
    """Of a lane that is a function of its seeds and actions."""

    is_log = True

    def __init__(self, lane: int, envs: LaneEnvs, shared: Shared, to_envs: ToEnvs) -> None:
        self._lane = lane
        self._envs = envs
        self._capsules = shared.capsules
        self._inside = shared.exchange.inside
        self._to_envs = to_envs
        storages, columns = shared.storages, shared.storages.spec.columns_of(lane)
        self._num_steps = storages.spec.num_steps
        self._actions, self._rewards = (storages[name][:, :, columns] for name in ("actions", "rewards"))
        self._observations = {name: array[:, :, columns] for name, array in storages.observations.items()}

    def keep(self, before: Capsule | None, storage: int) -> HeapPart:
        seen = [array[storage, 1 : self._num_steps + 1] for array in self._observations.values()]
        actions = self._actions[storage]
        data = SEGMENT.pack(len(actions), hash_of(seen, self._rewards[storage])) + actions.tobytes()
        heap, offset = (before.heap, before.num_bytes) if before is not None else (0, 0)
        self._capsules.write(self._lane, heap, offset, data)
        return heap, offset + len(data)

    def bring_back(self, capsule: Capsule, rows: Rows) -> None:
        self._envs.reset(rows)
        data, step = self._capsules.read(self._lane, capsule), 0
        for actions, expected in segments(data, self._actions.shape[2:], self._actions.dtype):
            seen = {name: np.empty((len(actions), *x.shape[2:]), x.dtype) for name, x in self._observations.items()}
            rewards = np.empty((len(actions), *self._rewards.shape[2:]), self._rewards.dtype)
            for i, stored in enumerate(actions):
                here = {name: array[i] for name, array in seen.items()}
                outcome = self._envs.step(self._to_envs(stored), here)
                self._inside[self._lane] += 2  # another step, and still inside
                rewards[i] = outcome.rewards
                if outcome.ended.any():
                    self._envs.begin_episodes(outcome.ended, here)
            step += len(actions)
            if hash_of(list(seen.values()), rewards) != expected:
                raise NotReproduced(
                    f"lane {self._lane} does not reproduce: played again from its start up to step {step} with the "
                    f"same actions, it led to something else in the last {len(actions)} steps; make it a function of "
                    "its seeds and actions, or give it save_state and restore_state",
                    env=self._lane,
                )
