"""Samples that one can read while a run continues: the first completions of every tenth rollout, in `samples.jsonl`."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from htsrl.language.fields import ENVIRONMENT

SAMPLES_FILE = "samples.jsonl"
EVERY_ROLLOUTS = 10
NUM_SAMPLES = 4


@dataclass(frozen=True)
class SampleWriter:
    """The learner's; one that is killed may write the samples of a rollout twice."""

    path: Path
    decode: Callable[[Sequence[int]], str]

    def write(self, rollout: int, fields: Mapping[str, NDArray[Any]]) -> None:
        """Of a complete rollout, if it is one whose samples are kept; a disk that is full costs them and no more."""
        if rollout % EVERY_ROLLOUTS:
            return
        lines = [
            json.dumps(self._sample(rollout, fields, row)) + "\n"
            for row in range(min(NUM_SAMPLES, len(fields["lengths"])))
        ]
        try:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(descriptor, "".join(lines).encode())
            finally:
                os.close(descriptor)
        except OSError:
            pass

    def _sample(self, rollout: int, fields: Mapping[str, NDArray[Any]], row: int) -> dict[str, Any]:
        tokens, length, prompt_length = fields["tokens"][row], fields["lengths"][row], fields["prompt_lengths"][row]
        sample = {
            "rollout": rollout,
            "version": int(fields["versions"][row]),
            "prompt": self.decode(tokens[:prompt_length].tolist()),
            "completion": self.decode(tokens[prompt_length:length].tolist()),
            "score": float(fields["scores"][row]) if fields["scored"][row] else None,
        }
        if "token_versions" in fields:
            versions = fields["token_versions"][row]
            drawn = {int(version) for version in versions if version != ENVIRONMENT}
            sample |= {"turns": int(fields["num_answers"][row]), "drawn_by": sorted(drawn)}
        return sample
