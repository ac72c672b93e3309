"""Runs a job in a fresh interpreter and listens to it; a silent one is killed."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from htsrl.envs.check.calls import Call
from htsrl.envs.check.findings import Finding
from htsrl.envs.check.job import CheckJob, Conditions
from htsrl.errors import ConfigError
from htsrl.numerics import ONE_THREAD

STDERR = 2
GRACE_SECONDS = 2.0
CHUNK = 1 << 16


@dataclass
class Account:
    """What a process told until it was done, or until it failed."""

    findings: list[Finding] = field(default_factory=list)
    sections: dict[str, list[Call]] = field(default_factory=dict)
    failure: str | None = None
    stage: str = "before it was made"
    last_call: Call | None = None

    @property
    def place(self) -> str:
        return self.stage if self.last_call is None else f"{self.stage}, after {self.last_call.place}"

    def take(self, message: dict[str, Any]) -> bool:
        """Note what was told; whether it was the last word."""
        kind = message.pop("kind")
        if kind == "call":
            self.last_call = Call(**{name: value for name, value in message.items() if name != "section"})
            self.sections.setdefault(message["section"], []).append(self.last_call)
        elif kind == "finding":
            self.findings.append(Finding(**message))
        elif kind == "stage":
            self.stage, self.last_call = message["text"], None
        elif kind == "bad input":
            raise ConfigError(message["text"])
        elif kind == "failure":
            self.failure = f"{self.stage}: {message['text']}"
        return kind in ("done", "failure")


def run_job(job: CheckJob, conditions: Conditions, deadline_seconds: float) -> Account:
    """Do the job under these conditions; whatever becomes of the process, it is gone afterwards."""
    account = Account()
    read_fd, write_fd = os.pipe()
    process = _start(conditions, write_fd)
    os.close(write_fd)
    try:
        _hand_over(process, job)
        for message in _messages(read_fd, deadline_seconds):
            if account.take(message):
                _wait(process)
                return account
        account.failure = _death_report(process, account, deadline_seconds)
        return account
    finally:
        _end(process)
        os.close(read_fd)


def _start(conditions: Conditions, report_fd: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "htsrl.envs.check.child", str(report_fd)],
        stdin=subprocess.PIPE,
        stdout=STDERR,  # what an environment prints is no finding
        pass_fds=[report_fd],
        env=environment | {"PYTHONHASHSEED": str(conditions.hash_seed)},
        process_group=0,
    )


def _hand_over(process: subprocess.Popen[bytes], job: CheckJob) -> None:
    assert process.stdin is not None
    try:
        with process.stdin:
            process.stdin.write(cloudpickle.dumps(job))
    except BrokenPipeError:
        pass  # it has ended; its messages, or their lack, tell


def _messages(fd: int, deadline_seconds: float) -> Iterator[dict[str, Any]]:
    """Until the writing end is closed, or nothing came for too long."""
    poll, unfinished = select.poll(), b""
    poll.register(fd, select.POLLIN | select.POLLHUP)
    while poll.poll(deadline_seconds * 1000):
        chunk = os.read(fd, CHUNK)
        if not chunk:
            return
        *lines, unfinished = (unfinished + chunk).split(b"\n")
        yield from map(json.loads, lines)


def _death_report(process: subprocess.Popen[bytes], account: Account, deadline_seconds: float) -> str:
    _wait(process)
    code = process.poll()
    if code is None:
        return (
            f"nothing was heard for {deadline_seconds:g} s {account.place}, so it was ended; "
            "if a step or a reset may take that long, give it more with --deadline-seconds"
        )
    cause = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
    return f"the process {cause} {account.place}; an environment must raise or return, never end its process"


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        pass  # `_end` sees to it


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process and what it may have started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass  # all of them have ended
    process.wait()
