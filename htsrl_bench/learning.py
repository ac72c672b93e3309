"""Does HTS learn what synchronous training learns? The same tasks in several ways, several seeds each."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Protocol

from htsrl.checkpoint.files import holds_any
from htsrl.checkpoint.of_run import experiment_document
from htsrl.config import Config, Experiment, Placement
from htsrl.config.check import check
from htsrl.config.command_line import train_command
from htsrl.config.file import differences
from htsrl.errors import ConfigError
from htsrl.evaluate import evaluate
from htsrl.metrics.episode_progress import EpisodeProgress
from htsrl.metrics.progress import Mode, resolved
from htsrl.runs.folder import RunFolder
from htsrl.runs.lock import RunLock
from htsrl.runs.resume import resume
from htsrl.source_hashes import in_one
from htsrl.statistics.curve import mean_over
from htsrl.train import train
from htsrl_bench.announcer import Announcer
from htsrl_bench.finished_runs import FinishedRuns
from htsrl_bench.learned import Learned, read_curve
from htsrl_bench.peers.sb3_learning import SB3, StableBaselines
from htsrl_bench.provenance import current_commit
from htsrl_bench.record import Table
from htsrl_bench.verdict import Verdict, ways_of

EVALUATION_EPISODES = 100


class Learnable(Protocol):
    """What can be learned in several ways: a task with a goal, or without one."""

    @property
    def name(self) -> str: ...

    def with_seed(self, seed: int, way: str) -> Experiment: ...


@dataclass(frozen=True)
class Learning:
    """How a task is learned, and where what has finished is kept."""

    ways: Sequence[str]
    seeds: Sequence[int]
    placement: Placement
    finished: FinishedRuns
    evaluation_episodes: int = EVALUATION_EPISODES
    stable_baselines: StableBaselines | None = None
    """For the way `sb3`."""

    def learn(self, task: Learnable, announcer: Announcer) -> list[Learned]:
        """Train and evaluate the task in every way with every seed, unless it was before; the ways take turns."""
        learned = []
        # A run may take an hour. On a terminal it shows how far it has come; a file would get a great many lines.
        progress: Mode = "live" if resolved("auto") == "live" else "off"
        for seed, way in product(self.seeds, self.ways):
            kept = self.found(task, way, seed)
            announcer.begin(f"{task.name}, {way}, seed {seed}", draws_below=not kept and progress == "live")
            run = kept or self.learn_once(task, way, seed, progress)
            announcer.end(f"score {run.score:.1f}{' (kept from before)' if kept else ''}")
            learned.append(run)
        return learned

    def found(self, task: Learnable, way: str, seed: int) -> Learned | None:
        """A run that has finished before; ConfigError where one of other settings did or was begun, or none can be."""
        name, config = _name(task, way, seed), self.config(task, way, seed)
        check(config)
        learned, folder = self.finished.find(name, config), self.finished.place_of(name)
        if folder is not None and has_begun(folder):
            check_is_same(folder, config)
        return learned

    def config(self, task: Learnable, way: str, seed: int) -> Config:
        """Stable-Baselines3, which acts and learns in turn, is given the settings of `sync`."""
        return Config(task.with_seed(seed, "sync" if way == SB3 else way), self.placement)

    def learn_once(self, task: Learnable, way: str, seed: int, progress: Mode) -> Learned:
        """Train and evaluate one run, and keep it."""
        name, config, commit = _name(task, way, seed), self.config(task, way, seed), current_commit()
        if way == SB3:
            assert self.stable_baselines is not None, "the way sb3 needs its interpreter"
            theirs = self.stable_baselines.learn(config.experiment, self.evaluation_episodes)
            self.finished.put(name, config, theirs)
            return theirs
        with self.finished.room_for(name) as run_dir:
            goes_on = train_or_go_on(
                replace(config, placement=replace(self.placement, run_dir=run_dir, progress=progress))
            )
            with EpisodeProgress(self.evaluation_episodes, progress) as shown:
                evaluation = evaluate(run_dir, self.evaluation_episodes, watch=shown.update, trust=True)
            result = RunFolder(run_dir).result()
            changed = ", begun before" if goes_on else ", changed while it ran" if commit != current_commit() else ""
            curve = read_curve(run_dir)
            learned = Learned(
                way=way,
                seed=seed,
                score=evaluation.mean_return,
                score_deviation=evaluation.std_return,
                digest=result["digest"],
                steps=result["steps"],
                steps_per_second=result["steps_per_second"],
                command=train_command(config.experiment, self.evaluation_episodes),
                commit=commit and f"{commit}{changed}",
                mean_over_run=mean_over(curve),
                curve=curve,
                code=_code_of(run_dir),
            )
            self.finished.put(name, config, learned)
        return learned


def _code_of(run_dir: Path) -> str | None:
    """Of the last part of the run, if others went before."""
    hashes = RunFolder(run_dir).fingerprint().code
    return None if hashes is None else in_one(hashes)


def train_or_go_on(config: Config) -> bool:
    """Bring a run to its end, from wherever one in its folder came to; returns whether there was one."""
    run_dir = config.placement.run_dir
    assert run_dir is not None
    folder = RunFolder(run_dir)
    if not has_begun(folder):
        if run_dir.exists():
            with RunLock.acquire(run_dir):
                shutil.rmtree(run_dir)
        train(config)
        return False
    check_is_same(folder, config)
    if not folder.is_complete():
        resume(run_dir)
    return True


def has_begun(folder: RunFolder) -> bool:
    """Whether a run left anything there to continue from; one that was killed in its first checkpoint did not."""
    return folder.config_file.exists() and holds_any(folder.checkpoints_dir)


def check_is_same(folder: RunFolder, config: Config) -> None:
    # Both checked: the folder has the numbers that were left to htsrl, such as the minibatches.
    begun, asked = check(folder.load_config()), check(config)
    if changed := list(differences(experiment_document(begun), experiment_document(asked))):
        raise ConfigError(
            f"{folder.path} holds a run with other settings ({'; '.join(changed)}); choose another folder, or remove it"
        )


def tables(goal: float, learned: Sequence[Learned]) -> list[Table]:
    rows = [
        [
            run.way,
            f"{run.seed}",
            f"{run.score:.4g} +- {run.score_deviation:.4g}",
            "yes" if run.score >= goal else "no",
            f"{run.mean_over_run:.4g}",
            f"{run.curve[-1][2] / 60:.1f}",
        ]
        for run in sorted(learned, key=lambda run: (ways_of(learned).index(run.way), run.seed))
    ]
    note = (
        f"Score: mean return of {EVALUATION_EPISODES} episodes +- their standard deviation, most likely actions, after "
        f"{learned[0].steps:,} steps; goal {goal:g}."
    )
    scores = Table(
        ["way", "seed", "score", "goal reached", "mean over run", "minutes"],
        rows,
        [note, *_on_sb3(learned), *Verdict.of(goal, learned).sentences()],
    )
    commands = Table(
        ["way", "seed", "command", "digest", "commit", "code"],
        [[run.way, f"{run.seed}", f"`{run.command}`", *run.origin] for run in learned],
    )
    return [scores, commands]


def _on_sb3(learned: Sequence[Learned]) -> list[str]:
    """What is not the same, where it was trained too."""
    said = "sb3 has the same settings; it draws the actions before its first gradient uniformly."
    return [said] if any(run.way == SB3 for run in learned) else []


def _name(task: Learnable, way: str, seed: int) -> str:
    return f"{task.name}-{way}-seed-{seed}"
