"""What a user can set: settings and their defaults, checks, files, presets. An algorithm's are in its own folder."""

from htsrl.config.configuration import Config, as_experiment, with_seed
from htsrl.config.experiment import (
    MAX_BACKPROPAGATION,
    NO_ENV,
    USUAL_MINIBATCHES,
    AlgorithmSettings,
    EnvFactory,
    Experiment,
)
from htsrl.config.network import Network, NetworkFactory
from htsrl.config.placement import MAX_ENVS_ON_THREADS, MAX_THREADS, Placement, available_cores

__all__ = [
    "MAX_BACKPROPAGATION",
    "MAX_ENVS_ON_THREADS",
    "MAX_THREADS",
    "NO_ENV",
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
