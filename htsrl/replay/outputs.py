"""What the network said to every step: logits of choices and means of continuous dimensions, to the bit.

A run stores what it learns from, the action and its log-probability. The rest is computed again with the version that
acted, in batches of the sizes in which it acted, or where log-probabilities were deferred, as those were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from htsrl.dataflow.exchange import Words
from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.dataflow.trajectory import RECURRENT_STATE
from htsrl.placements.blueprint import Blueprint
from htsrl.sources.provenance import BatchProvenance
from htsrl.sources.source import Fields

if TYPE_CHECKING:
    from torch import Tensor

    from htsrl.dataflow.parameters import ParameterRing
    from htsrl.policies.policy import Policy

Array = NDArray[Any]


class KeptPolicies:
    """The policies of versions. Of a recorded run they are kept for as long as updates learn from what they did, which
    is longer than the ring holds them."""

    def __init__(
        self, blueprint: Blueprint, parameters: ParameterRing, recorded: Sequence[BatchProvenance] = ()
    ) -> None:
        self._build = blueprint.build_policy
        self._parameters = parameters
        self._kept: dict[int, Mapping[str, Tensor]] = {}
        self._last_use: dict[int, int] = {}
        for provenance in recorded:
            for _, version in (change for taken in provenance.rollouts for change in taken.acting):
                self._last_use[version] = provenance.update

    def keep(self, version: int) -> None:
        """A version has been published."""
        for old in [old for old in self._kept if self._last_use[old] < version]:
            del self._kept[old]
        if self._last_use.get(version, -1) >= version:
            module = self._parameters.module(version)
            self._kept[version] = {name: x.detach().cpu().clone() for name, x in module.state_dict().items()}

    def policy(self, version: int) -> Policy:
        from htsrl.policies.policy import Policy

        if version in self._kept:
            policy: Any = self._build()
            policy.load_state_dict(dict(self._kept[version]))
            policy.to(self._parameters.slots.device)
        else:
            policy = self._parameters.module(version)
        assert isinstance(policy, Policy)
        return policy


class OutputsOfActors:
    """The outputs behind the actions of one update's batch."""

    def __init__(self, blueprint: Blueprint, snapshots: KeptPolicies, version: int | None) -> None:
        """`version` acted in the whole batch; None: the batch says who acted in which row."""
        self._trajectory = blueprint.trajectory
        self._shape = blueprint.shape
        self._snapshots = snapshots
        self._version = version
        actions = blueprint.interface.actions
        self._num_outputs = sum(actions.categories) + actions.num_continuous

    def of_columns(self, fields: Fields, columns: Words) -> Array:
        """`[T, len(columns), K]`: a logit for every value of every choice, then a mean for every dimension."""
        if self._trajectory.values_deferred:
            assert self._version is not None, "who added the values asked one version"
            num_steps, num_columns = fields["versions"].shape
            rows = {name: _rows(fields[name]) for name in self._trajectory.observation_names}
            outputs = self._compute(self._snapshots.policy(self._version), rows)
            return outputs.reshape(num_steps, num_columns, -1)[:, columns]
        names = [*self._trajectory.observation_names, *([RECURRENT_STATE] if self._trajectory.state_size else [])]
        rows = {name: _rows(fields[name][:, columns]) for name in names}
        versions = fields["versions"][:, columns].reshape(-1)
        places = np.tile(columns, len(fields["versions"]))
        outputs = np.empty((len(versions), self._num_outputs), np.float32)
        for version in np.unique(versions).tolist():
            policy, of_version = self._snapshots.policy(version), np.flatnonzero(versions == version)
            for some in _groups(of_version, places, self._shape):
                batch, found = self._shape.lay_out(some, places[some])
                outputs[some] = self._compute(policy, {name: x[batch] for name, x in rows.items()})[found]
        return outputs.reshape(*fields["versions"][:, columns].shape, -1)

    def _compute(self, policy: Policy, rows: Mapping[str, Array]) -> Array:
        import torch

        from htsrl.numerics import OwnNumerics

        device = next(policy.parameters()).device
        with OwnNumerics(), torch.inference_mode():
            tensors = {name: torch.from_numpy(np.ascontiguousarray(x)).to(device) for name, x in rows.items()}
            computed: Array = policy.outputs(tensors)[:, : self._num_outputs].numpy(force=True)
        return computed


def _groups(rows: Words, columns: Words, shape: ReferenceShape) -> list[Words]:
    """Rows that the network may be asked about at once: as many as fit, each column once where it has a fixed place."""
    if not shape.pinned:
        return [rows[first : first + shape.sizes[-1]] for first in range(0, len(rows), shape.sizes[-1])]
    groups: dict[int, list[int]] = {}
    seen: dict[int, int] = {}
    for row in rows.tolist():
        turn = seen[int(columns[row])] = seen.get(int(columns[row]), -1) + 1
        groups.setdefault(turn, []).append(row)
    return [np.array(group) for group in groups.values()]


def _rows(steps_where: Array) -> Array:
    return np.ascontiguousarray(steps_where).reshape(-1, *steps_where.shape[2:])
