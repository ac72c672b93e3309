"""Meetings of replicas: replica 0 waits for the drafts of all, asks the sync rule, and carries out what it says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.gradient_orders import Wait
from htsrl.dataflow.parameters import ParameterRing, array_names
from htsrl.dataflow.replicas import BYTES, MERGED, NUM_COUNTERS, ROUNDS, ReplicaWords
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.dataflow.versions import POLICY
from htsrl.learners.average import mean_in_order, pooled_in_order, pushed_in_order
from htsrl.learners.rule import Meeting, ReplicaReport, SyncRule
from htsrl.policies.normalization import places_of_moments
from htsrl.processes.kill_points import kill_point

Array = NDArray[np.generic]


class MergedModel:
    """One model of all replicas, and where what they continue from is put first."""

    def __init__(self, rings: Sequence[ParameterRing], slots: Array, statistics: Array, with_optimizer: bool) -> None:
        """`slots` and `statistics` have a row for each replica."""
        self._rings = rings
        self._slots = slots
        self._statistics = statistics
        self._num_vectors = slots.shape[1] if with_optimizer else 1
        self._moments = places_of_moments(rings[0].modules[0])

    @property
    def num_bytes(self) -> int:
        """Of what one replica sends."""
        return int(self._slots[0, : self._num_vectors].nbytes + self._statistics[0].nbytes)

    def merge(self, meeting: Meeting, version: int) -> None:
        """From the drafts, which stay as they are."""
        drafts = [ring.vectors(version) for ring in self._rings]
        starts = [ring.vectors(version - 1) for ring in self._rings]
        for vector in range(self._num_vectors):
            of_drafts, outs = [draft[vector] for draft in drafts], list(self._slots[:, vector])
            if meeting is Meeting.AVERAGE or vector:  # the optimizer's are no sums of changes
                mean_in_order(of_drafts, outs[0])
                _copy_to(outs[1:], outs[0])
            else:
                pushed_in_order([start[vector] for start in starts], of_drafts, outs)
                if meeting is Meeting.COLLECT:
                    _copy_to(outs[:-1], outs[-1])
            kill_point("inside a merge")
        pooled_in_order([ring.own_statistics(version) for ring in self._rings], self._moments, list(self._statistics))

    def take_over(self, version: int) -> None:
        """The results over the drafts."""
        for ring, vectors, statistics in zip(self._rings, self._slots, self._statistics, strict=True):
            ring.vectors(version)[: self._num_vectors] = vectors[: self._num_vectors]
            ring.own_statistics(version)[...] = statistics
            kill_point("inside a take-over")


def merged_models(rings: Sequence[ParameterRing], block: SharedArrays, with_optimizer: bool) -> list[MergedModel]:
    """All models that replicas learn, the policy first; `rings` are theirs, by their numbers."""
    models = {POLICY: rings} | {name: [ring.further[name] for ring in rings] for name in rings[0].further}
    found = []
    for model, of_model in models.items():
        slots, _, statistics = array_names(model)
        found.append(MergedModel(of_model, block[MERGED + slots], block[MERGED + statistics], with_optimizer))
    return found


class Meetings:
    """Replica 0's."""

    def __init__(
        self,
        rule: SyncRule,
        words: ReplicaWords,
        models: Sequence[MergedModel],
        others: Sequence[ParameterRing],
        wait: Wait,
    ) -> None:
        """`others` are the rings of the other replicas."""
        self._rule = rule
        self._words = words
        self._models = models
        self._others = others
        self._wait = wait

    def hold(self, update: int, report: ReplicaReport) -> dict[str, float]:
        """Bring version `update + 1` of all replicas to what they continue from; returns what to report of it."""
        version = update + 1
        self._wait(lambda: not self._words.late(version), lambda: f"the drafts of replicas {self._words.late(version)}")
        reports = [report, *(ReplicaReport(*row) for row in self._words.reports()[1:])]
        before = self._words.state(update)
        meeting, rule_state = self._rule.decide(update, before[NUM_COUNTERS:].copy(), reports)
        if meeting is not Meeting.NONE:
            self._merge(meeting, version)
        state = self._words.state(version)
        state[ROUNDS] = before[ROUNDS] + (meeting is not Meeting.NONE)
        state[BYTES] = before[BYTES] + self._bytes_sent(meeting, len(reports))
        state[NUM_COUNTERS:] = rule_state
        return {"sync/rounds": float(state[ROUNDS]), "sync/bytes": float(state[BYTES])}

    def arrays(self, version: int) -> list[NDArray[np.float64]]:
        """What the future of the run depends on beside replica 0's own state."""
        own = [array for ring in self._others for array in _state_of(ring, version)]
        return [*own, self._words.state(version)]

    def _merge(self, meeting: Meeting, version: int) -> None:
        if not self._words.is_merged(version):
            for model in self._models:
                model.merge(meeting, version)
            self._words.note_merged(version)
        for model in self._models:
            model.take_over(version)

    def _bytes_sent(self, meeting: Meeting, num_replicas: int) -> int:
        """What each replica sends to where it is merged, and what it is sent back."""
        reported = 8 * len(ReplicaReport._fields) if self._rule.reads_gradients else 0
        merged = 0 if meeting is Meeting.NONE else 2 * sum(model.num_bytes for model in self._models)
        return num_replicas * (reported + merged)


def _state_of(ring: ParameterRing, version: int) -> Iterator[NDArray[np.float64]]:
    yield from ring.acting_arrays(version)
    yield from ring.optimizer_arrays(version)
    for arrays in ring.model_arrays(version).values():
        yield from arrays


def _copy_to(outs: Sequence[Array], merged: Array) -> None:
    for out in outs:
        np.copyto(out, merged)
