"""The fingerprint of a run: what its bits depend on besides the experiment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from htsrl.source_hashes import in_one

Hashes = Mapping[str, str]
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Fingerprint:
    """Two runs can be expected to agree to the bit only where these are equal."""

    htsrl: str
    python: str
    gymnasium: str
    numpy: str
    torch: str
    machine: str
    cpu_capability: str
    device: str
    mkl_mode: str
    computation: str
    """Hash of a short forward and backward pass of fixed numbers."""
    code: Hashes | None = None
    """Hash of every part of htsrl that can change bits. None, here and below, in folders that do not say."""
    packages: Hashes | None = None
    """Version of every installed package behind the environment, and a policy or an algorithm of the user's own."""
    own_modules: Hashes | None = None
    """Hash of the source of every module behind them that is part of no installed package."""
    bfloat16: str | None = None
    """Instructions for it, and the hash of a short computation in it; None where a run has none."""

    @classmethod
    def from_document(cls, document: Any) -> Fingerprint:
        """As `fingerprint.json` has it; raises ValueError or TypeError where that is none."""
        made = cls(**document)
        for field in fields(cls):
            value = getattr(made, field.name)
            if field.name in BY_NAME and value is not None and not isinstance(value, dict):
                raise ValueError(f"{field.name} is {value!r}, not an object")
            texts = (value or {}).values() if field.name in BY_NAME else [value]
            if field.name == "bfloat16" and value is None:
                continue
            if not all(isinstance(text, str) for text in texts):
                raise ValueError(f"{field.name} is {value!r}, not text")
        return made

    def differences(self, other: Fingerprint) -> list[str]:
        """In words, mine before theirs."""
        names = [field.name for field in fields(self) if field.name not in BY_NAME]
        mine, theirs = ({name: x for name in names if (x := getattr(of, name)) is not None} for of in (self, other))
        return [
            *_lines(mine, theirs),
            *_code_lines(self.code, other.code),
            *_lines_if_known("packages behind the environment", self.packages, other.packages),
            *_lines_if_known("own modules", self.own_modules, other.own_modules, prefix="own module "),
        ]


@dataclass(frozen=True)
class ComparedNodes:
    """What the nodes of a cluster compute by, as they were compared with this machine."""

    own: Fingerprint
    device: str
    """That both were asked about."""
    differences: Mapping[str, tuple[str, ...]]
    """By a node's id, in words; none where it is alike."""


BY_NAME = ("code", "packages", "own_modules")


def _lines(mine: Hashes, theirs: Hashes, prefix: str = "") -> Iterator[str]:
    for name in [*mine, *(name for name in theirs if name not in mine)]:
        if mine.get(name) != theirs.get(name):
            yield f"{prefix}{name}: {mine.get(name, 'not used')} / {theirs.get(name, 'not used')}"


def _lines_if_known(what: str, mine: Hashes | None, theirs: Hashes | None, prefix: str = "") -> Iterator[str]:
    if mine is not None and theirs is not None:
        yield from _lines(mine, theirs, prefix)
    elif mine or theirs:  # where there are none, nothing is unknown of them that matters
        yield f"{what}: {_listed(mine)} / {_listed(theirs)}"


def _listed(by_name: Hashes | None) -> str:
    return UNKNOWN if by_name is None else ", ".join(f"{name} {value}" for name, value in by_name.items())


def _code_lines(mine: Hashes | None, theirs: Hashes | None) -> Iterator[str]:
    """One line, which names the parts that differ."""
    if mine == theirs:
        return
    line = f"code of htsrl: {_known(mine)} / {_known(theirs)}"
    if mine is not None and theirs is not None:
        parts = sorted(part for part in mine.keys() | theirs.keys() if mine.get(part) != theirs.get(part))
        line += f" (it differs in {', '.join(parts)})"
    yield line


def _known(hashes: Hashes | None) -> str:
    return UNKNOWN if hashes is None else in_one(hashes)
