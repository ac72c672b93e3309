"""Where a run goes whose folder nobody named."""

from __future__ import annotations

import re
import time
from pathlib import Path

from htsrl.config import Config
from htsrl.config.algorithm_settings import algorithm_name
from htsrl.config.data_source import DataSource
from htsrl.config.file import env_name


def default_path(config: Config) -> Path:
    experiment = config.experiment
    what = env_name(experiment.env) or Path(DataSource.parse(str(experiment.source)).place).name
    env = re.sub(r"[^A-Za-z0-9._-]+", "-", what)[:80]
    stamp = time.strftime("%Y%m%d-%H%M%S")
    algorithm = algorithm_name(experiment.algorithm).rpartition(":")[2]
    schedule = experiment.schedule.rpartition(":")[2]
    name = f"{env}-{algorithm}-{schedule}-seed{experiment.seed}-{stamp}"
    path, attempt = Path("runs") / name, 1
    while path.exists():
        attempt += 1
        path = Path("runs") / f"{name}-{attempt}"
    return path
