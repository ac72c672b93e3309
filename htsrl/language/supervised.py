"""Learning from examples: what `htsrl sft` and `htsrl reward-model` have in common.

Every order of examples comes from the seed, all is computed by one thread, and nothing is written but the result: the
same command gives the same bits, and one that was killed is simply given again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import xxhash
from torch import Tensor, nn

from htsrl.errors import ConfigError, TrainingDiverged
from htsrl.numerics import OwnNumerics, single_threaded
from htsrl.plain_files import parsed, read_plain
from htsrl.seeding import shuffled


@dataclass(frozen=True)
class FitSettings:
    """How examples are learned from; names are those of transformers' trainer."""

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

    def check(self) -> None:
        for name in ("learning_rate", "num_train_epochs", "max_grad_norm"):
            if not (math.isfinite(getattr(self, name)) and getattr(self, name) > 0):
                raise ConfigError(f"{name}={getattr(self, name)} must be above 0")
        for name in ("max_steps", "per_device_train_batch_size", "max_length"):
            if (number := getattr(self, name)) is not None and number < 1:
                raise ConfigError(f"{name}={number} must be at least 1")
        if not 0 <= self.seed < 2**63:
            raise ConfigError(f"seed={self.seed} must be from 0 to 2**63 - 1")

    def num_steps(self, num_examples: int) -> int:
        per_epoch = -(-num_examples // self.per_device_train_batch_size)
        return self.max_steps or max(round(per_epoch * self.num_train_epochs), 1)


@dataclass(frozen=True)
class Fitted:
    """How learning from examples ended."""

    folder: Path
    steps: int
    metrics: Mapping[str, float]
    """Of the last tenth of the steps, and of held-out examples."""
    digest: str
    """Of the parameters."""


LossOf = Callable[[Sequence[Any]], tuple[Tensor, Mapping[str, float]]]
"""The mean loss of some examples, and numbers to report."""
Say = Callable[[int, int, Mapping[str, float]], None]
"""Hears of steps: which, of how many, and their numbers."""


def fit(
    model: nn.Module, examples: Sequence[Any], loss_of: LossOf, settings: FitSettings, say: Say
) -> dict[str, float]:
    """Adam over shuffled minibatches; returns the means over the last tenth of the steps."""
    num_steps, last = settings.num_steps(len(examples)), list[Mapping[str, float]]()
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.learning_rate, fused=True)
    with single_threaded(), OwnNumerics():
        for step, chosen in zip(range(num_steps), _minibatches(len(examples), settings), strict=False):
            for group in optimizer.param_groups:
                group["lr"] = settings.learning_rate * (1 - step / num_steps)
            loss, numbers = loss_of([examples[place] for place in chosen])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            norm = float(nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm))
            if not math.isfinite(float(loss.detach()) + norm):
                raise TrainingDiverged(f"in step {step}, the loss is {float(loss):g}; lower learning_rate")
            optimizer.step()
            numbers = {"loss": float(loss.detach()), **numbers}
            say(step + 1, num_steps, numbers)
            if step >= num_steps - max(num_steps // 10, 1):
                last.append(numbers)
    return {name: float(np.mean([numbers[name] for numbers in last])) for name in last[0]}


def _minibatches(num_examples: int, settings: FitSettings) -> Iterator[Sequence[int]]:
    """For ever; each epoch in an order of its own."""
    size, epoch = settings.per_device_train_batch_size, 0
    while True:
        order = shuffled(settings.seed, 0, epoch, num_examples).tolist()
        yield from (order[begin : begin + size] for begin in range(0, num_examples, size))
        epoch += 1


def digest_of(model: nn.Module) -> str:
    hasher = xxhash.xxh3_128()
    for parameter in model.parameters():
        hasher.update(np.ascontiguousarray(parameter.detach().cpu().numpy()).data)
    return hasher.hexdigest()


def read_examples(path: Path, what: str) -> list[Mapping[str, Any]]:
    """Objects, one in each line."""
    try:
        lines = [line for line in read_plain(path).split(b"\n") if line.strip()]
    except OSError as error:
        raise ConfigError(f"{what}={path} cannot be read: {error.strerror}") from error
    found: list[Mapping[str, Any]] = []
    for number, line in enumerate(lines, start=1):
        try:
            example = parsed(line)
        except ValueError as error:
            raise ConfigError(f"{path}, line {number} is not JSON: {error}") from error
        if not isinstance(example, dict):
            raise ConfigError(f"{path}, line {number} must be an object of names and values")
        found.append(example)
    if not found:
        raise ConfigError(f"{what}={path} holds no lines")
    return found


def padded(rows: Sequence[Sequence[int]], filler: int) -> Tensor:
    """[B, T], the longest row's length."""
    tokens = torch.full((len(rows), max(map(len, rows))), filler, dtype=torch.int64)
    for row, numbers in zip(tokens, rows, strict=True):
        row[: len(numbers)] = torch.tensor(numbers)
    return tokens


def check_output(folder: Path) -> None:
    if folder.exists():
        raise ConfigError(f"output_dir={folder} exists already; choose another")
