"""What rewards return, and what comes of those that do not return what they should."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from htsrl.errors import ConfigError, HtsrlError
from htsrl.language.rewards import (
    Attempts,
    Outcome,
    Reward,
    RewardFunction,
    Rewards,
    Texts,
    check_rewards,
    reward_names,
)

TEXTS = Texts(
    ["we", "a"], ["we", "a"], ["ab", "bbb"], [{"prompt": "we", "target": "a"}, {"prompt": "a", "target": "x"}]
)


def function(name: str, seconds: float = 30.0, attempts: int = 1) -> RewardFunction:
    return RewardFunction(f"text_rewards:{name}", Attempts(seconds, attempts))


def test_a_function_gets_the_columns_of_its_prompts() -> None:
    assert function("target_column").score(TEXTS).scores.tolist() == [1.0, 0.0]


def test_a_function_is_given_only_what_it_takes() -> None:
    assert function("shortness").score(TEXTS).scores.tolist() == [-2.0, -3.0]


def impatience() -> Callable[[], None]:
    """Of one who does not wait for ever."""
    looks = iter(range(100))

    def look() -> None:
        next(looks)

    return look


def asked_twice(reward: Reward) -> list[Outcome]:
    """What the first call does must not end what serves the second."""
    rewards, beat = Rewards([reward]), impatience()
    return [rewards.awaited(rewards.ask(TEXTS)[0], beat) for _ in range(2)]


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nan", "returned float 'nan', which is no finite number"),
        ("none", "returned None instead of a list of numbers"),
        ("text", "returned str 'good' instead of a list of numbers"),
        ("too_few", "returned 1 numbers for 2 completions"),
        ("raises", "raised RuntimeError: no such service"),
        ("exits", "raised SystemExit: the service wants no more"),
        ("exits_async", "raised SystemExit: the service wants no more"),
        ("interrupts", "raised KeyboardInterrupt: "),
        ("times_out", "raised TimeoutError: no answer from the service"),
        ("times_out_async", "raised TimeoutError: no answer from the service"),
        ("cancels_itself", "raised CancelledError: "),
        ("hangs", "took longer than reward_seconds=0.05"),
        ("hangs_async", "took longer than reward_seconds=0.05"),
        ("cannot_be_cancelled", "took longer than reward_seconds=0.05"),
    ],
)
def test_what_goes_wrong_is_named(name: str, problem: str) -> None:
    reward = function(name, seconds=0.05 if name.startswith(("hangs", "cannot")) else 30.0)
    for outcome in asked_twice(reward):
        assert outcome.problem == problem
        assert np.isnan(outcome.scores).all()
    with pytest.raises(ConfigError, match="it must take `prompts`, `completions`"):
        check_rewards([reward], TEXTS)


def test_a_coroutine_that_blocks_all_others_is_named_and_not_waited_for() -> None:
    reward = function("blocks_async", seconds=0.3)
    rewards = Rewards([reward])
    with pytest.raises(HtsrlError, match="a coroutine blocks it"):
        rewards.awaited(rewards.ask(TEXTS)[0], impatience())
    with pytest.raises(HtsrlError, match="a coroutine blocks it"):
        check_rewards([reward], TEXTS)


def test_one_completion_without_a_score_leaves_the_others_theirs() -> None:
    outcome = function("fails_for_some").score(TEXTS)
    assert np.isnan(outcome.scores[0])
    assert outcome.scores[1] == 3
    assert outcome.problem == "returned None, which is no finite number"


def test_a_call_that_fails_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    import text_rewards

    calls: list[int] = []

    def fails_once(completions: list[str], **columns: Any) -> list[float]:
        calls.append(1)
        if len(calls) == 1:
            raise OSError("busy")
        return [1.0] * len(completions)

    monkeypatch.setattr(text_rewards, "raises", fails_once)
    assert function("raises", attempts=2).score(TEXTS).problem == ""
    assert len(calls) == 2


def test_async_rewards_wait_side_by_side() -> None:
    rewards = Rewards([function("slow_vowels"), function("vowels")])
    answers = [rewards.ask(TEXTS) for _ in range(20)]
    for slow, plain in answers:
        assert rewards.awaited(slow).scores.tolist() == rewards.awaited(plain).scores.tolist() == [0.5, 0.0]


def test_a_function_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="cannot be imported"):
        function("nowhere")


def test_rewards_of_one_name_are_told_apart() -> None:
    assert reward_names(["a:score", "b:score", "runs/proxy/"]) == ["score_0", "score_1", "proxy"]
