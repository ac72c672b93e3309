"""What `--help` shows of a command with many settings, and in which order; `--help-all` shows them all.

Only the page is made here. What a command accepts follows from its dataclasses, whatever is shown of them.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, NoReturn

import tyro

from htsrl.config import Placement

MAIN_SETTINGS: Mapping[str, Collection[str]] = {
    "train": {
        *("env", "env_arg", "algo", "total_steps", "num_envs", "seed", "schedule", "sync_interval"),
        *("backend", "num_executors", "device", "run_dir", "resume_or_start", "eval_every", "eval_episodes"),
    },
    "resume": {
        *("run_dir", "total_steps", "stop_at_return", "allow_different_numerics"),
        *("backend", "num_executors", "device"),
    },
}
"""The commands with more settings than a reader wants to see at first, and those that most people set."""
RESULT_SETTINGS = {
    *("run_dir", "checkpoint_every_seconds", "checkpoint_every_updates", "keep_checkpoints"),
    *("log_every_steps", "log_info", "tensorboard", "sinks", "progress", "timeline"),
    *("eval_every", "eval_episodes", "eval_envs", "stop_at_eval_return", "eval_goal_held", "video_every"),
}
TEST_SETTINGS = {"jitter_seconds", "measure_costs", "verify_storages"}
"""For those who work on htsrl."""
HIDDEN: Any = tyro.conf.Suppress[bool]
"""Takes the place of a setting that a page leaves out."""


@dataclass(frozen=True)
class Section:
    """Settings that stand together under a title."""

    title: str
    settings: Any
    """An instance of the dataclass that declares them; its values are the defaults."""
    names: Collection[str]

    def limited_to(self, main: Collection[str]) -> Section:
        """An algorithm says itself which of its settings matter most; one that does not shows all of them."""
        if self.title == "algorithm":
            main = getattr(self.settings, "main_settings", self.names)
        return dataclasses.replace(self, names=[name for name in self.names if name in main])


def show_help(command: str, defaults: Any, everything: bool) -> NoReturn:
    """Print the page of a command, whose settings are the fields of `defaults` and of what they hold, and exit."""
    own, *others = _sections(defaults)
    about = str(defaults.__doc__)
    if not everything:
        own, *others = (section.limited_to(MAIN_SETTINGS[command]) for section in (own, *others))
        about += f"\n\nThese are the settings that matter most; htsrl {command} --help-all shows all of them."
    pages = [(section.title, _page(section)) for section in others]
    fields = [
        (f"section_{i}", Annotated[type(page), tyro.conf.arg(name=title)], field(default=page))
        for i, (title, page) in enumerate(pages)
    ]
    page = _page(own, fields)
    markers = (tyro.conf.OmitArgPrefixes,)
    tyro.cli(type(page), prog=f"htsrl {command}", description=about, args=["--help"], default=page, config=markers)
    raise AssertionError("--help exits")


def _sections(settings: Any, title: str = "") -> Iterator[Section]:
    """Its own settings first, then what it holds: first what is trained, then where, what is left of it, and tests."""
    values = {f.name: getattr(settings, f.name) for f in dataclasses.fields(settings)}
    held = {name: value for name, value in values.items() if dataclasses.is_dataclass(value)}
    names = values.keys() - held.keys()
    if not isinstance(settings, Placement):
        yield Section(title, settings, names)
    else:
        yield Section("process", settings, names - RESULT_SETTINGS - TEST_SETTINGS)
        yield Section("result", settings, RESULT_SETTINGS)
        yield Section("test", settings, TEST_SETTINGS)
    for name, value in sorted(held.items(), key=lambda item: item[0] == "placement"):
        yield from _sections(value, name)


def _page(section: Section, more: Sequence[Any] = ()) -> Any:
    """An instance of a class derived from that of the settings, in which all but those of the section are hidden."""
    cls, names = type(section.settings), [f.name for f in dataclasses.fields(section.settings)]
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = [(name, hints[name] if name in section.names else HIDDEN) for name in names]
    about = {"__doc__": cls.__doc__ if section.title == "algorithm" else ""}
    page = make_dataclass(cls.__name__, [*fields, *more], bases=(cls,), frozen=True, kw_only=True, namespace=about)
    return page(**{name: name in section.names and getattr(section.settings, name) for name in names})
