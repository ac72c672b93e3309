"""Episodes, many at a time: turns are drawn in one batch while environments answer others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from htsrl.errors import HtsrlError
from htsrl.language.answer_tokens import AnswerTokens
from htsrl.language.environments import Answered, Asked, Environments
from htsrl.language.episodes import Episode, Referee, State, history_of
from htsrl.language.event_loop import LOOK_SECONDS
from htsrl.language.generation import Completion, Generation, Request
from htsrl.language.prompts import Prompt
from htsrl.processes.kill_points import kill_point

OnOver = Callable[[Episode], None]


@dataclass(frozen=True)
class Game:
    """What episodes are played with."""

    referee: Referee
    environments: Environments | None
    answer_tokens: AnswerTokens
    decode: Callable[[Sequence[int]], str]
    prompt_of: Callable[[int], Prompt]
    """By ordinal."""


class Play:
    """Takes episodes as far as they get in one rollout."""

    def __init__(self, game: Game, generation: Generation, version: int, beat: Callable[[], None]) -> None:
        self._game = game
        self._generation = generation
        self._version = version
        self._beat = beat
        self._episodes: dict[int, Episode] = {}
        self._answers: SimpleQueue[tuple[Episode, Future[Answered]]] = SimpleQueue()
        self._num_asked = 0
        self._num_answers = 0
        self.problems: set[str] = set()
        """What went wrong with environments."""

    def together(self, episodes: Sequence[Episode], on_over: OnOver) -> None:
        """Whichever is ready is drawn next, in any company; `on_over` hears of each that is over for this rollout."""
        self._begin(episodes)
        ready: list[Request] = []
        for episode in episodes:
            ready += self._next(episode, on_over)

        def on_drawn(completion: Completion) -> None:
            later.extend(self._take(completion, on_over))

        def more(idle: bool) -> list[Request]:
            while self._num_asked and (idle or not self._answers.empty()):
                later.extend(self._take_answer(on_over))
                idle = idle and not later
            requests = later[:]
            later.clear()
            return requests

        later: list[Request] = []
        self._generation.complete(ready, on_drawn, more)
        self._check()

    def block(self, episodes: Sequence[Episode], on_over: OnOver) -> None:
        """Turn by turn, in passes whose shapes depend on nobody else."""
        self._begin(episodes)
        requests = [request for episode in episodes for request in self._next(episode, on_over)]
        while requests or self._num_asked:
            requests = [r for c in self._drawn(requests) for r in self._take(c, on_over)]
            while self._num_asked:
                requests += self._take_answer(on_over)
            requests.sort(key=lambda request: request.column)
        self._check()

    def _drawn(self, requests: Sequence[Request]) -> list[Completion]:
        return self._generation.complete_block(requests) if requests else []

    def _begin(self, episodes: Sequence[Episode]) -> None:
        self._episodes |= {episode.column: episode for episode in episodes}

    def _take(self, completion: Completion, on_over: OnOver) -> list[Request]:
        episode = self._episodes[completion.request.column]
        self._game.referee.take(episode, completion, self._version)
        return self._next(episode, on_over)

    def _next(self, episode: Episode, on_over: OnOver) -> list[Request]:
        """What to draw for it now, if anything; one that waits for an answer is heard of later."""
        if request := self._game.referee.next_request(episode):
            return [request]
        if self._game.referee.wants_answer(episode):
            self._ask(episode)
        else:
            on_over(episode)
        return []

    def _ask(self, episode: Episode) -> None:
        game, environments = self._game, self._game.environments
        assert environments is not None, "nobody answers"
        prompt, own = game.prompt_of(episode.ordinal), episode.turn(episode.num_answers)
        asked = Asked(
            episode.key,
            prompt.columns,
            history_of(episode, game.decode),
            game.decode(own),
            lambda text, last=own: game.answer_tokens(prompt, last, text),  # type: ignore[misc]
        )
        self._num_asked += 1
        environments.ask(asked).add_done_callback(lambda answer: self._answers.put((episode, answer)))

    def _take_answer(self, on_over: OnOver) -> list[Request]:
        """The next answer, whosever it is."""
        while True:
            try:
                episode, came = self._answers.get(timeout=LOOK_SECONDS)
                break
            except Empty:
                self._beat()
                if self._game.environments is not None:
                    self._game.environments.look()
        answered = came.result()
        self._num_asked -= 1
        kill_point("inside an episode")
        game, answer = self._game, answered.answer
        if answer is None:
            episode.state = State.FAILED
            self.problems.add(answered.problem)
        else:
            self._num_answers += 1
            prompt = game.prompt_of(episode.ordinal)
            tokens = game.answer_tokens(prompt, episode.turn(episode.num_answers), answer.text)
            game.referee.take_answer(episode, answer, tokens)
        if episode.state is not State.OPEN and game.environments is not None:
            game.environments.forget(episode.key)
        return self._next(episode, on_over)

    def _check(self) -> None:
        """What fails for all episodes will not do better in the next rollout."""
        if self.problems and not self._num_answers and self._game.environments is not None:
            raise HtsrlError(
                f"environment {self._game.environments.name!r} answered none of {len(self._episodes)} episodes; the "
                f"last time it {sorted(self.problems)[-1]}. Mend it, and resume the run"
            )
