"""What one environment step costs in CPU time: simulator, inference, learning, and all the rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from htsrl.config import Config, Experiment, Placement
from htsrl.config.presets import preset
from htsrl.envs.agents import agents_of
from htsrl.envs.make import make_env
from htsrl.envs.team import team_size_of
from htsrl.errors import ConfigError
from htsrl.metrics.sinks import read_json_lines
from htsrl.runs.folder import RunFolder
from htsrl.spaces import Interface
from htsrl.train import train
from htsrl_bench.announcer import Announcer
from htsrl_bench.peers.frameworks import WIDEST
from htsrl_bench.peers.work import WORK as PEERS_WORK
from htsrl_bench.record import Table
from htsrl_bench.works import IN_HALF

PARTS = ("simulator", "inference", "learning")
CHECKED_STEPS = 5_000
STANDARD: dict[str, Experiment] = {
    "pong-a2c": replace(preset("ALE/Pong-v5", "a2c"), total_steps=24_000),
    "pong-ppo": replace(preset("ALE/Pong-v5", "ppo"), total_steps=16_384),
    "breakout-a2c": replace(preset("ALE/Breakout-v5", "a2c"), total_steps=24_000),
    "breakout-ppo": replace(preset("ALE/Breakout-v5", "ppo"), total_steps=16_384),
    "football-empty-goal-close": replace(preset("football/academy_empty_goal_close-v0"), total_steps=16_384),
    "football-run-to-score": replace(preset("football/academy_run_to_score-v0"), total_steps=16_384),
    "football-3-vs-1": replace(preset("football/academy_3_vs_1_with_keeper-v0"), total_steps=16_384),
    "football-3-vs-1-team": replace(
        preset("football/academy_3_vs_1_with_keeper-v0"), env_args={"players": 3}, total_steps=16_384
    ),
    "halfcheetah-ppo": replace(preset("HalfCheetah-v5"), total_steps=49_152),
    "cartpole-ppo": replace(Experiment("CartPole-v1"), total_steps=98_304),
}
WORK: Mapping[str, Experiment] = (
    STANDARD
    | {
        name + IN_HALF: replace(STANDARD[name], network=replace(STANDARD[name].network, precision="bfloat16"))
        for name in ("pong-a2c", "pong-ppo", "breakout-a2c", "breakout-ppo")
    }
    | {WIDEST: replace(PEERS_WORK[WIDEST], schedule="hts", total_steps=8 * 262_144)}
)
"""What is measured, by name; a few updates of each."""


@dataclass(frozen=True)
class Costs:
    """CPU microseconds of one environment step in one run."""

    work: str
    simulator: float
    inference: float
    learning: float
    keeping: float
    """Capsules, and copies for checkpoints: a part of the overhead."""
    total: float
    steps_per_second: float

    @property
    def overhead(self) -> float:
        """All that is none of the first three, the supervisor's time included."""
        return self.total - self.simulator - self.inference - self.learning


def measure(names: Sequence[str], repetitions: int) -> list[Costs]:
    """The works take turns, so that a busy moment of the machine does not hit one of them alone."""
    for name in names:
        if name not in WORK:
            raise ConfigError(f"work {name!r} is not known; choose among {', '.join(WORK)}")
    announcer, measured = Announcer(len(names) * repetitions), []
    for _ in range(repetitions):
        for name in names:
            announcer.begin(name)
            measured.append(_measure_once(name))
            announcer.end(f"{measured[-1].total:.0f} us a step, {_share(measured[-1]):.1%} overhead")
    return measured


def configs(names: Sequence[str]) -> dict[str, Config]:
    return {name: Config(WORK[name], _placement(None)) for name in names}


def summary(names: Sequence[str], measured: Sequence[Costs]) -> dict[str, Any]:
    """The repetition of each work whose overhead is the middle one, and what its checks cost."""
    document = {}
    for name in names:
        costs = sorted((costs for costs in measured if costs.work == name), key=_share)
        middle = costs[len(costs) // 2]
        document[name] = {
            **{part: value for part, value in asdict(middle).items() if part != "work"},
            "overhead": middle.overhead,
            "overhead_share": _share(middle),
            "overhead_share_range": [_share(costs[0]), _share(costs[-1])],
            "checks": checks_of(WORK[name]) if WORK[name].lanes is None else None,
        }
    return document


def table(document: Mapping[str, Any]) -> Table:
    rows = []
    for name, costs in document.items():
        low, high = costs["overhead_share_range"]
        rows.append(
            [
                name,
                *(_shown(costs[part]) for part in (*PARTS, "overhead", "total")),
                f"{costs['overhead_share']:.1%} ({low:.1%} to {high:.1%})",
                "" if costs["checks"] is None else f"{costs['checks'] / costs['total']:.2%}",
                f"{costs['keeping'] / costs['total']:.2%}",
                f"{costs['steps_per_second']:,.0f}",
            ]
        )
    headings = [
        "work",
        *PARTS,
        "overhead",
        "total",
        "share of overhead",
        "share of checks",
        "share of keeping",
        "steps/s",
    ]
    return Table(
        headings,
        rows,
        [
            "CPU microseconds of one environment step, summed over all processes, between the third update and the "
            "last but one; of each work the repetition with the middle overhead, and its share (lowest to highest). "
            "Checks are all that happens between the simulator and the storage. Keeping is what capsules take, from "
            "which environments come back when their process dies; it is a part of the overhead.",
        ],
    )


def _shown(microseconds: float) -> str:
    return f"{microseconds:,.0f}" if microseconds >= 10 else f"{microseconds:.2f}"


def checks_of(experiment: Experiment) -> float:
    """CPU microseconds for bringing what one step returns into a storage: an environment's step, less the simulator."""
    env: Any = make_env(experiment.env, experiment.env_args, experiment.imports)
    try:
        agents, size = agents_of(env), team_size_of(env)
        interface = Interface(env.observation_space, env.action_space)
        seen = interface.empty_rows(*([] if size is None else [size]))
        agents.reset(0, seen)
        stored = np.zeros((size or 1, *interface.actions.shape), interface.actions.dtype)
        action = agents.to_env(stored if agents.is_team else stored[0])
        step = "step_into" if hasattr(env, "step_into") else "step"
        returned = getattr(env, step)(action, *([seen["obs"]] if step == "step_into" else []))
        setattr(env, step, lambda *_: returned)
        return min(_microseconds(lambda: agents.step(action, seen)) for _ in range(5))
    finally:
        env.close()


def _microseconds(call: Callable[[], object]) -> float:
    start = time.thread_time()
    for _ in range(CHECKED_STEPS):
        call()
    return (time.thread_time() - start) / CHECKED_STEPS * 1e6


def _measure_once(name: str) -> Costs:
    with TemporaryDirectory(prefix="htsrl-bench-") as folder:
        run_dir = Path(folder) / "run"
        result = train(Config(WORK[name], _placement(run_dir)))
        lines = read_json_lines(RunFolder(run_dir).metrics_file)
    readings = [
        [line["step"], *(line[f"cpu/{part}_seconds"] for part in (*PARTS, "keeping", "total"))] for line in lines
    ]
    lines_SC = np.array(readings, dtype=np.float64)
    # Both ends lie where learning and rolling out overlap: nothing is rolled out beside the last update.
    window = [line_C for line_C in lines_SC if 2 * WORK[name].batch_steps < line_C[0] < lines_SC[-1][0]]
    steps, *seconds = (window[-1] - window[0]).tolist()
    simulator, inference, learning, keeping, total = (part / steps * 1e6 for part in seconds)
    return Costs(name, simulator, inference, learning, keeping, total, result.steps_per_second)


def _placement(run_dir: Path | None) -> Placement:
    return Placement(run_dir=run_dir, measure_costs=True, tensorboard=False, progress="off")


def _share(costs: Costs) -> float:
    return costs.overhead / costs.total
