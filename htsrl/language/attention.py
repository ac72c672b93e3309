"""Attention whose bits do not depend on how a text is cut into passes, and the cache that goes with it.

A cached step and a pass over the whole text multiply matrices of other shapes, and kernels sum up in another order for
other shapes: with stock attention the two agree at hardly any position. Here keys are padded to a width that is the
same in every pass, under a mask of minus infinity, queries to a few rows, and batches to a few texts: then both take
the same kernels in the same order. Which padding does it, for a model on a machine, is looked at before every run
(`probe.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.cache_utils import Cache, CacheLayerMixin

from htsrl.errors import ConfigError

FIXED_WIDTH, STOCK = "htsrl_fixed_width", "htsrl_stock"
MIN_ROWS = 4
"""Of queries, of sequences in a step, and of tokens in a pass: with fewer, kernels take another order."""
UNKNOWN_PARTS = ("softcap", "s_aux", "position_bias")


@dataclass(frozen=True)
class Padding:
    """What passes are filled up to, so that kernels take one order in all of them."""

    query_rows: int = MIN_ROWS
    """Queries of attention, at least."""
    batch_multiple: int = 1
    """Texts of a pass are a multiple of it, and at least MIN_ROWS."""

    @property
    def attention(self) -> str:
        """The name under which transformers knows it."""
        return FIXED_WIDTH if self.query_rows == MIN_ROWS else f"{FIXED_WIDTH}_{self.query_rows}"

    def num_texts(self, count: int) -> int:
        """That a pass over so many has."""
        return max(-(-count // self.batch_multiple) * self.batch_multiple, MIN_ROWS)

    @property
    def most_added(self) -> int:
        """Texts, at most."""
        return max(self.batch_multiple, MIN_ROWS)


PADDINGS = (Padding(), Padding(4, 4), Padding(8, 8), Padding(16, 16))
"""The cheapest first."""


def fixed_width_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    query_rows: int = MIN_ROWS,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention over as many keys as the mask is wide, [B, H, T, D] each; what a key lacks is zero and masked."""
    if attention_mask is None or any(others.get(part) is not None for part in UNKNOWN_PARTS):
        raise ConfigError(
            f"{type(module).__name__} asks for more than causal attention ({', '.join(UNKNOWN_PARTS)}), which htsrl "
            "cannot compute with the same bits when generating and when learning; use another kind of model"
        )
    width, rows = attention_mask.shape[-1], query.shape[2]
    key, value = (_in_all_heads(_widened(x, width), query.shape[1]) for x in (key, value))
    if rows < query_rows:
        query = F.pad(query, (0, 0, 0, query_rows - rows))
        if attention_mask.shape[2] > 1:
            attention_mask = F.pad(attention_mask, (0, 0, 0, query_rows - rows))
    scores = torch.matmul(query, key.transpose(2, 3)) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    weights = torch.softmax(scores + attention_mask, dim=-1)
    return torch.matmul(weights, value)[:, :, :rows].transpose(1, 2).contiguous(), None


def stock_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """As libraries have it, over the keys that are there: what the bits cost is the time beyond this one's."""
    seen = int((attention_mask == 0).any(dim=2).any(dim=0).sum())
    key, value = (_in_all_heads(x[:, :, :seen], query.shape[1]) for x in (key, value))
    found = F.scaled_dot_product_attention(query, key, value, attention_mask[..., :seen], scale=scaling)
    return found.transpose(1, 2).contiguous(), None


def _widened(x: Tensor, width: int) -> Tensor:
    return x if x.shape[2] == width else F.pad(x, (0, 0, 0, width - x.shape[2]))


def _in_all_heads(x: Tensor, num_heads: int) -> Tensor:
    """Heads of keys and values that several heads of queries share, once for each of them."""
    return x if x.shape[1] == num_heads else x.repeat_interleave(num_heads // x.shape[1], dim=1)


for padding in PADDINGS:
    AttentionInterface.register(padding.attention, partial(fixed_width_attention, query_rows=padding.query_rows))
AttentionInterface.register(STOCK, stock_attention)


def causal_mask(num_tokens: int, width: int, device: torch.device) -> Tensor:
    """[1, 1, T, width]: token t sees keys 0 to t."""
    return step_mask(torch.arange(num_tokens, device=device), width).transpose(0, 2)


def step_mask(positions: Tensor, width: int) -> Tensor:
    """[B, 1, 1, width]: the token at each row's position sees the keys up to it."""
    hidden = torch.arange(width, device=positions.device) > positions[:, None]
    return torch.zeros(hidden.shape, device=positions.device).masked_fill_(hidden, -torch.inf)[:, None, None]


class RowLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one layer, [rows, H, width, D]; where each row's next ones go, the cache says."""

    is_sliding = False

    def __init__(self, cache: RowCache) -> None:
        super().__init__()
        self._cache = cache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        rows, width = self._cache.num_rows, self._cache.width
        self.keys, self.values = (x.new_zeros(rows, x.shape[1], width, x.shape[3]) for x in (key_states, value_states))
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self.room()
        num_rows, num_tokens = key_states.shape[0], key_states.shape[2]
        if self._cache.first_row is not None:  # texts that begin
            begun = slice(self._cache.first_row, self._cache.first_row + num_rows)
            keys[begun, :, :num_tokens], values[begun, :, :num_tokens] = key_states, value_states
            return key_states, value_states
        assert num_tokens == 1, "texts that have begun continue by one token"
        rows = torch.arange(num_rows, device=key_states.device)
        keys[rows, :, self._cache.positions] = key_states[:, :, 0]
        values[rows, :, self._cache.positions] = value_states[:, :, 0]
        return keys[:num_rows], values[:num_rows]

    def room(self) -> tuple[Tensor, Tensor]:
        """For the keys and values of all rows."""
        assert self.keys is not None, "no text has begun"
        assert self.values is not None, "no text has begun"
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._cache.width, 0

    def get_seq_length(self) -> int:
        return 0  # positions are told to the model

    def get_max_length(self) -> int:
        return self._cache.width


class RowCache(Cache):  # type: ignore[misc]
    """Room for texts that are generated side by side, each at a position of its own."""

    def __init__(self, num_layers: int, num_rows: int, width: int) -> None:
        self.num_rows = num_rows
        self.width = width
        self.first_row: int | None = None
        """Of the texts that begin; None where those in the first rows continue."""
        self.positions = torch.zeros(0, dtype=torch.int64)
        self._rows = [RowLayer(self) for _ in range(num_layers)]
        super().__init__(layers=[*self._rows])

    def move(self, source: int, target: int) -> None:
        """A row takes the place of one that has ended."""
        for layer in self._rows:
            for room in layer.room():
                room[target] = room[source]
