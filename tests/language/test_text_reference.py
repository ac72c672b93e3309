"""Two updates of a run against a second implementation: plain loops, stock attention, torch's own Adam, no runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import text_rewards
import torch
import transformers
from tiny_models import PROMPTS, make_folder, make_tokenizer, write_prompts

from htsrl import Placement
from htsrl.language.rlhf import rlhf
from htsrl.seeding import prompt_order, token_noise

BATCH, K, LENGTH, TEMPERATURE, RATE, SEED = 8, 4, 6, 0.8, 3e-3, 11
Text = tuple[list[int], list[int]]
"""Tokens of a prompt and of its completion."""


def log_prob(model: Any, text: Text) -> torch.Tensor:
    prompt, completion = text
    logits = model(input_ids=torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1] / TEMPERATURE
    chosen: torch.Tensor = logits.log_softmax(-1).gather(1, torch.tensor(completion)[:, None])
    return chosen.sum()


def drawn(model: Any, rollout: int) -> list[Text]:
    """Column after column, token after token, each from a pass over all that is there."""
    tokenizer, texts = make_tokenizer(), []
    for column in range(BATCH):
        ordinal = rollout * (BATCH // K) + column // K
        epoch, place = divmod(ordinal, len(PROMPTS))
        prompt = tokenizer(PROMPTS[prompt_order(SEED, epoch, len(PROMPTS))[place]])["input_ids"]
        completion: list[int] = []
        while len(completion) < LENGTH and completion[-1:] != [1]:
            with torch.no_grad():
                logits = model(input_ids=torch.tensor([prompt + completion])).logits[0, -1] / TEMPERATURE
            t = len(completion)
            noise = torch.from_numpy(token_noise(SEED, ordinal, column % K, range(t, t + 1), len(logits))[0])
            completion.append(int((logits.log_softmax(-1) + noise).argmax()))
        texts.append((prompt, completion))
    return texts


def rloo(model: Any, behaviour: Any, reference: Any, texts: list[Text], scores: list[float]) -> torch.Tensor:
    losses = []
    with torch.no_grad():
        old = [float(log_prob(behaviour, text)) for text in texts]
        costs = [old[i] - float(log_prob(reference, text)) for i, text in enumerate(texts)]
    returns = [score - 0.3 * cost for score, cost in zip(scores, costs, strict=True)]
    for i, text in enumerate(texts):
        group = range(i // K * K, i // K * K + K)
        advantage = returns[i] - float(np.mean([returns[j] for j in group if j != i]))
        ratio = (log_prob(model, text) - old[i]).exp()
        losses.append(-torch.min(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage))
    return torch.stack(losses).mean()


def online_dpo(model: Any, behaviour: Any, reference: Any, texts: list[Text], scores: list[float]) -> torch.Tensor:
    losses = []
    for first in range(0, BATCH, K):
        group = sorted(range(first, first + K), key=lambda i: scores[i])
        if scores[group[0]] == scores[group[-1]]:
            continue
        better, worse = (
            texts[next(i for i in range(first, first + K) if scores[i] == scores[group[j]])] for j in (-1, 0)
        )
        with torch.no_grad():
            expected = log_prob(reference, better) - log_prob(reference, worse)
        losses.append(
            -torch.nn.functional.logsigmoid(0.3 * (log_prob(model, better) - log_prob(model, worse) - expected))
        )
    return torch.stack(losses).mean()


@pytest.mark.parametrize(("algorithm", "loss"), [("rloo", rloo), ("online_dpo", online_dpo)])
def test_two_updates_are_those_of_a_plain_implementation(algorithm: str, loss: Any, tmp_path: Path) -> None:
    folder, prompts = make_folder(tmp_path / "model"), write_prompts(tmp_path / "prompts.jsonl")
    rlhf(
        folder,
        prompts,
        text_rewards.vowels,
        algorithm,
        Placement(backend="inline", run_dir=tmp_path / "run", tensorboard=False, progress="off"),
        total_episodes=2 * BATCH,
        generation_batch_size=BATCH,
        num_generations=K,
        max_completion_length=LENGTH,
        temperature=TEMPERATURE,
        learning_rate=RATE,
        beta=0.3,
        seed=SEED,
    )
    model, behaviour, reference = (transformers.AutoModelForCausalLM.from_pretrained(folder) for _ in range(3))
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, eps=1e-8)
    for update in range(2):  # both rollouts are of version 0: the pipeline fills
        texts = drawn(behaviour, update)
        scores = text_rewards.vowels([make_tokenizer().decode(text[1], skip_special_tokens=True) for text in texts])
        optimizer.zero_grad()
        loss(model, behaviour, reference, texts, [float(np.float32(score)) for score in scores]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    trained = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "run" / "model")
    for (name, ours), theirs in zip(trained.named_parameters(), model.parameters(), strict=True):
        moved = (theirs - dict(reference.named_parameters())[name]).abs().max()
        assert moved > RATE / 2, name
        # Adam moves by the sign of small gradients, so a rounding may turn a few of them.
        assert ((ours - theirs).abs() > 1e-4).float().mean() < 0.01, name
