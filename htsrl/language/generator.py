"""The generator: completes prompts with the version that acts in a rollout, has them scored, and writes them down.

It holds no state between rollouts. Which prompt a column completes, and with which noise, follows from (seed, rollout,
column); so a generator that is killed begins the columns that do not count yet again, to the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from htsrl.language.fields import TextSizes
from htsrl.language.generation import Completion, Generation, Request, Sampling
from htsrl.language.policy import TextPolicy
from htsrl.language.prompts import Prompt, PromptOrder
from htsrl.language.rewards import Outcome, Texts
from htsrl.language.scoring import Scoring
from htsrl.numerics import OwnNumerics
from htsrl.placements.collector import CollectorSite
from htsrl.processes.kill_points import kill_point

Block = tuple[int, ...]
"""Columns that are scored together."""


@dataclass(frozen=True)
class Writing:
    """What a generator writes texts from."""

    prompts: Sequence[Prompt]
    order: PromptOrder
    sampling: Sampling
    decode: Callable[[Sequence[int]], str]
    max_rows: int
    """Texts at a time."""
    by_block: bool
    """Whether blocks stay together, for rows would have other bits in other company."""


class RolloutWork(Protocol):
    """What a generator does for a rollout."""

    def fill(self, rollout: int, acting: Acting, columns: Sequence[int]) -> Iterator[Block]:
        """Write whole blocks; each counts once it is yielded."""

    def close(self) -> None:
        """End what serves it."""


@dataclass(frozen=True)
class Acting:
    """The version that acts."""

    version: int
    policy: TextPolicy


class Generator:
    """Fills some columns of every rollout."""

    def __init__(self, columns: Sequence[int], site: CollectorSite, work: RolloutWork, num_rollouts: int) -> None:
        self._columns = np.array(columns, np.int64)
        self._shared = site.shared
        self._parameters = site.parameters
        self._notify_learner = site.notify_learner
        self._work = work
        self._num_rollouts = num_rollouts
        self._numerics = OwnNumerics()

    @property
    def rollout(self) -> int:
        """The one that it is at."""
        return int(self._shared.exchange.completed_rollouts[self._columns].min())

    @property
    def finished(self) -> bool:
        return self.rollout >= self._num_rollouts

    def advance(self) -> bool:
        rollout = self.rollout
        if rollout >= self._num_rollouts or not self._shared.may_begin(int(self._columns[0]), rollout):
            return False
        completed = self._shared.exchange.completed_rollouts
        with self._numerics:
            self.collect(rollout, [int(column) for column in self._columns if completed[column] == rollout])
        self._notify_learner()
        return True

    def waits_for(self) -> str:
        return f"the version that makes rollout {self.rollout}"

    def close(self) -> None:
        self._work.close()

    def collect(self, rollout: int, columns: Sequence[int]) -> None:
        """Complete and score whole blocks; each counts once all of it is written."""
        version = self._shared.source.behaviour_version(rollout)
        assert version is not None, "a rollout on text has one version"
        policy: Any = self._parameters.module(version)
        for block in self._work.fill(rollout, Acting(version, policy), columns):
            kill_point("before a block counts")
            self._shared.exchange.completed_rollouts[list(block)] = rollout + 1
            kill_point("after a block counts")


class CompletionWork:
    """Completions of one turn, each of which is made in one rollout."""

    def __init__(self, sizes: TextSizes, site: CollectorSite, writing: Writing, scoring: Scoring) -> None:
        self._sizes = sizes
        self._storages = site.shared.storages
        self._beat = site.beat
        self._writing = writing
        self._scoring = scoring

    def fill(self, rollout: int, acting: Acting, columns: Sequence[int]) -> Iterator[Block]:
        asked: list[tuple[Block, list[Completion], list[Future[Outcome]]]] = []

        def on_block(block: Block, completions: list[Completion]) -> None:
            asked.append((block, completions, self._scoring.ask(self._texts(completions))))

        self._generate(acting.policy, rollout, columns, on_block)
        scored = [
            (block, completions, [self._scoring.rewards.awaited(answer, self._beat) for answer in answers])
            for block, completions, answers in asked
        ]
        self._scoring.check(rollout, [outcomes for _, _, outcomes in scored])
        for block, completions, outcomes in scored:
            self._write(rollout, acting.version, completions, outcomes)
            yield block

    def close(self) -> None:
        self._scoring.rewards.close()

    def _generate(
        self,
        policy: TextPolicy,
        rollout: int,
        columns: Sequence[int],
        on_block: Callable[[Block, list[Completion]], None],
    ) -> None:
        generation = Generation(policy, self._writing.sampling, self._writing.max_rows, self._beat)
        blocks: dict[int, list[int]] = {}
        for column in columns:
            blocks.setdefault(self._sizes.block_of(column), []).append(column)
        if self._writing.by_block:
            for block in blocks.values():
                on_block(tuple(block), generation.complete_block([self._request(rollout, column) for column in block]))
            return
        made: dict[int, dict[int, Completion]] = {block: {} for block in blocks}

        def on_completed(completion: Completion) -> None:
            column = completion.request.column
            block = self._sizes.block_of(column)
            made[block][column] = completion
            if len(made[block]) == len(blocks[block]):
                on_block(tuple(blocks[block]), [made[block][column] for column in blocks[block]])

        generation.complete([self._request(rollout, column) for column in columns], on_completed)

    def _request(self, rollout: int, column: int) -> Request:
        order = self._writing.order
        ordinal = order.ordinal(rollout, column)
        prompt = self._writing.prompts[order.prompt(ordinal)]
        return Request(column, prompt.tokens, ordinal, column % order.num_generations)

    def _texts(self, completions: Sequence[Completion]) -> Texts:
        order = self._writing.order
        prompts = [self._writing.prompts[order.prompt(completion.request.ordinal)] for completion in completions]
        return Texts(
            [prompt.columns["prompt"] for prompt in prompts],
            [prompt.text for prompt in prompts],
            [self._writing.decode(completion.tokens) for completion in completions],
            [prompt.columns for prompt in prompts],
        )

    def _write(
        self, rollout: int, version: int, completions: Sequence[Completion], outcomes: Sequence[Outcome]
    ) -> None:
        storages = self._storages
        fields = {name: array[storages.of_rollout(rollout), 0] for name, array in storages.fields.items()}
        own_log_probs = fields.get("generated_log_probs", fields["log_probs"])
        for row, completion in enumerate(completions):
            request, column = completion.request, completion.request.column
            tokens = [*request.prompt, *completion.tokens]
            fields["tokens"][column] = 0
            fields["tokens"][column, : len(tokens)] = tokens
            fields["prompt_lengths"][column], fields["lengths"][column] = len(request.prompt), len(tokens)
            fields["ordinals"][column], fields["versions"][column] = request.ordinal, version
            fields["ended"][column] = completion.ended
            own_log_probs[column] = 0
            own_log_probs[column, : len(completion.tokens)] = completion.log_probs
            parts = np.array([outcome.scores[row] for outcome in outcomes], np.float32)
            score, scored = self._scoring.score(parts, completion.ended)
            fields["scores"][column], fields["scored"][column] = score, scored
            fields["episode_returns"][column] = score
            fields["episode_lengths"][column] = len(completion.tokens) if scored else 0
            self._scoring.write_parts(fields, column, parts)
