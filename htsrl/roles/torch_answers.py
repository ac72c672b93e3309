"""An actor's answers by policies of any kind, on any device."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor

from htsrl.dataflow.exchange import Exchange, Words
from htsrl.dataflow.parameters import ParameterRing
from htsrl.dataflow.storage import Storages
from htsrl.dataflow.trajectory import RECURRENT_STATE
from htsrl.dataflow.versions import is_intact
from htsrl.policies.half_precision import HeldCopies, half_encoders
from htsrl.policies.light import Array
from htsrl.policies.policy import Decision, Policy

Answer = TypeVar("Answer")
NOTHING = nullcontext()


class TorchAnswers:
    """Actions with their log-probabilities and values, unless those are deferred, and what else a policy keeps of a
    row."""

    def __init__(self, storages: Storages, exchange: Exchange, parameters: ParameterRing) -> None:
        self._cells = storages.cells
        self._inputs = tuple(storages.inputs)
        self._keeps_activations = bool(storages.spec.activation_names)
        self._values_deferred = storages.spec.values_deferred
        self._exchange = exchange
        self._parameters = parameters
        self._device = parameters.slots.device
        self._copies = CopiesByVersion(parameters)
        self.computations: list[tuple[object, str]] = [
            (policy, name) for policy in parameters.modules for name in ("draw", "decide", "respond")
        ]

    def act(self, version: int, cells: Words) -> tuple[int, Mapping[str, Array]]:
        inputs, noise = self._seen(cells), self._taken("noise", cells)
        if self._values_deferred:
            version, actions = self._by(version, lambda policy: policy.draw(inputs, noise))
            return version, {"actions": actions.numpy(force=True)}
        version, decision = self._by(version, lambda policy: policy.decide(inputs, noise, self._keeps_activations))
        return version, {name: answer.numpy(force=True) for name, answer in _named(decision).items()}

    def value(self, version: int, cells: Words) -> tuple[int, Array]:
        inputs = self._seen(cells)
        version, (_, values, _) = self._by(version, lambda policy: policy.respond(inputs))
        return version, values.numpy(force=True)

    @torch.inference_mode()
    def _by(self, version: int, answer: Callable[[Policy], Answer]) -> tuple[int, Answer]:
        while True:
            policy = self._parameters.module(version)
            assert isinstance(policy, Policy)
            with self._copies.of(version, policy):
                answered = answer(policy)
            newest = self._exchange.published_version
            if is_intact(version, newest, len(self._parameters.modules)):
                return version, answered
            version = newest  # the slot that was read may be the next draft's by now

    def _seen(self, cells: Words) -> dict[str, Tensor]:
        return {name: self._taken(name, cells) for name in self._inputs}

    def _taken(self, name: str, cells: Words) -> Tensor:
        """Copied by NumPy: torch takes three times as long for 16 small rows, twenty times for Atari's images."""
        taken = torch.from_numpy(self._cells[name].take(cells, axis=0))
        return taken if self._device.type == "cpu" else taken.to(self._device)


class CopiesByVersion:
    """Weights in bfloat16 of the versions that act, made once for each; nothing where all is float32.

    A version's parameters do not change while it is one that acts. If its slot becomes the next draft's while they are
    copied, the answer is not used, and nobody asks for that version again.
    """

    def __init__(self, parameters: ParameterRing) -> None:
        self._slot_of = parameters.slot_of
        self._encoders = [half_encoders(module) for module in parameters.modules]
        self._held: dict[int, tuple[int, HeldCopies]] = {}

    def of(self, version: int, policy: Policy) -> AbstractContextManager[None]:
        slot = self._slot_of(version)
        if not (encoders := self._encoders[slot]):
            return NOTHING
        if slot not in self._held or self._held[slot][0] != version:
            self._held[slot] = version, HeldCopies(encoders)
        return self._held[slot][1].used()


def _named(decision: Decision) -> dict[str, Tensor]:
    """The parts of a decision, by the fields that they belong in."""
    named = {"actions": decision.actions, "log_probs": decision.log_probs, "values": decision.values}
    if decision.states is not None:
        named[RECURRENT_STATE] = decision.states
    return named | decision.activations
