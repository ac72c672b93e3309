"""`htsrl bench learning`: runs are compared, and kept until all have finished."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, get_origin, get_type_hints

import pytest
from terminal_run import run_on_terminal, screen_after

import htsrl
from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.ppo import PPO
from htsrl.config import Config, Experiment, Placement
from htsrl.errors import ConfigError, HtsrlError, RunFolderError
from htsrl.roles.rollout_finisher import RolloutFinisher
from htsrl.runs.lock import RunLock
from htsrl.source_hashes import code_hashes, in_one
from htsrl.statistics.curve import mean_over
from htsrl.train import train
from htsrl_bench.announcer import Announcer
from htsrl_bench.finished_runs import FinishedRuns
from htsrl_bench.learned import MAX_POINTS, Learned
from htsrl_bench.learning import Learning, train_or_go_on
from htsrl_bench.peers import sb3_learning
from htsrl_bench.peers.sb3_learning import SB3
from htsrl_bench.tables.learning import LearningTable
from htsrl_bench.tasks import TASKS, Task
from htsrl_bench.verdict import Verdict
from htsrl_bench.ways import WAYS

REPOSITORY = Path(next(iter(htsrl.__path__))).parent


def learned_run(way: str, seed: int, score: float = 0.0, curve: tuple[tuple[int, float], ...] = ((0, 0.0),)) -> Learned:
    timed = tuple((step, mean, 0.1 * step) for step, mean in curve)
    return Learned(way, seed, score, 0.0, "digest", 1, 1.0, "htsrl train", None, mean_over(timed), timed)


def test_the_mean_over_a_run_weighs_returns_by_steps() -> None:
    # 10 on average over the first 100 steps, 20 over the next 300.
    assert learned_run("hts", 1, curve=((100, 10.0), (200, 10.0), (500, 30.0))).mean_over_run == pytest.approx(17.5)
    assert learned_run("hts", 1, curve=((100, 10.0),)).mean_over_run == 10.0


def test_a_verdict_counts_goals_and_compares_areas_and_scores_seed_by_seed() -> None:
    learned = [
        learned_run("hts", 1, score=500, curve=((0, 110.0), (1, 110.0))),
        learned_run("sync", 2, score=10, curve=((0, 130.0), (1, 130.0))),
        learned_run("hts", 2, score=474, curve=((0, 150.0), (1, 150.0))),
        learned_run("sync", 1, score=475, curve=((0, 90.0), (1, 90.0))),
    ]

    verdict = Verdict.of(475, learned)

    assert verdict.num_seeds == 2
    assert verdict.reached == {"hts": 1, "sync": 1}
    assert verdict.over_run.means == {"hts": 130.0, "sync": 110.0}
    difference = verdict.over_run.differences["sync"]
    assert (difference.mean, difference.num_seeds, difference.is_constant) == (20.0, 2, True)
    assert verdict.sentences()[1] == "hts less sync is +20 on each of 2 seeds."
    # Differences 25 and 464: 244.5 +- 12.706 * 219.5.
    assert verdict.sentences()[3] == (
        "hts less sync is +244.5, 95 % interval -2545 to +3034 (Student's t over 2 paired seeds): no difference shown."
    )
    assert not Verdict.of(475, [learned[0], learned[3]]).over_run.differences


def test_a_verdict_says_which_way_is_higher_where_the_interval_shows_it() -> None:
    learned = [learned_run("hts", seed, score=10.0 + seed) for seed in (1, 2, 3)]
    worse = [learned_run("sync", seed, score=5.0 + 1.1 * seed) for seed in (1, 2, 3)]
    better = [learned_run("sync", seed, score=15.0 + 1.1 * seed) for seed in (1, 2, 3)]

    assert Verdict.of(0, [*learned, *worse]).sentences()[-1].endswith("hts is higher.")
    assert Verdict.of(0, [*learned, *better]).sentences()[-1].endswith("hts is lower.")


def test_a_record_has_fewer_points_of_a_curve_and_the_mean_of_all() -> None:
    curve = tuple((step, float(step % 7)) for step in range(1000))
    run = learned_run("hts", 1, curve=curve)

    document = json.loads(json.dumps(run.document()))

    assert len(document["curve"]) <= MAX_POINTS + 1
    assert Learned.from_document(document).mean_over_run == run.mean_over_run
    assert Learned.from_document({k: v for k, v in asdict(run).items() if k != "mean_over_run"}) == run


def test_an_unknown_way_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(ConfigError, match="async-uncorrected"):
        LearningTable(ways=("hts", "whenever")).run()


def test_an_unknown_task_is_refused_before_anything_is_trained() -> None:
    with pytest.raises(ConfigError, match="cartpole-ppo"):
        LearningTable(tasks=("cartpole-ppo", "chess")).run()


def test_stable_baselines_is_asked_only_for_what_it_is_given_the_settings_of(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="way sb3 knows the tasks pendulum-sac, halfcheetah-sac, not cartpole-ppo"):
        LearningTable(tasks=("cartpole-ppo",), ways=("hts", "sb3"), venvs=tmp_path).run()
    assert not list(tmp_path.iterdir())


def test_what_stable_baselines_learned_is_kept_like_any_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fake.py").write_text(FAKE_SB3)
    fake = replace(sb3_learning.PEER, off_policy_module="fake", scripts=tmp_path)
    monkeypatch.setattr(sb3_learning, "PEER", fake)
    task = TASKS["pendulum-sac"]
    learning = replace(
        tiny_learning(tmp_path),
        ways=("sb3",),
        stable_baselines=sb3_learning.StableBaselines(Path(sys.executable), "2"),
    )

    [learned] = learning.learn(task, Announcer(1))

    assert (learned.way, learned.steps, learned.score, learned.mean_over_run) == ("sb3", 10_000, -150.0, -600.0)
    assert learned.steps_per_second == 500
    (tmp_path / "fake.py").write_text("raise SystemExit('no such module')")
    assert learning.learn(task, Announcer(1)) == [learned]
    with pytest.raises(HtsrlError, match="Stable-Baselines3 did not train Pendulum-v1: no such module"):
        replace(learning, finished=FinishedRuns(None)).learn(task, Announcer(1))


FAKE_SB3 = """
import json, sys
steps = json.load(open(sys.argv[1]))["total_steps"]
found = {"score": -150.0, "score_deviation": 1.0, "curve": [[0, -1000.0, 0.0], [steps, -200.0, 20.0]]}
json.dump(found, open("learned.json", "w"))
"""


def test_bench_learning_trains_evaluates_and_draws(tmp_path: Path) -> None:
    script = """
from htsrl_bench.tasks import TASKS, Task
from htsrl_bench.ways import WAYS
from htsrl.cli.main import main
from htsrl.algorithms.a2c import A2C
from htsrl.config import Experiment
TASKS["tiny"] = Task("tiny", Experiment("CartPole-v1", algorithm=A2C(), sync_interval=16, total_steps=5_000), goal=5)
ways = ["hts", "sync", "async-uncorrected"]
where = ["--placement", "inline", "--output", OUTPUT, "--finished-runs", f"{OUTPUT}/runs"]
main(["bench", "learning", "--tasks", "tiny", "--seeds", "1", "2", "--ways", *ways, *where])
"""
    ended = _python(script.replace("OUTPUT", repr(str(tmp_path))))
    record = tmp_path / "learning-tiny.json"
    first = json.loads(record.read_text())
    again = _python(script.replace("OUTPUT", repr(str(tmp_path))))

    assert ended.returncode == 0, ended.stderr
    assert again.returncode == 0, again.stderr
    assert "score" in ended.stderr
    assert "kept" not in ended.stderr
    assert again.stderr.count("kept from before") == 6
    document = json.loads(record.read_text())
    assert document["repetitions"] == first["repetitions"]
    assert "[6/6] tiny, async-uncorrected, seed 2 ... score" in ended.stderr
    assert "95 % interval" in ended.stdout
    assert record.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert "htsrl train CartPole-v1 --algo a2c" in record.with_suffix(".md").read_text()
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


# Whose number of minibatches htsrl chooses: a folder has it, and the task has not.
TINY = Task("tiny", Experiment("CartPole-v1", algorithm=PPO(epochs=1), sync_interval=16, total_steps=5_000), goal=5)


def test_a_run_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, complete = [], RolloutFinisher.complete

    def stop_once(self: RolloutFinisher, rollout: int) -> None:
        made.append(rollout)
        if len(made) == 8:
            raise KeyboardInterrupt
        complete(self, rollout)

    [undisturbed] = tiny_learning(None).learn(TINY, Announcer(1))
    monkeypatch.setattr(RolloutFinisher, "complete", stop_once)
    with pytest.raises(KeyboardInterrupt):
        tiny_learning(tmp_path).learn(TINY, Announcer(1))
    [resumed] = tiny_learning(tmp_path).learn(TINY, Announcer(1))
    assert resumed.digest == undisturbed.digest
    assert resumed.score == undisturbed.score
    assert made == [*range(8), *range(7, TINY.experiment.num_intervals)]
    assert resumed.commit is None or resumed.commit.endswith(", begun before")
    assert resumed.code == undisturbed.code == in_one(code_hashes())
    assert [path.name for path in tmp_path.iterdir()] == ["tiny-hts-seed-1.json"]


LEARNS_TINY = """
from htsrl_bench.announcer import Announcer
from htsrl_bench.finished_runs import FinishedRuns
from htsrl_bench.learning import Learning
from htsrl_bench.tasks import TASKS, Task
from htsrl_bench.ways import WAYS
from htsrl.algorithms.a2c import A2C
from htsrl.config import Experiment, Placement

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
from typing import Annotated, get_origin, get_type_hints
from htsrl_bench.learning import train_or_go_on
from htsrl.algorithms.a2c import A2C
from htsrl.config import Config, Experiment, Placement
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
    with pytest.raises(ConfigError, match=r"other settings \(seed: 7 -> 1\)"):
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


def test_its_help_names_every_task_and_way() -> None:
    hints = get_type_hints(LearningTable, include_extras=True)
    told = {name: str(hint.__metadata__) for name, hint in hints.items() if get_origin(hint) is Annotated}
    assert [task for task in TASKS if task not in told["tasks"]] == []
    assert [way for way in [*WAYS, "lag-K", SB3] if way not in told["ways"]] == []
