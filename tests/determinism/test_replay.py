"""An asynchronous run is like no other, but what it saw is written down, and repeats to the bit anywhere."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import Outcome, assert_same_run
from teams import Relay

from htsrl import A2C, PPO, Config, ConfigError, Experiment, HtsrlError, Network, Placement, RunFolderError, train
from htsrl import resume as resume_run
from htsrl.dataflow.signals import Doorbell
from htsrl.digest import first_difference
from htsrl.metrics.report import UpdateReport
from htsrl.placements.assignment import Doorbells
from htsrl.runs.recorder import Recorder

NUM_ENVS = 4
# Uneven: some steps take ten times as long as others.
UNEVEN = Experiment(
    "htsrl/Sleeping-v0",
    {"mean_seconds": 1e-3, "episode_steps": 17},
    algorithm=A2C(),
    schedule="async",
    num_envs=NUM_ENVS,
    sync_interval=5,
    total_steps=30 * NUM_ENVS * 5,
)
CUT = {"max_episode_steps": 20}
OTHERS = {
    "a memory": Experiment(
        "CartPole-v1", CUT, algorithm=A2C(), network=Network(recurrent="lstm", recurrent_size=8), sync_interval=8
    ),
    "a team": Experiment(Relay, algorithm=PPO(epochs=2, num_minibatches=2), sync_interval=5),
    "a long queue": Experiment(
        "CartPole-v1", CUT, algorithm=PPO(epochs=2), sync_interval=8, queue_length=4, gradient_shards=2
    ),
}
CREW: dict[str, Any] = {"num_executors": 2, "num_actors": 2, "jitter_seconds": 2e-3}
THREADS: dict[str, Any] = {"num_executors": 1, "executor_threads": True}


def quiet(run_dir: Path, **settings: Any) -> Placement:
    return Placement(**{"run_dir": run_dir, "tensorboard": False, "progress": "off", "log_every_steps": 1, **settings})


def make(experiment: Experiment, run_dir: Path, **placement: Any) -> Outcome:
    train(Config(experiment, quiet(run_dir, **placement)))
    return Outcome.read(run_dir)


def repeat(experiment: Experiment, recorded: Path, run_dir: Path, **placement: Any) -> Outcome:
    return make(replace(experiment, replay_schedule=recorded), run_dir, **placement)


@pytest.mark.parametrize("worker_layout", [CREW, THREADS], ids=["in turn", "on threads"])
def test_a_run_over_processes_is_repeated_to_the_bit_inline_and_over_processes(
    tmp_path: Path, worker_layout: dict[str, Any]
) -> None:
    recorded = make(UNEVEN, tmp_path / "recorded", **worker_layout)
    other = make(UNEVEN, tmp_path / "other", backend="inline")
    assert first_difference(other.links, recorded.links) is not None, "another run of the same seed saw other things"
    lags = [line["hts/lag"] for line in recorded.metrics]
    assert len(set(lags)) > 3, "a run that could have been under hts proves nothing"
    assert_same_run(repeat(UNEVEN, tmp_path / "recorded", tmp_path / "inline", backend="inline"), recorded)
    assert_same_run(repeat(UNEVEN, tmp_path / "recorded", tmp_path / "processes", num_executors=3), recorded)
    assert_same_run(repeat(UNEVEN, tmp_path / "recorded", tmp_path / "threads", **THREADS), recorded)
    lines = [(tmp_path / folder / "schedule.jsonl").read_text() for folder in ("recorded", "inline", "processes")]
    assert lines[0] == lines[1] == lines[2], "a replay writes down the same, and so can be replayed itself"


@pytest.mark.parametrize("name", OTHERS)
def test_whatever_is_trained_is_repeated_to_the_bit(name: str, tmp_path: Path) -> None:
    experiment = replace(OTHERS[name], schedule="async", num_envs=NUM_ENVS)
    experiment = replace(experiment, total_steps=12 * experiment.batch_steps)
    recorded = make(experiment, tmp_path / "recorded", **CREW)
    assert_same_run(repeat(experiment, tmp_path / "recorded", tmp_path / "again", backend="inline"), recorded)


class Interrupted(Exception):
    """Raised in place of a Ctrl-C."""


def test_an_interrupted_run_is_repeated_as_far_as_it_went(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Recorder.record

    def interrupt(self: Recorder, report: UpdateReport) -> None:
        record(self, report)
        if report.version == 7:
            raise Interrupted

    monkeypatch.setattr(Recorder, "record", interrupt)
    with pytest.raises(Interrupted):
        make(UNEVEN, tmp_path / "recorded", backend="inline")
    monkeypatch.undo()
    again = repeat(UNEVEN, tmp_path / "recorded", tmp_path / "again", backend="inline")
    assert len(again.links) == 7
    assert_same_run(again, Outcome.read(tmp_path / "recorded"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("a run") / "recorded"
    short = replace(UNEVEN, env_args={"mean_seconds": 0.0, "episode_steps": 17}, total_steps=6 * UNEVEN.batch_steps)
    make(short, folder, backend="inline")
    return folder


@pytest.fixture
def short() -> Experiment:
    return replace(UNEVEN, env_args={"mean_seconds": 0.0, "episode_steps": 17}, total_steps=6 * UNEVEN.batch_steps)


def copied(recorded: Path, to: Path, schedule: str) -> Path:
    to.mkdir()
    (to / "config.json").write_text((recorded / "config.json").read_text())
    (to / "schedule.jsonl").write_text(schedule)
    return to


def test_a_line_that_a_kill_cut_is_left_out(recorded: Path, short: Experiment, tmp_path: Path) -> None:
    cut = copied(recorded, tmp_path / "cut", (recorded / "schedule.jsonl").read_text()[:-9])
    assert len(repeat(short, cut, tmp_path / "again", backend="inline").links) == 5


def test_another_experiment_is_refused_and_the_settings_are_named(
    recorded: Path, short: Experiment, tmp_path: Path
) -> None:
    other = replace(short, seed=5, algorithm=A2C(discount=0.5), queue_length=3)
    message = (
        r"can only be replayed as the experiment that it was.*\n.*discount: 0\.99 -> 0\.5\n.*queue_length: 2 -> 3\n"
    )
    with pytest.raises(ConfigError, match=message):
        repeat(other, recorded, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_a_folder_without_a_schedule_is_refused(tmp_path: Path) -> None:
    sync = replace(UNEVEN, schedule="sync", total_steps=20, env_args={"mean_seconds": 0.0})
    make(sync, tmp_path / "sync", backend="inline")
    with pytest.raises(ConfigError, match=r'schedule: "sync" -> "async"'):
        repeat(UNEVEN, tmp_path / "sync", tmp_path / "again")


def test_what_is_no_run_is_refused(recorded: Path, short: Experiment, tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"is not the folder of a run"):
        repeat(short, tmp_path / "nowhere", tmp_path / "again")
    lost = copied(recorded, tmp_path / "lost", "")
    (lost / "schedule.jsonl").unlink()
    with pytest.raises(RunFolderError, match=r"holds no schedule\.jsonl; only runs with --schedule async"):
        repeat(short, lost, tmp_path / "again")
    with pytest.raises(ConfigError, match=r"is empty: the run finished no update"):
        repeat(short, copied(recorded, tmp_path / "empty", ""), tmp_path / "again")
    assert not (tmp_path / "again").exists()


def damage(text: str) -> dict[str, str]:
    lines = text.splitlines()
    third = json.loads(lines[2])
    env, rollout, *rest = third["picks"][0]

    def with_third(**changes: Any) -> str:
        return "\n".join([*lines[:2], json.dumps({**third, **changes}), *lines[3:], ""])

    return {
        "no JSON": "\n".join([*lines[:2], lines[2][:-20], *lines[3:], ""]),
        "another thing": "\n".join([*lines[:2], "7", *lines[3:], ""]),
        "a word for a number": with_third(picks=[["zero", rollout, *rest], *third["picks"][1:]]),
        "a pick that lacks something": with_third(picks=[[env, rollout], *third["picks"][1:]]),
        "a line that is missing": "\n".join([*lines[:2], *lines[3:], ""]),
        "an environment that is not there": with_third(picks=[[99, rollout, *rest], *third["picks"][1:]]),
        "a rollout that was not its turn": with_third(picks=[[env, rollout + 1, *rest], *third["picks"][1:]]),
        "nobody acts in its first row": with_third(picks=[[env, rollout, [], []], *third["picks"][1:]]),
        "a version that is still to come": with_third(picks=[[env, rollout, [[0, 9]], []], *third["picks"][1:]]),
    }


DAMAGES = [
    "no JSON",
    "another thing",
    "a word for a number",
    "a pick that lacks something",
    "a line that is missing",
    "an environment that is not there",
    "a rollout that was not its turn",
    "nobody acts in its first row",
    "a version that is still to come",
]


@pytest.mark.parametrize("name", DAMAGES)
def test_a_damaged_line_is_one_clear_error(name: str, recorded: Path, short: Experiment, tmp_path: Path) -> None:
    damaged = damage((recorded / "schedule.jsonl").read_text())
    assert sorted(damaged) == sorted(DAMAGES)
    folder = copied(recorded, tmp_path / "damaged", damaged[name])
    with pytest.raises(RunFolderError, match=rf"{re.escape(str(folder))}/schedule.jsonl is damaged: \w+"):
        repeat(short, folder, tmp_path / "again", backend="inline")
    assert not (tmp_path / "again").exists()


def test_an_environment_that_does_not_reproduce_is_named(recorded: Path, short: Experiment, tmp_path: Path) -> None:
    """Here the record says that no value was asked for after the last row, as if an episode had just ended there."""
    documents = [json.loads(line) for line in (recorded / "schedule.jsonl").read_text().splitlines()]
    env, rollout, _, values = documents[2]["picks"][1]
    values.clear()
    altered = copied(recorded, tmp_path / "altered", "".join(f"{json.dumps(x)}\n" for x in documents))
    with pytest.raises(HtsrlError, match=rf"environment {env} does not reproduce: in row 5 of its rollout {rollout}"):
        repeat(short, altered, tmp_path / "again", backend="inline")


def test_a_replay_is_not_resumed(recorded: Path, short: Experiment, tmp_path: Path) -> None:
    repeat(short, recorded, tmp_path / "again", backend="inline")
    with pytest.raises(ConfigError, match=r"replays .*, which can only be done from the beginning"):
        resume_run(tmp_path / "again", total_steps=10_000)


def test_in_a_replay_an_answer_wakes_the_learner_and_a_version_wakes_actors() -> None:
    """The learner waits for a version's last answer, and an actor for the version that answered before."""
    for replays in (False, True):
        own, executor, actor, learner = (Doorbell.create() for _ in range(4))
        doorbells = Doorbells(own, (executor,), (actor,), (), learner, False, replays, on_threads=False)
        doorbells.ring_executors([0])
        assert executor.is_rung
        assert learner.is_rung is replays
        doorbells.ring_all()
        assert actor.is_rung is replays
