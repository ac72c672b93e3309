"""`source` as text: the dataset that a run learns from, and once it has begun, exactly which."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

from htsrl.errors import ConfigError

MINARI = "minari:"
FORM = re.compile(r"(?P<place>.*?)(#(?P<identity>[0-9a-f]{32}))?", re.DOTALL)


@dataclass(frozen=True)
class DataSource:
    """FOLDER or minari:NAME; in the configuration of a run that has begun with #IDENTITY behind it."""

    place: str
    identity: str = ""
    """Hash of the dataset: part of the experiment, as its place is not."""

    @classmethod
    def parse(cls, text: str) -> DataSource:
        found = FORM.fullmatch(str(text))
        if found is None or not (found["place"] or found["identity"]):
            raise ConfigError(f"source={text!r} must be the folder of a dataset, or minari:NAME")
        return cls(found["place"], found["identity"] or "")

    def absolute(self) -> DataSource:
        if self.place.startswith(MINARI):
            return self
        return replace(self, place=str(Path(self.place).absolute()))

    def __str__(self) -> str:
        return self.place + (f"#{self.identity}" if self.identity else "")


def data_identity(source: str | None) -> str:
    """What tells two datasets apart; nothing for a run that learns from environments."""
    return "" if source is None else DataSource.parse(source).identity
