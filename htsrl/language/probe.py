"""The look before a run: whether a text has the same bits whoever else is generated beside it, and when it is learned.

Prompts are completed twice, in different company, and gone over once more in passes over the whole text, with the
model as the workers will hold it: as many texts at a time as in the run, some of them of full length, as far as a few
seconds go. The least padding under which all of it agrees to the bit is the run's: then generators may fill their
batches as they like, and their log-probabilities are the learner's. Where none does, blocks stay together and the
learner computes log-probabilities again, with the version that drew the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from time import perf_counter

import numpy as np
import torch

from htsrl.dataflow.parameters import ParameterRing, parameter_arrays
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.language.attention import PADDINGS, STOCK, Padding
from htsrl.language.fields import BLOCK_ROWS
from htsrl.language.generation import Completion, Generation, Request, Sampling
from htsrl.language.policy import TextPolicy
from htsrl.language.prompts import Prompt
from htsrl.seeding import Purpose

NUM_FEW, NUM_LONG = 11, 4
"""Texts that are looked at in every company, and those of full length among them."""
FEW_TOKENS, SHORT_TOKENS = 24, 8
"""Of a text that is long on any machine, and of most others."""
FEW_ROWS = 5
"""Texts at a time, the second time."""
AFFORDABLE = 4e9
"""Parameters times tokens: a second or two of one core."""


@dataclass(frozen=True)
class Finding:
    """What the look found."""

    padding: Padding | None
    """The least with which all agrees; None where it never does."""
    difference: float
    """With the first padding, between log-probabilities of the generator and of a pass over the whole text, at most."""
    num_texts: int
    """That were generated side by side."""
    num_tokens: int
    """Of the longest completions."""
    seconds: float | None = None
    """Of a generation with this padding, where it was timed."""
    stock_seconds: float | None = None
    """Of the same generation with attention as libraries have it."""

    def __str__(self) -> str:
        looked_at = f"{self.num_texts} texts side by side, the longest of {self.num_tokens} tokens"
        if self.padding is None:
            return f"{looked_at}: generator and learner differ by up to {self.difference:.2g}"
        agrees = (
            f"{looked_at}: generator and learner agree to the bit with {self.padding.query_rows} rows of queries and "
            f"batches of a multiple of {self.padding.batch_multiple}"
        )
        if self.seconds is None or self.stock_seconds is None:
            return agrees
        return f"{agrees}, in {self.seconds:.2f} s where stock attention takes {self.stock_seconds:.2f} s"


def probe(
    policy: TextPolicy, prompts: Sequence[Prompt], sampling: Sampling, device: str, num_rows: int, is_timed: bool
) -> Finding:
    """Look at completions of the first prompts, `num_rows` at a time as in the run."""
    block = SharedArrays(parameter_arrays(policy, num_optimizer_vectors=0, num_slots=1))
    try:
        ring = ParameterRing(block, lambda: deepcopy(policy), torch.device(device))
        ring.initialise(policy)
        held = ring.module(version=0)
        assert isinstance(held, TextPolicy)
        return _Look.of(held, prompts, sampling, num_rows).find(is_timed)
    finally:
        block.close()


@dataclass(frozen=True)
class _Look:
    policy: TextPolicy
    sampling: Sampling
    requests: Sequence[Request]

    @classmethod
    def of(cls, policy: TextPolicy, prompts: Sequence[Prompt], sampling: Sampling, num_rows: int) -> _Look:
        """The first texts are long ones; no text ends by itself."""
        affordable = int(AFFORDABLE / sum(p.numel() for p in policy.model.parameters()))
        rows = max(min(num_rows, affordable // SHORT_TOKENS), NUM_FEW)
        long = min(max(affordable // NUM_LONG, FEW_TOKENS), sampling.max_tokens)
        lengths = [long] * NUM_LONG + [1 + (place * 7) % SHORT_TOKENS for place in range(rows - NUM_LONG)]
        requests = [
            Request(
                place, prompts[place // 2 % len(prompts)].tokens, place // 2, place % 2, max_tokens=min(length, long)
            )
            for place, length in enumerate(lengths)
        ]
        purpose = Purpose.EVALUATION_TOKENS
        return cls(policy, replace(sampling, max_tokens=long, ends=frozenset(), purpose=purpose), requests)

    def find(self, is_timed: bool) -> Finding:
        """Try one padding after the other."""
        found = Finding(None, 0.0, len(self.requests), self.sampling.max_tokens)
        for padding in PADDINGS:
            self.policy.pad_by(padding)
            agrees, difference = self._agrees()
            if padding is PADDINGS[0]:
                found = replace(found, difference=difference)
            if agrees:
                seconds, stock_seconds = self._cost(padding) if is_timed else (None, None)
                return replace(found, padding=padding, seconds=seconds, stock_seconds=stock_seconds)
        return found

    def _agrees(self) -> tuple[bool, float]:
        """Whether all do, and by how much generated log-probabilities differ from learned ones."""
        first, few = self._completed(len(self.requests)), self.requests[:NUM_FEW]
        second = self._completed(FEW_ROWS, few)
        same = all(a.tokens == b.tokens and a.log_probs == b.log_probs for a, b in zip(first, second, strict=False))
        passes = [(first, len(first)), (first, BLOCK_ROWS), (first[:NUM_FEW], 4), (first[:NUM_FEW], 1)]
        difference = max(self._difference(completions, rows) for completions, rows in passes)
        return same and difference == 0, difference

    def _cost(self, padding: Padding) -> tuple[float, float]:
        """Seconds with it and with stock attention, the better of two times each, in turn."""
        short = [replace(request, max_tokens=min(SHORT_TOKENS, self.sampling.max_tokens)) for request in self.requests]
        seconds: dict[str, list[float]] = {padding.attention: [], STOCK: []}
        for _ in range(2):
            for attention, times in seconds.items():
                self.policy.set_attention(attention)
                start = perf_counter()
                self._completed(len(short), short)
                times.append(perf_counter() - start)
        return min(seconds[padding.attention]), min(seconds[STOCK])

    def _completed(self, rows: int, requests: Sequence[Request] = ()) -> list[Completion]:
        asked, made = requests or self.requests, dict[int, Completion]()
        generation = Generation(self.policy, self.sampling, rows)
        generation.complete(asked, lambda completion: made.update({completion.request.column: completion}))
        return [made[request.column] for request in asked]

    def _difference(self, completions: Sequence[Completion], rows: int) -> float:
        parts = (completions[begin : begin + rows] for begin in range(0, len(completions), rows))
        return max(_difference(self.policy, part, self.sampling.max_tokens) for part in parts)


@torch.inference_mode()
def _difference(policy: TextPolicy, part: Sequence[Completion], max_tokens: int) -> float:
    """Of one pass."""
    device = next(policy.parameters()).device
    tokens = np.zeros((len(part), policy.width), np.int64)
    generated = np.zeros((len(part), max_tokens), np.float32)
    for row, completion in enumerate(part):
        text = [*completion.request.prompt, *completion.tokens]
        tokens[row, : len(text)] = text
        generated[row, : len(completion.log_probs)] = completion.log_probs
    prompt_lengths = np.array([len(completion.request.prompt) for completion in part])
    lengths = prompt_lengths + [len(completion.tokens) for completion in part]
    rows_of, prompts_of, lengths_of = (torch.from_numpy(x).to(device) for x in (tokens, prompt_lengths, lengths))
    learned = policy.log_probs(rows_of, prompts_of, lengths_of, max_tokens).numpy(force=True)
    return float(np.abs(learned - generated).max())
