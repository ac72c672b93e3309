"""Runs of the preference task with several losses, lags, minibatches for each rollout, and seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from htsrl.config import Config, Placement
from htsrl.errors import ConfigError
from htsrl.statistics.intervals import paired_interval
from htsrl_bench.language.pairs import COMPLETION_TOKENS
from htsrl_bench.language.prepared import Prepared
from htsrl_bench.record import Table, write_whole

GOLD = "htsrl_bench.language.bible:gold"
MAX_POINTS = 60
"""Of a curve in a record."""
NUM_EVALUATED = 500


@dataclass(frozen=True)
class Point:
    """One run."""

    loss: str
    lag: int
    minibatches: int
    seed: int
    learning_rate: float

    @property
    def name(self) -> str:
        return f"{self.loss}-lag-{self.lag}-n-{self.minibatches}-rate-{self.learning_rate:g}-seed-{self.seed}"


@dataclass(frozen=True)
class Budget:
    """What all runs of a table have in common."""

    updates: int
    """Optimizer steps."""
    batch: int
    """Completions of each."""
    num_generations: int = 2
    """K: completions of a prompt."""
    num_iterations: int = 1
    """T: how often a rollout is gone through."""

    @property
    def name(self) -> str:
        return f"updates-{self.updates}-batch-{self.batch}-k-{self.num_generations}-t-{self.num_iterations}"


def runs_folder(runs: Path, prepared: Prepared, budget: Budget) -> Path:
    """Where runs are kept: those of another model or budget have another folder."""
    return runs / f"{prepared.folder.name}-{budget.name}"


def config_of(point: Point, prepared: Prepared, budget: Budget, placement: Placement) -> Config:
    """N minibatches come from a rollout that is N times as large, so all runs see as many completions in an update."""
    from htsrl.language.rlhf import rlhf_config

    if budget.updates % (steps := point.minibatches * budget.num_iterations):
        raise ConfigError(
            f"updates={budget.updates} is no multiple of the {steps} optimizer steps on a rollout ({point.minibatches} "
            f"minibatches, {budget.num_iterations} times); use one that is"
        )
    return rlhf_config(
        prepared.model,
        prepared.prompts,
        [str(prepared.proxy), GOLD],
        point.loss,
        placement,
        total_episodes=budget.updates * budget.batch // budget.num_iterations,
        generation_batch_size=budget.batch * point.minibatches,
        steps_per_generation=point.minibatches,
        reward_weights=[1.0, 0.0],  # gold is looked at, and not learned from
        eval_prompts=str(prepared.held_out),
        max_completion_length=COMPLETION_TOKENS,
        num_generations=budget.num_generations,
        num_iterations=budget.num_iterations,
        learning_rate=point.learning_rate,
        seed=point.seed,
        **({"schedule": "sync"} if point.lag == 0 else {"lag": point.lag}),
    )


def found(point: Point, folder: Path) -> dict[str, Any] | None:
    """The run, if it has finished before."""
    path = folder / f"{point.name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def learned(point: Point, config: Config, folder: Path) -> dict[str, Any]:
    """Train, from wherever the run came to, evaluate, and keep what came of it."""
    from htsrl.language.evaluate import evaluate_text
    from htsrl.language.rlhf import rlhf_or_resume
    from htsrl.observers.dispatch import Watching
    from htsrl.runs.folder import RunFolder

    assert config.placement.run_dir is not None
    run_dir = config.placement.run_dir
    rlhf_or_resume(config, Watching((), False))
    result = RunFolder(run_dir).result()
    gold = evaluate_text(run_dir, NUM_EVALUATED, sampled=True, trust=True, reward_funcs=[GOLD])
    start = evaluate_text(run_dir, NUM_EVALUATED, sampled=True, trust=True, reward_funcs=[GOLD], version=0)
    document = {
        **asdict(point),
        "win_rate": gold.win_rate,
        "start": start.win_rate,
        "gold": gold.mean_score,
        "seconds": result["seconds"],
        "digest": result["digest"],
        "curve": _curve(run_dir / "metrics.jsonl"),
    }
    write_whole(folder / f"{point.name}.json", json.dumps(document))
    return document


def _curve(file: Path) -> list[Mapping[str, Any]]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines = lines[:: max(-(-len(lines) // MAX_POINTS), 1)]
    names = {
        "update": "train/n_updates",
        "seconds": "time/time_elapsed",
        "proxy": "reward/mean",
        "gold": "rollout/info/gold",
        "kl": "objective/kl",
    }
    return [{name: line.get(key) for name, key in names.items()} for line in lines]


def table(documents: Sequence[Mapping[str, Any]], budget: Budget) -> Table:
    """A line for each loss, lag and N: what the seeds have in common."""
    rows = []
    for loss, rate, minibatches, lag in _settings(documents):
        own = _seeds(documents, loss, rate, minibatches, lag)
        base = _seeds(documents, loss, rate, 1, 0)
        rows.append(
            [
                *(loss, f"{rate:g}", f"{minibatches}", f"{lag}", f"{len(own)}"),
                _spread([100 * run["win_rate"] for run in own.values()], 1),
                _spread([run["gold"] for run in own.values()], 3),
                _spread([run["curve"][-1]["proxy"] for run in own.values()], 2),
                _spread([kl for run in own.values() if (kl := run["curve"][-1]["kl"]) is not None], 2),
                _less(own, base),
            ]
        )
    starts = [run["start"] for run in documents if run.get("start") is not None]
    note = (
        f"{budget.updates} updates of {budget.batch} completions each, {budget.num_generations} of each prompt, every "
        f"rollout {budget.num_iterations} times; mean (lowest to highest) of the seeds. Win "
        f"rate: per cent of {NUM_EVALUATED} held-out prompts whose completion, drawn once, the gold reward puts above "
        f"the Bible's own; {100 * starts[0]:.1f} for the SFT model. N: minibatches of a rollout, which is N times as "
        "large. Proxy: what is learned from, and KL: to the SFT model, both of the last rollout; best_of_k has no "
        "reference. Less lag 0: difference in win rate to N 1 and lag 0 with the same seed, with the 95 % interval of "
        "Student's t over the seeds."
    )
    return Table(["loss", "rate", "N", "lag", "seeds", "win rate", "gold", "proxy", "KL", "less lag 0"], rows, [note])


def highlights(documents: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    found = {}
    for loss, rate, minibatches, lag in _settings(documents):
        own = _seeds(documents, loss, rate, minibatches, lag)
        what = f"runs on text, {loss} at rate {rate:g}, lag {lag}, N {minibatches}, seeds {', '.join(map(str, own))}"
        found[f"{what}: win rate in per cent"] = _spread([100 * run["win_rate"] for run in own.values()], 1)
    return found


def _settings(documents: Sequence[Mapping[str, Any]]) -> list[tuple[str, float, int, int]]:
    return list(dict.fromkeys((run["loss"], run["learning_rate"], run["minibatches"], run["lag"]) for run in documents))


def _seeds(documents: Sequence[Mapping[str, Any]], *setting: Any) -> dict[int, Mapping[str, Any]]:
    names = ("loss", "learning_rate", "minibatches", "lag")
    return {run["seed"]: run for run in documents if tuple(run[name] for name in names) == setting}


def _spread(values: Sequence[float], digits: int) -> str:
    if not values:
        return "-"
    return f"{fmean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def _less(own: Mapping[int, Mapping[str, Any]], base: Mapping[int, Mapping[str, Any]]) -> str:
    """Points of win rate beyond those of the same seeds."""
    mine, theirs = ({seed: 100 * run["win_rate"] for seed, run in runs.items()} for runs in (own, base))
    found = paired_interval(mine, theirs)
    return "-" if found is None or own == base else f"{found.mean:+.1f} ({found.low:+.1f} to {found.high:+.1f})"


def runs_table(documents: Sequence[Mapping[str, Any]]) -> Table:
    """A line for each run."""
    rows = [
        [
            run["loss"],
            f"{run['learning_rate']:g}",
            f"{run['minibatches']}",
            f"{run['lag']}",
            f"{run['seed']}",
            "-" if run["win_rate"] is None else f"{run['win_rate']:.1%}",
            f"{run['gold']:.3f}",
            "-" if (kl := run["curve"][-1]["kl"]) is None else f"{kl:.2f}",
            f"`{run['digest']}`",
        ]
        for run in documents
    ]
    return Table(["loss", "rate", "N", "lag", "seed", "win rate", "gold", "KL", "digest"], rows)
