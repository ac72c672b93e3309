"""Adapters: a few small matrices beside a model's own, which are trained in place of all weights (arXiv 2106.09685)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from htsrl.errors import ConfigError
from htsrl.language.task import TextTask
from htsrl.seeding import network_seed

if TYPE_CHECKING:
    from torch import nn

ALL_LINEAR = "all-linear"


def with_adapters(model: nn.Module, task: TextTask, seed: int) -> nn.Module:
    """The model itself where all weights are trained; else one whose adapters alone are, drawn from the run's seed."""
    if task.lora_r is None:
        return model
    import torch

    try:
        import peft
    except ImportError as error:
        raise ConfigError(f"lora_r={task.lora_r} needs peft ({error}); pip install 'htsrl[language]'") from error
    targets: Any = ALL_LINEAR if task.lora_target_modules is None else list(task.lora_target_modules)
    settings = peft.LoraConfig(
        r=task.lora_r, lora_alpha=task.lora_alpha, lora_dropout=0.0, target_modules=targets, task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(network_seed(seed, "adapters"))
        try:
            adapted: nn.Module = peft.get_peft_model(model, settings)
        except ValueError as error:
            reason = str(error).strip().splitlines()[0][:200]
            raise ConfigError(f"lora_target_modules={task.lora_target_modules} cannot be had: {reason}") from error
    return adapted.eval()
