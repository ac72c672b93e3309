"""`htsrl.check_env`: whether an environment can be trained on reproducibly, and what its speed asks for."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from htsrl.config import EnvFactory, available_cores
from htsrl.config.file import env_name
from htsrl.envs.check.advice import executors_advice, sync_interval_advice
from htsrl.envs.check.examination import PLAYED, REPLAYED
from htsrl.envs.check.findings import Finding, Report
from htsrl.envs.check.job import CheckJob, Conditions, Subject
from htsrl.envs.check.plot import check_picture, draw_times
from htsrl.envs.check.process import Account, run_job
from htsrl.envs.check.reproduction import (
    HOME,
    other_process_findings,
    replay_finding,
    same_process_findings,
    seed_finding,
)
from htsrl.envs.check.timing import Spread, StepTimes
from htsrl.errors import ConfigError

DEFAULT_STEPS = 2000
DEFAULT_DEADLINE_SECONDS = 60.0
MAX_SEED = 2**63 - 1

Announce = Callable[[str], None]


def check_env(
    env: str | EnvFactory,
    *,
    env_args: Mapping[str, Any] | None = None,
    imports: Sequence[str] = (),
    steps: int = DEFAULT_STEPS,
    seed: int = 1,
    deadline_seconds: float = DEFAULT_DEADLINE_SECONDS,
    plot: Path | None = None,
    announce: Announce = lambda stage: None,
) -> Report:
    """Play an environment in processes of its own and report what was found.

    It plays `steps` steps with the seeds that environment 0 of a run with `seed` has, several times. A process that is
    silent for `deadline_seconds` is killed, which is a finding like any other. Only what cannot be tried at all, such
    as an unknown id, raises ConfigError.
    """
    if steps < 1:
        raise ConfigError(f"steps={steps} must be at least 1")
    if not 0 <= seed <= MAX_SEED:
        raise ConfigError(f"seed={seed} must be from 0 to {MAX_SEED}")
    if not 0 < deadline_seconds < math.inf:
        raise ConfigError(f"deadline_seconds={deadline_seconds} must be finite and above 0")
    if plot is not None:
        check_picture(plot)
    check = _Check(Subject(env, env_args or {}, imports), steps, seed, deadline_seconds, announce)
    report = check.report()
    if plot is not None and report.times is not None:
        announce(f"drawing {plot}")
        draw_times(report.env, report.times, plot)
    return report


@dataclass(frozen=True)
class _Check:
    """One check: its stages, each in a process of its own."""

    subject: Subject
    steps: int
    seed: int
    deadline_seconds: float
    announce: Announce

    def report(self) -> Report:
        contract = self._run("contract", "looking at its spaces and its contract", HOME)
        findings, times = [*contract.findings], None
        if contract.failure is not None:
            findings.append(_broken(contract.failure))
        else:
            home = self._run("examine", f"playing {self.steps:,} steps and episodes again", HOME)
            findings += home.findings
            if home.failure is not None:
                findings.append(_broken(home.failure))
            else:
                times = StepTimes.of(home.sections[PLAYED])
                findings += self._conclusions(home, times)
        return Report(env_name(self.subject.env), tuple(findings), times)

    def _conclusions(self, home: Account, times: StepTimes) -> Iterator[Finding]:
        saves_state = REPLAYED not in home.sections
        yield from same_process_findings(home, saves_state)
        yield from other_process_findings(home, self._play_under)
        yield seed_finding(home)
        if not saves_state:
            yield replay_finding(home, times)
        yield from _timing_findings(times)

    def _play_under(self, conditions: Conditions) -> Account:
        settings = f"PYTHONHASHSEED={conditions.hash_seed}, global generators seeded with {conditions.global_seed}"
        return self._run("play", f"playing in another process ({settings})", conditions)

    def _run(self, task: Literal["contract", "examine", "play"], stage: str, conditions: Conditions) -> Account:
        self.announce(stage)
        job = CheckJob(task, self.subject, self.seed, self.steps, conditions.global_seed, os.getpid())
        return run_job(job, conditions, self.deadline_seconds)


def _broken(failure: str) -> Finding:
    return Finding("fail", "run", f"the check ended {failure}")


def _timing_findings(times: StepTimes) -> Iterator[Finding]:
    busy = os.getloadavg()[0] > available_cores()
    note = "; the machine is busy with other things, which makes the tail longer" if busy else ""
    yield Finding("ok", "timing", f"a step takes {Spread.of(times.step_seconds)}{note}")
    yield Finding("ok", "timing", f"a reset takes {Spread.of(times.reset_seconds)}")
    yield Finding("ok", "advice", executors_advice(times))
    yield Finding("ok", "advice", sync_interval_advice(times))
