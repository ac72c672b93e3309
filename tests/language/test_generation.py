"""Texts have the same bits whoever else is generated beside them, and when they are learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import PROMPTS, make_model, make_tokenizer, products_agree_here

from htsrl.language import attention, probe
from htsrl.language.attention import FIXED_WIDTH
from htsrl.language.generation import Completion, Generation, Request, Sampling
from htsrl.language.policy import TextPolicy
from htsrl.language.prompts import Prompt, PromptOrder
from htsrl.seeding import token_noise

WIDTH, ROWS = 40, 32
SAMPLING = Sampling(seed=3, max_tokens=20, ends=frozenset({1}))
pytestmark = pytest.mark.usefixtures("one_thread")


def policy_of(kind: str = "llama", temperature: float = 0.7) -> TextPolicy:
    model = make_model(kind)
    model.set_attn_implementation(FIXED_WIDTH)
    return TextPolicy(model, WIDTH, temperature)


def prompts() -> list[Prompt]:
    tokenizer = make_tokenizer()
    return [Prompt(text, tuple(tokenizer(text)["input_ids"]), {"prompt": text}) for text in PROMPTS]


def completed(
    policy: TextPolicy, rows: int, requests: list[Request], sampling: Sampling = SAMPLING
) -> list[Completion]:
    made: dict[int, Completion] = {}
    Generation(policy, sampling, rows).complete(requests, lambda text: made.update({text.request.column: text}))
    return [made[request.column] for request in requests]


def requests_of(count: int) -> list[Request]:
    given = prompts()
    return [Request(i, given[i // 2 % len(given)].tokens, i // 2, i % 2) for i in range(count)]


@pytest.mark.parametrize("kind", ["llama", "qwen3", "gpt2", "gpt_neox"])
def test_generated_log_probabilities_are_those_of_a_pass_over_the_whole_text(kind: str) -> None:
    finding = probe.probe(policy_of(kind), prompts(), SAMPLING, "cpu", num_rows=ROWS, is_timed=kind == "llama")
    assert (finding.num_texts, finding.num_tokens) == (ROWS, SAMPLING.max_tokens)
    assert finding.difference < 1e-4, "more than rounding"
    if products_agree_here():
        assert (finding.padding, finding.difference) == (attention.PADDINGS[0], 0.0)
        assert ("where stock attention takes" in str(finding)) == (kind == "llama")


def test_stock_attention_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys no wider than what has been seen, and single rows of queries, as libraries have them."""
    monkeypatch.setattr(attention.Padding, "attention", attention.STOCK)
    finding = probe.probe(policy_of(), prompts(), SAMPLING, "cpu", num_rows=16, is_timed=False)
    assert finding.padding is None
    assert 0 < finding.difference < 1e-3
    assert "16 texts side by side, the longest of 20 tokens: generator and learner differ by up to" in str(finding)


def test_batches_are_padded_as_far_as_they_have_to_be() -> None:
    """By a layer that computes something else where texts are no multiple of eight, as a kernel may."""
    policy = policy_of()
    module: Any = policy.model
    module.model.layers[0].mlp.down_proj.register_forward_hook(
        lambda module, given, made: made * (1 + 1e-6 * (len(made) % 8 != 0))
    )
    finding = probe.probe(policy, prompts(), SAMPLING, "cpu", num_rows=16, is_timed=False)
    assert 0 < finding.difference < 1e-3
    if products_agree_here():
        assert finding.padding == attention.Padding(8, 8)


def test_a_large_model_is_looked_at_with_fewer_and_shorter_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "AFFORDABLE", 0)
    finding = probe.probe(policy_of(), prompts(), SAMPLING, "cpu", num_rows=128, is_timed=False)
    assert (finding.num_texts, finding.num_tokens) == (probe.NUM_FEW, SAMPLING.max_tokens)


def test_stock_generation_draws_the_same_texts() -> None:
    """Greedily, as transformers does it with its own attention, cache and left padding."""
    policy, few = policy_of(temperature=1.0), requests_of(8)
    greedy = Sampling(seed=3, max_tokens=12, ends=frozenset({1}), greedy=True)
    ours = [completion.tokens for completion in completed(policy, 8, few, greedy)]
    model, tokenizer = make_model(), make_tokenizer(padding_side="left")
    inputs = tokenizer([PROMPTS[i // 2] for i in range(8)], return_tensors="pt", padding=True)
    inputs.pop("token_type_ids", None)
    theirs = model.generate(**inputs, max_new_tokens=12, do_sample=False)[:, inputs["input_ids"].shape[1] :]
    for mine, other in zip(ours, theirs.tolist(), strict=True):
        assert mine == other[: len(mine)]


def test_texts_are_those_of_a_plain_sampler() -> None:
    """One token after another from whole passes, with Gumbel noise: no cache, no batch."""
    policy, request = policy_of(), requests_of(2)[1]
    tokens = list(request.prompt)
    vocabulary = policy.config.vocab_size
    with torch.inference_mode():
        for place in range(SAMPLING.max_tokens):
            logits = policy.model(
                input_ids=torch.tensor([tokens]),
                attention_mask=attention.causal_mask(len(tokens), WIDTH, torch.device("cpu")),
            ).logits[0, -1]
            noise = token_noise(3, request.ordinal, request.generation, range(place, place + 1), vocabulary)[0]
            token = int((torch.log_softmax(logits / 0.7, 0) + torch.from_numpy(noise)).argmax())
            tokens.append(token)
            if token == 1:
                break
    assert completed(policy, 8, requests_of(8))[1].tokens == tokens[len(request.prompt) :]


def test_completions_of_one_prompt_never_share_noise() -> None:
    drawn = {
        (ordinal, generation): token_noise(1, ordinal, generation, range(4), 33)
        for ordinal in range(5)
        for generation in range(4)
    }
    rows = np.concatenate(list(drawn.values()))
    assert len(np.unique(rows, axis=0)) == len(rows)
    assert np.array_equal(drawn[2, 3][1:3], token_noise(1, 2, 3, range(1, 3), 33))


def test_blocks_stay_together() -> None:
    """The way out where bits depend on company: shapes then depend on the block alone."""
    policy, block = policy_of(), requests_of(8)
    first, second = (Generation(policy, SAMPLING, 8).complete_block(block) for _ in range(2))
    assert [text.log_probs for text in first] == [text.log_probs for text in second]
    assert [text.tokens for text in first] == [text.tokens for text in completed(policy, 5, block)]


def test_every_prompt_is_drawn_once_before_any_is_drawn_again() -> None:
    order = PromptOrder(seed=1, num_prompts=9, per_rollout=4, num_generations=2)
    drawn = [order.prompt(order.ordinal(rollout, column)) for rollout in range(9) for column in range(0, 8, 2)]
    for epoch in range(4):
        assert sorted(drawn[9 * epoch : 9 * epoch + 9]) == list(range(9))
    assert drawn[:9] != drawn[9:18]
    assert order.ordinal(3, 2) == order.ordinal(3, 3) == order.ordinal(3, 0) + 1
