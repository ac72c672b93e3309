"""A benchmark's result as files that can be published: JSON with every repetition, and a table to read."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from htsrl.config import Config
from htsrl.config.file import to_json
from htsrl_bench.provenance import Provenance


@dataclass(frozen=True)
class Summary:
    """The middle of some repetitions and their range: the lowest and the highest, no interval."""

    median: float
    lowest: float
    highest: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Summary:
        return cls(statistics.median(values), min(values), max(values))

    def __str__(self) -> str:
        return f"{self.median:,.0f} ({self.lowest:,.0f} to {self.highest:,.0f})"


@dataclass(frozen=True)
class Table:
    """Rows of text under headings."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def markdown(self) -> str:
        widths = [max(map(len, column)) for column in zip(self.headings, *self.rows, strict=True)]
        lines = [self.headings, ["-" * width for width in widths], *self.rows]
        table = [
            f"| {' | '.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))} |" for line in lines
        ]
        return "\n".join([*table, *(f"\n{note}" for note in self.notes)]) + "\n"


@dataclass(frozen=True)
class Record:
    """All that is written down about one benchmark."""

    name: str
    command: str
    provenance: Provenance
    """Taken before the first run: afterwards the machine is busy with ourselves."""
    configs: Mapping[str, Config]
    """What was run, by a name that the repetitions refer to."""
    repetitions: Sequence[Mapping[str, Any]]
    summary: Mapping[str, Any]
    tables: Sequence[Table]
    date: str = field(default_factory=lambda: time.strftime("%Y-%m-%d"))

    def document(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "date": self.date,
            "command": self.command,
            **asdict(self.provenance),
            "configs": {name: _published(config) for name, config in self.configs.items()},
            "repetitions": list(self.repetitions),
            "summary": dict(self.summary),
        }

    def markdown(self, picture: str | None) -> str:
        origin = "\n".join(f"- {line}" for line in [f"`{self.command}`", self.date, *self.provenance.lines()])
        parts = [f"# {self.name}", origin, *([f"![{self.name}]({picture})"] if picture else [])]
        return "\n\n".join([*parts, *(table.markdown() for table in self.tables)])


def write_record(record: Record, folder: Path, draw: Callable[[Path], None] | None = None) -> Path:
    """Write `<name>` as .json and .md, and .png if there is something to `draw`, in place of an older one.

    Returns the path of the JSON, which is written last: until then the older one counts.
    """
    path = folder / f"{record.name}.json"
    text = _json(record.document())
    folder.mkdir(parents=True, exist_ok=True)
    picture = path.with_suffix(".png")
    if draw:
        draw(picture)
    write_whole(path.with_suffix(".md"), record.markdown(picture.name if draw else None))
    write_whole(path, text)
    return path


def publish(record: Record, folder: Path, draw: Callable[[Path], None] | None = None) -> None:
    """Write the record and print its first table."""
    show(record.tables[0], [write_record(record, folder, draw)])


def show(table: Table, paths: Sequence[Path]) -> None:
    print(f"\n{table.markdown()}")
    for path in paths:
        print(f"record    {path}")


def _published(config: Config) -> Any:
    """The configuration without the folder of the run, which is nobody's business and gone."""
    return json.loads(to_json(replace(config, placement=replace(config.placement, run_dir=None))))


def _json(document: Mapping[str, Any]) -> str:
    """A line per repetition: learning curves are long. NaN is refused, for JSON has none."""
    repetitions = ",\n".join(json.dumps(repetition, allow_nan=False) for repetition in document["repetitions"])
    rest = {name: value for name, value in document.items() if name != "repetitions"}
    return json.dumps(rest, indent=1, allow_nan=False)[:-2] + f',\n "repetitions": [\n{repetitions}\n ]\n}}\n'


def write_whole(path: Path, text: str) -> None:
    """All of it or nothing, whenever it is interrupted."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with open(temporary, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
