"""What an actor answers, computed from cells of the storages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from htsrl.dataflow.exchange import Words
from htsrl.dataflow.storage import Storages
from htsrl.dataflow.versions import slot_of
from htsrl.policies.light import Array, LightPolicy


class Answers(Protocol):
    """Computes, and writes nothing. The version that it did so by is another than asked for only where an asynchronous
    learner overtook it."""

    @property
    def computations(self) -> list[tuple[object, str]]:
        """The methods that do, by whom they are of, for those who measure them."""

    def act(self, version: int, cells: Words) -> tuple[int, Mapping[str, Array]]:
        """What belongs in these cells, by field."""

    def value(self, version: int, cells: Words) -> tuple[int, Array]:
        """The values of what is seen in these cells."""


class LightAnswers:
    """By small policies, without torch; log-probabilities and values are deferred.

    Like torch, it minds neither overflow nor underflow, whatever an environment beside it has asked of NumPy.
    """

    def __init__(self, storages: Storages, policies: Sequence[LightPolicy]) -> None:
        """`policies` are those of the slots."""
        assert storages.spec.values_deferred, "nobody else would add log-probabilities and values"
        self._cells = storages.cells
        self._inputs = tuple(storages.inputs)
        self._policies = policies
        self.computations: list[tuple[object, str]] = [
            (policy, name) for policy in policies for name in ("act", "value")
        ]

    @np.errstate(all="ignore")
    def act(self, version: int, cells: Words) -> tuple[int, Mapping[str, Array]]:
        noise = self._cells["noise"].take(cells, axis=0)
        return version, {"actions": self._policy_of(version).act(self._seen(cells), noise)}

    @np.errstate(all="ignore")
    def value(self, version: int, cells: Words) -> tuple[int, Array]:
        return version, self._policy_of(version).value(self._seen(cells))

    def _policy_of(self, version: int) -> LightPolicy:
        return self._policies[slot_of(version, len(self._policies))]

    def _seen(self, cells: Words) -> dict[str, Array]:
        return {name: self._cells[name].take(cells, axis=0) for name in self._inputs}
