"""What environments of texts may do, and what comes of what they must not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_models import make_folder, make_tokenizer, write_prompts

from htsrl.errors import ConfigError
from htsrl.language.answer_tokens import AnswerTokens
from htsrl.language.environments import Asked, Environments, Turn
from htsrl.language.prompts import Prompt
from htsrl.language.rlhf import rlhf_config
from htsrl.language.survey import draw_text_blueprint

COLUMNS = {"prompt": "we"}
CHAT = (
    "{% for m in messages %}<{{ m['role'][0] }}>{{ m['content'] }}</s>|{% endfor %}"
    "{% if add_generation_prompt %}<a>{% endif %}"
)


def letters(text: str) -> tuple[int, ...]:
    return tuple(map(ord, text))


def asked(history: list[Turn], text: str) -> Asked:
    return Asked((0, 0), COLUMNS, history, text, letters)


def test_an_episode_that_is_not_at_hand_is_played_again_from_its_texts() -> None:
    history, texts = list[Turn](), ["xe", "yy", "aei"]
    for text in texts:
        fresh, kept = (Environments("text_environments:Dialogue", 5, 1) for _ in range(2))
        for turn, before in enumerate(history):
            kept.ask(asked(history[:turn], before.text)).result()
        answers = [environments.ask(asked(history, text)).result() for environments in (fresh, kept)]
        assert answers[0] == answers[1]
        assert answers[0].answer is not None
        assert answers[0].answer.text.count("so") == len(history) + 1
        history.append(Turn(text, letters(answers[0].answer.text), answers[0].answer.reward))
    assert answers[0].answer is not None
    assert answers[0].answer.done


@pytest.mark.parametrize("history", [Turn("xe", letters("something else"), 0.1), Turn("xe", letters(" sox:"), 0.7)])
def test_an_environment_that_says_something_else_the_second_time_is_named(history: Turn) -> None:
    answered = Environments("text_environments:Dialogue", 5, 1).ask(asked([history], "b")).result()
    assert answered.answer is None
    assert "does not reproduce: given turn 1 of an episode again" in answered.problem


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Raises", "raised RuntimeError: no such tool"),
        ("Hangs", "took longer than environment_seconds=0.2"),
        ("ReturnsTwo", r"returned tuple \"\(''*, 0.0\)\" instead of \(text, reward, done\)"),
        ("ReturnsNumber", "answered int '3', which is no text"),
        ("ReturnsNan", "gave the reward float 'nan', which is no finite number"),
        ("WantsTopic", "raised TypeError: .* missing 1 required positional argument: 'topic'"),
        ("vowels", "must be a class with `step"),
        ("Nowhere", "has no"),
    ],
)
def test_environments_that_cannot_be_used(name: str, message: str, tmp_path: Path) -> None:
    task: Any = {"model": make_folder(tmp_path / "m"), "prompts": write_prompts(tmp_path / "p.jsonl")}
    seconds = 0.2 if name == "Hangs" else 60.0
    settings: Any = {"max_completion_length": 4, "generation_batch_size": 8, "environment_seconds": seconds}
    with pytest.raises(ConfigError, match=message):
        draw_text_blueprint(rlhf_config(**task, **settings, environment=f"text_environments:{name}"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs reward_funcs .* or an environment"),
        ({"reward_funcs": "text_rewards:vowels", "turns_per_rollout": 1}, "are about turns"),
        ({"environment": "text_environments:Dialogue", "max_turns": 0}, "max_turns=0 must be at least 1"),
        ({"environment": "text_environments:Dialogue", "environment_seconds": 0.0}, "environment_seconds=0.0 must be"),
        ({"environment": lambda: None}, "environment .* has no name under which worker processes"),
    ],
)
def test_settings_of_episodes_that_cannot_work(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        rlhf_config(make_folder(tmp_path / "m"), write_prompts(tmp_path / "p.jsonl"), **settings)


def test_answers_to_messages_are_messages() -> None:
    tokenizer = make_tokenizer(chat_template=CHAT)
    prompt = Prompt("", (), {"prompt": [{"role": "user", "content": "go"}]})
    end = tokenizer.eos_token_id
    for turn, expected in (([5, end], "|<u>so</s>|<a>"), ([5], "</s>|<u>so</s>|<a>")):
        assert AnswerTokens(tokenizer)(prompt, turn, "so") == tuple(
            tokenizer(expected, add_special_tokens=False)["input_ids"]
        )
    text = Prompt("go", (), {"prompt": "go"})
    assert AnswerTokens(tokenizer)(text, [5], "so") == tuple(tokenizer("so")["input_ids"])
    assert AnswerTokens(tokenizer)(text, [5], "") == ()


def test_a_template_that_changes_earlier_messages_cannot_go_on() -> None:
    tokenizer = make_tokenizer(chat_template="{{ messages | length }}" + CHAT)
    with pytest.raises(ConfigError, match="changes earlier messages when another follows"):
        AnswerTokens(tokenizer)(Prompt("", (), {"prompt": [{"role": "user", "content": "go"}]}), [5], "so")
