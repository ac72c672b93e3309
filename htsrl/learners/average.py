"""The arithmetic of meetings, over flat vectors and in the order of the replicas: the same bits wherever it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def mean_in_order(drafts: Sequence[Array], out: Array) -> None:
    """out = (drafts[0] + drafts[1] + ...) / R, summed from the left."""
    np.copyto(out, drafts[0])
    for draft in drafts[1:]:
        np.add(out, draft, out=out)
    np.divide(out, out.dtype.type(len(drafts)), out=out)


def pushed_in_order(starts: Sequence[Array], drafts: Sequence[Array], outs: Sequence[Array]) -> None:
    """Replica r adds drafts[r] - starts[r] to the common parameters, and takes what they are then as outs[r].

    The common parameters are what the last replica started from: it pulls last.
    """
    common = starts[-1]
    for start, draft, out in zip(starts, drafts, outs, strict=True):
        np.subtract(draft, start, out=out)
        np.add(common, out, out=out)
        common = out


@dataclass(frozen=True)
class Moments:
    """Where a running mean and variance lie among the statistics of a version."""

    count: slice
    mean: slice
    variance: slice


def pooled_in_order(statistics: Sequence[Array], moments: Sequence[Moments], outs: Sequence[Array]) -> None:
    """What all replicas have seen, where that is a mean and a variance; all else stays each replica's own.

    Replicas see equally much, so means are averaged, and the variance is that within replicas and that between them.
    """
    for own, out in zip(statistics, outs, strict=True):
        np.copyto(out, own)
    for of_one in moments:
        count, mean, variance = of_one.count, of_one.mean, of_one.variance
        pooled = np.empty_like(statistics[0][mean])
        mean_in_order([own[mean] for own in statistics], pooled)
        within, between = np.empty_like(pooled), np.empty_like(pooled)
        mean_in_order([own[variance] for own in statistics], within)
        mean_in_order([np.square(own[mean] - pooled) for own in statistics], between)
        seen = np.empty_like(statistics[0][count])
        mean_in_order([own[count] for own in statistics], seen)
        for out in outs:
            out[count], out[mean], out[variance] = seen, pooled, within + between
