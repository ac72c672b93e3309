"""What the learner adds to a complete rollout of texts: what the reference model makes of them, and values.

All of it is computed block by block, and so has the same bits whoever computes it and however often.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from htsrl.dataflow.parameters import ParameterRing
from htsrl.language.fields import ENVIRONMENT, TextSizes, check_versions
from htsrl.language.policy import TextPolicy
from htsrl.language.samples import SampleWriter
from htsrl.processes.kill_points import kill_point
from htsrl.roles.shared import Shared


@dataclass(frozen=True)
class Checks:
    """What is asserted of rollouts."""

    log_probs: bool
    """Whether generators had those that a pass over the whole text has."""
    max_rollouts: int
    """Over how many of them a completion may extend."""


class TextFinisher:
    """Completes rollouts of texts, each of which one version made."""

    def __init__(
        self,
        shared: Shared,
        parameters: ParameterRing,
        sizes: TextSizes,
        reference: TextPolicy | None,
        samples: SampleWriter | None,
        checks: Checks,
    ) -> None:
        self._storages = shared.storages
        self._source = shared.source
        self._parameters = parameters
        self._sizes = sizes
        self._reference = reference
        self._samples = samples
        self._checks = checks
        self._device = parameters.slots.device

    @torch.inference_mode()
    def complete(self, rollout: int) -> None:
        version = self._source.behaviour_version(rollout)
        assert version is not None, "a rollout on text has one version"
        behaviour: Any = self._parameters.module(version)
        storage, names = self._storages.of_rollout(rollout), self._storages.fields
        fields = {name: array[storage, 0] for name, array in names.items()}
        has_episodes = "token_versions" in fields
        if has_episodes:
            self._check_lags(rollout, fields)
        for block in self._sizes.blocks():
            rows = slice(block[0], block[-1] + 1)
            texts = tuple(self._tensor(fields[name][rows]) for name in ("tokens", "prompt_lengths", "lengths"))
            if "generated_log_probs" in fields and not has_episodes:
                fields["log_probs"][rows] = self._log_probs(behaviour, texts)
            elif self._checks.log_probs:
                self._verify(fields, rows, self._log_probs(behaviour, texts), version)
            if self._reference is not None:
                fields["ref_log_probs"][rows] = self._log_probs(self._reference, texts)
            if "values" in fields:
                fields["values"][rows] = behaviour.values(*texts, self._sizes.max_completion).numpy(force=True)
            for name in ("ref_log_probs", "values") if has_episodes else ():
                if name in fields:
                    fields[name][rows][fields["token_versions"][rows] == ENVIRONMENT] = 0
            kill_point("inside a finisher")
        if self._samples is not None:
            self._samples.write(rollout, fields)

    def add_activations(self) -> None:
        """A checkpoint leaves out nothing that `complete` does not add."""

    def _log_probs(self, policy: TextPolicy, texts: tuple[Tensor, ...]) -> np.ndarray[Any, Any]:
        tokens, prompt_lengths, lengths = texts
        found: np.ndarray[Any, Any] = policy.log_probs(
            tokens, prompt_lengths, lengths, self._sizes.max_completion
        ).numpy(force=True)
        return found

    def _tensor(self, array: np.ndarray[Any, Any]) -> Tensor:
        return torch.from_numpy(array.astype(np.int64)).to(self._device)

    def _check_lags(self, rollout: int, fields: dict[str, Any]) -> None:
        """Every token is of the version that acted when it was drawn, and none is older than an episode may be."""
        acting = self._source.behaviour_version
        for begun, carried, versions in zip(fields["begun"], fields["carried"], fields["token_versions"], strict=True):
            assert 0 <= rollout - begun < self._checks.max_rollouts, (
                f"an episode of rollout {begun} is in rollout {rollout}, over the {self._checks.max_rollouts} that it "
                "may take"
            )
            check_versions(versions.tolist(), int(carried), int(acting(rollout) or 0), int(acting(int(begun)) or 0))

    @staticmethod
    def _verify(fields: dict[str, Any], rows: slice, learned: np.ndarray[Any, Any], version: int) -> None:
        """Of a completion that earlier rollouts began, what this one drew; the rest they have verified."""
        generated = fields["log_probs"][rows]
        if "token_versions" in fields:
            is_new = np.arange(generated.shape[1]) >= fields["carried"][rows, None]
            is_new &= fields["token_versions"][rows] != ENVIRONMENT
            generated, learned = np.where(is_new, generated, 0), np.where(is_new, learned, 0)
        equal = generated == learned
        assert equal.all(), (
            f"{np.count_nonzero(~equal)} log-probabilities of the generator differ from those of version {version}, by "
            f"up to {np.abs(generated - learned).max():g}"
        )
