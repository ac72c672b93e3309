"""What islands bring where environments wait, and what they cost where the machine is busy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from htsrl.algorithms.a2c import A2C
from htsrl.config import Config, Experiment, Placement, with_seed
from htsrl.envs.check.claims import Barrier, StepTime
from htsrl.metrics.sinks import read_json_lines
from htsrl.train import train
from htsrl_bench.announcer import Announcer
from htsrl_bench.record import Summary, Table
from htsrl_bench.simulations import simulate_hts_steps_per_second
from htsrl_bench.works import STANDARD

UNMEASURED_INTERVALS = 2
"""The pipeline is filled with two rollouts before it needs the learner."""
ENVS_PER_ISLAND = 32
SYNC_INTERVAL = 64
SIMULATED_INTERVALS = 200
QUIETLY = Placement(tensorboard=False, progress="off", timeline=False, check_env=False)
WAYS = {
    "processes": QUIETLY,
    "1 island": replace(QUIETLY, backend="ray", nodes=1),
    "2 islands": replace(QUIETLY, backend="ray", nodes=2),
}


@dataclass(frozen=True)
class Measured:
    """One run."""

    config: str
    seed: int
    steps_per_second: float
    """From the second update to the last."""
    bytes_up: float
    """Per step, to the learner."""
    bytes_down: float
    """Per step, from it."""


def sleeping_config(num_islands: int, mean_seconds: float, seconds: float) -> Config:
    """Environments on threads that sleep, 32 on each island, for about so many seconds of measured intervals."""
    intervals = max(2, round(seconds / (SYNC_INTERVAL * mean_seconds)))
    num_envs = ENVS_PER_ISLAND * num_islands
    experiment = Experiment(
        env="htsrl/Sleeping-v0",
        env_args={"law": "exponential", "mean_seconds": mean_seconds},
        imports=("htsrl.envs.toy",),
        algorithm=A2C(),
        num_envs=num_envs,
        sync_interval=SYNC_INTERVAL,
        total_steps=(UNMEASURED_INTERVALS + intervals) * num_envs * SYNC_INTERVAL,
    )
    return Config(experiment, replace(QUIETLY, backend="ray", nodes=num_islands, executor_threads=True))


def work_config(work: str, way: str, num_updates: int) -> Config:
    experiment = STANDARD[work]
    total_steps = (UNMEASURED_INTERVALS + num_updates) * experiment.batch_steps
    return Config(replace(experiment, total_steps=total_steps), WAYS[way])


def scaling_name(num_islands: int, mean_seconds: float) -> str:
    return f"{num_islands} islands, {mean_seconds * 1000:g} ms"


def work_name(work: str, way: str) -> str:
    return f"{work}, {way}"


def measure(configs: dict[str, Config], repetitions: int, announcer: Announcer) -> list[Measured]:
    """They take turns: what slows the machine for a while slows all."""
    measured = []
    for seed in range(1, repetitions + 1):
        for name, config in configs.items():
            announcer.begin(f"{name}, seed {seed}")
            measured.append(_run(name, with_seed(config, seed)))
            announcer.end(f"{measured[-1].steps_per_second:,.0f} steps/s")
    return measured


def _run(name: str, config: Config) -> Measured:
    with TemporaryDirectory(prefix="htsrl-bench-") as folder:
        placement = replace(config.placement, run_dir=Path(folder) / "run")
        result = train(replace(config, placement=placement))
        last = read_json_lines(Path(folder) / "run" / "metrics.jsonl")[-1]
    steps = config.experiment.total_steps
    up, down = ((last.get(f"cluster/bytes_{way}") or 0.0) / steps for way in ("up", "down"))
    return Measured(name, config.experiment.seed, result.steps_per_second, up, down)


def speeds(measured: Sequence[Measured], name: str) -> list[float]:
    """Seed by seed."""
    return [run.steps_per_second for run in measured if run.config == name]


def ratios(measured: Sequence[Measured], name: str, to: str, factor: float = 1.0) -> Summary:
    pairs = zip(speeds(measured, name), speeds(measured, to), strict=True)
    return Summary.of([one / (factor * other) for one, other in pairs])


def scaling_table(measured: Sequence[Measured], islands: Sequence[int], means: Sequence[float]) -> Table:
    rows = []
    for mean_seconds in means:
        for num_islands in islands:
            name, first = scaling_name(num_islands, mean_seconds), scaling_name(islands[0], mean_seconds)
            num_envs = ENVS_PER_ISLAND * num_islands
            limit = simulate_hts_steps_per_second(
                Barrier(num_envs, SYNC_INTERVAL), StepTime(mean_seconds, cv=1.0), SIMULATED_INTERVALS
            )
            speed = Summary.of(speeds(measured, name))
            share = ratios(measured, name, first, num_islands / islands[0])
            cells = [f"{mean_seconds * 1000:g}", str(num_islands), str(num_envs), str(speed), f"{limit:,.0f}"]
            rows.append([*cells, f"{speed.median / limit:.0%}", _shown(share)])
    headings = ["step ms", "islands", "environments", "steps/s", "soft limit", "share of it", "of linear"]
    note = (
        f"Environments whose step sleeps as long as an exponential law says, {ENVS_PER_ISLAND} on threads of one "
        f"process on each island, A2C, {SYNC_INTERVAL} steps an interval, all islands, their actors and the learner on "
        "this machine. Soft limit: hts's own barrier, simulated, with learning, acting and sending that take no time; "
        f"it grows by less than the environments do. Of linear: steps/s over {islands[0]}-island steps/s times the "
        "islands, seed by seed; median (lowest to highest)."
    )
    return Table(headings, rows, [note])


def work_table(measured: Sequence[Measured], works: Sequence[str]) -> Table:
    rows = []
    for work in works:
        for way in WAYS:
            name = work_name(work, way)
            up, down = (
                Summary.of([getattr(run, field) for run in measured if run.config == name]).median
                for field in ("bytes_up", "bytes_down")
            )
            share = ratios(measured, name, work_name(work, "processes"))
            cost = (
                "-"
                if way == "processes"
                else f"{1 - share.median:.0%} ({1 - share.highest:.0%} to {1 - share.lowest:.0%})"
            )
            rows.append([work, way, str(Summary.of(speeds(measured, name))), f"{up:,.0f}", f"{down:,.0f}", cost])
    headings = ["work", "placement", "steps/s", "bytes up per step", "bytes down per step", "lost to transport"]
    note = (
        "Lost to transport: one less the ratio of steps/s to those of the same run without islands, seed by seed; "
        "median (lowest to highest). On one machine whose cores are all busy that is packing, Ray, its store and "
        "unpacking on both sides together, and what another sharing-out of workers makes."
    )
    return Table(headings, rows, [note])


def highlights(measured: Sequence[Measured], names: Iterable[str]) -> dict[str, str]:
    shown = [f"{name} {Summary.of(speeds(measured, name)).median:,.0f}" for name in names]
    return {"on islands of one machine: steps/s": "; ".join(shown)}


def _shown(summary: Summary) -> str:
    return f"{summary.median:.2f} ({summary.lowest:.2f} to {summary.highest:.2f})"
