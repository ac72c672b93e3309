"""Deep reinforcement learning as fast as asynchronous training and as reproducible as a unit test."""

from typing import TYPE_CHECKING

from htsrl.numerics import prepare_process
from htsrl.processes.warnings_once import show_warnings_once

show_warnings_once()  # before libraries are imported that warn
prepare_process()  # before torch computes anything

from htsrl.config import Config, Experiment, Network, Placement  # noqa: E402
from htsrl.config.algorithm_settings import own_settings  # noqa: E402
from htsrl.config.presets import preset  # noqa: E402
from htsrl.envs.check.check import check_env  # noqa: E402
from htsrl.envs.check.findings import Finding, Report  # noqa: E402
from htsrl.errors import (  # noqa: E402
    CheckpointDamaged,
    ConfigError,
    DatasetError,
    EnvironmentFailure,
    HtsrlError,
    MomentNotFound,
    NotReproduced,
    ObserverFailed,
    PeerDied,
    RunFolderError,
    TrainingDiverged,
    UntrustedFolder,
    WaitTimeout,
)
from htsrl.evaluate import evaluate  # noqa: E402
from htsrl.export import Exported, ExportFailed, export  # noqa: E402
from htsrl.language.rlhf import rlhf  # noqa: E402
from htsrl.metrics.evaluation import Evaluation  # noqa: E402
from htsrl.metrics.result import RunResult  # noqa: E402
from htsrl.observers.observer import CheckpointEvent, EpisodeEvent, ObservedRun, Observer, UpdateEvent  # noqa: E402
from htsrl.replay import Replay, replay  # noqa: E402
from htsrl.runs.load_policy import load_policy  # noqa: E402
from htsrl.runs.resume import resume  # noqa: E402
from htsrl.sweeps.results import SweepResult  # noqa: E402
from htsrl.sweeps.sweep import sweep  # noqa: E402
from htsrl.sweeps.trials import Trial  # noqa: E402
from htsrl.train import train  # noqa: E402
from htsrl.video import Recording, record  # noqa: E402

__version__ = "0.2.0"

__all__ = [
    "CheckpointDamaged",
    "CheckpointEvent",
    "Config",
    "ConfigError",
    "DatasetError",
    "EnvironmentFailure",
    "EpisodeEvent",
    "Evaluation",
    "Experiment",
    "ExportFailed",
    "Exported",
    "Finding",
    "HtsrlError",
    "MomentNotFound",
    "Network",
    "NotReproduced",
    "ObservedRun",
    "Observer",
    "ObserverFailed",
    "PeerDied",
    "Placement",
    "Recording",
    "Replay",
    "Report",
    "RunFolderError",
    "RunResult",
    "SweepResult",
    "TrainingDiverged",
    "Trial",
    "UntrustedFolder",
    "UpdateEvent",
    "WaitTimeout",
    "check_env",
    "evaluate",
    "export",
    "load_policy",
    "preset",
    "record",
    "replay",
    "resume",
    "rlhf",
    "sweep",
    "train",
]
_algorithms = {cls.__name__: cls for cls in own_settings().values()}
globals().update(_algorithms)
__all__ += sorted(_algorithms)

if TYPE_CHECKING:  # for tools that read sources; whatever algorithms there are is found above
    from htsrl.algorithms.a2c import A2C
    from htsrl.algorithms.bc import BC
    from htsrl.algorithms.cql import CQL
    from htsrl.algorithms.discrete_sac import DiscreteSAC
    from htsrl.algorithms.dqn import DQN
    from htsrl.algorithms.iql import IQL
    from htsrl.algorithms.ppo import PPO
    from htsrl.algorithms.sac import SAC
    from htsrl.algorithms.td3 import TD3

    __all__ += ["A2C", "BC", "CQL", "DQN", "IQL", "PPO", "SAC", "TD3", "DiscreteSAC"]
