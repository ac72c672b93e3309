"""Commands that are loaded only when they are asked for, because few need what they import."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import make_dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from htsrl.errors import ConfigError
from htsrl.plain_files import printable
from htsrl.stderr import warn_on_stderr

COMMANDS = "htsrl.commands"
"""The group under which packages register commands of their own: a dataclass of flags with `run() -> int`."""

ALWAYS_LOADED = ("train", "resume", "eval", "export", "digest", "compare", "check-env")
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
    registered = {point.name: point for point in entry_points(group=COMMANDS)}
    for name, summary in (SUMMARIES | _summaries_of_packages(registered)).items():
        yield (
            name,
            _load(name, registered)
            if [name] == list(asked)
            else make_dataclass(name.replace("-", "_"), [], namespace={"__doc__": summary}),
        )


def _summaries_of_packages(registered: Mapping[str, EntryPoint]) -> dict[str, str]:
    """What packages say of themselves stands for what their commands do, which nobody imports for a list."""
    summaries = {}
    for name, point in registered.items():
        package = point.dist.metadata if point.dist else None
        if name in ALWAYS_LOADED or name in PLACES:
            source = package["Name"] if package else point.value
            warn_on_stderr(printable(f"warning: {source} registers a command {name}, which htsrl has; it is left out"))
        elif name not in SUMMARIES:
            of_package = f"{package['Summary'] or 'No summary'} (of the package {package['Name']})" if package else ""
            summaries[name] = printable(of_package or point.value)
    return summaries


def _load(name: str, registered: Mapping[str, EntryPoint]) -> type[Any]:
    if name in PLACES:
        module, _, kind = PLACES[name].partition(":")
        return getattr(importlib.import_module(module), kind)  # type: ignore[no-any-return]
    if name not in registered:
        raise ConfigError(
            f"htsrl {name} is a package of its own, which is not installed; install htsrl from its folder"
        )
    try:
        return registered[name].load()  # type: ignore[no-any-return]
    except Exception as error:  # importing runs the package's code
        raise ConfigError(f"htsrl {name} cannot be imported ({type(error).__name__}: {error})") from error
