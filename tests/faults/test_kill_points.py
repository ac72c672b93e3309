"""A SIGKILL at each named step of the protocol, in whatever process comes there: the run continues, no bit changes."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers import Outcome, assert_same_run, workers_left
from live_run import LiveRun, patience, survivors
from small_run import Schedule, oracle, quiet_placement, resume_inline, small_experiment, small_flags

import htsrl
from htsrl import A2C, PPO, Config, train
from htsrl.config import AlgorithmSettings
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE

NUM_UPDATES = 30
CHECKPOINT_EVERY = 3
EXECUTOR = (
    "before a step",
    "inside a storage write",
    "before a request",
    "after a request",
    "inside a capsule",
    "before a rollout counts",
    "after a rollout counts",
)
ACTOR = ("inside an answer", "before an answer", "after an answer")
LEARNER = (
    "inside deferred values",
    "inside a finisher",
    "optimizer step",
    "before a commit",
    "before a publish",
    "after a publish",
    "checkpoint written",
    "checkpoint synced",
)
ORDERS = ("before a gradient order", "after a gradient order", "before a sum of gradients")
DIFFERENTIATOR = ("before a gradient answer", "after a gradient answer")
GRADIENT = ("inside a gradient",)
SMALL_A2C, SMALL_PPO = A2C(), PPO(epochs=2, num_minibatches=2)
DECOUPLED = PPO(epochs=2, num_minibatches=2, lag_correction="decoupled")
DELAYED = PPO(epochs=2, num_minibatches=2, lag_correction="delayed_update")
ELSEWHERE = {  # runs of other kinds: texts, datasets, a replay buffer, evaluations, several learners, islands
    "faults/test_killed_islands.py": (
        "before a rollout of an island counts",
        "after a rollout of an island counts",
        "before a version counts on an island",
    ),
    "faults/test_killed_replicas.py": (
        "before a draft counts",
        "after a draft counts",
        "inside a merge",
        "before a merge counts",
        "after a merge counts",
        "inside a take-over",
    ),
    "language/test_text_runs.py": ("before a block counts", "after a block counts"),
    "language/test_episodes.py": ("inside an episode",),
    "unit/test_datasets.py": ("dataset written",),
    "determinism/test_replay_runs.py": ("inside a replay write",),
    "determinism/test_off_policy_runs.py": ("inside a revision of priorities",),
    "determinism/test_evaluation_beside_training.py": ("inside an evaluation", "before an evaluation's line"),
}
MAIN = ("checkpoint set aside", "checkpoint renamed", "checkpoint dropped")


@dataclass(frozen=True)
class Kill:
    """Of the process that comes to `point` for the `times`-th time."""

    role: str
    point: str
    times: int
    schedule: Schedule = "hts"
    gradient_shards: int = 1
    """Of which each has a process."""
    algorithm: AlgorithmSettings = SMALL_A2C
    lag: int | None = None

    def __str__(self) -> str:
        shards = f"-{self.gradient_shards}_shards" if self.gradient_shards > 1 else ""
        lag = "" if self.lag is None else f"-lag_{self.lag}"
        name = f"{self.algorithm.name}-{self.role}-{self.point}-{self.times}-{self.schedule}{lag}{shards}"
        return name.replace(" ", "_")


POINTS = {"executor 0": EXECUTOR, "actor 0": ACTOR, "learner": LEARNER}
FIRST = [Kill(role, point, times=1) for role, points in POINTS.items() for point in points]
LATER = [
    Kill("executor 0", "before a step", 333),
    Kill("executor 0", "inside a capsule", 50),
    Kill("executor 0", "before a rollout counts", 60),
    Kill("executor 0", "after a rollout counts", 77),
    Kill("actor 0", "inside an answer", 70),
    Kill("learner", "inside deferred values", 32),
    Kill("learner", "optimizer step", 17),
    Kill("learner", "before a publish", 20),
    Kill("learner", "checkpoint written", 3),
]
OTHER_SCHEDULES = [
    Kill("executor 0", "inside a storage write", 222, "sync"),
    Kill("actor 0", "after an answer", 60, "lockstep"),
    Kill("executor 0", "after a request", 121, "lockstep"),
    Kill("learner", "after a publish", 11, "sync"),
]
IN_SHARDS = [
    *(Kill("learner", point, 1, gradient_shards=2) for point in ORDERS),
    *(Kill("gradient worker 1", point, 1, gradient_shards=2) for point in DIFFERENTIATOR),
]
OF_PPO = [  # two gradients in each of two epochs: what the first epoch saw is what the second is clipped around
    Kill("learner", "inside a gradient", 4, algorithm=SMALL_PPO),
    Kill("(?:learner|gradient worker 1)", "inside a gradient", 4, gradient_shards=2, algorithm=SMALL_PPO),
    Kill("gradient worker 1", "before a gradient answer", 6, gradient_shards=2, algorithm=SMALL_PPO),
    Kill("gradient worker 1", "after a gradient answer", 6, gradient_shards=2, algorithm=SMALL_PPO),
    Kill("learner", "before a gradient order", 7, gradient_shards=2, algorithm=SMALL_PPO),
    Kill("learner", "after a gradient order", 7, gradient_shards=2, algorithm=SMALL_PPO),
]
UNDER_A_LAG = [
    Kill("executor 0", "before a rollout counts", 40, lag=2),
    Kill("learner", "inside deferred values", 12, lag=4),
    Kill("learner", "before a publish", 9, lag=2),
]
LATER_UNDER_A_LAG = [
    Kill("executor 0", "inside a capsule", 61, lag=4),
    Kill("executor 0", "inside a storage write", 200, lag=2),
    Kill("actor 0", "inside an answer", 70, lag=4),
    Kill("learner", "optimizer step", 17, lag=4),
    Kill("gradient worker 1", "before a gradient answer", 6, gradient_shards=2, algorithm=SMALL_PPO, lag=2),
]
OF_OTHER_CORRECTIONS = [  # before the first gradient, and while the draft is where the data were made
    Kill("learner", "inside a gradient", 2, gradient_shards=2, algorithm=DECOUPLED),
    Kill("learner", "optimizer step", 6, gradient_shards=2, algorithm=DELAYED),
]
LATER_IN_SHARDS = [
    Kill("learner", "after a gradient order", 17, "sync", gradient_shards=3),
    Kill("learner", "optimizer step", 9, gradient_shards=2),
    Kill("learner", "before a publish", 12, gradient_shards=2),
    Kill("gradient worker 1", "before a gradient answer", 13, "sync", gradient_shards=2),
    Kill("executor 0", "before a step", 99, gradient_shards=2),
]


def test_every_kill_point_of_the_package_is_tested_here_or_elsewhere() -> None:
    """Runners of lanes and generators of text have points of the same names as those of environments."""
    calls = {
        point
        for file in Path(htsrl.__file__).parent.rglob("*.py")
        for point in re.findall(r"""\bkill_point\("([^"]+)"\)""", file.read_text())
    }
    elsewhere = [point for points in ELSEWHERE.values() for point in points]
    assert calls == {*EXECUTOR, *ACTOR, *LEARNER, *ORDERS, *DIFFERENTIATOR, *GRADIENT, *MAIN, *elsewhere}
    for file_name, points in ELSEWHERE.items():
        text = (Path(__file__).parents[1] / file_name).read_text()
        assert [point for point in points if point not in text] == []


@pytest.mark.parametrize("role", POINTS)
def test_a_worker_killed_at_every_point_in_turn_changes_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], role: str
) -> None:
    """The one that is started in its place comes by where it died, and to the next point."""
    points = POINTS[role]
    restarts = train_with([Kill(role, point, times=1) for point in points], tmp_path, monkeypatch)
    assert {path.name for path in (tmp_path / "killed").iterdir()} == set(points)
    death_report = rf"{role} \(pid \d+\) was killed by SIGKILL while .*; {role} is started again\n"
    assert re.fullmatch(death_report * len(points), capfd.readouterr().err)
    assert restarts == len(points)
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(NUM_UPDATES))
    assert workers_left() == []


@pytest.mark.parametrize(
    "kill",
    [
        *OTHER_SCHEDULES[:2],
        *IN_SHARDS,
        *OF_PPO,
        *UNDER_A_LAG,
        *OF_OTHER_CORRECTIONS,
        *(
            pytest.param(kill, marks=pytest.mark.slow)
            for kill in (*FIRST, *LATER, *OTHER_SCHEDULES[2:], *LATER_IN_SHARDS, *LATER_UNDER_A_LAG)
        ),
    ],
    ids=str,
)
def test_a_worker_killed_at_any_point_changes_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], kill: Kill
) -> None:
    assert train_with([kill], tmp_path, monkeypatch) == 1
    death_report = rf"{kill.role} \(pid \d+\) was killed by SIGKILL while .*; {kill.role} is started again\n"
    assert re.fullmatch(death_report, capfd.readouterr().err)
    undisturbed = oracle(NUM_UPDATES, kill.schedule, kill.gradient_shards, kill.algorithm, kill.lag)
    assert_same_run(Outcome.read(tmp_path / "run"), undisturbed)
    assert workers_left() == []


@pytest.mark.parametrize(
    "kill",
    [
        Kill("executor 0", "before a step", 1),
        Kill("actor 0", "after an answer", 1),
        Kill("executor 0", "before a step", 150, lag=4),
    ],
    ids=str,
)
def test_a_killed_worker_changes_no_bit_where_storages_are_poisoned_before_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kill: Kill
) -> None:
    """A new executor must not act on the answer that the one before it was given, without its observation's."""
    assert train_with([kill], tmp_path, monkeypatch, verify_storages=True) == 1
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(NUM_UPDATES, kill.schedule, lag=kill.lag))


@pytest.mark.slow
def test_an_executor_killed_again_and_again_at_the_end_of_rollouts_changes_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among so many, some are of rollouts in which an episode ended, whose capsule must not harm the one before."""
    kill = Kill("executor 0", "before a rollout counts", 13)
    restarts = train_with([kill], tmp_path, monkeypatch, once=False)
    assert restarts >= 8
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(NUM_UPDATES))


def train_with(
    kills: Sequence[Kill],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    once: bool = True,
    verify_storages: bool = False,
) -> int:
    """Train in worker processes, of which the first, or each one, that comes to a point is killed there."""
    # For the workers alone: this process has imported the kill points before.
    monkeypatch.setenv(KILL_AT, ", ".join(f"{kill.point}:{kill.times}" for kill in kills))
    if once:
        monkeypatch.setenv(KILL_ONCE, str(folder / "killed"))
    start, deadline_seconds = time.monotonic(), patience(30.0)
    worker_layout = quiet_placement(
        num_executors=1,
        num_actors=1,
        learner_workers=kills[0].gradient_shards,
        run_dir=folder / "run",
        checkpoint_every_updates=CHECKPOINT_EVERY,
        deadline_seconds=deadline_seconds,
        verify_storages=verify_storages,
    )
    first = kills[0]
    experiment = small_experiment(NUM_UPDATES, first.schedule, first.gradient_shards, first.algorithm, first.lag)
    result = train(Config(experiment, worker_layout))
    if once:
        assert (folder / "killed").exists(), f"nobody came to any of {[str(kill) for kill in kills]}"
        assert time.monotonic() - start < deadline_seconds, "somebody waited for what the dead had not announced"
    return result.restarts


INLINE = ("--placement", "inline", "--checkpoint-every-updates", str(CHECKPOINT_EVERY))
PROCESSES = ("--num-executors", "2", "--num-actors", "1", "--checkpoint-every-updates", str(CHECKPOINT_EVERY))


def run_until_killed(run: LiveRun) -> None:
    try:
        run.wait_for_end(patience(60.0))
        assert run.exit_code == -signal.SIGKILL, f"it came to its end, or to another:\n{run.stderr}"
    finally:
        run.clean_up()


@pytest.mark.parametrize(
    ("point", "times"),
    [
        ("checkpoint written", 2),
        ("checkpoint renamed", 1),
        pytest.param("checkpoint synced", 4, marks=pytest.mark.slow),
        pytest.param("checkpoint renamed", 4, marks=pytest.mark.slow),
        pytest.param("checkpoint dropped", 1, marks=pytest.mark.slow),
        ("checkpoint dropped", 3),
        # What a worker comes to, here with all roles in one process, of which nothing is left.
        ("inside a capsule", 90),
        pytest.param("before a publish", 23, marks=pytest.mark.slow),
    ],
)
def test_a_run_whose_main_process_is_killed_at_any_point_is_resumed_to_the_same_bits(
    tmp_path: Path, point: str, times: int
) -> None:
    run_until_killed(LiveRun(tmp_path, *small_flags(NUM_UPDATES), *INLINE, variables={KILL_AT: f"{point}:{times}"}))
    resume_inline(tmp_path / "run")
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(NUM_UPDATES))


@pytest.mark.parametrize(("lag", "times"), [(2, 2), pytest.param(4, 3, marks=pytest.mark.slow)])
def test_under_a_lag_a_run_whose_processes_are_all_killed_is_resumed_to_the_same_bits(
    tmp_path: Path, lag: int, times: int
) -> None:
    """Its checkpoint was taken while environments were rollouts ahead, by capsules that later ones must spare."""
    flags = (*small_flags(NUM_UPDATES), "--lag", str(lag), *PROCESSES)
    run_until_killed(LiveRun(tmp_path, *flags, variables={KILL_AT: f"checkpoint renamed:{times}"}))
    resume_inline(tmp_path / "run")
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(NUM_UPDATES, lag=lag))


@pytest.mark.parametrize(("point", "times"), [("checkpoint renamed", 2), ("checkpoint dropped", 1)])
def test_a_supervisor_killed_at_any_point_takes_its_workers_along_and_is_resumed_to_the_same_bits(
    tmp_path: Path, point: str, times: int
) -> None:
    run = LiveRun(tmp_path, *small_flags(NUM_UPDATES), *PROCESSES, variables={KILL_AT: f"{point}:{times}"})
    try:
        run.wait_until(lambda: len(run.find_workers()) == 4)
        run.workers = run.find_workers()
    finally:
        run_until_killed(run)
    assert survivors(run.workers) == []
    resume_inline(tmp_path / "run")
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(NUM_UPDATES))


def test_a_kill_while_a_checkpoint_replaces_one_of_the_same_version_changes_no_bit(tmp_path: Path) -> None:
    """A resumed run writes the checkpoint that it continued from once more."""
    killed_first = LiveRun(tmp_path, *small_flags(NUM_UPDATES), *INLINE, variables={KILL_AT: "checkpoint renamed:2"})
    run_until_killed(killed_first)
    run_until_killed(LiveRun.resumed(tmp_path, variables={KILL_AT: "checkpoint set aside:1"}))
    checkpoints, replaced = {path.name for path in (tmp_path / "run" / "checkpoints").iterdir()}, 2 * CHECKPOINT_EVERY
    assert f".old-{replaced:09d}" in checkpoints
    assert f"{replaced:09d}" not in checkpoints
    resume_inline(tmp_path / "run")
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(NUM_UPDATES))


def test_a_kill_between_the_last_state_and_the_policy_leaves_a_run_that_resume_completes(tmp_path: Path) -> None:
    flags = ("--placement", "inline", "--checkpoint-every-seconds", "None")  # so the last state is the first
    run_until_killed(LiveRun(tmp_path, *small_flags(NUM_UPDATES), *flags, variables={KILL_AT: "checkpoint renamed:1"}))
    assert not (tmp_path / "run" / "policy.safetensors").exists()
    resume_inline(tmp_path / "run")
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(NUM_UPDATES))
