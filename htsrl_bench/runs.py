"""A record of runs that were trained before: their scores, curves, commands and digests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from htsrl.config import Config
from htsrl.config.command_line import train_command
from htsrl.config.file import CALLABLE
from htsrl.digest import read_links
from htsrl.errors import ConfigError, HtsrlError, RunFolderError
from htsrl.evaluate import evaluate
from htsrl.runs.folder import RunFolder
from htsrl.statistics.curve import Curve
from htsrl.statistics.intervals import mean_interval
from htsrl_bench.learned import read_curve, thinned
from htsrl_bench.record import Table


@dataclass(frozen=True)
class Recorded:
    """One run and what its policy is worth."""

    env: str
    algo: str
    schedule: str
    seed: int
    steps: int
    interrupted: bool
    """Ended before its time: its command continues, and has this digest after so many steps."""
    score: float
    """Mean return of the evaluation."""
    score_deviation: float
    last: float
    """Mean return of the last 100 training episodes."""
    digest: str
    command: str
    curve: Curve

    @property
    def kind(self) -> str:
        """What runs that differ in their seeds alone have in common."""
        return f"{self.env} {self.algo} {self.schedule}"

    @property
    def name(self) -> str:
        return f"{self.kind} seed {self.seed}"


def read_runs(run_dirs: Sequence[Path], episodes: int, sampled: bool) -> tuple[list[Recorded], dict[str, Config]]:
    """The runs, each evaluated, and their configurations by name."""
    if not run_dirs:
        raise ConfigError("give the folder of at least one run")
    recorded, configs = [], {}
    for run_dir in run_dirs:
        config = RunFolder.existing(run_dir).load_config()
        run = _read_run(run_dir, config, episodes, sampled)
        if run.name in configs:
            raise ConfigError(f"{run_dir} repeats {run.name}, which another folder holds already; leave one out")
        configs[run.name] = config
        recorded.append(run)
    return recorded, configs


def table(recorded: Sequence[Recorded], episodes: int, sampled: bool) -> list[Table]:
    how = " --sampled" if sampled else ""
    scores = Table(
        ["env", "algo", "schedule", "seed", "steps", "score", "training, last 100"],
        [
            [
                run.env,
                run.algo,
                run.schedule,
                f"{run.seed}",
                f"{run.steps:,}{', interrupted' if run.interrupted else ''}",
                f"{run.score:,.2f} +- {run.score_deviation:,.2f}",
                f"{run.last:,.2f}",
            ]
            for run in recorded
        ],
        [
            f"Score: mean true return of `htsrl eval RUN_DIR --episodes {episodes}{how}` +- the standard deviation of "
            "an episode. Training: mean true return "
            "of the last 100 episodes before the end, with sampled actions. An interrupted run's command continues "
            "it, and has the digest below after as many steps.",
            *_over_seeds(recorded),
        ],
    )
    commands = Table(
        ["env", "seed", "command", "digest"],
        [[run.env, f"{run.seed}", f"`{run.command}`", f"`{run.digest}`"] for run in recorded],
    )
    return [scores, commands]


def _read_run(run_dir: Path, config: Config, episodes: int, sampled: bool) -> Recorded:
    experiment = config.experiment
    if not isinstance(experiment.env, str) or experiment.env.startswith(CALLABLE):
        raise ConfigError(f"{run_dir} was trained on a callable, which no command could repeat; name an environment")
    curve, links, network = _curve_of(run_dir), read_links(run_dir), experiment.network
    evaluation = evaluate(run_dir, episodes, sampled=sampled)
    return Recorded(
        env=" ".join([experiment.env, *(f"{name}={value}" for name, value in experiment.env_args.items())]),
        algo=" ".join([experiment.algorithm.name, *([] if network.recurrent == "none" else [network.recurrent])]),
        schedule=experiment.schedule,
        seed=experiment.seed,
        steps=len(links) * experiment.batch_steps,
        interrupted=bool(RunFolder(run_dir).result()["interrupted"]),
        score=evaluation.mean_return,
        score_deviation=evaluation.std_return,
        last=curve[-1][1],
        digest=links[-1].chain,
        command=train_command(experiment),
        curve=thinned(curve),
    )


def _over_seeds(recorded: Sequence[Recorded]) -> Iterator[str]:
    for kind in dict.fromkeys(run.kind for run in recorded):
        scores = [run.score for run in recorded if run.kind == kind]
        interval = mean_interval(scores)
        if interval is not None:
            yield (
                f"{kind}, {interval.num_seeds} seeds: mean score {interval.mean:,.2f}, 95 % interval "
                f"{interval.low:,.2f} to {interval.high:,.2f} (Student's t); lowest {min(scores):,.2f}, highest "
                f"{max(scores):,.2f}."
            )


def _curve_of(run_dir: Path) -> Curve:
    try:
        return read_curve(run_dir)
    except HtsrlError as error:
        raise RunFolderError(f"{run_dir}: {error}") from error
