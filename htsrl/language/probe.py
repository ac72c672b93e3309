"""The look before a run: whether a text has the same bits whoever else is generated beside it, and when it is learned.

Prompts are completed twice, in different company, and gone over once more in passes over the whole text, with the
model as the workers will hold it. Where all of it agrees to the bit, generators may fill their batches as they like
and their log-probabilities are the learner's. Where it does not, blocks stay together and the learner computes
log-probabilities again, with the version that drew the tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from htsrl.dataflow.parameters import ParameterRing, parameter_arrays
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.language.generation import Completion, Generation, Request, Sampling
from htsrl.language.policy import TextPolicy
from htsrl.language.prompts import Prompt
from htsrl.seeding import Purpose

NUM_TEXTS = 11
MAX_TOKENS = 24
COMPANIES = (NUM_TEXTS, 5)
"""Texts at a time, the first time and the second."""
BLOCKS = (NUM_TEXTS, 4, 1)
"""Rows of a pass over whole texts."""


class Finding(NamedTuple):
    """What the look found."""

    agrees: bool
    difference: float
    """Between the generator's log-probabilities and those of a pass over the whole text, at most."""


def probe(policy: TextPolicy, prompts: Sequence[Prompt], sampling: Sampling, device: str) -> Finding:
    """Look at a few completions of the first prompts."""
    block = SharedArrays(parameter_arrays(policy, num_optimizer_vectors=0, num_slots=1))
    try:
        ring = ParameterRing(block, lambda: deepcopy(policy), torch.device(device))
        ring.initialise(policy)
        held = ring.module(version=0)
        assert isinstance(held, TextPolicy)
        return _look(held, prompts, sampling)
    finally:
        block.close()


def _look(policy: TextPolicy, prompts: Sequence[Prompt], sampling: Sampling) -> Finding:
    few = replace(sampling, max_tokens=min(sampling.max_tokens, MAX_TOKENS), purpose=Purpose.EVALUATION_TOKENS)
    requests = [
        Request(place, prompts[place // 2 % len(prompts)].tokens, place // 2, place % 2) for place in range(NUM_TEXTS)
    ]
    first, second = (_completed(Generation(policy, few, rows), requests) for rows in COMPANIES)
    same_company = all(a.tokens == b.tokens and a.log_probs == b.log_probs for a, b in zip(first, second, strict=True))
    differences = [_difference(policy, first, few, rows) for rows in BLOCKS]
    return Finding(same_company and not any(differences), max(differences))


def _completed(generation: Generation, requests: Sequence[Request]) -> list[Completion]:
    made: dict[int, Completion] = {}
    generation.complete(requests, lambda completion: made.update({completion.request.column: completion}))
    return [made[request.column] for request in requests]


@torch.inference_mode()
def _difference(policy: TextPolicy, completions: Sequence[Completion], sampling: Sampling, rows: int) -> float:
    device, most = next(policy.parameters()).device, 0.0
    for begin in range(0, len(completions), rows):
        part = completions[begin : begin + rows]
        tokens = np.zeros((len(part), policy.width), np.int64)
        generated = np.zeros((len(part), sampling.max_tokens), np.float32)
        for row, completion in enumerate(part):
            text = [*completion.request.prompt, *completion.tokens]
            tokens[row, : len(text)] = text
            generated[row, : len(completion.log_probs)] = completion.log_probs
        prompt_lengths = np.array([len(completion.request.prompt) for completion in part])
        lengths = prompt_lengths + [len(completion.tokens) for completion in part]
        rows_of, prompts_of, lengths_of = (torch.from_numpy(x).to(device) for x in (tokens, prompt_lengths, lengths))
        learned = policy.log_probs(rows_of, prompts_of, lengths_of, sampling.max_tokens).numpy(force=True)
        most = max(most, float(np.abs(learned - generated).max()))
    return most
