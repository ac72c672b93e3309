"""`htsrl train --seeds`: several seeds as a group, and what they come to together."""

from __future__ import annotations

from dataclasses import asdict

from htsrl.runs.folder import RunFolder
from htsrl.statistics.intervals import Interval, mean_interval
from htsrl.sweeps.group import Group, GroupResult, default_folder, train_seeds
from htsrl.sweeps.job import TrainJob
from htsrl.sweeps.seeds import parse_seeds

SUMMARY_FILE = "summary.json"


def train_group(job: TrainJob, seeds: str, parallel: int | None, cores: int | None, keeps_placement: bool) -> None:
    parsed = parse_seeds(seeds)
    folder = job.config.placement.run_dir or default_folder(job.config, parsed)
    result = train_seeds(Group(job, parsed, folder), parallel, cores, keeps_placement)
    _write(result)
    _print(result)


def _write(result: GroupResult) -> None:
    document = {
        "seeds": {seed: run.summary() for seed, run in result.runs.items()},
        "mean_return": None if result.interval is None else asdict(result.interval),
        "scores": result.scores,
    }
    RunFolder(result.folder).save_json(result.folder / SUMMARY_FILE, document)


def _print(result: GroupResult) -> None:
    returns = [run.mean_return for run in result.runs.values() if run.mean_return is not None]
    print(f"return    {_over_seeds(returns, result.interval)} (mean of the last 100 training episodes)")
    if result.scores:
        scores = list(result.scores.values())
        print(f"score     {_over_seeds(scores, mean_interval(scores))}")
    for seed, run in result.runs.items():
        print(f"digest    {run.digest}  seed {seed}")
    print(f"group     {result.folder}; htsrl report {result.folder} shows it")


def _over_seeds(values: list[float], interval: Interval | None) -> str:
    if not values:
        return "no episode ended"
    if interval is None:
        return f"{values[0]:.2f}; one seed says nothing about noise"
    return (
        f"{interval.mean:.2f}, 95 % interval {interval.low:.2f} to {interval.high:.2f} (Student's t over "
        f"{interval.num_seeds} seeds)"
    )
