"""Finds the reference shape of a policy by trying.

Which rows happen to be ready together depends on timing, and the last bits of a row can depend on the size of the
batch it is computed in. So small batches are padded up to the smallest size from which on, on this device and for
this very network, no row's bits depend on the size, on its position or on its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from htsrl.dataflow.reference_shape import ReferenceShape
from htsrl.errors import ConfigError
from htsrl.policies.policy import Policy
from htsrl.spaces import ObservationLeaf

CANDIDATE_ROWS = (1, 2, 4, 8, 16, 32, 64)
MOST_SIZES = 48


def example_observations(leaf: ObservationLeaf, num_rows: int) -> dict[str, Tensor]:
    """Rows of plausible numbers, all different, the same on every machine."""
    generator = torch.Generator().manual_seed(0)
    shape = (num_rows, *leaf.shape)
    if leaf.num_categories is not None:
        return {"obs": torch.randint(leaf.start, leaf.start + leaf.num_categories, shape, generator=generator)}
    if leaf.dtype == "uint8":
        return {"obs": torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)}
    return {"obs": torch.randn(shape, generator=generator).to(getattr(torch, leaf.dtype))}


def find_reference_shape(policy: Policy, examples: dict[str, Tensor], noise: Tensor) -> ReferenceShape:
    """Try the candidates on `examples`, one row per environment: as many rows as one batch can ever have."""
    num_envs = noise.shape[0]
    probe = _Probe(policy, examples, noise)
    for least_rows in CANDIDATE_ROWS:
        if probe.rows_agree(least_rows, max(num_envs, least_rows)):
            return ReferenceShape(least_rows)
    if probe.rows_agree_in_place(num_envs):
        return ReferenceShape(num_envs, pinned=True)
    raise ConfigError(
        "this policy gives a row other values beside other rows, so no two runs could be alike; "
        "batch normalisation does that: use layer normalisation, or none"
    )


class _Probe:
    """Runs the policy on chosen rows of the examples and compares bits."""

    def __init__(self, policy: Policy, examples: dict[str, Tensor], noise: Tensor) -> None:
        self._policy, self._examples, self._noise = policy, examples, noise

    def rows_agree(self, least_rows: int, most_rows: int) -> bool:
        """Whether every row has the same bits in every batch of `least_rows` to `most_rows`."""
        reference = self._bits(torch.arange(most_rows) % len(self._noise))
        for size in _sizes(least_rows, most_rows):
            for first in {0, 1, size // 2, most_rows - 1}:
                rows = (torch.arange(size) + first) % most_rows
                if not torch.equal(self._bits(rows % len(self._noise)), reference[rows]):
                    return False
        return True

    def rows_agree_in_place(self, num_rows: int) -> bool:
        """Whether a row keeps its bits in its own place, whatever its neighbours."""
        reference = self._bits(torch.arange(num_rows))
        for row in range(num_rows):
            neighbours = torch.full((num_rows,), (row + 1) % num_rows)
            neighbours[row] = row
            if not torch.equal(self._bits(neighbours)[row], reference[row]):
                return False
        return True

    @torch.inference_mode()
    def _bits(self, rows: Tensor) -> Tensor:
        index = rows.to(self._noise.device)
        decision = self._policy.decide({name: x[index] for name, x in self._examples.items()}, self._noise[index])
        columns = [decision.actions.double().flatten(1) if decision.actions.dim() > 1 else decision.actions[:, None]]
        columns += [decision.log_probs[:, None], decision.values[:, None]]
        return torch.cat([column.double() for column in columns], dim=1)


def _sizes(least: int, most: int) -> Iterator[int]:
    """All sizes, or an even choice of them where there are many, always with both ends."""
    stride = max(1, -(-(most - least) // MOST_SIZES))
    yield from range(least, most, stride)
    yield most
