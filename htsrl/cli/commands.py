"""Commands that are loaded only when they are asked for, because few need what they import."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import make_dataclass
from importlib.metadata import entry_points
from typing import Any

from htsrl.errors import ConfigError

COMMANDS = "htsrl.commands"
"""The group under which packages register commands of their own."""

SUMMARIES = {
    "collect": "Play episodes with a run's policy, or at random, and write them as a dataset to learn from.",
    "merge-datasets": "Put datasets of equal spaces together, or one into another format.",
    "bench": "Measure, print a table and write down how it came about.",
    "plan": "Measure an experiment's parts for a few seconds and predict which placement is the fastest here.",
    "record": "Film episodes of a run's policy, with return, value and action probabilities.",
    "replay": "Rebuild a stretch of a run's trajectory, bit for bit, and verify it against the run's digest.",
    "report": "Write one self-contained HTML file about runs, groups of seeds and sweeps.",
    "reward-model": "Train a reward model on pairs of completions.",
    "rlhf": "Train a language model so that the rewards of its completions rise.",
    "sft": "Fine-tune a language model on examples.",
    "sweep": "Search for better settings: the same trials and result whatever the timing and kills.",
    "timeline": "Print where the time of a run went, and write its last moments as a trace for Perfetto or Chrome.",
    "dashboard": "Show all runs of a folder on a page of this machine: curves, timeline, settings, videos, live.",
}
"""What `htsrl --help` says of each."""
PLACES: dict[str, str] = {
    "collect": "htsrl.cli.collect:Collect",
    "merge-datasets": "htsrl.cli.collect:MergeDatasets",
    "plan": "htsrl.cli.plan:PlanCommand",
    "record": "htsrl.cli.record:Record",
    "replay": "htsrl.cli.replay:ReplayCommand",
    "report": "htsrl.cli.report:ReportCommand",
    "reward-model": "htsrl.cli.supervised:RewardModel",
    "rlhf": "htsrl.cli.rlhf:Rlhf",
    "sft": "htsrl.cli.supervised:Sft",
    "sweep": "htsrl.cli.sweep:SweepCommand",
    "timeline": "htsrl.cli.timeline:TimelineCommand",
    "dashboard": "htsrl.cli.dashboard:Dashboard",
}
"""MODULE:CLASS of those that are htsrl's own; the others are entry points."""


def later_commands(asked: Sequence[str]) -> Iterator[tuple[str, type[Any]]]:
    """Every name with its class: the real one for the command that is asked for, for the others only a summary."""
    for name, summary in SUMMARIES.items():
        yield (
            name,
            _load(name)
            if [name] == list(asked)
            else make_dataclass(name.replace("-", "_"), [], namespace={"__doc__": summary}),
        )


def _load(name: str) -> type[Any]:
    if name in PLACES:
        module, _, kind = PLACES[name].partition(":")
        return getattr(importlib.import_module(module), kind)  # type: ignore[no-any-return]
    found = [point for point in entry_points(group=COMMANDS) if point.name == name]
    if not found:
        raise ConfigError(
            f"htsrl {name} is a package of its own, which is not installed; install htsrl from its folder"
        )
    return found[0].load()  # type: ignore[no-any-return]
