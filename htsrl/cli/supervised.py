"""`htsrl sft` and `htsrl reward-model`: learning from examples."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

if TYPE_CHECKING:
    from htsrl.language.supervised import FitSettings, Fitted

LINES = 10
"""Of progress, over a whole run."""


@dataclass(frozen=True)
class _FitFlags:
    model: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """Folder of a decoder-only Hugging Face model: config.json, safetensors and its tokenizer."""
    data: Annotated[Path, tyro.conf.arg(metavar="FILE.jsonl")]
    """Examples, one in each line."""
    output_dir: Annotated[Path, tyro.conf.arg(metavar="FOLDER")]
    """Where the trained model goes; must not exist yet."""
    learning_rate: float = 5e-5
    """Step size of Adam; it falls to 0 over the run."""
    num_train_epochs: float = 1.0
    """How often all examples are gone through."""
    max_steps: int | None = None
    """Optimizer steps in all, whatever the number of epochs."""
    per_device_train_batch_size: int = 32
    """Examples of an optimizer step."""
    max_grad_norm: float = 1.0
    """Gradients longer than this are scaled down to it."""
    max_length: int = 1024
    """Tokens of an example; longer ones are an error."""
    seed: int = 1
    """Says the order of the examples, and the first values of what is new in the model."""

    def settings(self) -> FitSettings:
        from htsrl.language.supervised import FitSettings

        return FitSettings(
            self.learning_rate,
            self.num_train_epochs,
            self.max_steps,
            self.per_device_train_batch_size,
            self.max_grad_norm,
            self.max_length,
            self.seed,
        )


@dataclass(frozen=True)
class Sft(_FitFlags):
    """Fine-tune a model on examples: lines of `prompt` and `completion`, of `text`, or of `messages`."""

    def run(self) -> int:
        from htsrl.language.sft import sft

        _print_fitted(sft(self.model, self.data, self.output_dir, self.settings(), _say))
        return 0


@dataclass(frozen=True)
class RewardModel(_FitFlags):
    """Train a reward model on lines of `prompt`, `chosen` and `rejected`; one in ten is held out."""

    def run(self) -> int:
        from htsrl.language.reward_models import train_reward_model

        _print_fitted(train_reward_model(self.model, self.data, self.output_dir, self.settings(), _say))
        return 0


def _say(step: int, num_steps: int, numbers: Mapping[str, float]) -> None:
    if step % max(num_steps // LINES, 1) == 0 or step == num_steps:
        shown = "  ".join(f"{name} {value:.4g}" for name, value in numbers.items())
        print(f"step {step}/{num_steps}  {shown}", file=sys.stderr, flush=True)


def _print_fitted(fitted: Fitted) -> None:
    for name, value in fitted.metrics.items():
        print(f"{name:15} {value:.4g}")
    print(f"{'digest':15} {fitted.digest}")
    print(f"{'model':15} {fitted.folder}")
