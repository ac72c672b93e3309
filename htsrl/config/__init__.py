"""What a user can set: settings and their defaults, checks, files, presets."""

from htsrl.config.a2c import A2C
from htsrl.config.configuration import Config, as_experiment, with_seed
from htsrl.config.experiment import (
    MAX_BACKPROPAGATION,
    USUAL_MINIBATCHES,
    AlgorithmSettings,
    EnvFactory,
    Experiment,
)
from htsrl.config.network import Network, NetworkFactory
from htsrl.config.placement import MAX_ENVS_ON_THREADS, MAX_THREADS, Placement, available_cores
from htsrl.config.ppo import PPO
from htsrl.config.sac import SAC

__all__ = [
    "A2C",
    "MAX_BACKPROPAGATION",
    "MAX_ENVS_ON_THREADS",
    "MAX_THREADS",
    "PPO",
    "SAC",
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
