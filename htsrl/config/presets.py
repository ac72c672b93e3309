"""Settings to start from, by kind of environment and algorithm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import gymnasium

from htsrl.config import A2C, PPO, SAC, EnvFactory, Experiment, Network
from htsrl.errors import ConfigError

# Shards are for large minibatches of images. One process learns from 4 shards of 128 of the usual 512 frames about as
# fast as from the whole, but from 2 of A2C's 80 slower, and two cores have enough to do (docs/architecture.md).
# The paper's A2C: 16 environments, 5 steps, RMSprop.
ATARI_A2C = {
    "algorithm": A2C(learning_rate=7e-4, entropy_coefficient=0.01),
    "num_envs": 16,
    "sync_interval": 5,
    "total_steps": 20_000_000,
}
# The usual PPO on Atari (https://arxiv.org/abs/1707.06347), with the paper's 16 environments.
ATARI_PPO = {
    "algorithm": PPO(learning_rate=2.5e-4, epochs=4, num_minibatches=4, clip_range=0.1, entropy_coefficient=0.01),
    "num_envs": 16,
    "sync_interval": 128,
    "gradient_shards": 4,
    "total_steps": 10_000_000,
}
# The paper's settings for all eleven academy scenarios, with the loss of its released code: that halves the squared
# error before it multiplies by 0.5, and normalises advantages once per batch.
FOOTBALL_PPO = {
    "algorithm": PPO(
        learning_rate=3.43e-4,
        discount=0.993,
        gae_lambda=0.95,
        epochs=2,
        num_minibatches=8,
        clip_range=0.08,
        value_clip_range=0.08,
        entropy_coefficient=0.003,
        value_coefficient=0.25,
        max_gradient_norm=0.64,
        advantage_normalization="batch",
    ),
    "num_envs": 16,
    "sync_interval": 128,
    "gradient_shards": 2,
    "total_steps": 5_000_000,
}
FOOTBALL_A2C = {
    "algorithm": A2C(learning_rate=7e-4, discount=0.993, entropy_coefficient=0.01),
    "num_envs": 16,
    "sync_interval": 5,
    "total_steps": 5_000_000,
}
MUJOCO_PPO = {
    "algorithm": PPO(learning_rate=3e-4, epochs=10, num_minibatches=32, normalize_rewards=True),
    "network": Network(normalize_observations=True),
    "num_envs": 16,
    "sync_interval": 128,
    "total_steps": 1_000_000,
}
MUJOCO_A2C = {
    "algorithm": A2C(learning_rate=7e-4, gae_lambda=0.95, normalize_rewards=True),
    "network": Network(normalize_observations=True),
    "num_envs": 16,
    "sync_interval": 8,
    "total_steps": 1_000_000,
}
# The usual SAC (https://arxiv.org/abs/1812.05905): a gradient step for every step of an environment.
CONTROL_SAC = {
    "algorithm": SAC(learning_starts=5000),
    "network": Network(hidden_sizes=(256, 256), activation="relu"),
    "num_envs": 4,
    "sync_interval": 8,
    "total_steps": 1_000_000,
}
PRESETS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "atari": {"ppo": ATARI_PPO, "a2c": ATARI_A2C},
    "football": {"ppo": FOOTBALL_PPO, "a2c": FOOTBALL_A2C},
    "mujoco": {"ppo": MUJOCO_PPO, "a2c": MUJOCO_A2C, "sac": CONTROL_SAC},
}


def preset(env: str | EnvFactory, algo: str = "ppo", name: str | None = None) -> Experiment:
    """An experiment with the preset `name`, by default the one for the kind of environment that `env` is."""
    name = name or (preset_name(env) if isinstance(env, str) else None)
    if name is None:
        raise ConfigError(f"there is no preset for {env!r}; name one of {', '.join(PRESETS)}, or use htsrl.Experiment")
    if name not in PRESETS:
        raise ConfigError(f"preset {name!r} is not known; use one of {', '.join(PRESETS)}")
    if algo not in PRESETS[name]:
        raise ConfigError(f"preset {name!r} has no settings for {algo!r}; use {' or '.join(PRESETS[name])}")
    return replace(Experiment(env), **PRESETS[name][algo])


def preset_name(env_id: str) -> str | None:
    """The preset for an environment, by its id."""
    env_id = env_id.rpartition(":")[2]
    if env_id.startswith("ALE/"):
        return "atari"
    if env_id.startswith("football/"):
        return "football"
    spec = gymnasium.registry.get(env_id)
    return "mujoco" if spec and str(spec.entry_point).startswith("gymnasium.envs.mujoco") else None
