"""Command lines that repeat what was run; they hold no path of the machine they were run on."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Collection, Iterable
from typing import Any

from htsrl.config import Experiment
from htsrl.config.presets import preset, preset_name, presets_of

SPELLED_OUT = ("schedule", "num_envs", "sync_interval", "total_steps", "seed")
"""Flags of `htsrl train` that are given even where they are the default: what a reader wants to know."""
NO_PLAIN_FLAGS = ("env", "env_args", "imports", "sync_args", "algorithm", "network")


def train_command(experiment: Experiment, eval_episodes: int = 0) -> str:
    """The `htsrl train` that runs this experiment, and evaluates its policy if asked to."""
    env, algorithm = experiment.env, experiment.algorithm
    assert isinstance(env, str), f"{env} is a callable, which has no place on a command line"
    words = ["htsrl", "train", env, "--algo", algorithm.name]
    has_preset = preset_name(env) in presets_of(algorithm.name)
    defaults = preset(env, algorithm.name) if has_preset else Experiment(env, algorithm=type(algorithm)())
    words += flags(experiment, defaults, leave_out=NO_PLAIN_FLAGS, always=SPELLED_OUT)
    words += flags(algorithm, defaults.algorithm)
    words += flags(experiment.network, defaults.network)
    for key, value in experiment.env_args.items():
        words += ["--env-arg", f"{key}={json.dumps(value)}"]
    for key, value in experiment.sync_args.items():
        words += ["--sync-arg", f"{key}={json.dumps(value)}"]
    for module in experiment.imports:
        words += ["--import", module]
    if eval_episodes:
        words += ["--eval-episodes", str(eval_episodes)]
    return shlex.join(words)


def flags(values: Any, defaults: Any, leave_out: Collection[str] = (), always: Collection[str] = ()) -> list[str]:
    """A dataclass's fields as flags, those only that differ from the defaults or are `always` given."""
    words: list[str] = []
    for field in dataclasses.fields(values):
        value, default = getattr(values, field.name), getattr(defaults, field.name)
        if field.name not in leave_out and (value != default or (field.name in always and value is not None)):
            words += _flag(field.name.replace("_", "-"), value, is_switch=isinstance(default, bool))
    return words


def _flag(name: str, value: Any, is_switch: bool) -> Iterable[str]:
    if is_switch:
        return [f"--{name}" if value else f"--no-{name}"]
    return [f"--{name}", *map(str, value if isinstance(value, tuple) else (value,))]
