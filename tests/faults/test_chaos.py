"""Processes of a run are killed at random, over and over, the supervisor included: nothing is lost, no bit changes."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from helpers import Outcome, assert_same_run
from live_run import LiveRun, is_alive, patience, survivors
from small_run import oracle, quiet_placement, resume_inline, small_experiment, small_flags

from htsrl import Config, train
from htsrl.checkpoint.files import newest_valid
from htsrl.runs.folder import RunFolder
from htsrl_bench import chaos
from htsrl_bench.chaos import Lived, Verdict
from htsrl_bench.killer import children_of, plan
from htsrl_bench.killer import is_alive as is_alive_to_the_killer
from htsrl_bench.tables.chaos import ChaosTable

NUM_UPDATES = 300
MAX_STRIKES = 30
# The delays keep the run from getting far between two looks at it, or its end from coming too soon.
SLOWLY = ("--jitter-seconds", "0.01", "--checkpoint-every-updates", "20")
OBITUARY = re.compile(
    r"^(executor|actor|learner)(?: \d+)? \(pid (\d+)\) was killed by SIGKILL .* is started again$", re.MULTILINE
)
ROLES = {"executor", "actor", "learner"}


@dataclass
class Killer:
    """Knows pids only; what role each one had, the run itself tells afterwards."""

    draw: random.Random
    victims: list[psutil.Process] = field(default_factory=list)

    def strike(self, run: LiveRun, num_updates: int, num_workers: int) -> None:
        """Once the run has come so far, kill a random worker, and perhaps others while the first is started again."""
        run.wait_until(lambda: run.num_metrics() >= num_updates and len(self.prey(run)) >= num_workers, patience(60.0))
        for _ in range(self.draw.choice((1, 1, 2, 3))):
            if prey := self.prey(run):
                self.victims.append(victim := self.draw.choice(prey))
                print(f"update {run.num_metrics()}: killing pid {victim.pid}, one of {len(prey)}")
                victim.send_signal(signal.SIGKILL)
            time.sleep(self.draw.uniform(0.0, 0.3))

    def prey(self, run: LiveRun) -> list[psutil.Process]:
        """Every living child, the spare included: whoever looks at pids cannot tell."""
        children = run.main.children()
        run.workers = [*{*run.workers, *children}]
        return [child for child in children if is_alive(child) and child not in self.victims]

    def rage(self, run: LiveRun, updates: range, num_workers: int, num_kills: int) -> None:
        """Strike at random updates until every role was hit, and often enough, then kill the supervisor, if there is
        something to resume from."""
        num_before = len(self.victims)
        for num_updates in sorted(self.draw.sample(updates, MAX_STRIKES)):
            self.strike(run, num_updates, num_workers)
            if len(self.victims) - num_before >= num_kills and roles_hit(run).keys() == ROLES:
                break
        checkpoints = RunFolder(run.run_dir).checkpoints_dir
        run.wait_until(lambda: newest_valid(checkpoints, print) is not None, patience(60.0))
        assert is_alive(run.main), f"the run ended by itself:\n{run.stderr}"
        run.main.send_signal(signal.SIGKILL)
        run.wait_for_end()


def roles_hit(run: LiveRun) -> Counter[str]:
    """How often each role was, as far as the supervisor lived to tell."""
    return Counter(role for role, _ in OBITUARY.findall(run.stderr))


def kill_over_and_over(run: LiveRun, killer: Killer, updates: range, num_kills: int) -> Counter[str]:
    """Returns the kills by role; leaves no process behind."""
    try:
        killer.rage(run, updates, num_workers=4, num_kills=num_kills)
        assert survivors(run.workers) == []
    finally:
        run.clean_up()
    assert roles_hit(run).keys() == ROLES, f"killed were {roles_hit(run)}"
    strangers = {int(pid) for _, pid in OBITUARY.findall(run.stderr)} - {victim.pid for victim in killer.victims}
    assert strangers == set(), f"someone else died:\n{run.stderr}"
    return roles_hit(run)


@pytest.mark.parametrize("kills_per_supervisor", [5, pytest.param(10, marks=pytest.mark.slow)])
def test_many_kills_over_all_roles_and_two_of_the_supervisor_change_no_bit(
    tmp_path: Path, kills_per_supervisor: int
) -> None:
    seed = int(os.environ.get("HTSRL_CHAOS_SEED", time.time_ns() % 1_000_000))
    print(f"HTSRL_CHAOS_SEED={seed}")
    killer = Killer(random.Random(seed))
    separate = ("--num-executors", "2", "--num-actors", "1")
    run = LiveRun(tmp_path, *small_flags(NUM_UPDATES), *separate, *SLOWLY)
    roles = kill_over_and_over(run, killer, range(21, 100), kills_per_supervisor)
    run = LiveRun.resumed(tmp_path, "--num-executors", "1", "--num-actors", "2")
    roles += kill_over_and_over(run, killer, range(121, 220), kills_per_supervisor)
    resume_inline(run.run_dir)
    print(f"killed: {dict(roles)} and 2 supervisors")
    assert len(killer.victims) >= 2 * kills_per_supervisor
    assert_same_run(Outcome.read(run.run_dir), oracle(NUM_UPDATES))


def test_the_killer_of_the_bench_sees_the_living_children_of_a_process_and_no_others() -> None:
    living, dead = (subprocess.Popen(["sleep", "60"]) for _ in range(2))
    try:
        dead.kill()
        os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)  # dead, and not fetched
        children = children_of(os.getpid())
        assert living.pid in children
        assert dead.pid not in children
        assert os.getpid() not in children
        assert (is_alive_to_the_killer(living.pid), is_alive_to_the_killer(dead.pid)) == (True, False)
    finally:
        living.kill()
        living.wait()
        dead.wait()


def test_the_killer_of_the_bench_spreads_its_kills_over_the_time_and_means_the_supervisor_sometimes() -> None:
    for seed in range(20):
        intentions = plan(random.Random(seed), kills=50, seconds=100.0)
        assert len(intentions) == 50
        assert min(intention.pause_seconds for intention in intentions) >= 0.0
        assert 80.0 < sum(intention.pause_seconds for intention in intentions) <= 100.0
        assert sum(intention.is_main for intention in intentions) == 2
    assert plan(random.Random(1), 50, 100.0) == plan(random.Random(1), 50, 100.0)


@pytest.mark.parametrize(
    ("kills", "difference", "exit_code"), [(3, None, 0), (3, "barrier 3: environment 0, tensor obs", 1), (4, None, 1)]
)
def test_the_bench_fails_where_runs_differ_or_kills_are_missing_and_writes_its_record_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: int, difference: str | None, exit_code: int
) -> None:
    lived = Lived("undisturbed", 10.0, 100.0, "0" * 32, kills={}, restarts=0, resumes=0, new_starts=0)
    disturbed = replace(lived, run="disturbed", kills={"learner": 2, "supervisor": 1}, restarts=2, resumes=1)
    verdict = Verdict("cartpole", lived, disturbed, difference, kills)
    monkeypatch.setattr(chaos, "endure", lambda *_: verdict)
    assert ChaosTable(task="cartpole", kills=kills, output=tmp_path).run() == exit_code
    (path,) = tmp_path.glob("chaos-cartpole.json")
    summary = json.loads(path.read_text())["summary"]
    assert (summary["equal"], summary["difference"]) == (difference is None, difference)
    assert summary["kills"] == {"learner": 2, "supervisor": 1}
    text = path.with_suffix(".md").read_text()
    assert ("THE RUNS DIFFER: barrier 3" in text) == (difference is not None)
    assert ("after 3 of 4 kills" in text) == (kills == 4)


def test_the_bench_notices_runs_that_differ(tmp_path: Path) -> None:
    config = Config(small_experiment(4))
    runs = {name: small_experiment(4) for name in ("one", "same", "other")}
    runs["other"] = replace(runs["other"], seed=2)
    for name, experiment in runs.items():
        train(Config(experiment, quiet_placement(backend="inline", run_dir=tmp_path / name)))
    assert chaos.difference_of(tmp_path / "one", tmp_path / "same", config) is None
    assert chaos.difference_of(tmp_path / "one", tmp_path / "other", config) is not None
    policy = tmp_path / "same" / "policy.safetensors"
    policy.write_bytes(policy.read_bytes()[:-1] + b"?")
    assert chaos.difference_of(tmp_path / "one", tmp_path / "same", config) == (
        "the digests are equal, policy.safetensors is not"
    )
