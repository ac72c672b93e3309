"""Settings that once had another name: files and command lines with the old one are still read."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from htsrl.errors import ConfigError
from htsrl.plain_files import printable
from htsrl.stderr import warn_on_stderr

OF_NETWORK: Mapping[str, str] = {"memory": "recurrent", "memory_size": "recurrent_size"}
"""Today's names by the old ones."""


def with_new_names(network: Any) -> Any:
    """The section of a document about the network, under today's names."""
    if not isinstance(network, Mapping):
        return network
    for old in old_names_in(network):
        if OF_NETWORK[old] in network:
            raise ConfigError(
                f"experiment.network has {old!r} and {OF_NETWORK[old]!r}, which are one setting; leave {old!r} out"
            )
    return {OF_NETWORK.get(name, name): value for name, value in network.items()}


def old_names_in(names: Any) -> list[str]:
    return [old for old in OF_NETWORK if old in names]


@cache
def note_old_name(place: Path | str, old: str, new: str) -> None:
    """Say once how a setting is called now."""
    warn_on_stderr(printable(f"note: {place}: {old} is now called {new}; the old name is still read"))
