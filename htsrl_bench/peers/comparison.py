"""Who is faster at the same work: all in turn, time and again."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from htsrl.errors import ConfigError
from htsrl_bench.announcer import Announcer
from htsrl_bench.peers import process
from htsrl_bench.peers.environments import prepare, versions
from htsrl_bench.peers.failures import PeerFailed
from htsrl_bench.peers.frameworks import Peer
from htsrl_bench.peers.rate import Window
from htsrl_bench.peers.work import WORK, Precision, precisions_of
from htsrl_bench.record import Summary

HTSRL = "htsrl"
WARM_UP_SECONDS = 2.0
HOPELESS = 0.7
"""A variant that reaches less than this share of its peer's best in the first repetition is not repeated."""


@dataclass(frozen=True)
class PeersBench:
    """The settings of all runs."""

    work: tuple[str, ...]
    peers: Mapping[str, Peer]
    repetitions: int
    seconds_per_run: float
    venvs: Path
    precisions: tuple[Precision, ...] = ("float32",)
    """In which htsrl multiplies, where there are images."""
    variants: tuple[str, ...] | None = None
    """Of the peers, those that are run; None: all."""

    def __post_init__(self) -> None:
        for name in self.work:
            if name not in WORK:
                raise ConfigError(f"work {name!r} is not known; choose among {', '.join(WORK)}")
        if not self.work or not self.peers:
            raise ConfigError("give at least one work and one peer")
        if self.repetitions < 1 or self.seconds_per_run <= 0:
            raise ConfigError(
                f"repetitions={self.repetitions} must be at least 1, seconds_per_run={self.seconds_per_run:g} above 0"
            )

    def htsrl_window(self) -> Window:
        """From when the run had settled: once in a run a spare process makes its preparations beside the training."""
        return Window(self.seconds_per_run, 0.0, skipped_updates=2)

    def window(self, peer: Peer, variant: str) -> Window:
        skipped = 2 if variant in peer.overlapping else 1
        return Window(self.seconds_per_run, WARM_UP_SECONDS, skipped)


@dataclass(frozen=True)
class Measured:
    """One run, of htsrl or of a peer's variant; it has steps per second or the reason why not."""

    work: str
    side: str
    """`htsrl`, or a peer's name."""
    variant: str
    """Of htsrl empty for float32, or the precision; empty for a peer that could not be installed."""
    repetition: int
    steps_per_second: float | None = None
    cpu_microseconds: float | None = None
    """Of all processes, for a step."""
    failure: str | None = None


@dataclass(frozen=True)
class Installed:
    """The peers' interpreters and versions, and why some have none."""

    pythons: Mapping[str, Path]
    versions: Mapping[str, Mapping[str, str]]
    failures: Mapping[str, str]


def install(bench: PeersBench) -> Installed:
    pythons, found, failures = {}, {}, {}
    for name, peer in bench.peers.items():
        try:
            python = prepare(name, peer, bench.venvs)
            found[name] = versions(python, peer)
            pythons[name] = python
        except PeerFailed as failure:
            failures[name] = str(failure)
    return Installed(pythons, found, failures)


def measure(bench: PeersBench, installed: Installed) -> list[Measured]:
    """htsrl, peer after peer, htsrl again: whatever slows the machine for a while slows all of them."""
    measured = [
        Measured(work, name, "", 1, failure=reason)
        for name, reason in installed.failures.items()
        for work in bench.work
    ]
    for repetition in range(1, bench.repetitions + 1):
        runs = [
            (work, side, variant)
            for work in bench.work
            for side, variant in [*_ours(bench, work), *_still_worth_it(bench, installed, work, measured)]
        ]
        print(f"repetition {repetition} of {bench.repetitions}", file=sys.stderr, flush=True)
        announcer = Announcer(len(runs))
        for work, side, variant in runs:
            announcer.begin(f"{work}, {side} {variant}".rstrip())
            measured.append(_measure_once(bench, installed, Measured(work, side, variant, repetition)))
            announcer.end(_outcome(measured[-1]))
    return measured


def _ours(bench: PeersBench, work: str) -> list[tuple[str, str]]:
    return [(HTSRL, "" if name == "float32" else name) for name in precisions_of(work, bench.precisions)]


def _still_worth_it(
    bench: PeersBench, installed: Installed, work: str, measured: Sequence[Measured]
) -> list[tuple[str, str]]:
    """Every variant at first; later those that ran and were not far behind their peer's best."""
    chosen = []
    for name, peer in bench.peers.items():
        first = {
            run.variant: run.steps_per_second or 0.0
            for run in measured
            if (run.work, run.side, run.repetition) == (work, name, 1)
        }
        best = max(first.values(), default=0.0)
        if name in installed.pythons:
            chosen += [
                (name, variant)
                for variant in peer.variants_of(work)
                if (bench.variants is None or variant in bench.variants)
                and (variant not in first or first[variant] >= HOPELESS * best > 0)
            ]
    return chosen


def _measure_once(bench: PeersBench, installed: Installed, run: Measured) -> Measured:
    if run.side == HTSRL:
        precision: Precision = "bfloat16" if run.variant == "bfloat16" else "float32"
        return _with(run, process.run_htsrl(run.work, precision, bench.htsrl_window()))
    peer = bench.peers[run.side]
    try:
        python = installed.pythons[run.side]
        return _with(run, process.run_peer(peer, python, run.variant, run.work, bench.window(peer, run.variant)))
    except PeerFailed as failure:
        return Measured(run.work, run.side, run.variant, run.repetition, failure=str(failure))


def _with(run: Measured, speed: process.Speed) -> Measured:
    return replace(run, steps_per_second=speed.steps_per_second, cpu_microseconds=speed.cpu_microseconds)


def _outcome(run: Measured) -> str:
    return f"{run.steps_per_second:,.0f} steps/s" if run.steps_per_second is not None else f"failed, {run.failure}"


@dataclass(frozen=True)
class Standing:
    """What came of one peer at one work."""

    variant: str | None
    """The best one; None if none ran."""
    steps_per_second: Summary | None
    variants: Mapping[str, Summary]
    failures: Mapping[str, str]
    """By variant."""


@dataclass(frozen=True)
class InHalf:
    """What came of htsrl in bfloat16; ratios are of runs of the same repetition."""

    htsrl: Summary
    over_float32: Summary | None
    ratio: Summary | None
    """To the fastest peer."""


@dataclass(frozen=True)
class Row:
    """What came of one work."""

    work: str
    htsrl: Summary
    peers: Mapping[str, Standing]
    fastest: str | None
    """The peer whose best variant has the highest median."""
    ratio: Summary | None
    """htsrl's steps for one of that variant's, of runs of the same repetition."""
    in_half: InHalf | None = None
    """htsrl in bfloat16, if that was asked for."""
    cpu_microseconds: Mapping[str, Summary] = field(default_factory=dict)
    """For a step, of every side and variant."""

    def document(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "work"}


def rows(bench: PeersBench, measured: Sequence[Measured]) -> list[Row]:
    return [_row(work, list(bench.peers), [run for run in measured if run.work == work]) for work in bench.work]


def _row(work: str, names: Sequence[str], runs: Sequence[Measured]) -> Row:
    peers = {name: _standing([run for run in runs if run.side == name]) for name in names}
    medians = {name: peer.steps_per_second.median for name, peer in peers.items() if peer.steps_per_second}
    fastest = max(medians, key=lambda name: medians[name], default=None)
    ours, in_half = _by_repetition(runs, HTSRL, ""), _by_repetition(runs, HTSRL, "bfloat16")
    theirs = _by_repetition(runs, fastest, peers[fastest].variant or "") if fastest is not None else {}
    half = InHalf(Summary.of(list(in_half.values())), _over(in_half, ours), _over(in_half, theirs)) if in_half else None
    cpu: dict[str, list[float]] = {}
    for run in runs:
        if run.cpu_microseconds is not None:
            cpu.setdefault(f"{run.side} {run.variant}".rstrip(), []).append(run.cpu_microseconds)
    of_cpu = {name: Summary.of(values) for name, values in cpu.items()}
    return Row(work, Summary.of(list(ours.values())), peers, fastest, _over(ours, theirs), half, of_cpu)


def _over(these: Mapping[int, float], those: Mapping[int, float]) -> Summary | None:
    """Ratios within the repetitions that both have."""
    return Summary.of([these[repetition] / rate for repetition, rate in those.items()]) if those else None


def _standing(runs: Sequence[Measured]) -> Standing:
    variants = {
        name: Summary.of(rates)
        for name in dict.fromkeys(run.variant for run in runs)
        if (rates := [r.steps_per_second for r in runs if r.variant == name and r.steps_per_second is not None])
    }
    best = max(variants, key=lambda name: variants[name].median, default=None)
    failures = {run.variant: run.failure for run in runs if run.failure is not None}
    return Standing(best, variants[best] if best is not None else None, variants, failures)


def _by_repetition(runs: Sequence[Measured], side: str, variant: str) -> dict[int, float]:
    return {
        run.repetition: run.steps_per_second
        for run in runs
        if (run.side, run.variant) == (side, variant) and run.steps_per_second is not None
    }
