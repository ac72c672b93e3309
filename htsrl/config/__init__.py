"""What a user can set: settings and their defaults, checks, files, presets."""

from htsrl.config.settings import (
    A2C,
    MAX_BACKPROPAGATION,
    MAX_ENVS_ON_THREADS,
    MAX_THREADS,
    PPO,
    USUAL_MINIBATCHES,
    AlgorithmSettings,
    Config,
    EnvFactory,
    Experiment,
    Network,
    NetworkFactory,
    Placement,
    as_experiment,
    available_cores,
    with_seed,
)

__all__ = [
    "A2C",
    "MAX_BACKPROPAGATION",
    "MAX_ENVS_ON_THREADS",
    "MAX_THREADS",
    "PPO",
    "USUAL_MINIBATCHES",
    "AlgorithmSettings",
    "Config",
    "EnvFactory",
    "Experiment",
    "Network",
    "NetworkFactory",
    "Placement",
    "as_experiment",
    "available_cores",
    "with_seed",
]
