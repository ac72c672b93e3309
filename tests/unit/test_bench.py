"""Benchmarks write down what they measured, how to repeat it, and nothing about whose machine it was."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

import htsrl
from htsrl.algorithms.a2c import A2C
from htsrl.algorithms.ppo import PPO
from htsrl.cli.train import plain
from htsrl.config import Config, Experiment, Network, Placement
from htsrl.config.command_line import train_command
from htsrl.envs.check.claims import StepTime
from htsrl.errors import ConfigError
from htsrl.source_hashes import code_hashes, in_one
from htsrl_bench import keeping, restart
from htsrl_bench.command_line import bench_command
from htsrl_bench.live_run import Update, rate
from htsrl_bench.provenance import Provenance
from htsrl_bench.record import Record, Summary, Table, write_record
from htsrl_bench.sleeping import Measured, SleepingBench, rows
from htsrl_bench.tables.keeping import KeepingTable
from htsrl_bench.tables.learning import LearningTable
from htsrl_bench.tables.sleeping import SleepingTable
from htsrl_bench.tasks import TASKS, Task
from htsrl_bench.ways import WAYS, Way

REPOSITORY = Path(next(iter(htsrl.__path__))).parent
SECRET_HOST = "secret-host-name"


# The record


def test_a_record_holds_what_a_reader_needs_to_judge_and_repeat_it(tmp_path: Path) -> None:
    path = write_record(_record(tmp_path), tmp_path / "new" / "folder")

    document = json.loads(path.read_text())
    assert document["command"] == "htsrl bench sleeping"
    assert document["configs"]["hts"]["experiment"]["env"] == "CartPole-v1"
    assert document["repetitions"] == [{"config": "hts", "steps_per_second": 10.5}]
    assert document["summary"] == {"median": 10.5}
    assert document["cpu"]
    assert document["cores"] >= 1
    assert document["memory_gib"] > 0
    assert set(document["versions"]) == {"python", "torch", "numpy", "gymnasium", "htsrl"}
    assert document["code"] == in_one(code_hashes())
    assert f", code of htsrl {document['code']}\n" in path.with_suffix(".md").read_text()
    assert path.name == "sleeping.json"
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", document["date"])
    assert f"- {document['date']}\n" in path.with_suffix(".md").read_text()
    assert "| alpha | steps/s |" in path.with_suffix(".md").read_text()


def test_a_record_tells_neither_paths_nor_the_name_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "node", lambda: SECRET_HOST)
    monkeypatch.setattr(socket, "gethostname", lambda: SECRET_HOST)

    path = write_record(_record(tmp_path), tmp_path / "benchmarks")

    for file in path.parent.iterdir():
        for secret in (str(tmp_path), str(REPOSITORY), str(Path.home()), sys.prefix, SECRET_HOST, os.uname().nodename):
            assert not re.search(rf"(?<!\w){re.escape(secret)}(?!\w)", file.read_text()), f"{file.name} tells {secret}"


def test_a_record_takes_the_place_of_the_older_one_of_its_name(tmp_path: Path) -> None:
    older, newer = _record(tmp_path), replace(_record(tmp_path), summary={"median": 11.5})
    write_record(older, tmp_path)
    write_record(replace(older, name="sleeping-less"), tmp_path)
    path = write_record(newer, tmp_path)

    assert json.loads(path.read_text())["summary"] == {"median": 11.5}
    assert sorted(file.name for file in tmp_path.glob("*.json")) == ["sleeping-less.json", "sleeping.json"]


def test_a_record_shows_its_picture(tmp_path: Path) -> None:
    path = write_record(_record(tmp_path), tmp_path, draw=lambda picture: picture.touch())

    assert path.with_suffix(".png").exists()
    assert f"]({path.stem}.png)" in path.with_suffix(".md").read_text()


def test_a_number_that_json_cannot_hold_is_refused(tmp_path: Path) -> None:
    broken = replace(_record(tmp_path), repetitions=[{"steps_per_second": float("nan")}])

    with pytest.raises(ValueError, match="not JSON compliant"):
        write_record(broken, tmp_path / "benchmarks")


def test_the_commit_is_left_out_where_htsrl_is_not_in_its_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "htsrl").mkdir()
    (tmp_path / "htsrl" / "__init__.py").touch()
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    identity = ["-c", "user.name=nobody", "-c", "user.email=nobody@example.com"]
    subprocess.run(["git", *identity, "commit", "-q", "--allow-empty", "-m", "another"], cwd=tmp_path, check=True)
    monkeypatch.setattr(htsrl, "__file__", str(tmp_path / "htsrl" / "__init__.py"))

    assert Provenance.take().commit is None


def test_a_summary_is_the_median_and_the_extremes() -> None:
    assert Summary.of([30.0, 10.0, 20.0]) == Summary(median=20.0, lowest=10.0, highest=30.0)
    assert str(Summary.of([2000.4, 1900, 2500])) == "2,000 (1,900 to 2,500)"


# Command lines


def knows(algorithm: Any, way: Way) -> bool:
    own = {"a2c": {"importance", "vtrace"}, "ppo": {"recentered", "decoupled", "delayed_update"}}
    return way.lag_correction in {"auto", *(("none", *own[algorithm.name]) if algorithm.name in own else ())}


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
@pytest.mark.parametrize("way", WAYS)
def test_the_command_of_a_task_runs_that_very_experiment(task: Task, way: str) -> None:
    if not knows(task.experiment.algorithm, WAYS[way]):
        with pytest.raises(ConfigError, match=f"{way} has lag_correction=.*that knows (auto, |none;)"):
            task.with_seed(7, way)
        return
    experiment = task.with_seed(7, way)

    assert _experiment_of(train_command(experiment, eval_episodes=100)) == experiment


def test_a_command_repeats_every_setting() -> None:
    algorithm = PPO(learning_rate=1e-3, anneal_learning_rate=False, anneal_clip_range=True, target_kl=0.02, epochs=3)
    network = Network(hidden_sizes=(32, 16, 8), activation="relu", separate_value=False)
    experiment = Experiment(
        "htsrl/Sleeping-v0",
        env_args={"law": "gamma", "mean_seconds": 0.001},
        imports=("htsrl.envs.toy", "json"),
        algorithm=algorithm,
        network=network,
        schedule="sync",
        num_envs=4,
        total_steps=999,
        stop_at_return=12.5,
    )

    assert _experiment_of(train_command(experiment, eval_episodes=3)) == experiment


def test_a_command_keeps_quiet_about_the_output_folder() -> None:
    table = SleepingTable(num_envs=4, intervals=(5, 10), output=Path("/home/somebody"))

    assert bench_command("sleeping", table) == "htsrl bench sleeping --num-envs 4 --intervals 5 10"
    assert bench_command("learning", LearningTable()) == "htsrl bench learning"


# Sleeping


def test_a_run_is_as_long_as_asked_for_at_the_speed_of_its_bound() -> None:
    bench = _sleeping_bench(seconds_per_run=8.0)

    for schedule, alpha, speed in (("hts", 20, 2233), ("lockstep", 20, 946), ("hts", 128, 2753)):
        measured = bench.total_steps(schedule, alpha) - 2 * 16 * alpha  # type: ignore[arg-type]
        assert measured % (16 * alpha) == 0
        assert measured / speed == pytest.approx(8.0, abs=0.5 * 16 * alpha / speed)
    assert replace(bench, seconds_per_run=0.01).total_steps("hts", 128) == 4 * 16 * 128


def test_both_schedules_differ_in_nothing_else() -> None:
    configs = _sleeping_bench().configs()

    hts, lockstep = configs["hts, alpha 20"], configs["lockstep, alpha 20"]
    assert hts.experiment.schedule == "hts"
    assert hts.placement == lockstep.placement
    same = replace(hts.experiment, schedule="lockstep", total_steps=lockstep.experiment.total_steps)
    assert same == lockstep.experiment


@pytest.mark.parametrize(("algo", "algorithm"), [("a2c", A2C()), ("ppo", PPO())])
def test_the_algorithm_that_was_asked_for_learns(algo: Literal["a2c", "ppo"], algorithm: A2C | PPO) -> None:
    for config in replace(_sleeping_bench(), algo=algo).configs().values():
        assert config.experiment.algorithm == algorithm


def test_a_row_compares_medians_with_the_bound() -> None:
    speeds = {"hts, alpha 20": (2000.0, 2010.0, 2500.0), "lockstep, alpha 20": (500.0, 804.0, 900.0)}
    measured = [Measured(name, i, speed) for name, values in speeds.items() for i, speed in enumerate(values)]

    (row,) = rows(replace(_sleeping_bench(), intervals=(20,)), measured)

    assert row.ratio == pytest.approx(2.5)
    assert row.share_of_bound == pytest.approx(2010 / 2233, rel=1e-3)
    assert row.bound_ratio == pytest.approx(2233 / 946.5, rel=1e-3)


@pytest.mark.parametrize("mistake", [{"intervals": ()}, {"repetitions": 0}, {"seconds_per_run": 0.0}])
def test_a_bench_that_measures_nothing_is_refused(mistake: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        replace(_sleeping_bench(), **mistake)  # type: ignore[arg-type]


def test_bench_sleeping_measures_both_schedules_and_writes_a_record(tmp_path: Path) -> None:
    flags = "--seconds-per-run 0.1 --repetitions 1 --num-envs 2 --intervals 3 --mean-seconds 0.002"
    ended = _python("-m", "htsrl", "bench", "sleeping", *flags.split(), "--output", str(tmp_path))

    assert ended.returncode == 0, ended.stderr
    assert "[1/2] hts, alpha 3, seed 1 ... " in ended.stderr
    assert "| 3     |" in ended.stdout
    document = json.loads(next(tmp_path.glob("sleeping.json")).read_text())
    assert document["command"] == f"htsrl bench sleeping {flags}"
    assert [run["config"] for run in document["repetitions"]] == ["hts, alpha 3", "lockstep, alpha 3"]
    # Nothing outruns environments that never wait: 2 of them, 2 ms a step.
    assert all(0 < run["steps_per_second"] < 1500 for run in document["repetitions"])
    assert str(tmp_path) not in json.dumps(document)


def _record(tmp_path: Path) -> Record:
    """With paths wherever a careless writer could pass them on."""
    config = Config(Experiment("CartPole-v1"), Placement(run_dir=tmp_path / "run"))
    return Record(
        name="sleeping",
        command=bench_command("sleeping", SleepingTable(output=tmp_path / "benchmarks")),
        provenance=Provenance.take(),
        configs={"hts": config},
        repetitions=[{"config": "hts", "steps_per_second": 10.5}],
        summary={"median": 10.5},
        tables=[Table(["alpha", "steps/s"], [["20", "10.5"]], ["A note."])],
    )


def _sleeping_bench(seconds_per_run: float = 1.0) -> SleepingBench:
    return SleepingBench(
        num_envs=16,
        step_time=StepTime(0.005),
        law="exponential",
        algo="a2c",
        intervals=(20, 128),
        seconds_per_run=seconds_per_run,
        repetitions=1,
    )


def _experiment_of(command: str) -> Experiment:
    """What the command line would train."""
    from htsrl.cli.main import _parse

    _, *arguments = shlex.split(command)
    parsed: Any = _parse(arguments)
    env_args = {key: json.loads(value) for key, _, value in (text.partition("=") for text in parsed.env_arg)}
    experiment: Experiment = plain(Experiment, parsed.experiment)
    return replace(experiment, env_args=env_args)


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path])}
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def test_what_kills_cost_is_what_a_run_stands_still_beyond_the_usual() -> None:
    measured = [restart.Standstill(seconds=seconds, usual_seconds=0.1) for seconds in (0.7, 3.1, 0.05)]
    document = restart.summary(measured)
    assert document["median_standstill_seconds"] == 0.7
    assert document["longest_standstill_seconds"] == 3.1
    assert document["throughput_lost_at_a_kill_a_minute"] == pytest.approx(0.6 / 60)
    assert restart.table(document, measured).rows[0] == ["3", "0.70 s", "3.10 s", "0.10 s", "1.0%"]


def test_what_keeping_costs_is_taken_from_each_pair() -> None:
    pairs = [keeping.Pair("a2c", *both) for both in ((980, 1000), (396, 400), (1010, 1000))]
    document = keeping.summary([*pairs, keeping.Pair("ppo", 500, 500)])
    assert document["a2c"]["cost"] == pytest.approx(0.01)
    assert document["a2c"]["cost_range"] == pytest.approx([-0.01, 0.02])
    row = keeping.table(keeping.KeepingBench(30.0, 3, 10.0), document).rows[0]
    assert row == ["a2c", "980 (396 to 1,010)", "1,000 (400 to 1,000)", "1.0% (-1.0% to 2.0%)"]


def test_the_sides_of_the_keeping_bench_take_turns_in_going_first_and_are_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[tuple[str, bool]] = []

    def throughput(config: Config, seconds: float) -> float:
        keeps = config.placement.restart_workers
        assert (config.placement.checkpoint_every_seconds, seconds) == (7.0 if keeps else None, 1.0)
        ran.append((config.experiment.algorithm.name, keeps))
        return 99.0 if keeps else 100.0

    monkeypatch.setattr(keeping, "_steps_per_second", throughput)
    KeepingTable(seconds_per_run=1.0, repetitions=2, checkpoint_every_seconds=7.0, output=tmp_path).run()
    first = [("a2c", True), ("a2c", False), ("ppo", True), ("ppo", False)]
    assert ran == [*first, *((algorithm, not keeps) for algorithm, keeps in first)]
    (path,) = tmp_path.glob("keeping.json")
    document = json.loads(path.read_text())
    assert document["command"].startswith("htsrl bench keeping --seconds-per-run 1.0 --repetitions 2")
    assert len(document["repetitions"]) == 4
    assert document["summary"]["ppo"]["cost"] == pytest.approx(0.01)


def test_throughput_is_measured_between_updates_once_a_run_is_under_way() -> None:
    start, ready = 2.0, 2.0 + keeping.WARM_UP_SECONDS
    updates = [Update(start, 10), Update(ready - 0.1, 20), Update(ready, 30)]
    updates += [Update(ready + 8.0, 50), Update(ready + 10.0, 90)]
    assert rate(keeping.settled(updates)) == (90 - 30) / 10.0
