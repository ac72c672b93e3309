"""Episodes that barriers cut, against a second implementation: plain loops, stock attention, no runtime."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from text_environments import Dialogue
from tiny_models import PROMPTS, make_folder, make_tokenizer, write_prompts

from htsrl import Placement
from htsrl.language.rlhf import rlhf
from htsrl.seeding import prompt_order, token_noise

BATCH, K, LENGTH, TURN, MAX_TURNS, TEMPERATURE, RATE, SEED, BETA, UPDATES = 4, 2, 24, 4, 3, 0.8, 3e-3, 12, 0.3, 4
END = 1
TOKENIZER = make_tokenizer()


@dataclass
class Talk:
    """One episode."""

    ordinal: int
    k: int
    text: str
    environment: Any
    tokens: list[int] = field(default_factory=list)
    drawn: list[bool] = field(default_factory=list)
    by: list[int] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    over: bool = False


def begun(ordinal: int, k: int) -> Talk:
    epoch, place = divmod(ordinal, len(PROMPTS))
    text = PROMPTS[prompt_order(SEED, epoch, len(PROMPTS))[place]]
    return Talk(ordinal, k, text, Dialogue(text))


def logits(model: Any, talk: Talk, tokens: list[int]) -> torch.Tensor:
    prompt = TOKENIZER(talk.text)["input_ids"]
    found: torch.Tensor = model(input_ids=torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 :] / TEMPERATURE
    return found.log_softmax(-1)


def one_turn(model: Any, version: int, talk: Talk) -> None:
    own: list[int] = []
    while len(own) < TURN and len(talk.tokens) < LENGTH and own[-1:] != [END]:
        with torch.no_grad():
            last = logits(model, talk, talk.tokens)[-1]
        place = len(talk.tokens)
        noise = token_noise(SEED, talk.ordinal, talk.k, range(place, place + 1), len(last))[0]
        own.append(int((last + torch.from_numpy(noise)).argmax()))
        talk.tokens.append(own[-1])
        talk.drawn.append(True)
        talk.by.append(version)
    answer, reward, done = talk.environment.step(TOKENIZER.decode(own, skip_special_tokens=True))
    talk.rewards.append(float(np.float32(reward)))
    tokens = TOKENIZER(answer)["input_ids"]
    if done or len(talk.rewards) == MAX_TURNS or len(talk.tokens) + len(tokens) >= LENGTH:
        talk.over = True
        return
    talk.tokens += tokens
    talk.drawn += [False] * len(tokens)
    talk.by += [-1] * len(tokens)


def log_prob(models: list[Any], talk: Talk) -> torch.Tensor:
    """Of the model's own tokens, each by the model of its place in the list."""
    total, passes = torch.zeros(()), {id(model): logits(model, talk, talk.tokens) for model in models}
    for place, (token, drawn) in enumerate(zip(talk.tokens, talk.drawn, strict=True)):
        if drawn:
            total = total + passes[id(models[place])][place, token]
    return total


def loss_of(model: Any, versions: list[Any], talks: list[Talk]) -> torch.Tensor:
    """RLOO, with what moving away from version 0 costs taken off the score."""
    with torch.no_grad():
        old = [float(log_prob([versions[v] for v in talk.by], talk)) for talk in talks]
        costs = [
            o - float(log_prob([versions[0]] * len(talk.tokens), talk)) for o, talk in zip(old, talks, strict=True)
        ]
    returns = [sum(talk.rewards) - BETA * cost for talk, cost in zip(talks, costs, strict=True)]
    losses = []
    for i, talk in enumerate(talks):
        group = range(i // K * K, i // K * K + K)
        advantage = returns[i] - float(np.mean([returns[j] for j in group if j != i]))
        ratio = (log_prob([model] * len(talk.tokens), talk) - old[i]).exp()
        losses.append(-torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage))
    return torch.stack(losses).mean()


def test_updates_with_carried_episodes_are_those_of_a_plain_implementation(tmp_path: Path) -> None:
    folder, prompts = make_folder(tmp_path / "model"), write_prompts(tmp_path / "prompts.jsonl")
    rlhf(
        folder,
        prompts,
        environment="text_environments:Dialogue",
        max_turns=MAX_TURNS,
        max_turn_length=TURN,
        turns_per_rollout=1,
        placement=Placement(backend="inline", run_dir=tmp_path / "run", tensorboard=False, progress="off"),
        total_episodes=UPDATES * BATCH,
        generation_batch_size=BATCH,
        num_generations=K,
        max_completion_length=LENGTH,
        temperature=TEMPERATURE,
        learning_rate=RATE,
        beta=BETA,
        seed=SEED,
    )
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, eps=1e-8)
    versions, lags, mixtures = [deepcopy(model)], list[int](), 0
    groups = [[begun(number, k) for k in range(K)] for number in range(BATCH // K)]
    for update in range(UPDATES):
        acting, complete = max(update - 1, 0), list[Talk]()
        for number, group in enumerate(groups):
            for talk in group:
                if not talk.over:
                    one_turn(versions[acting], acting, talk)
            if all(talk.over for talk in group):
                mixtures += any(len({*talk.by} - {-1}) > 1 for talk in group)
                complete += group
                groups[number] = [begun(group[0].ordinal + len(groups), k) for k in range(K)]
        if complete:
            lags += [update - version for talk in complete for version in talk.by if version >= 0]
            optimizer.zero_grad()
            torch.autograd.backward(loss_of(model, versions, complete))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        versions.append(deepcopy(model))
    assert set(lags) == {1, 2}
    assert mixtures > 0
    trained = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    for (name, ours), theirs in zip(trained.named_parameters(), model.parameters(), strict=True):
        moved = (theirs - dict(versions[0].named_parameters())[name]).abs().max()
        assert moved > RATE / 2, name
        # Adam moves by the sign of small gradients, so a rounding may turn a few of them.
        assert ((ours - theirs).abs() > 1e-4).float().mean() < 0.01, name
