"""The sync rule of an experiment."""

from __future__ import annotations

from typing import Any

from htsrl.config import Experiment
from htsrl.config.file import build_section
from htsrl.config.sync_rule_names import load_sync_rule
from htsrl.learners.rule import RuleFacts, SyncRule


def make_rule(experiment: Experiment) -> SyncRule:
    """ConfigError where its settings cannot work."""
    cls: Any = load_sync_rule(experiment.sync_rule)
    settings = build_section(cls.Settings, experiment.sync_args, f"sync_args of {experiment.sync_rule}")
    rule: SyncRule = cls(settings, RuleFacts(experiment.learners, experiment.num_intervals))
    rule.check()
    return rule


def averages_optimizer(experiment: Experiment) -> bool:
    """Whether the optimizer's vectors are averaged with the parameters."""
    return bool(experiment.sync_args.get("optimizer", "local") == "average")
