"""What a generator does where completions have several turns, or are made in several rollouts.

It holds nothing between rollouts that it could not do without: an episode that continues is read from the storage of
the rollout before, and its environment is given its texts again where it is not at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from htsrl.dataflow.trajectory import INFO_PREFIX
from htsrl.language.episodes import Episode, State
from htsrl.language.fields import ENVIRONMENT, ENVIRONMENT_REWARD, TextSizes
from htsrl.language.generation import Generation
from htsrl.language.generator import Acting, Block, Writing
from htsrl.language.play import Game, Play
from htsrl.language.rewards import Outcome, Texts
from htsrl.language.scoring import Scoring
from htsrl.placements.collector import CollectorSite

Fields = dict[str, NDArray[Any]]
LOG_PROBS = "log_probs"
GENERATED = "generated_log_probs"
OF_ENVIRONMENT = f"{INFO_PREFIX}{ENVIRONMENT_REWARD}"


@dataclass
class _Scored:
    """A block of which the rewards were asked."""

    block: Block
    episodes: list[Episode]
    complete: list[Episode]
    """Those whose prompt's completions have all ended."""
    answers: list[Future[Outcome]]


class EpisodeWork:
    """Takes the episodes of some columns as far as they get in a rollout."""

    def __init__(self, sizes: TextSizes, site: CollectorSite, writing: Writing, scoring: Scoring, game: Game) -> None:
        self._sizes = sizes
        self._storages = site.shared.storages
        self._beat = site.beat
        self._writing = writing
        self._scoring = scoring
        self._game = game

    def fill(self, rollout: int, acting: Acting, columns: Sequence[int]) -> Iterator[Block]:
        """Write whole blocks; each counts once it is yielded."""
        before = self._fields(rollout - 1) if rollout else None
        episodes = {column: self._episode(rollout, column, before) for column in columns}
        blocks: dict[int, list[int]] = {}
        for column in columns:
            blocks.setdefault(self._sizes.block_of(column), []).append(column)
        asked: list[_Scored] = []
        self._play(acting, [[episodes[c] for c in block] for block in blocks.values()], asked.append)
        outcomes = [
            [self._scoring.rewards.awaited(answer, self._beat) for answer in scored.answers] for scored in asked
        ]
        self._scoring.check(rollout, [of_block for of_block in outcomes if of_block])
        for scored, of_block in zip(asked, outcomes, strict=True):
            self._write(rollout, acting, scored, of_block, before)
            yield scored.block

    def close(self) -> None:
        self._scoring.rewards.close()
        if self._game.environments is not None:
            self._game.environments.close()

    def _play(self, acting: Acting, blocks: Sequence[list[Episode]], on_block: Callable[[_Scored], None]) -> None:
        writing = self._writing
        generation = Generation(acting.policy, writing.sampling, writing.max_rows, self._beat)
        play = Play(self._game, generation, acting.version, self._beat)
        under_way = {self._sizes.block_of(block[0].column): len(block) for block in blocks}
        by_number = {self._sizes.block_of(block[0].column): block for block in blocks}

        def on_over(episode: Episode) -> None:
            number = self._sizes.block_of(episode.column)
            under_way[number] -= 1
            if not under_way[number]:
                on_block(self._asked(by_number[number]))

        if writing.by_block:
            for block in blocks:
                play.block(block, on_over)
        else:
            play.together([episode for block in blocks for episode in block], on_over)
        if self._game.environments is not None:
            who = f"environment {self._game.environments.name!r}"
            self._scoring.say(who, play.problems, "the episode is left out of the loss")

    def _asked(self, episodes: list[Episode]) -> _Scored:
        """Rewards see whole groups of completions, in the rollout in which the last of a group has ended."""
        size, complete = self._sizes.num_generations, list[Episode]()
        for first in range(0, len(episodes), size):
            group = episodes[first : first + size]
            complete += group if all(episode.state is not State.OPEN for episode in group) else []
        block = tuple(episode.column for episode in episodes)
        return _Scored(block, episodes, complete, self._scoring.ask(self._texts(complete)) if complete else [])

    def _texts(self, episodes: Sequence[Episode]) -> Texts:
        prompts = [self._game.prompt_of(episode.ordinal) for episode in episodes]
        return Texts(
            [prompt.columns["prompt"] for prompt in prompts],
            [prompt.text for prompt in prompts],
            [self._writing.decode(episode.tokens) for episode in episodes],
            [prompt.columns for prompt in prompts],
        )

    def _fields(self, rollout: int) -> Fields:
        storages = self._storages
        return {name: array[storages.of_rollout(rollout), 0] for name, array in storages.fields.items()}

    def _episode(self, rollout: int, column: int, before: Fields | None) -> Episode:
        """What the column is about: what it was about, if that is not complete, else its next prompt."""
        order = self._writing.order
        if before is not None and not before["complete"][column]:
            return _read(before, column, column % order.num_generations)
        following = 0 if before is None else int(before["ordinals"][column]) + order.per_rollout
        ordinal = following if before is not None else order.ordinal(0, column)
        prompt = self._game.prompt_of(ordinal)
        return Episode(column, ordinal, column % order.num_generations, prompt.tokens, begun=rollout)

    def _write(
        self, rollout: int, acting: Acting, scored: _Scored, outcomes: Sequence[Outcome], before: Fields | None
    ) -> None:
        fields = self._fields(rollout)
        places = {episode.column: row for row, episode in enumerate(scored.complete)}
        for episode in scored.episodes:
            _write(fields, episode, acting.version)
            column, row = episode.column, places.get(episode.column)
            fields["complete"][column] = row is not None
            score, is_scored, parts = 0.0, False, np.full(len(self._scoring.names), np.nan, np.float32)
            if row is not None:
                parts = np.array([outcome.scores[row] for outcome in outcomes], np.float32)
                if episode.state is not State.FAILED:
                    ended, earned = episode.state is State.DONE, sum(episode.rewards)
                    score, is_scored = self._scoring.score(parts, ended, earned)
            fields["scores"][column], fields["scored"][column] = score, is_scored
            fields["episode_returns"][column] = score
            fields["episode_lengths"][column] = len(episode.tokens) if is_scored else 0
            self._scoring.write_parts(fields, column, parts)
            if OF_ENVIRONMENT in fields:
                fields[OF_ENVIRONMENT][column] = np.nan if row is None else sum(episode.rewards)
        if GENERATED in fields:
            self._compute_log_probs(fields, acting, scored, before)

    @torch.inference_mode()
    def _compute_log_probs(self, fields: Fields, acting: Acting, scored: _Scored, before: Fields | None) -> None:
        """From a pass over whole texts, as the learner's, for the tokens of this rollout; the others have theirs."""
        rows, device = list(scored.block), next(acting.policy.parameters()).device
        tokens, prompt_lengths, lengths = (
            torch.from_numpy(fields[name][rows].astype(np.int64)).to(device)
            for name in ("tokens", "prompt_lengths", "lengths")
        )
        log_probs = acting.policy.log_probs(tokens, prompt_lengths, lengths, self._sizes.max_completion)
        found = log_probs.numpy(force=True)
        for episode, of_row in zip(scored.episodes, found, strict=True):
            drawn = np.array(fields["token_versions"][episode.column] != ENVIRONMENT)
            carried = fields[LOG_PROBS][episode.column]
            carried[:] = 0
            if episode.carried and before is not None:
                carried[: episode.carried] = before[LOG_PROBS][episode.column][: episode.carried]
            drawn[: episode.carried] = False
            carried[drawn] = of_row[drawn]


def _read(fields: Fields, column: int, generation: int) -> Episode:
    """An episode as the rollout before has left it."""
    begin, end = int(fields["prompt_lengths"][column]), int(fields["lengths"][column])
    count, log_probs = end - begin, fields[GENERATED if GENERATED in fields else LOG_PROBS]
    return Episode(
        column,
        int(fields["ordinals"][column]),
        generation,
        tuple(fields["tokens"][column, :begin].tolist()),
        begun=int(fields["begun"][column]),
        tokens=fields["tokens"][column, begin:end].tolist(),
        log_probs=log_probs[column, :count].tolist(),
        versions=fields["token_versions"][column, :count].tolist(),
        turns=fields["turns"][column, :count].tolist(),
        rewards=fields["turn_rewards"][column, :count].tolist(),
        num_answers=int(fields["num_answers"][column]),
        state=State(int(fields["states"][column])),
        carried=count,
    )


def _write(fields: Fields, episode: Episode, version: int) -> None:
    """All that the next rollout could continue from, and that the learner learns from."""
    column, text = episode.column, [*episode.prompt, *episode.tokens]
    fields["tokens"][column] = 0
    fields["tokens"][column, : len(text)] = text
    fields["prompt_lengths"][column], fields["lengths"][column] = len(episode.prompt), len(text)
    fields["ordinals"][column], fields["versions"][column] = episode.ordinal, version
    fields["begun"][column], fields["carried"][column] = episode.begun, episode.carried
    fields["states"][column], fields["num_answers"][column] = episode.state, episode.num_answers
    fields["ended"][column] = episode.state is State.DONE
    for name, values, nothing in (
        (GENERATED if GENERATED in fields else LOG_PROBS, episode.log_probs, 0.0),
        ("token_versions", episode.versions, ENVIRONMENT),
        ("turns", episode.turns, 0),
        ("turn_rewards", episode.rewards, 0.0),
    ):
        fields[name][column] = nothing
        fields[name][column, : len(values)] = values
