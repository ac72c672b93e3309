"""All that algorithms, schedules and observers of one's own are made of, in one place.

Names are looked up when they are asked for: a schedule is also read by processes that do without torch, which only
algorithms need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from htsrl.algorithms.algorithm import Algorithm, Metrics, RunFacts, Update
    from htsrl.algorithms.batch import Batch, flat_steps
    from htsrl.algorithms.draft import Draft
    from htsrl.algorithms.minibatch_objective import NoTargets
    from htsrl.algorithms.models import Model, Models
    from htsrl.algorithms.objective import BatchObjective, ModelsObjective, Objective, PolicyOutputs
    from htsrl.algorithms.off_policy import ReplayObjective, gradient_steps
    from htsrl.algorithms.returns import Transitions, gae, n_step_returns
    from htsrl.algorithms.sequences import Chosen
    from htsrl.algorithms.statistics import Statistics, explained_variance, normalized
    from htsrl.config import Config, Experiment, Placement
    from htsrl.dataflow.exchange import Exchange, Request, Words
    from htsrl.dataflow.shared_arrays import ArraySpec, SharedArrays
    from htsrl.dataflow.storage import Storages
    from htsrl.dataflow.trajectory import Field, final_observations, step_info
    from htsrl.errors import ConfigError
    from htsrl.metrics.evaluation import Evaluation
    from htsrl.metrics.result import RunResult
    from htsrl.observers.observer import CheckpointEvent, EpisodeEvent, ObservedRun, Observer, UpdateEvent
    from htsrl.policies.exploration import Exploration
    from htsrl.policies.policy import Policy
    from htsrl.schedules.fixed_lag import FixedLag
    from htsrl.schedules.schedule import Schedule
    from htsrl.seeding import shuffled
    from htsrl.sources.interval import IntervalSource
    from htsrl.sources.source import BatchSource, Fields

_PLACES = {
    "htsrl.algorithms.algorithm": ("Algorithm", "Metrics", "RunFacts", "Update"),
    "htsrl.algorithms.batch": ("Batch", "flat_steps"),
    "htsrl.algorithms.draft": ("Draft",),
    "htsrl.algorithms.models": ("Model", "Models"),
    "htsrl.algorithms.objective": ("BatchObjective", "ModelsObjective", "Objective", "PolicyOutputs"),
    "htsrl.algorithms.minibatch_objective": ("NoTargets",),
    "htsrl.algorithms.off_policy": ("ReplayObjective", "gradient_steps"),
    "htsrl.algorithms.returns": ("Transitions", "gae", "n_step_returns"),
    "htsrl.algorithms.sequences": ("Chosen",),
    "htsrl.algorithms.statistics": ("Statistics", "explained_variance", "normalized"),
    "htsrl.config": ("Config", "Experiment", "Placement"),
    "htsrl.dataflow.exchange": ("Exchange", "Request", "Words"),
    "htsrl.dataflow.shared_arrays": ("ArraySpec", "SharedArrays"),
    "htsrl.dataflow.storage": ("Storages",),
    "htsrl.dataflow.trajectory": ("Field", "final_observations", "step_info"),
    "htsrl.errors": ("ConfigError",),
    "htsrl.metrics.evaluation": ("Evaluation",),
    "htsrl.observers.observer": ("CheckpointEvent", "EpisodeEvent", "ObservedRun", "Observer", "UpdateEvent"),
    "htsrl.policies.exploration": ("Exploration",),
    "htsrl.policies.policy": ("Policy",),
    "htsrl.runs.folder": ("RunResult",),
    "htsrl.schedules.fixed_lag": ("FixedLag",),
    "htsrl.schedules.schedule": ("Schedule",),
    "htsrl.seeding": ("shuffled",),
    "htsrl.sources.interval": ("IntervalSource",),
    "htsrl.sources.source": ("BatchSource", "Fields"),
}
_MODULE_OF = {name: module for module, names in _PLACES.items() for name in names}

__all__ = [
    "Algorithm",
    "ArraySpec",
    "Batch",
    "BatchObjective",
    "BatchSource",
    "CheckpointEvent",
    "Chosen",
    "Config",
    "ConfigError",
    "Draft",
    "EpisodeEvent",
    "Evaluation",
    "Exchange",
    "Experiment",
    "Exploration",
    "Field",
    "Fields",
    "FixedLag",
    "IntervalSource",
    "Metrics",
    "Model",
    "Models",
    "ModelsObjective",
    "NoTargets",
    "Objective",
    "ObservedRun",
    "Observer",
    "Placement",
    "Policy",
    "PolicyOutputs",
    "ReplayObjective",
    "Request",
    "RunFacts",
    "RunResult",
    "Schedule",
    "SharedArrays",
    "Statistics",
    "Storages",
    "Transitions",
    "Update",
    "UpdateEvent",
    "Words",
    "explained_variance",
    "final_observations",
    "flat_steps",
    "gae",
    "gradient_steps",
    "n_step_returns",
    "normalized",
    "shuffled",
    "step_info",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULE_OF[name]), name)
