"""`htsrl bench runs`: a record of runs that were trained before."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from htsrl import A2C, Config, ConfigError, Experiment, Placement, train
from htsrl.digest import read_links
from htsrl_bench import runs
from htsrl_bench.curves import figure_of_runs
from htsrl_bench.learned import MAX_POINTS, thinned
from htsrl_bench.tables.runs import RunsTable


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    experiment = Experiment("CartPole-v1", algorithm=A2C(), num_envs=4, total_steps=2000, seed=5)
    placement = Placement("inline", run_dir=folder, tensorboard=False, progress="off", log_every_steps=20)
    train(Config(experiment, placement))
    return folder


def test_the_record_holds_score_curve_command_and_digest(run_dir: Path, tmp_path: Path) -> None:
    assert RunsTable((run_dir,), name="cartpole", episodes=3, sampled=True, output=tmp_path).run() == 0
    (path,) = tmp_path.glob("runs-cartpole.json")
    document = json.loads(path.read_text())
    (recorded,) = document["repetitions"]
    assert recorded["digest"] == read_links(run_dir)[-1].chain
    assert recorded["command"].startswith("htsrl train CartPole-v1 --algo a2c --schedule hts --num-envs 4")
    assert recorded["steps"] == 2000
    assert recorded["curve"][-1][:2] == [2000, pytest.approx(recorded["last"], rel=1e-4)]
    assert path.with_suffix(".png").stat().st_size > 1000
    assert str(run_dir) not in path.read_text() + path.with_suffix(".md").read_text()


def test_the_picture_shows_the_whole_curve(run_dir: Path) -> None:
    recorded, _ = runs.read_runs([run_dir], 1, sampled=False)
    (axes,) = figure_of_runs("cartpole", recorded).axes
    assert axes.get_xlim()[0] == 0
    assert axes.get_xlim()[1] >= 2000
    (line,) = axes.get_lines()
    assert len(np.asarray(line.get_xdata())) == len(recorded[0].curve)


def test_a_long_curve_is_thinned_and_keeps_its_end() -> None:
    curve = tuple((step, step / 3, 0.1 * step) for step in range(1001))
    fewer = thinned(curve)
    assert len(fewer) <= MAX_POINTS + 1
    assert [fewer[0], fewer[-1]] == [(0, 0.0, 0.0), (1000, 333.33, 100.0)]


def test_several_seeds_have_an_interval_and_a_single_one_has_none(run_dir: Path) -> None:
    (one,), _ = runs.read_runs([run_dir], 1, sampled=False)
    seeds = [replace(one, seed=seed, score=score) for seed, score in ((1, 2.0), (2, 4.0), (3, 6.0))]
    assert (
        "3 seeds: mean score 4.00, 95 % interval -0.97 to 8.97 (Student's t); lowest 2.00, highest 6.00."
        in runs.table(seeds, 1, sampled=False)[0].markdown()
    )
    assert "interval" not in runs.table(seeds[:1], 1, sampled=False)[0].markdown()


def test_the_same_run_twice_is_refused(run_dir: Path) -> None:
    with pytest.raises(ConfigError, match="repeats CartPole-v1 a2c hts seed 5"):
        runs.read_runs([run_dir, run_dir], 1, sampled=False)


def test_an_interrupted_run_is_called_so(run_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(run_dir, tmp_path / "run")
    result = tmp_path / "run" / "result.json"
    result.write_text(result.read_text().replace('"interrupted": false', '"interrupted": true'))
    recorded, _ = runs.read_runs([tmp_path / "run"], 1, sampled=False)
    assert "2,000, interrupted" in runs.table(recorded, 1, sampled=False)[0].markdown()


def test_no_run_is_refused() -> None:
    with pytest.raises(ConfigError, match="at least one run"):
        runs.read_runs([], 1, sampled=False)
