"""A language model as the policy of a run: log-probabilities of texts, and the next token of many at once."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from htsrl.language.attention import MIN_ROWS, Padding, RowCache, causal_mask, step_mask


class TextPolicy(nn.Module):
    """A decoder-only model, with a value head where the algorithm asks for one.

    Texts lie in rows from their first token on; behind their last one is padding, which no token of the text sees.
    Dropout is off, in generation and in learning alike.
    """

    observation_scales = None
    reward_scale = None

    def __init__(self, model: nn.Module, width: int, temperature: float, value_head: nn.Module | None = None) -> None:
        """`width` is how many tokens prompt and completion may have together."""
        super().__init__()
        self.model = model.eval()
        self.value_head = value_head
        self.width = width
        self.temperature = temperature
        self.padding = Padding()

    def pad_by(self, padding: Padding) -> None:
        """From here on, instead of the least."""
        self.padding = padding
        self.set_attention(padding.attention)

    def set_attention(self, name: str) -> None:
        """One that transformers knows."""
        model: Any = self.model
        model.set_attn_implementation(name)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        """Those that are learned: where adapters are, all others stay as they are in the model's folder."""
        return ((name, p) for name, p in super().named_parameters(*args, **kwargs) if p.requires_grad)

    def __deepcopy__(self, memo: dict[int, Any]) -> TextPolicy:
        """Copies share what is not learned."""
        memo |= {id(p): p for _, p in nn.Module.named_parameters(self) if not p.requires_grad}
        copied = object.__new__(type(self))
        memo[id(self)] = copied
        copied.__dict__.update({name: deepcopy(value, memo) for name, value in self.__dict__.items()})
        return copied

    @property
    def config(self) -> Any:
        return self.model.config

    def new_cache(self, num_rows: int) -> RowCache:
        """For so many texts at a time, and room to pad a pass."""
        return RowCache(self.config.get_text_config().num_hidden_layers, num_rows + self.padding.most_added, self.width)

    def begin(self, tokens: Tensor, lengths: Tensor, cache: RowCache, first_row: int) -> Tensor:
        """Log-probabilities [B, V] of the token after each prompt, which takes its row of the cache."""
        num_tokens = max(int(lengths.max()), MIN_ROWS)
        cache.first_row = first_row
        try:
            logits = self._pass(self._filled(tokens[:, :num_tokens]), cache).logits
        finally:
            cache.first_row = None
        rows = torch.arange(len(tokens), device=tokens.device)
        return self._log_softmax(logits[rows, lengths - 1])

    def go_on(self, tokens: Tensor, positions: Tensor, cache: RowCache) -> Tensor:
        """Log-probabilities [B, V] of the token after these, which stand at these positions of the first rows."""
        count = len(tokens)
        tokens, positions = self._filled(tokens), self._filled(positions)
        cache.positions = positions
        mask = step_mask(positions, self.width)
        output = self.model(
            input_ids=tokens[:, None],
            position_ids=positions[:, None],
            attention_mask=mask,
            past_key_values=cache,
            use_cache=True,
        )
        return self._log_softmax(output.logits[:count, 0])

    def log_probs(self, tokens: Tensor, prompt_lengths: Tensor, lengths: Tensor, num_columns: int) -> Tensor:
        """Log-probabilities [B, C] of every completion's tokens; zero behind its end."""
        return self._chosen(_Texts(tokens, prompt_lengths, lengths), num_columns)[0]

    def values(self, tokens: Tensor, prompt_lengths: Tensor, lengths: Tensor, num_columns: int) -> Tensor:
        """[B, C]: what the value head expects before each token of a completion; zero behind its end."""
        return self.log_probs_and_values(tokens, prompt_lengths, lengths, num_columns)[1]

    def log_probs_and_values(
        self, tokens: Tensor, prompt_lengths: Tensor, lengths: Tensor, num_columns: int
    ) -> tuple[Tensor, Tensor]:
        """Both, from one pass."""
        assert self.value_head is not None, "there is no value head"
        texts = _Texts(tokens, prompt_lengths, lengths)
        chosen, output = self._chosen(texts, num_columns, output_hidden_states=True)
        hidden = output.hidden_states[-1][: len(tokens)]
        places = texts.places(-1)[:, :, None].expand(-1, -1, hidden.shape[2])
        return chosen, texts.behind_end_zero(self.value_head(hidden.gather(1, places)).squeeze(2), num_columns)

    def _chosen(self, texts: _Texts, num_columns: int, **asked: Any) -> tuple[Tensor, Any]:
        """Log-probabilities of the completions' tokens, and all that the model said."""
        output = self._pass(self._filled(texts.tokens), **asked)
        logits = output.logits[: len(texts.tokens)]
        drawn_from = logits.gather(1, texts.places(-1)[:, :, None].expand(-1, -1, logits.shape[2]))
        drawn = texts.tokens.gather(1, texts.places(0))
        chosen = self._log_softmax(drawn_from).gather(2, drawn[:, :, None]).squeeze(2)
        return texts.behind_end_zero(chosen, num_columns), output

    def _pass(self, tokens: Tensor, cache: RowCache | None = None, **asked: Any) -> Any:
        """Over whole texts, or prompts, at once."""
        num_tokens = tokens.shape[1]
        positions = torch.arange(num_tokens, device=tokens.device)[None].expand(len(tokens), -1)
        return self.model(
            input_ids=tokens,
            position_ids=positions,
            attention_mask=causal_mask(num_tokens, self.width, tokens.device),
            past_key_values=cache,
            use_cache=cache is not None,
            **asked,
        )

    def _filled(self, rows: Tensor) -> Tensor:
        """With rows repeated, if there are too few."""
        missing = self.padding.num_texts(len(rows)) - len(rows)
        return torch.cat([rows, rows[:1].expand(missing, *rows.shape[1:])]) if missing else rows

    def _log_softmax(self, logits: Tensor) -> Tensor:
        return torch.log_softmax(logits.float() / self.temperature, dim=-1)


def completion_mask(prompt_lengths: Tensor, lengths: Tensor, num_columns: int) -> Tensor:
    """[B, C]: which places hold a token of the completion."""
    return torch.arange(num_columns, device=lengths.device) < (lengths - prompt_lengths)[:, None]


class _Texts:
    """Texts of a pass, no longer than the longest of them."""

    def __init__(self, tokens: Tensor, prompt_lengths: Tensor, lengths: Tensor) -> None:
        self.tokens = tokens[:, : max(int(lengths.max()), MIN_ROWS)]
        self._prompt_lengths = prompt_lengths
        self._lengths = lengths
        self._num_columns = max(int((lengths - prompt_lengths).max()), 1)

    def places(self, shift: int) -> Tensor:
        """[B, C']: where every token of a completion stands, `shift` aside; somewhere in the row behind its end."""
        columns = torch.arange(self._num_columns, device=self.tokens.device)
        return (self._prompt_lengths[:, None] + columns + shift).clamp(0, self.tokens.shape[1] - 1)

    def behind_end_zero(self, x: Tensor, num_columns: int) -> Tensor:
        """[B, C] from [B, C']."""
        inside = completion_mask(self._prompt_lengths, self._lengths, x.shape[1])
        return nn.functional.pad(x.masked_fill(~inside, 0.0), (0, num_columns - x.shape[1]))


def new_value_head(model: nn.Module) -> nn.Module:
    """A linear head over the last hidden states, which begins at zero."""
    config: Any = model.config
    head = nn.Linear(config.get_text_config().hidden_size, 1)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head
