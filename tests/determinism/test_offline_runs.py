"""Runs that learn from a dataset: the same bits over placements, gradient workers, kills, resumes and moved data."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import Outcome, assert_same_run, run
from offline_data import written

from htsrl import (
    BC,
    CQL,
    IQL,
    Config,
    DatasetError,
    Experiment,
    Network,
    Observer,
    Placement,
    UpdateEvent,
    resume,
    train,
)
from htsrl.config.file import load_config
from htsrl.datasets.open import known_dataset
from htsrl.observers.observer import ObservedRun
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE
from htsrl.runs.comparison import compare

NUM_UPDATES = 6
KILLS = "optimizer step:7, after a gradient order:11, before a commit:2, before a publish:3, before a gradient answer:9"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("datasets") / "small")


def cql(folder: Path, **settings: Any) -> Experiment:
    return Experiment(
        "",
        source=str(folder),
        algorithm=CQL(minibatch_size=8, sampled_actions=2),
        network=Network(hidden_sizes=(8,)),
        gradient_shards=2,
        sync_interval=3,
        total_steps=3 * NUM_UPDATES,
        **settings,
    )


@pytest.fixture(scope="module")
def oracle(folder: Path) -> Outcome:
    return run(cql(folder), log_every_steps=1)


def test_gradient_workers_and_kills_of_everybody_change_no_bit(
    folder: Path, oracle: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KILL_AT, KILLS)
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    placement = {"backend": "processes", "learner_workers": 2, "log_every_steps": 1, "checkpoint_every_updates": 2}
    assert_same_run(run(cql(folder), **placement), oracle)
    killed = {path.name for path in (tmp_path / "killed").iterdir()}
    assert killed == {kill.rpartition(":")[0] for kill in KILLS.split(", ")}, "each of them came to pass"


@pytest.mark.parametrize(
    "algorithm", [pytest.param(BC(minibatch_size=8), marks=pytest.mark.slow), IQL(minibatch_size=8)]
)
def test_gradient_workers_change_no_bit_of_other_algorithms(algorithm: Any, folder: Path) -> None:
    experiment = replace(cql(folder), algorithm=algorithm)
    inline = run(experiment, log_every_steps=1)
    assert_same_run(run(experiment, log_every_steps=1, backend="processes", learner_workers=2), inline)


class StopsAt(Observer):
    def __init__(self, version: int) -> None:
        self._version = version

    def on_start(self, run: ObservedRun) -> None:
        self._run = run

    def on_update(self, event: UpdateEvent) -> None:
        if event.version >= self._version:
            self._run.stop("enough")


def stopped(folder: Path, run_dir: Path) -> None:
    """A run that ends early; the barrier that it ends at is a matter of timing."""
    quietly = Placement("inline", tensorboard=False, progress="off", run_dir=run_dir, log_every_steps=1)
    train(Config(cql(folder), quietly), observers=[StopsAt(2)])


def test_a_run_goes_on_to_the_same_bits_where_its_dataset_was_moved_to(
    folder: Path, oracle: Outcome, tmp_path: Path
) -> None:
    moved = shutil.copytree(folder, tmp_path / "before")
    stopped(moved, tmp_path / "run")
    moved.rename(tmp_path / "after")
    known_dataset.cache_clear()  # as in a process of its own
    with pytest.raises(DatasetError, match="is not a dataset"):
        resume(tmp_path / "run")
    result = resume(tmp_path / "run", source=str(tmp_path / "after"))
    assert result.updates == NUM_UPDATES
    assert_same_run(Outcome.read(tmp_path / "run"), oracle)


def test_a_run_does_not_go_on_with_another_dataset(folder: Path, tmp_path: Path) -> None:
    stopped(folder, tmp_path / "run")
    other = written(tmp_path / "other", seed=1)
    with pytest.raises(DatasetError, match="is not the one that the run began with"):
        resume(tmp_path / "run", source=str(other))


def test_the_dataset_is_part_of_the_digest_and_where_it_lies_is_not(
    folder: Path, oracle: Outcome, tmp_path: Path
) -> None:
    elsewhere = shutil.copytree(folder, tmp_path / "elsewhere")
    assert run(cql(elsewhere), log_every_steps=1).digest == oracle.digest
    assert run(cql(folder, seed=2)).digest != oracle.digest
    for name, of in (("a", folder), ("b", written(tmp_path / "other", seed=1))):
        quietly = Placement("inline", tensorboard=False, progress="off", run_dir=tmp_path / name)
        train(Config(cql(of), quietly))
    assert Outcome.read(tmp_path / "a").links[0].parameters != Outcome.read(tmp_path / "b").links[0].parameters
    assert any(line.strip().startswith("source:") for line in compare(tmp_path / "a", tmp_path / "b").lines)
    assert load_config(tmp_path / "a" / "config.json").experiment.num_envs == 0
