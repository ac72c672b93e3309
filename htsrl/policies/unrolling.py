"""Recurrent cores unrolled over sequences: what LSTM and GRU have in common.

An operation on a small tensor, or a view of one, costs what calling for it costs. So a step is few operations, and the
buffers of a shape are kept with all their views, out of autograd's sight: tensors of inference mode. What they hold is
of no use to anyone after the call that filled them; what leaves is a copy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor

ONE, HALF = torch.tensor(1.0), torch.tensor(0.5)
MAX_SHAPES = 16
"""How many shapes' buffers are kept, of all kinds together."""

B = TypeVar("B")


def buffers_of(make: Callable[[Tensor], B], sequences_LN: Tensor, weight_GH: Tensor) -> B:
    """The thread's own, for sequences of this shape; `make` is given zeros `[L, N, H]`."""
    shape = torch.Size((*sequences_LN.shape[:2], weight_GH.shape[1]))
    buffers: B = _buffers(make, threading.get_ident(), shape, weight_GH.dtype, weight_GH.device)
    return buffers


@lru_cache(maxsize=MAX_SHAPES)
def _buffers(
    make: Callable[[Tensor], Any], thread: int, shape: torch.Size, dtype: torch.dtype, device: torch.device
) -> Any:
    with torch.inference_mode():
        return make(torch.zeros(shape, dtype=dtype, device=device))


def by_step(*sequences: Tensor) -> list[tuple[Tensor, ...]]:
    """Each step's part of every sequence."""
    return list(zip(*(sequence.unbind() for sequence in sequences), strict=True))


class Hidden:
    """What each step finds, which is what the one before it left."""

    def __init__(self, zeros_LNH: Tensor) -> None:
        chain = torch.cat([zeros_LNH, zeros_LNH[:1]])
        self.found_LNH, self.left_LNH = chain[:-1], chain[1:]
        self._found_L = self.found_LNH.unbind()
        self._aside: dict[int, Tensor] = {}

    def begin(self, state_NH: Tensor) -> None:
        self._found_L[0].copy_(state_NH)
        self._aside.clear()

    def forget(self, step: int, reset_N1: Tensor) -> None:
        """Let a step find zeros; what was left there is put aside."""
        if step > 0:
            self._aside[step - 1] = self._found_L[step].clone()
        self._found_L[step].masked_fill_(reset_N1, 0)

    def left_by_all(self) -> Tensor:
        all_LNH = self.left_LNH.clone()
        for step, left_NH in self._aside.items():
            all_LNH[step] = left_NH
        return all_LNH


def resets_of(begins_LN: Tensor) -> dict[int, Tensor]:
    """The rows whose state is zero before a step, for the steps that have any."""
    return {t: begins_LN[t, :, None] for t, some in enumerate(begins_LN.any(dim=1).tolist()) if some}


def opened(tanh: Tensor, out: Tensor | None = None) -> Tensor:
    """sigmoid(x) from tanh(x / 2)."""
    return torch.add(HALF, tanh, alpha=0.5, out=out)


def tanh_slope(tanh: Tensor, out: Tensor | None = None) -> Tensor:
    return torch.addcmul(ONE.to(tanh), tanh, tanh, value=-1, out=out)
