"""The suite of learning tasks: what is compared with what, and that nothing is trained twice."""

from __future__ import annotations

import json
import os
import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from htsrl import A2C, Config, ConfigError, Experiment, HtsrlError, Placement
from htsrl.config.algorithm_settings import algorithm_name
from htsrl.config.check import check
from htsrl_bench import suite, works
from htsrl_bench.finished_runs import FinishedRuns
from htsrl_bench.learned import Learned
from htsrl_bench.learning import Learning
from htsrl_bench.parallel_learning import LearningJob, learn_ahead
from htsrl_bench.plots import QUIET_COLOUR, colours_of
from htsrl_bench.suite import CHOOSING, OFFERED, SUITE, SuiteTask, suite_tasks
from htsrl_bench.suite_plot import draw_suite
from htsrl_bench.suite_verdict import RECORDED_POINTS, TaskVerdict, aggregate, learnable, tables
from htsrl_bench.tables.suite import SuiteTable


def learned(way: str, seed: int, first: float, final: float) -> Learned:
    curve = ((100, first, 1.0), (900, final, 2.0), (1000, final, 3.0))
    return Learned(way, seed, final, 0.0, "digest", 1000, 100.0, "htsrl train", None, (first + final) / 2, curve)


def verdict(name: str, sync: list[float], hts: list[float], first: float = 0.0) -> TaskVerdict:
    runs = [learned("sync", seed, first, value) for seed, value in enumerate(sync)]
    return TaskVerdict.of(name, [*runs, *(learned("hts", seed, first, value) for seed, value in enumerate(hts))])


def test_scores_are_normalised_by_what_the_baseline_has_learned() -> None:
    task = verdict("a", sync=[110.0, 90.0], hts=[60.0, 85.0], first=50.0)
    assert task.first == 50.0
    assert task.scale == 50.0
    assert task.normalised("hts") == [0.2, 0.7]
    assert task.less_baseline(task.final, "hts").mean == pytest.approx(-27.5)  # type: ignore[union-attr]


def test_a_task_is_worse_only_if_that_is_shown_for_all_tasks_together() -> None:
    lower = verdict("lower", [100.0, 101.0, 102.0], [90.0, 91.0, 92.5])
    noisy = verdict("noisy", [100.0, 101.0, 102.0], [50.0, 151.0, 90.0])
    higher = verdict("higher", [10.0, 11.0, 12.0], [20.0, 21.0, 22.5])
    found = aggregate([lower, noisy, higher], "hts")
    assert (found.less["sync"].lower, found.less["sync"].higher) == (["lower"], ["higher"])
    assert found.improvement == pytest.approx((0 + 1 / 3 + 1) / 3)
    # By itself its interval leaves out 0 (p = 0.035), but not as one of three: 0.05 / 2 at best.
    doubtful = verdict("doubtful", [100.0, 101.0, 102.0], [97.0, 99.0, 98.0])
    assert not doubtful.less_baseline(doubtful.final, "hts").has_zero  # type: ignore[union-attr]
    assert aggregate([lower, noisy, doubtful], "hts").less["sync"].lower == ["lower"]
    assert aggregate([doubtful], "hts").less["sync"].lower == ["doubtful"]
    assert aggregate([lower, noisy, higher], "sync").improvement == 0.5
    assert not aggregate([lower, noisy, higher], "sync").less


def test_ways_are_compared_over_all_tasks_by_what_their_seeds_have_in_common() -> None:
    # sync differs by 10 between its seeds, and hts is 1 lower on each, or close to it.
    tasks = [verdict(name, [90.0, 100.0, 110.0], [89.0, 99.1, 108.9]) for name in ("a", "b")]
    less = aggregate(tasks, "hts").less["sync"].iqm
    assert less is not None
    assert less.mean == pytest.approx(-0.01, abs=1e-3)
    assert less.low > -0.015
    assert less.high < -0.005


def test_what_the_baseline_gains_by_less_than_its_seeds_differ_is_no_scale() -> None:
    assert verdict("gained", [10.0, 11.0, 12.0], [1.0, 1.0, 1.0]).has_learned
    assert not verdict("noise", [0.1, 3.0, -2.0], [1.0, 1.0, 1.0]).has_learned
    assert verdict("one seed", [0.1], [1.0]).has_learned
    assert not verdict("one seed", [-0.1], [1.0]).has_learned


def test_tasks_on_which_the_baseline_learned_nothing_are_left_out_and_named(tmp_path: Path) -> None:
    tasks = [verdict("flat", [1.0, 1.0], [1.0, 2.0], first=1.0), verdict("learned", [5.0, 5.1], [5.0, 7.0])]
    assert [task.name for task in learnable(tasks)] == ["learned"]
    differences, means, by_task = tables(tasks, ("sync", "hts"))
    assert "Left out, for sync learned nothing there that its seeds show: flat." in means.notes[0]
    assert differences.rows[0][0] == "hts less sync"
    assert [row[0] for row in by_task.rows] == ["flat", "learned"]
    alone = [verdict("learned", [5.0], [5.0])]
    assert "too few seeds for an interval" in tables(alone, ("sync", "hts"))[0].rows[0][1]
    draw_suite("some", tasks, ("sync", "hts"), tmp_path / "some.png")
    assert (tmp_path / "some.png").read_bytes().startswith(b"\x89PNG")


def test_every_way_has_a_colour_of_its_own() -> None:
    ways = [*OFFERED["ppo"], *OFFERED["a2c"][2:4], "lag-2", "lag-3", "lag-4"]
    colours = [*colours_of(ways).values(), QUIET_COLOUR]
    assert len({*colours}) == len(colours)


def test_what_is_chosen_on_some_tasks_is_confirmed_on_others() -> None:
    choosing, confirming = (
        {task.name for task in suite_tasks((group,), "ppo")} for group in ("choosing", "confirming")
    )
    assert choosing == {f"{name}-ppo" for name in CHOOSING}
    assert not choosing & confirming
    assert choosing | confirming == {name for name in SUITE if name.endswith("-ppo")}
    assert suite_tasks(("hopper", "choosing"), "a2c")[0] is SUITE["hopper-a2c"]
    with pytest.raises(ConfigError, match="task 'chess' is not known for a2c; choose among choosing, confirming"):
        suite_tasks(("chess",), "a2c")


def test_runs_on_several_cores_are_kept_and_not_trained_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = Experiment("CartPole-v1", algorithm=A2C(), num_envs=2, total_steps=400)
    monkeypatch.setattr(suite, "SUITE", {"tiny-a2c": SuiteTask("tiny-a2c", tiny)})
    command = SuiteTable(("tiny",), "a2c", seeds=(1,), parallel=2, finished_runs=tmp_path / "runs", output=tmp_path)
    assert command.run() == 0
    record = json.loads((tmp_path / "suite-a2c-tiny.json").read_text())
    assert {*record["summary"]["tasks"][0]["final"]} == {"sync", "hts"}
    assert [(run["task"], run["way"], run["seed"]) for run in record["repetitions"]] == [
        ("tiny-a2c", "sync", 1),
        ("tiny-a2c", "hts", 1),
    ]
    assert all(re.fullmatch("[0-9a-f]{32}", run["digest"]) for run in record["repetitions"])
    assert all(1 <= len(run["curve"]) <= RECORDED_POINTS + 1 for run in record["repetitions"])
    capsys.readouterr()
    assert replace(command, parallel=1).run() == 0
    assert "2 of 2 runs have finished before" in capsys.readouterr().err


def deadly() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def test_a_run_whose_process_was_killed_is_named(tmp_path: Path) -> None:
    task = SuiteTask("deadly-a2c", Experiment(deadly, algorithm=A2C(), num_envs=2, total_steps=400))
    placement = Placement(backend="inline", tensorboard=False, check_env=False)
    learning = Learning(("sync",), (1,), placement, FinishedRuns(tmp_path), evaluation_episodes=1)
    with pytest.raises(HtsrlError, match="the process of deadly-a2c, sync, seed 1 was killed; the same command"):
        learn_ahead(learning, [LearningJob(task, "sync", 1)], parallel=1)


def test_the_first_run_that_fails_is_named_and_no_other_is_begun(tmp_path: Path) -> None:
    # The first ends before its first episode, which is no learning curve; the second could be learned.
    short, whole = (
        SuiteTask(f"{steps}-a2c", Experiment("CartPole-v1", algorithm=A2C(), num_envs=2, total_steps=steps))
        for steps in (10, 400)
    )
    placement = Placement(backend="inline", tensorboard=False, check_env=False)
    learning = Learning(("sync",), (1,), placement, FinishedRuns(tmp_path), evaluation_episodes=1)
    jobs = [LearningJob(task, "sync", seed) for task in (short, whole) for seed in (1, 2)]
    with pytest.raises(HtsrlError, match="10-a2c, sync, seed 1: no episode ended during the run"):
        learn_ahead(learning, jobs, parallel=1)
    assert [path.name for path in tmp_path.iterdir()] == ["10-a2c-sync-seed-1"]


@pytest.mark.parametrize(
    ("ways", "complaint"),
    [
        (("sync", "async"), "way async has the lag of who happens to be quicker"),
        (("sync", "hts-vtrace"), "way hts-vtrace is not for ppo in a suite; use sync, hts, "),
        (("hts",), "sync among the ways"),
        (("sync", "whenever"), "way 'whenever' is not known"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_trained(
    tmp_path: Path, ways: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(ConfigError, match=complaint):
        SuiteTable(("cartpole", "halfcheetah"), ways=ways, finished_runs=tmp_path, output=tmp_path).run()
    assert not list(tmp_path.iterdir())


def test_an_environment_that_cannot_be_made_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = {
        name: SuiteTask(name, Experiment(env, algorithm=A2C()))
        for name, env in {"cartpole-a2c": "CartPole-v1", "chess-a2c": "Chess-v0"}.items()
    }
    monkeypatch.setattr(suite, "SUITE", tasks)
    with pytest.raises(ConfigError, match="'Chess-v0' is not a registered environment"):
        SuiteTable(("all",), "a2c", finished_runs=tmp_path, output=tmp_path).run()
    assert not list(tmp_path.iterdir())


def test_tasks_whose_simulator_is_missing_are_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = Experiment("CartPole-v1", algorithm=A2C(), num_envs=2, total_steps=400)
    tasks = {name: SuiteTask(name, tiny) for name in ("cartpole-a2c", "lunar-lander-a2c")}
    monkeypatch.setattr(suite, "SUITE", tasks)
    monkeypatch.setitem(works.PACKAGES, "lunar", "no_such_package")
    SuiteTable(("all",), "a2c", seeds=(1,), finished_runs=tmp_path / "runs", output=tmp_path).run()
    assert "lunar-lander-a2c" in capsys.readouterr().err.splitlines()[0]
    said = (tmp_path / "suite-a2c.md").read_text()
    assert "Left out, for the simulator is not installed: lunar-lander-a2c." in said
    assert json.loads((tmp_path / "suite-a2c.json").read_text())["summary"]["tasks"][0]["name"] == "cartpole-a2c"


@pytest.mark.parametrize("task", SUITE.values(), ids=SUITE)
def test_every_task_can_be_learned_in_every_way_that_is_offered(task: SuiteTask) -> None:
    for way in OFFERED[algorithm_name(task.experiment.algorithm)]:
        checked = check(Config(task.with_seed(1, way), Placement(backend="inline")))
        assert checked.experiment.schedule == ("sync" if way == "sync" else "hts")


def test_a_task_can_be_cut_short() -> None:
    task = SUITE["cartpole-ppo"]
    assert task.with_at_most(None) is task.with_at_most(10**9) is task
    assert task.with_at_most(5000).with_seed(3, "sync").total_steps == 5000
