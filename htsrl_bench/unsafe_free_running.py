"""Imported by a run (`--import`), it takes away what makes the run reproducible: for measuring what that costs.

Batches of any size go to the network as they come, and nothing is hashed: the run's digest is all zeros, and its
bits depend on timing. The run's config.json names this module.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from htsrl import digest
from htsrl.dataflow.exchange import Words
from htsrl.dataflow.reference_shape import Places, ReferenceShape

NO_DIGEST = "0" * 32


def lay_out_as_they_come(self: ReferenceShape, cells: Words, columns: Words) -> tuple[Words, Places]:
    return cells, slice(None)


def hash_nothing(fields: Mapping[str, NDArray[Any]], num_envs: int) -> digest.BatchHash:
    return digest.BatchHash(tensors={}, envs="", whole=b"")


def extend_by_nothing(
    self: digest.DigestChain, update: int, state: digest.VersionState, batch: digest.BatchHash
) -> digest.Link:
    self.chain = NO_DIGEST
    return digest.Link(update, NO_DIGEST, NO_DIGEST, batch.tensors, batch.envs)


def take_away() -> None:
    ReferenceShape.lay_out = lay_out_as_they_come  # type: ignore[method-assign]
    digest.DigestChain.extend = extend_by_nothing  # type: ignore[method-assign]
    digest.hash_batch = hash_nothing
    # A worker imports the learner only after the user's modules; whoever had it before has the old name.
    learner: Any = sys.modules.get("htsrl.roles.learner")
    if learner is not None:
        learner.hash_batch = hash_nothing


if getattr(getattr(sys.modules["__main__"], "__spec__", None), "name", "") == "htsrl.placements.worker":
    take_away()  # in the processes of that run, and nowhere else
