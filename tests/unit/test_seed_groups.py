"""`htsrl train --seeds`: a group of ordinary runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pretended_runs import launcher

import htsrl
from htsrl.config import Config, Experiment, Placement, with_seed
from htsrl.errors import HtsrlError
from htsrl.metrics import pace
from htsrl.statistics.intervals import mean_interval
from htsrl.sweeps.group import Group, default_folder, train_seeds
from htsrl.sweeps.job import JobEnd, TrainJob
from htsrl.sweeps.pool import Budget
from htsrl.sweeps.table import Table

EXPERIMENT = Experiment(
    "CartPole-v1", num_envs=2, sync_interval=32, total_steps=256, algorithm=htsrl.PPO(epochs=1), schedule="hts"
)
CONFIG = Config(EXPERIMENT, Placement(tensorboard=False, progress="off"))


def test_each_run_of_a_group_is_the_run_it_would_be_alone(tmp_path: Path) -> None:
    group = Group(TrainJob(CONFIG), (1, 5), tmp_path / "group")
    result = train_seeds(group, parallel=2, cores=2)
    alone = htsrl.train(with_seed(CONFIG, 5), backend="inline", run_dir=tmp_path / "alone")
    assert result.runs[5].digest == alone.digest
    assert result.runs[1].digest != alone.digest
    assert json.loads((tmp_path / "group" / "group.json").read_text()) == {"seeds": [1, 5]}
    assert "step 256/256" in (tmp_path / "group" / "seed-5.log").read_text()
    again = train_seeds(group, parallel=1, cores=2)
    assert {seed: run.digest for seed, run in again.runs.items()} == {
        seed: run.digest for seed, run in result.runs.items()
    }


def test_plain_output_tells_of_runs_under_way(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(pace, "monotonic", lambda: now[0])
    with Table("2 seeds", ["seed", "steps", "state"], "plain") as table:
        for second in range(25):
            now[0] = float(second)
            table.show(1, ["1", str(100 * second), "running"], is_final=False)
        table.show(1, ["1", "2500", "complete"], is_final=True)
    steps = ["0  state running", "1000  state running", "2000  state running", "2500  state complete"]
    assert capfd.readouterr().err.splitlines() == ["2 seeds", *(f"seed 1  steps {line}" for line in steps)]


def test_the_summary_is_students_interval_over_seeds(tmp_path: Path) -> None:
    result = train_seeds(Group(TrainJob(CONFIG), (1, 2, 3), tmp_path), 2, 2, launch=launcher(0))
    assert result.interval == mean_interval([1.0, 1.0, 1.0])  # what pretended runs say
    assert sorted(result.runs) == [1, 2, 3]


def test_further_seeds_in_the_same_folder_join_those_before(tmp_path: Path) -> None:
    for seeds in ((1, 2), (3,)):
        result = train_seeds(Group(TrainJob(CONFIG), seeds, tmp_path), 2, 2, launch=launcher(0))
    assert sorted(result.runs) == [1, 2, 3]
    assert json.loads((tmp_path / "group.json").read_text()) == {"seeds": [1, 2, 3]}


def test_the_default_folder_of_a_group_is_the_same_for_the_same_command() -> None:
    assert default_folder(CONFIG, (1, 2, 3)).name.endswith("-seeds1-3")


def test_a_seed_that_fails_ends_the_others_in_order(tmp_path: Path) -> None:
    ended = []

    class Failing:
        def __init__(self, job: TrainJob) -> None:
            self._seed = job.config.experiment.seed

        def has_ended(self) -> bool:
            return self._seed == 2

        def terminate(self) -> None:
            ended.append(self._seed)

        def end(self) -> JobEnd:
            return JobEnd("EnvironmentFailure", "it broke")

    with pytest.raises(HtsrlError, match="seed 2: it broke"):
        train_seeds(Group(TrainJob(CONFIG), (1, 2), tmp_path), 2, 2, launch=Failing)
    assert ended == [1]


def test_a_budget_of_cores_is_shared_out() -> None:
    assert Budget.of(5, None, 4) == Budget(4, 4)
    assert Budget.of(5, None, 4).placed(CONFIG).placement.backend == "inline"
    two = Budget.of(2, None, 8).placed(CONFIG).placement
    assert (two.backend, two.num_executors) == ("processes", 2)  # three, less one for the learner, of two environments
    asked = replace(CONFIG, placement=replace(CONFIG.placement, num_executors=1))
    assert Budget.of(5, None, 1).placed(asked) == asked
