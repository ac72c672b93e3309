"""Sinks that hand metrics to experiment trackers: Weights & Biases, MLflow, trackio. Each is an extra of its own.

The x-axis is the environment steps in all of them; each keeps to its own environment variables, offline modes included.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from htsrl.errors import ConfigError
from htsrl.metrics.histograms import Histograms
from htsrl.metrics.sinks import Sink

PROJECT = "htsrl"
STEPS = "env_steps"


@dataclass(frozen=True)
class TrackedRun:
    """What a tracker is told of a run."""

    run_dir: Path
    settings: Mapping[str, Any]
    """As config.json has them."""

    @property
    def name(self) -> str:
        return self.run_dir.name

    @property
    def identity(self) -> str:
        """The same for a run that is resumed, for trackers that continue by it."""
        return sha256(str(self.run_dir).encode()).hexdigest()[:12]


class WandB:
    """Weights & Biases; WANDB_MODE=offline keeps everything in the run's folder, WANDB_PROJECT names the project."""

    def __init__(self, run: TrackedRun) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=run.name,
            id=run.identity,
            resume="allow",
            dir=str(run.run_dir),
            config=dict(run.settings),
            settings=wandb.Settings(silent=True, console="off"),
        )
        # Not W&B's own step: an evaluation is of a step that has passed when it is done.
        self._run.define_metric(STEPS)
        self._run.define_metric("*", step_metric=STEPS)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._run.log({**_finite(metrics), STEPS: step})

    def write_histograms(self, step: int, histograms: Histograms) -> None:
        import wandb

        drawn = {
            f"{name}_hist": wandb.Histogram(np_histogram=([*of.counts], [of.low, *of.upper_edges]))
            for name, of in histograms.items()
        }
        self._run.log({**drawn, STEPS: step})

    def close(self) -> None:
        self._run.finish()


class MLflow:
    """MLflow; without MLFLOW_TRACKING_URI into `mlflow.db` or `mlruns` of the run's folder, whichever is installed."""

    def __init__(self, run: TrackedRun) -> None:
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or _local_store(run.run_dir))
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        experiment_id = found.experiment_id if found else self._client.create_experiment(name)
        tags = {"htsrl.run": run.identity}
        self._run_id = self._client.create_run(experiment_id, run_name=run.name, tags=tags).info.run_id
        for key, value in _flat(run.settings).items():
            self._client.log_param(self._run_id, key, value)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        logged = [Metric(name, value, now, step) for name, value in _finite(metrics).items()]
        self._client.log_batch(self._run_id, metrics=logged)

    def write_histograms(self, step: int, histograms: Histograms) -> None:
        """MLflow has none."""

    def close(self) -> None:
        self._client.set_terminated(self._run_id)


class Trackio:
    """trackio, on this machine, in TRACKIO_DIR; TRACKIO_PROJECT names the project."""

    def __init__(self, run: TrackedRun) -> None:
        import trackio

        self._trackio = trackio
        trackio.init(
            project=os.environ.get("TRACKIO_PROJECT", PROJECT),
            name=run.name,
            resume="allow",
            config=_flat(run.settings),
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        self._trackio.log({**_finite(metrics), STEPS: step}, step=step)

    def write_histograms(self, step: int, histograms: Histograms) -> None:
        """Only scalars are sent."""

    def close(self) -> None:
        self._trackio.finish()


TRACKERS: Mapping[str, Callable[[TrackedRun], Sink]] = {"wandb": WandB, "mlflow": MLflow, "trackio": Trackio}


def check_sinks(names: tuple[str, ...]) -> None:
    """ConfigError where a package is missing, before anything starts."""
    for name in names:
        if name in TRACKERS and find_spec(name) is None:
            raise ConfigError(f"sink {name} needs a package; install it with `pip install 'htsrl[{name}]'`")


def _local_store(run_dir: Path) -> str:
    if find_spec("sqlalchemy") is not None:
        return f"sqlite:///{run_dir / 'mlflow.db'}"
    # A store of files is enough, and all that the small package has; newer ones want to be asked for it.
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    return (run_dir / "mlruns").as_uri()


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: float(value) for name, value in metrics.items() if math.isfinite(value)}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings of settings by their path, and what is no plain value as text."""
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = value if isinstance(value, int | float | str | bool | None) else str(value)
    return flat
