"""Deep reinforcement learning as fast as asynchronous training and as reproducible as a unit test."""

from htsrl.numerics import prepare_process

prepare_process()  # before torch computes anything

from htsrl.config import A2C, PPO, Config, Experiment, Network, Placement  # noqa: E402
from htsrl.envs.check.check import check_env  # noqa: E402
from htsrl.envs.check.findings import Finding, Report  # noqa: E402
from htsrl.errors import (  # noqa: E402
    CheckpointDamaged,
    ConfigError,
    EnvironmentFailure,
    HtsrlError,
    NotReproduced,
    PeerDied,
    RunFolderError,
    TrainingDiverged,
    WaitTimeout,
)
from htsrl.evaluate import Evaluation, evaluate  # noqa: E402
from htsrl.export import Exported, ExportFailed, export  # noqa: E402
from htsrl.presets import preset  # noqa: E402
from htsrl.resume import resume  # noqa: E402
from htsrl.run_folder import RunResult  # noqa: E402
from htsrl.train import train  # noqa: E402

__version__ = "0.1.0"

__all__ = [
    "A2C",
    "PPO",
    "CheckpointDamaged",
    "Config",
    "ConfigError",
    "EnvironmentFailure",
    "Evaluation",
    "Experiment",
    "ExportFailed",
    "Exported",
    "Finding",
    "HtsrlError",
    "Network",
    "NotReproduced",
    "PeerDied",
    "Placement",
    "Report",
    "RunFolderError",
    "RunResult",
    "TrainingDiverged",
    "WaitTimeout",
    "check_env",
    "evaluate",
    "export",
    "preset",
    "resume",
    "train",
]
