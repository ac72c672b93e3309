"""`htsrl bench learning`: runs are compared, and kept until all have finished."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from terminal_run import run_on_terminal, screen_after

import htsrl
from htsrl.bench.announcer import Announcer
from htsrl.bench.bootstrap import bootstrap_difference
from htsrl.bench.finished_runs import FinishedRuns
from htsrl.bench.learned import Learned
from htsrl.bench.learning import Learning, train_or_go_on
from htsrl.bench.tables.learning import LearningTable
from htsrl.bench.tasks import Task
from htsrl.bench.verdict import Verdict
from htsrl.config import A2C, Config, Experiment, Placement
from htsrl.errors import ConfigError, RunFolderError
from htsrl.roles.completion import Completion
from htsrl.run_lock import RunLock
from htsrl.train import train

REPOSITORY = Path(next(iter(htsrl.__path__))).parent


def learned_run(way: str, seed: int, score: float = 0.0, curve: tuple[tuple[int, float], ...] = ((0, 0.0),)) -> Learned:
    timed = tuple((step, mean, 0.1 * step) for step, mean in curve)
    return Learned(way, seed, score, 0.0, "digest", 1, 1.0, "htsrl train", None, timed)


def test_the_mean_over_a_run_weighs_returns_by_steps() -> None:
    # 10 on average over the first 100 steps, 20 over the next 300.
    assert learned_run("hts", 1, curve=((100, 10.0), (200, 10.0), (500, 30.0))).mean_over_run == pytest.approx(17.5)
    assert learned_run("hts", 1, curve=((100, 10.0),)).mean_over_run == 10.0


def test_a_verdict_counts_goals_and_compares_areas_and_scores() -> None:
    learned = [
        learned_run("hts", 1, score=500, curve=((0, 100.0), (1, 100.0))),
        learned_run("sync", 1, score=475, curve=((0, 90.0), (1, 90.0))),
        learned_run("hts", 2, score=474, curve=((0, 120.0), (1, 120.0))),
        learned_run("sync", 2, score=10, curve=((0, 130.0), (1, 130.0))),
    ]

    verdict = Verdict.of(Task("t", Experiment("CartPole-v1"), goal=475), learned)

    assert verdict.reached == {"hts": 1, "sync": 1}
    assert verdict.over_run.means == {"hts": 110.0, "sync": 110.0}
    assert verdict.over_run.differences["sync"].within_noise
    assert "within noise" in verdict.sentences()[1]
    assert verdict.scores.differences["sync"].mean == pytest.approx(487 - 242.5)
    assert not Verdict.of(Task("t", Experiment("CartPole-v1"), goal=475), learned[:2]).over_run.differences


def test_the_bootstrap_interval_is_that_of_normal_theory_for_large_samples() -> None:
    generator = np.random.default_rng(3)
    ours, theirs = generator.normal(1.0, 2.0, 400), generator.normal(0.0, 1.0, 300)

    difference = bootstrap_difference(ours.tolist(), theirs.tolist())

    half_width = 1.96 * float(np.sqrt(ours.var() / 400 + theirs.var() / 300))
    assert difference.mean == pytest.approx(ours.mean() - theirs.mean())
    assert difference.high - difference.mean == pytest.approx(half_width, rel=0.05)
    assert difference.mean - difference.low == pytest.approx(half_width, rel=0.05)
    assert not difference.within_noise


def test_an_unknown_way_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(ConfigError, match="async-uncorrected"):
        LearningTable(ways=("hts", "whenever")).run()


def test_an_unknown_task_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(ConfigError, match="cartpole-ppo"):
        LearningTable(tasks=("cartpole-ppo", "chess")).run()


def test_bench_learning_trains_evaluates_and_draws(tmp_path: Path) -> None:
    script = """
from htsrl.bench.tasks import TASKS, Task
from htsrl.cli import main
from htsrl.config import A2C, Experiment
TASKS["tiny"] = Task("tiny", Experiment("CartPole-v1", algorithm=A2C(), sync_interval=16, total_steps=5_000), goal=5)
ways = ["hts", "sync", "async-uncorrected"]
where = ["--placement", "inline", "--output", OUTPUT, "--finished-runs", f"{OUTPUT}/runs"]
main(["bench", "learning", "--tasks", "tiny", "--seeds", "1", "2", "--ways", *ways, *where])
"""
    ended = _python(script.replace("OUTPUT", repr(str(tmp_path))))
    again = _python(script.replace("OUTPUT", repr(str(tmp_path))))

    assert ended.returncode == 0, ended.stderr
    assert again.returncode == 0, again.stderr
    assert "score" in ended.stderr
    assert "kept" not in ended.stderr
    assert again.stderr.count("kept from before") == 6
    first, second = sorted(tmp_path.glob("*-learning-tiny*.json"), key=lambda path: path.stat().st_mtime)
    assert json.loads(first.read_text())["repetitions"] == json.loads(second.read_text())["repetitions"]
    assert "[6/6] tiny, async-uncorrected, seed 2 ... score" in ended.stderr
    assert "95 % interval" in ended.stdout
    record = first
    assert record.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "htsrl train CartPole-v1 --algo a2c" in record.with_suffix(".md").read_text()
    document = json.loads(record.read_text())
    assert document["summary"]["reached"] == {"hts": 2, "sync": 2, "async-uncorrected": 2}
    runs = document["repetitions"]
    assert len({run["digest"] for run in runs}) == 6
    assert all(len(run["curve"]) >= 3 for run in runs)
    assert str(tmp_path) not in record.read_text()


def test_a_run_that_has_finished_is_found_again_and_no_other(tmp_path: Path) -> None:
    finished, run = FinishedRuns(tmp_path / "runs"), learned_run("hts", 1, 2.5, ((0, 1.0), (10, 2.0)))
    config = Config(Experiment("CartPole-v1", algorithm=A2C()))
    finished.prepare()
    finished.put("tiny", config, run)
    assert finished.find("tiny", config) == run
    assert finished.find("another", config) is None
    assert FinishedRuns(None).find("tiny", config) is None
    for other in (
        Config(Experiment("CartPole-v1", algorithm=A2C(learning_rate=0.1))),
        Config(config.experiment, Placement(backend="inline")),
    ):
        with pytest.raises(ConfigError, match="choose another folder"):
            finished.find("tiny", other)


def tiny_learning(folder: Path | None) -> Learning:
    placement = Placement(backend="inline", tensorboard=False)
    return Learning(ways=("hts",), seeds=(1,), placement=placement, finished=FinishedRuns(folder))


TINY = Task("tiny", Experiment("CartPole-v1", algorithm=A2C(), sync_interval=16, total_steps=5_000), goal=5)


def test_a_run_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, complete = [], Completion.complete

    def stop_once(self: Completion, rollout: int) -> None:
        made.append(rollout)
        if len(made) == 8:
            raise KeyboardInterrupt
        complete(self, rollout)

    [undisturbed] = tiny_learning(None).learn(TINY, Announcer(1))
    monkeypatch.setattr(Completion, "complete", stop_once)
    with pytest.raises(KeyboardInterrupt):
        tiny_learning(tmp_path).learn(TINY, Announcer(1))
    [resumed] = tiny_learning(tmp_path).learn(TINY, Announcer(1))
    assert resumed.digest == undisturbed.digest
    assert resumed.score == undisturbed.score
    assert made == [*range(8), *range(7, TINY.experiment.num_intervals)]
    assert resumed.commit is None or resumed.commit.endswith(", begun before")
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-hts-seed-1.json"]


LEARNS_TINY = """
from htsrl.bench.announcer import Announcer
from htsrl.bench.finished_runs import FinishedRuns
from htsrl.bench.learning import Learning
from htsrl.bench.tasks import Task
from htsrl.config import A2C, Experiment, Placement

task = Task("tiny", Experiment("CartPole-v1", algorithm=A2C(), sync_interval=16, total_steps=5_000), goal=5)
Learning(("hts",), (1,), Placement(backend="inline", tensorboard=False), FinishedRuns(None)).learn(task, Announcer(1))
"""


def test_on_a_terminal_a_run_shows_how_far_it_has_come() -> None:
    shown = screen_after(run_on_terminal(LEARNS_TINY, columns=120).terminal, columns=120)
    assert shown[0].rstrip() == "[1/1] tiny, hts, seed 1 ..."
    assert any("5,120/5,120 steps" in row for row in shown)
    assert any(row.startswith("score ") for row in shown)


def test_elsewhere_there_is_one_line_for_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    tiny_learning(None).learn(TINY, Announcer(1))
    assert re.fullmatch(r"\[1/1\] tiny, hts, seed 1 \.\.\. score [0-9.]+\n", capsys.readouterr().err)


def test_a_run_that_left_nothing_begins_anew(tmp_path: Path) -> None:
    config = Config(TINY.experiment, Placement(backend="inline", progress="off", run_dir=tmp_path / "run"))
    (tmp_path / "run").mkdir()
    assert not train_or_go_on(config)
    assert train_or_go_on(config)


def test_a_run_that_was_killed_in_its_first_checkpoint_begins_anew(tmp_path: Path) -> None:
    script = """
from pathlib import Path
from htsrl.bench.learning import train_or_go_on
from htsrl.config import A2C, Config, Experiment, Placement
experiment = Experiment("CartPole-v1", algorithm=A2C(), sync_interval=16, total_steps=5_000)
print(train_or_go_on(Config(experiment, Placement(backend="inline", progress="off", run_dir=Path(RUN_DIR)))))
""".replace("RUN_DIR", repr(str(tmp_path / "run")))
    assert _python(script, HTSRL_KILL_AT="checkpoint written:1").returncode == -signal.SIGKILL
    assert [path.name[:5] for path in (tmp_path / "run/checkpoints").iterdir()] == [".tmp-"]
    again = _python(script)
    assert (again.returncode, again.stdout) == (0, "False\n"), again.stderr


def test_a_begun_run_of_other_settings_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    begun = Config(TINY.experiment, Placement(backend="inline", progress="off", run_dir=tmp_path / "tiny-hts-seed-1"))
    train(replace(begun, experiment=replace(TINY.experiment, seed=7)))
    with pytest.raises(ConfigError, match="other settings"):
        tiny_learning(tmp_path).found(TINY, "hts", 1)


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_run_that_somebody_else_works_on_is_left_alone(tmp_path: Path, has_begun: bool) -> None:
    run_dir = tmp_path / "run"
    config = Config(TINY.experiment, Placement(backend="inline", progress="off", run_dir=run_dir))
    if has_begun:
        train(config)
        (run_dir / "result.json").unlink()
    else:
        run_dir.mkdir()
    with RunLock.acquire(run_dir), pytest.raises(RunFolderError, match="in use"):
        train_or_go_on(config)
    assert (run_dir / "checkpoints").exists() == has_begun


def test_half_a_run_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "cartpole-ppo-sync-seed-5.json").write_text('{"way": "sy')
    with pytest.raises(ConfigError, match=r"cartpole-ppo-sync-seed-5\.json.*remove it"):
        LearningTable(finished_runs=tmp_path).run()


def test_a_folder_that_takes_no_files_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="takes no files"):
        LearningTable(finished_runs=tmp_path / "file").run()


def test_a_full_disk_costs_the_file_and_not_the_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    FinishedRuns(tmp_path).put("tiny", Config(Experiment("CartPole-v1")), learned_run("hts", 1))
    assert "No space left on device" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def _python(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **variables, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])}
    command = [sys.executable, "-c", script]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
