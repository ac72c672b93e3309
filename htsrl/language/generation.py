"""Completions, many at a time: rows leave the batch when they end, and others take their places.

What a row draws is a function of the policy, its prompt and its noise, and of nothing else: not of who else is in the
batch, where the policy's attention sees to that (`probe.py` looks whether it does). Where it cannot, all rows of a
block stay together from the first token to the last, and nobody else joins them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from htsrl.language.attention import MIN_ROWS, RowCache
from htsrl.language.policy import TextPolicy
from htsrl.seeding import Purpose, token_noise

NOISE_TOKENS = 16
"""Noise is drawn for so many tokens at once."""


@dataclass(frozen=True)
class Request:
    """One completion to make."""

    column: int
    prompt: Sequence[int]
    ordinal: int
    """Of its prompt, in all of the run."""
    generation: int
    """Which of the completions of that prompt."""
    place: int = 0
    """Of the first token to draw, in the completion: `prompt` holds so many tokens of it already."""
    max_tokens: int | None = None
    """To draw now. None: as many as the sampling says."""


@dataclass
class Completion:
    """A text that was generated."""

    request: Request
    tokens: list[int] = field(default_factory=list)
    """The end of text among them, if it was reached."""
    log_probs: list[float] = field(default_factory=list)
    ended: bool = False


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn."""

    seed: int
    max_tokens: int
    ends: frozenset[int]
    """The tokens that end a text."""
    greedy: bool = False
    purpose: Purpose = Purpose.TOKENS


class _Row:
    """A completion under way."""

    def __init__(self, request: Request, sampling: Sampling, vocabulary: int) -> None:
        self.completion = Completion(request)
        self._sampling = sampling
        self._vocabulary = vocabulary
        self._noise: NDArray[np.float32] = np.empty((0, vocabulary), np.float32)
        self._max_tokens = sampling.max_tokens if request.max_tokens is None else request.max_tokens

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing more to draw."""
        return self.completion.ended or len(self.completion.tokens) == self._max_tokens

    @property
    def position(self) -> int:
        """Where its newest token stands."""
        return len(self.completion.request.prompt) + len(self.completion.tokens) - 1

    def noise(self) -> NDArray[np.float32]:
        drawn = len(self.completion.tokens)
        if drawn % NOISE_TOKENS == 0:
            request, sampling = self.completion.request, self._sampling
            first = request.place + drawn
            tokens = range(first, first + NOISE_TOKENS)
            self._noise = token_noise(
                sampling.seed, request.ordinal, request.generation, tokens, self._vocabulary, sampling.purpose
            )
        row: NDArray[np.float32] = self._noise[drawn % NOISE_TOKENS]
        return row

    def take(self, token: int, log_prob: float) -> None:
        """Go on by a token."""
        self.completion.tokens.append(token)
        self.completion.log_probs.append(log_prob)
        self.completion.ended = token in self._sampling.ends


class Generation:
    """Makes completions with one policy; `max_rows` at a time."""

    def __init__(
        self, policy: TextPolicy, sampling: Sampling, max_rows: int, beat: Callable[[], None] = lambda: None
    ) -> None:
        self._policy = policy
        self._sampling = sampling
        self._max_rows = max(max_rows, MIN_ROWS)
        self._beat = beat
        self._vocabulary = int(policy.config.get_text_config().vocab_size)
        self._device = next(policy.parameters()).device

    @torch.inference_mode()
    def complete(
        self,
        requests: Iterable[Request],
        on_completed: Callable[[Completion], None],
        more: Callable[[bool], Sequence[Request]] = lambda idle: (),
    ) -> None:
        """Make them all; `on_completed` hears of each as soon as it has ended. `more` has what there is to make beside
        them by now; asked by one who is idle, it waits until there is some, and has none when there will be no more."""
        waiting, rows = list(requests), list[_Row]()
        cache = self._policy.new_cache(self._max_rows)
        while True:
            waiting += more(not waiting and not rows)
            if not waiting and not rows:
                return
            free = self._max_rows - len(rows)
            if waiting and (not rows or free >= min(len(waiting), MIN_ROWS)):
                began, waiting = waiting[:free], waiting[free:]
                new = [_Row(request, self._sampling, self._vocabulary) for request in began]
                self._begin(new, cache, first_row=len(rows))
                rows += new
            else:
                self._go_on(rows, cache)
            rows = self._without_ended(rows, cache, on_completed)
            self._beat()

    @torch.inference_mode()
    def complete_block(self, requests: Sequence[Request]) -> list[Completion]:
        """Make them side by side, in passes whose shapes depend on nobody else."""
        rows = [_Row(request, self._sampling, self._vocabulary) for request in requests]
        cache = self._policy.new_cache(len(rows))
        self._begin(rows, cache, first_row=0)
        while not all(row.has_ended for row in rows):
            self._go_on(rows, cache)
            self._beat()
        return [row.completion for row in rows]

    def _begin(self, rows: list[_Row], cache: RowCache, first_row: int) -> None:
        prompts = [row.completion.request.prompt for row in rows]
        tokens = torch.zeros(len(rows), max(MIN_ROWS, *map(len, prompts)), dtype=torch.int64)
        for row, prompt in zip(tokens, prompts, strict=True):
            row[: len(prompt)] = torch.tensor(prompt)
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        self._draw(rows, self._policy.begin(tokens.to(self._device), lengths.to(self._device), cache, first_row))

    def _go_on(self, rows: list[_Row], cache: RowCache) -> None:
        newest = torch.tensor([row.completion.tokens[-1] for row in rows], device=self._device)
        positions = torch.tensor([row.position for row in rows], device=self._device)
        self._draw(rows, self._policy.go_on(newest, positions, cache))

    def _draw(self, rows: list[_Row], log_probs: torch.Tensor) -> None:
        scores = log_probs
        if not self._sampling.greedy:
            going_on = [not row.has_ended for row in rows]
            noise = np.zeros((len(rows), self._vocabulary), np.float32)
            for place, row in enumerate(rows):
                if going_on[place]:
                    noise[place] = row.noise()
            scores = log_probs + torch.from_numpy(noise).to(self._device)
        chosen = scores.argmax(dim=1)
        drawn = log_probs.gather(1, chosen[:, None]).squeeze(1).tolist()
        for row, token, log_prob in zip(rows, chosen.tolist(), drawn, strict=True):
            if not row.has_ended:
                row.take(token, log_prob)

    def _without_ended(
        self, rows: list[_Row], cache: RowCache, on_completed: Callable[[Completion], Any]
    ) -> list[_Row]:
        """The rows that continue; the last of them move to where others have ended."""
        for place in reversed(range(len(rows))):
            if rows[place].has_ended:
                on_completed(rows[place].completion)
                last = rows.pop()
                if place < len(rows):
                    rows[place] = last
                    cache.move(len(rows), place)
        return rows
