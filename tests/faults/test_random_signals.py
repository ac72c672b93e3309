"""SIGTERM and Ctrl-C at random times: a clean end, nothing left over, and a run that resumes to the same bits."""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

import helpers
import pytest
from helpers import Outcome, assert_same_run, workers_left
from live_run import LiveRun, is_alive, shared_memory, survivors
from safetensors import safe_open
from small_run import oracle, quiet_placement, resume_inline, small_experiment, small_flags

from htsrl import PPO, Config, Experiment, train
from htsrl.placements import spares
from htsrl.placements.supervisor import Supervisor
from htsrl.placements.worker_process import WorkerProcess
from htsrl.processes.kill_points import KILL_AT, KILL_ONCE

SEED = 4
NUM_UPDATES = 200
NUM_SIGNALS, MANY_SIGNALS = 2, 50  # of each kind
# The delays make the run last longer than any test waits; the resume has none of them.
SLOWLY = ("--num-executors", "2", "--num-actors", "1", "--jitter-seconds", "0.02")
NUM_WORKERS = 4
MAX_WAIT_SECONDS = 3.0
EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


@dataclass(frozen=True)
class Moment:
    """When a signal comes: so long after the workers were started, or after the run has learned something."""

    learning: bool
    seconds: float

    def __str__(self) -> str:
        return f"{self.seconds}s-{'learning' if self.learning else 'starting'}"


def random_moments(signum: signal.Signals, count: int) -> list[Moment]:
    draw = random.Random(f"{SEED} {signum.name}")
    return [Moment(i % 3 != 0, round(draw.uniform(0.0, MAX_WAIT_SECONDS), 3)) for i in range(count)]


def start(folder: Path, *flags: str) -> LiveRun:
    """A run whose workers are being started, which is when there is something to end in order."""
    run = LiveRun(folder, *small_flags(NUM_UPDATES), *SLOWLY, *flags)
    run.wait_until(lambda: len(run.find_workers()) == NUM_WORKERS)
    run.workers = run.find_workers()
    return run


def assert_ends_cleanly_and_resumes(folder: Path, signum: signal.Signals, moment: Moment) -> None:
    print(f"seed {SEED}: {signum.name}, {moment}")
    before = shared_memory()
    run = start(folder)
    try:
        if moment.learning:
            run.wait_until_it_learns(1)
        time.sleep(moment.seconds)
        assert is_alive(run.main), f"the run ended by itself:\n{run.stderr}"
        if signum is signal.SIGINT:
            run.press_ctrl_c()
        else:
            run.main.send_signal(signum)
        run.wait_for_end()
        assert survivors(run.workers, seconds=0.0) == []
    finally:
        run.clean_up()
    assert run.exit_code == EXIT_CODES[signum]
    assert shared_memory() - before == set()
    resume_inline(run.run_dir)
    assert_same_run(Outcome.read(run.run_dir), oracle(NUM_UPDATES))


@pytest.mark.parametrize("moment", random_moments(signal.SIGTERM, NUM_SIGNALS), ids=str)
def test_sigterm_at_a_random_time_ends_the_run_cleanly_and_it_resumes_to_the_same_bits(
    tmp_path: Path, moment: Moment
) -> None:
    assert_ends_cleanly_and_resumes(tmp_path, signal.SIGTERM, moment)


@pytest.mark.parametrize("moment", random_moments(signal.SIGINT, NUM_SIGNALS), ids=str)
def test_ctrl_c_at_a_random_time_ends_the_run_cleanly_and_it_resumes_to_the_same_bits(
    tmp_path: Path, moment: Moment
) -> None:
    assert_ends_cleanly_and_resumes(tmp_path, signal.SIGINT, moment)


@pytest.mark.slow
@pytest.mark.parametrize("signum", EXIT_CODES, ids=lambda signum: signum.name)
@pytest.mark.parametrize("number", range(NUM_SIGNALS, MANY_SIGNALS))
def test_signals_at_a_hundred_random_times_end_the_run_cleanly_and_it_resumes_to_the_same_bits(
    tmp_path: Path, signum: signal.Signals, number: int
) -> None:
    assert_ends_cleanly_and_resumes(tmp_path, signum, random_moments(signum, MANY_SIGNALS)[number])


def test_a_second_ctrl_c_ends_the_run_at_once_and_it_resumes_from_its_last_checkpoint(tmp_path: Path) -> None:
    run = start(tmp_path, "--checkpoint-every-updates", "1", "--import", "patient_supervisor")
    try:
        run.wait_until(lambda: any((run.run_dir / "checkpoints").glob("0*")))
        run.workers[0].suspend()  # it cannot end in order, so the run waits for it
        run.press_ctrl_c()
        time.sleep(0.2)
        assert is_alive(run.main)
        run.press_ctrl_c()
        run.wait_for_end()
        assert survivors(run.workers) == []
    finally:
        run.clean_up()
    assert run.exit_code == 130
    assert not (run.run_dir / "result.json").exists()
    resume_inline(run.run_dir)
    assert_same_run(Outcome.read(run.run_dir), oracle(NUM_UPDATES))


def test_ctrl_c_while_a_dead_worker_is_being_replaced_is_passed_on_and_the_run_resumes_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(KILL_AT, "before a step:40")
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    launch, num_workers = Supervisor._launch, 3
    launched: list[WorkerProcess] = []

    def interrupted_launch(self: Supervisor, spare: bool = False) -> WorkerProcess:
        if len(launched) == num_workers:
            raise KeyboardInterrupt
        launched.append(launch(self, spare))
        return launched[-1]

    monkeypatch.setattr(spares, "FIRST_AFTER_SECONDS", 600.0)  # a spare would be there already
    monkeypatch.setattr(Supervisor, "_launch", interrupted_launch)
    worker_layout = quiet_placement(num_executors=1, num_actors=1, run_dir=tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        train(Config(small_experiment(NUM_UPDATES), worker_layout))
    assert workers_left() == []
    resume_inline(tmp_path / "run")
    assert_same_run(Outcome.read(tmp_path / "run"), oracle(NUM_UPDATES))


def test_the_policy_of_an_interrupted_run_is_whole_even_while_a_new_learner_makes_it_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The learner before it had reported the version, and was killed before it published it."""
    long_updates = PPO(epochs=80, num_minibatches=4, anneal_learning_rate=False)
    experiment = Experiment("CartPole-v1", algorithm=long_updates, num_envs=2, sync_interval=16, total_steps=20 * 32)
    monkeypatch.setenv(KILL_AT, "before a publish:2")
    monkeypatch.setenv(KILL_ONCE, str(tmp_path / "killed"))
    replace_worker = Supervisor._replace

    def replace_and_interrupt(self: Supervisor, number: int) -> None:
        slot = self._block["parameter_slots"][2]
        reported = slot.copy()
        replace_worker(self, number)
        while (slot == reported).all():  # until the new learner has begun
            time.sleep(0.001)
        raise KeyboardInterrupt

    monkeypatch.setattr(Supervisor, "_replace", replace_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        train(Config(experiment, quiet_placement(num_executors=1, num_actors=0, run_dir=tmp_path / "run")))
    with safe_open(tmp_path / "run" / "policy.safetensors", "numpy") as policy:
        version = int(policy.metadata()["version"])
    as_far = replace(experiment, total_steps=version * experiment.batch_steps)
    assert (tmp_path / "run" / "policy.safetensors").read_bytes() == helpers.run(as_far).policy
