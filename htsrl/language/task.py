"""What a run on text is about: a model's folder, prompts, rewards, and how completions are drawn.

It is part of the experiment, as the arguments of an environment are: `experiment.env_args` holds its fields.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from htsrl.config.field_types import converted
from htsrl.errors import ConfigError
from htsrl.language.limits import Limits

RLHF = "language/rlhf"
"""What stands in place of an environment."""


@dataclass(frozen=True)
class TextTask:
    """A model that learns to complete prompts."""

    model: str
    """Folder of a decoder-only Hugging Face model: config.json, safetensors and its tokenizer."""
    prompts: str
    """JSON lines, each with `prompt` as text or as messages; all other columns are handed to the rewards."""
    reward_funcs: tuple[str, ...] = ()
    """MODULE:FUNCTION, or the folder of a reward model; the score is the weighted sum of what they return."""
    reward_weights: tuple[float, ...] | None = None
    """One for each of them. None: 1."""
    eval_prompts: str | None = None
    """Held-out prompts for `htsrl eval`, like `prompts`; a column `reference` is what completions are compared with."""
    ref_model: str | None = None
    """Folder of the frozen reference model. None: the model as the run begins with it."""
    num_generations: int = 2
    """K: completions of each prompt."""
    max_prompt_length: int | None = None
    """Tokens that a prompt may have; longer ones are an error. None: as many as the longest has."""
    max_completion_length: int = 64
    """Tokens after which a completion is cut off."""
    temperature: float = 1.0
    """Of the distribution that tokens are drawn from, and that the loss is about."""
    lora_r: int | None = None
    """Rank of adapters (LoRA) that are trained in place of all weights. None: all weights are."""
    lora_alpha: int = 16
    """How much adapters count: their output is scaled by lora_alpha / lora_r."""
    lora_target_modules: tuple[str, ...] | None = None
    """Names of the layers that get an adapter. None: all linear layers but the last."""
    missing_eos_penalty: float | None = None
    """Taken off the score of completions that were cut off. None: nothing is."""
    reward_seconds: float = 60.0
    """Time for one call of a reward function; one that takes longer has failed."""
    reward_attempts: int = 2
    """How often a reward function is asked before its completions are left out of the loss, and counted."""
    environment: str | None = None
    """MODULE:CLASS of an environment that answers every turn of the model, and rewards it. None: one turn is all."""
    environment_seconds: float = 60.0
    """Time for one step of the environment; one that takes longer has failed."""
    environment_attempts: int = 2
    """How often a step is tried before its episode is left out of the loss, and counted."""
    max_turns: int = 8
    """Turns after which an episode is cut off."""
    max_turn_length: int | None = None
    """Tokens after which a turn is cut off, and answered. None: max_completion_length, of all turns and answers."""
    turns_per_rollout: int | None = None
    """Turns of an episode in one rollout; it continues in the next, with the next version. None: no limit."""
    tokens_per_rollout: int | None = None
    """Tokens that are drawn for a completion in one rollout; it continues in the next. None: no limit."""
    recompute_log_probs: bool | None = None
    """Generate block by block, and let the learner compute the log-probabilities of drawn tokens again, with the
    version that drew them. None: where a look before the run finds that generators would have others."""
    identity: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Hashes of the model, the reference model and the prompts as the run began with them."""

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> TextTask:
        """From `experiment.env_args`, every field of its type and in its range."""
        fields = {field.name: field for field in dataclasses.fields(cls)}
        if unknown := sorted(arguments.keys() - fields.keys()):
            raise ConfigError(f"unknown setting {unknown[0]!r} of a run on text; known are {', '.join(fields)}")
        if missing := [name for name in ("model", "prompts") if not arguments.get(name)]:
            raise ConfigError(f"a run on text needs {missing[0]}; give it (--{missing[0].replace('_', '-')})")
        if not arguments.get("reward_funcs") and not arguments.get("environment"):
            raise ConfigError("a run on text needs reward_funcs (--reward) or an environment (--environment)")
        hints = typing.get_type_hints(cls)
        task = cls(**{name: converted(value, hints[name], name) for name, value in arguments.items()})
        task._check()
        return task

    def _check(self) -> None:
        for name in (
            "num_generations",
            "max_completion_length",
            "max_prompt_length",
            "reward_attempts",
            "lora_r",
            "lora_alpha",
            "environment_attempts",
            "max_turns",
            "max_turn_length",
            "turns_per_rollout",
            "tokens_per_rollout",
        ):
            if (number := getattr(self, name)) is not None and number < 1:
                raise ConfigError(f"{name}={number} must be at least 1")
        if not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ConfigError(f"temperature={self.temperature} must be above 0")
        for name in ("reward_seconds", "environment_seconds"):
            if not (math.isfinite(seconds := getattr(self, name)) and seconds > 0):
                raise ConfigError(f"{name}={seconds} must be above 0")
        if self.environment is None and (self.turns_per_rollout or self.max_turn_length):
            raise ConfigError(
                "turns_per_rollout and max_turn_length are about turns, and without an environment there is one; give "
                "--environment, or use tokens_per_rollout"
            )
        if self.reward_weights is not None and len(self.reward_weights) != len(self.reward_funcs):
            raise ConfigError(
                f"reward_weights={self.reward_weights} are {len(self.reward_weights)} numbers for "
                f"{len(self.reward_funcs)} reward_funcs; give one for each"
            )

    def arguments(self) -> dict[str, Any]:
        """As `experiment.env_args` has them."""
        return {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}

    @property
    def has_episodes(self) -> bool:
        """Whether a completion may have several turns, or be made in several rollouts."""
        return self.environment is not None or self.tokens_per_rollout is not None

    @property
    def limits(self) -> Limits:
        """Of episodes."""
        turns = 1 if self.environment is None else self.max_turns
        budget = self.turns_per_rollout, self.tokens_per_rollout
        return Limits(self.max_completion_length, turns, self.max_turn_length, *budget)

    @property
    def weights(self) -> tuple[float, ...]:
        return self.reward_weights or (1.0,) * len(self.reward_funcs)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else str(value) if isinstance(value, Path) else value
