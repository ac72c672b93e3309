"""What a recurrent core costs: the same training with and without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from htsrl.config import Config, Experiment, Placement
from htsrl.config.presets import preset
from htsrl.train import train
from htsrl_bench.announcer import Announcer
from htsrl_bench.record import Summary, Table

Kind = Literal["none", "lstm", "gru"]
KINDS: tuple[Kind, ...] = ("none", "lstm", "gru")
WORK: Mapping[str, Experiment] = {
    "CartPole-v1 ppo": Experiment("CartPole-v1", total_steps=32 * 2048),
    "ALE/Pong-v5 a2c": replace(preset("ALE/Pong-v5", "a2c"), total_steps=120 * 80),
    "ALE/Pong-v5 ppo": replace(preset("ALE/Pong-v5", "ppo"), total_steps=4 * 2048),
}


@dataclass(frozen=True)
class Measured:
    """One run."""

    work: str
    recurrent: Kind
    steps_per_second: float


def experiment(work: str, recurrent: Kind) -> Experiment:
    return replace(WORK[work], network=replace(WORK[work].network, recurrent=recurrent))


def measure(work: Sequence[str], repetitions: int) -> list[Measured]:
    """All kinds in turn, time and again: a machine that slows down slows down all of them."""
    announcer, measured = Announcer(len(work) * len(KINDS) * repetitions), []
    for _ in range(repetitions):
        for name in work:
            for recurrent in KINDS:
                announcer.begin(f"{name}, recurrent {recurrent}")
                measured.append(Measured(name, recurrent, _steps_per_second(experiment(name, recurrent))))
                announcer.end(f"{measured[-1].steps_per_second:,.0f} steps/s")
    return measured


def summary(measured: Sequence[Measured]) -> dict[str, Any]:
    """By work and kind of core: steps per second, and how many for each one of the run without a core next to it."""
    document: dict[str, Any] = {}
    for name in dict.fromkeys(of.work for of in measured):
        rates = {
            kind: [of.steps_per_second for of in measured if (of.work, of.recurrent) == (name, kind)] for kind in KINDS
        }
        document[name] = {
            kind: {
                "steps_per_second": asdict(Summary.of(own)),
                "share": asdict(Summary.of([mine / plain for mine, plain in zip(own, rates["none"], strict=True)])),
            }
            for kind, own in rates.items()
        }
    return document


def table(document: Mapping[str, Any]) -> Table:
    rows = []
    for name, kinds in document.items():
        shares = {kind: kinds[kind]["share"] for kind in ("lstm", "gru")}
        rows.append(
            [
                name,
                *(str(Summary(**kinds[kind]["steps_per_second"])) for kind in KINDS),
                *(f"{s['median']:.2f} ({s['lowest']:.2f} to {s['highest']:.2f})" for s in shares.values()),
            ]
        )
    return Table(
        ["work", "steps/s, no core", "lstm", "gru", "lstm / no core", "gru / no core"],
        rows,
        [
            "Median (lowest to highest) of runs that take turns; a ratio is that of runs next to each other. All "
            "settings but the recurrent core are the same: defaults for CartPole, presets for Pong, 64 units, "
            "gradients through 32 steps (5 under A2C).",
        ],
    )


def configs(work: Sequence[str]) -> dict[str, Config]:
    return {
        f"{name}, recurrent {kind}": Config(experiment(name, kind), _placement(None)) for name in work for kind in KINDS
    }


def _steps_per_second(of: Experiment) -> float:
    with TemporaryDirectory(prefix="htsrl-bench-") as folder:
        return train(Config(of, _placement(Path(folder) / "run"))).steps_per_second


def _placement(run_dir: Path | None) -> Placement:
    return Placement(run_dir=run_dir, tensorboard=False, progress="off")
