"""A rollout of texts as algorithms see it, and the settings that all of them have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from htsrl.language.fields import ENVIRONMENT
from htsrl.language.policy import TextPolicy, completion_mask


@dataclass(frozen=True)
class TextBatch:
    """Completions, a row each; those of one prompt are neighbours."""

    tokens: Tensor
    """[B, T]: prompt, completion, padding."""
    prompt_lengths: Tensor
    lengths: Tensor
    """Of prompt and completion together."""
    log_probs: Tensor
    """[B, C]: of the completion's tokens, by the version that drew them; zero behind its end, as all that follow."""
    ref_log_probs: Tensor | None
    """By the reference model."""
    values: Tensor | None
    """[B, C]: what the version that drew the tokens expected before each."""
    scores: Tensor
    scored: Tensor
    """Whether there is a score; the others are not learned from."""
    ended: Tensor
    """Whether the end of text was reached."""
    num_generations: int
    """K: completions of each prompt."""
    drawn: Tensor | None
    """[B, C]: which tokens the model drew, where an environment wrote others; None where none did."""
    token_versions: Tensor | None
    turn_rewards: Tensor | None
    """[B, C]: the environment's, at the last token of each turn; parts of the scores."""
    num_turns: Tensor | None
    complete: Tensor
    """Whether all completions of the prompt have ended; the others continue in the next rollout."""
    failed: Tensor
    """Whether the completion was complete, and nothing scored it."""
    sampling_difference: float
    """By how much the generator's log-probabilities were off, at most; 0 where they have the same bits."""

    @classmethod
    def from_storage(cls, fields: Mapping[str, NDArray[Any]], names: Sequence[str], device: torch.device) -> TextBatch:
        """From the fields `[1, B, ...]` of a rollout."""

        def tensor(name: str) -> Tensor:
            return torch.from_numpy(fields[name][0]).to(device)

        def tensor_if_there(name: str) -> Tensor | None:
            return tensor(name) if name in fields else None

        log_probs, token_versions = tensor("log_probs"), tensor_if_there("token_versions")
        complete = tensor("complete") if "complete" in fields else torch.ones_like(tensor("scored"))
        generated = tensor("generated_log_probs") if "generated_log_probs" in fields else log_probs
        return cls(
            tokens=tensor("tokens").long(),
            prompt_lengths=tensor("prompt_lengths").long(),
            lengths=tensor("lengths").long(),
            log_probs=log_probs,
            ref_log_probs=tensor_if_there("ref_log_probs"),
            values=tensor_if_there("values"),
            scores=tensor("scores"),
            scored=tensor("scored"),
            ended=tensor("ended"),
            drawn=None if token_versions is None else token_versions != ENVIRONMENT,
            token_versions=token_versions,
            turn_rewards=tensor_if_there("turn_rewards"),
            num_turns=tensor_if_there("num_answers"),
            complete=complete,
            failed=complete & ~tensor("scored"),
            num_generations=int((fields["ordinals"][0] == fields["ordinals"][0, 0]).sum()),
            sampling_difference=float((log_probs - generated).abs().max()),
        )

    def with_replay_buffer(self, replay_buffer: None) -> TextBatch:
        """Texts have no replay buffer."""
        assert replay_buffer is None, "algorithms on text have no replay buffer"
        return self

    def with_dataset(self, dataset: None) -> TextBatch:
        """Nor a dataset."""
        assert dataset is None, "algorithms on text have no dataset"
        return self

    @property
    def mask(self) -> Tensor:
        """[B, C]: which places hold a token that the model drew."""
        if self.drawn is not None:
            return self.drawn
        return completion_mask(self.prompt_lengths, self.lengths, self.log_probs.shape[1])

    @property
    def num_tokens(self) -> Tensor:
        """Of each completion."""
        return self.lengths - self.prompt_lengths

    def policy_log_probs(self, policy: TextPolicy, rows: Tensor) -> Tensor:
        """[rows, C]: what another version makes of the tokens of these rows."""
        texts = (self.tokens[rows], self.prompt_lengths[rows], self.lengths[rows])
        return self.of_drawn(policy.log_probs(*texts, self.log_probs.shape[1]), rows)

    def of_drawn(self, per_token: Tensor, rows: Tensor) -> Tensor:
        """Zero where an environment wrote the token: nothing is learned from what others said."""
        return per_token if self.drawn is None else per_token.masked_fill(~self.drawn[rows], 0.0)

    def kl_to_reference(self) -> Tensor:
        """[B, C]: the usual estimate by log-ratios, of the version that drew the tokens."""
        assert self.ref_log_probs is not None, "there is no reference model"
        return self.log_probs - self.ref_log_probs

    def metrics(self, update: int) -> dict[str, float]:
        """What there is to say of a rollout, whatever learns from it."""
        scores, complete = self.scores[self.scored], self.complete
        found = {
            "reward/mean": float(scores.mean()) if len(scores) else float("nan"),
            "reward/std": float(scores.std(correction=0)) if len(scores) else float("nan"),
            "reward/failed": float(self.failed.sum()),
            "completions/mean_length": float(self.num_tokens[complete].float().mean()),
            "completions/clipped_ratio": float((~self.ended[complete]).float().mean()),
            "sampling/log_prob_difference": self.sampling_difference,
        }
        if self.ref_log_probs is not None:
            found["objective/kl"] = float(self.kl_to_reference()[complete].sum(dim=1).mean())
        if self.token_versions is not None and self.num_turns is not None:
            lags = (update - self.token_versions)[self.mask & complete[:, None]]
            found["episodes/carried"] = float((~complete).sum())
            found["episodes/mean_turns"] = float(self.num_turns[complete].float().mean())
            found["episodes/mean_token_lag"] = float(lags.float().mean())
            found["episodes/max_token_lag"] = float(lags.max()) if len(lags) else float("nan")
        return found


def by_group(x: Tensor, num_generations: int) -> Tensor:
    """[G, K]: the completions of each prompt."""
    return x.view(-1, num_generations)
