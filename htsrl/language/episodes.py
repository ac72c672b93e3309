"""Episodes: completions of one or several turns, which a barrier may find unfinished.

How far an episode gets in a rollout is told in turns and tokens, never by a clock. What it has not ended by then it
continues with in the next rollout, in the same column, from its tokens, with the version that acts there; so the
versions of its tokens are a function of the experiment, too. Nothing of it is dropped, and it is learned from once,
whole, in the rollout in which the last completion of its prompt has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from htsrl.language.environments import Answer, Turn
from htsrl.language.fields import ENVIRONMENT
from htsrl.language.generation import Completion, Request
from htsrl.language.limits import Limits


class State(IntEnum):
    """How an episode stands, as it is stored."""

    OPEN = 0
    DONE = 1
    """It came to its end."""
    CUT_OFF = 2
    """There was no room, or no turn, left."""
    FAILED = 3
    """Its environment failed."""


@dataclass
class Episode:
    """What one column of a rollout is about; `tokens` and what goes with each of them begin behind the prompt."""

    column: int
    ordinal: int
    generation: int
    prompt: tuple[int, ...]
    begun: int
    """The rollout in which it began."""
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    """That drew the token; ENVIRONMENT where none did."""
    turns: list[int] = field(default_factory=list)
    """Which turn a token belongs to; an answer is part of the turn that it follows."""
    rewards: list[float] = field(default_factory=list)
    """Of the environment, at the last token of each turn."""
    num_answers: int = 0
    state: State = State.OPEN
    carried: int = 0
    """Tokens that earlier rollouts made."""
    answers_here: int = 0
    """In this rollout."""

    @property
    def key(self) -> tuple[int, int]:
        return self.column, self.ordinal

    def turn(self, number: int) -> list[int]:
        """The tokens that the model drew in it."""
        return [
            t for t, turn, v in zip(self.tokens, self.turns, self.versions, strict=True) if turn == number and v >= 0
        ]

    def answer(self, number: int) -> tuple[int, ...]:
        """The tokens that the environment answered it with."""
        return tuple(
            t for t, turn, v in zip(self.tokens, self.turns, self.versions, strict=True) if turn == number and v < 0
        )

    def reward_of(self, number: int) -> float:
        return sum(reward for reward, turn in zip(self.rewards, self.turns, strict=True) if turn == number)

    @property
    def drawn_here(self) -> int:
        """Tokens that the model drew in this rollout."""
        return sum(version >= 0 for version in self.versions[self.carried :])


class Referee:
    """What comes next in an episode."""

    def __init__(self, limits: Limits, ends: frozenset[int], has_environment: bool) -> None:
        self._limits = limits
        self._ends = ends
        self._has_environment = has_environment

    def next_request(self, episode: Episode) -> Request | None:
        """What to draw; None where the turn is complete, or this rollout's budget is spent."""
        room = self._room(episode)
        if episode.state is not State.OPEN or self._turn_is_complete(episode) or room < 1:
            return None
        text = (*episode.prompt, *episode.tokens)
        place = len(episode.tokens)
        return Request(episode.column, text, episode.ordinal, episode.generation, place, room)

    def wants_answer(self, episode: Episode) -> bool:
        return self._has_environment and episode.state is State.OPEN and self._turn_is_complete(episode)

    def take(self, episode: Episode, drawn: Completion, version: int) -> None:
        """What was drawn."""
        count = len(drawn.tokens)
        episode.tokens += drawn.tokens
        episode.log_probs += drawn.log_probs
        episode.versions += [version] * count
        episode.turns += [episode.num_answers] * count
        episode.rewards += [0.0] * count
        if not self._has_environment and self._turn_is_complete(episode):
            episode.state = State.DONE if episode.tokens[-1] in self._ends else State.CUT_OFF

    def take_answer(self, episode: Episode, answer: Answer, tokens: Sequence[int]) -> None:
        """What the environment said; nobody continues from an answer that ends the episode, so it is not kept."""
        episode.rewards[-1] += answer.reward
        turn, episode.num_answers = episode.num_answers, episode.num_answers + 1
        episode.answers_here += 1
        limits = self._limits
        if answer.done:
            episode.state = State.DONE
        elif episode.num_answers == limits.max_turns or len(episode.tokens) + len(tokens) >= limits.max_tokens:
            episode.state = State.CUT_OFF
        else:
            episode.tokens += tokens
            episode.log_probs += [0.0] * len(tokens)
            episode.versions += [ENVIRONMENT] * len(tokens)
            episode.turns += [turn] * len(tokens)
            episode.rewards += [0.0] * len(tokens)

    def is_over(self, episode: Episode) -> bool:
        """For this rollout."""
        return self.next_request(episode) is None and not self.wants_answer(episode)

    def _room(self, episode: Episode) -> int:
        """Tokens that may be drawn now."""
        limits = self._limits
        rooms = [limits.max_tokens - len(episode.tokens)]
        if limits.max_turn_tokens is not None:
            rooms.append(limits.max_turn_tokens - len(episode.turn(episode.num_answers)))
        if limits.tokens_per_rollout is not None:
            rooms.append(limits.tokens_per_rollout - episode.drawn_here)
        if limits.turns_per_rollout is not None and episode.answers_here >= limits.turns_per_rollout:
            rooms.append(0)
        return min(rooms)

    def _turn_is_complete(self, episode: Episode) -> bool:
        own, limits = episode.turn(episode.num_answers), self._limits
        if not own:
            return False
        is_full = len(episode.tokens) == limits.max_tokens or len(own) == limits.max_turn_tokens
        return own[-1] in self._ends or is_full


def history_of(episode: Episode, decode: Callable[[Sequence[int]], str]) -> list[Turn]:
    """The turns that were answered."""
    return [Turn(decode(episode.turn(n)), episode.answer(n), episode.reward_of(n)) for n in range(episode.num_answers)]
