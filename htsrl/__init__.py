"""Deep reinforcement learning as fast as asynchronous training and as reproducible as a unit test."""

from htsrl.numerics import prepare_process
from htsrl.processes.warnings_once import show_warnings_once

show_warnings_once()  # before libraries are imported that warn
prepare_process()  # before torch computes anything

from htsrl.config import A2C, PPO, SAC, Config, Experiment, Network, Placement  # noqa: E402
from htsrl.config.presets import preset  # noqa: E402
from htsrl.envs.check.check import check_env  # noqa: E402
from htsrl.envs.check.findings import Finding, Report  # noqa: E402
from htsrl.errors import (  # noqa: E402
    CheckpointDamaged,
    ConfigError,
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
    "A2C",
    "PPO",
    "SAC",
    "CheckpointDamaged",
    "CheckpointEvent",
    "Config",
    "ConfigError",
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
    "sweep",
    "train",
]
