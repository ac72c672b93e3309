"""The suite of learning tasks: what is compared with what, and that nothing is trained twice."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from htsrl import A2C, ConfigError, Experiment
from htsrl_bench import suite
from htsrl_bench.learned import Learned
from htsrl_bench.suite import CHOOSING, SUITE, SuiteTask, suite_tasks
from htsrl_bench.suite_plot import draw_suite
from htsrl_bench.suite_verdict import TaskVerdict, aggregate, learnable, tables
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


def test_a_task_is_worse_only_by_an_interval_that_leaves_out_zero() -> None:
    lower = verdict("lower", [100.0, 101.0, 102.0], [90.0, 91.0, 92.5])
    noisy = verdict("noisy", [100.0, 101.0, 102.0], [50.0, 151.0, 90.0])
    higher = verdict("higher", [10.0, 11.0, 12.0], [20.0, 21.0, 22.5])
    found = aggregate([lower, noisy, higher], "hts")
    assert (found.worse, found.better) == (["lower"], ["higher"])
    assert found.improvement == pytest.approx((0 + 1 / 3 + 1) / 3)
    assert found.iqm_low is not None
    assert found.iqm_high is not None
    assert found.iqm_low < found.iqm < found.iqm_high
    assert aggregate([lower, noisy, higher], "sync").improvement == 0.5


def test_tasks_on_which_the_baseline_learned_nothing_are_left_out_and_named(tmp_path: Path) -> None:
    tasks = [verdict("flat", [1.0, 1.0], [1.0, 2.0], first=1.0), verdict("learned", [5.0, 6.0], [5.0, 7.0])]
    assert [task.name for task in learnable(tasks)] == ["learned"]
    overall, by_task = tables(tasks, ("sync", "hts"))
    assert "Left out, for sync learned nothing there: flat." in overall.notes[0]
    assert [row[0] for row in by_task.rows] == ["flat", "learned"]
    alone = [verdict("learned", [5.0], [5.0])]
    assert "too few seeds for an interval" in tables(alone, ("sync", "hts"))[0].rows[1][1]
    draw_suite("some", tasks, ("sync", "hts"), tmp_path / "some.png")
    assert (tmp_path / "some.png").read_bytes().startswith(b"\x89PNG")


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
    capsys.readouterr()
    assert replace(command, parallel=1).run() == 0
    assert "2 of 2 runs have finished before" in capsys.readouterr().err
