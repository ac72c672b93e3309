"""What a check asks of another process, and what it is told by it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import gymnasium

from htsrl.config import EnvFactory
from htsrl.envs.check.calls import Call
from htsrl.envs.check.findings import Finding
from htsrl.envs.make import make_env


@dataclass(frozen=True)
class Subject:
    """The environment that is checked."""

    env: str | EnvFactory
    env_args: Mapping[str, Any] = field(default_factory=dict)
    imports: Sequence[str] = ()

    def make(self) -> gymnasium.Env[Any, Any]:
        return make_env(self.env, self.env_args, self.imports)


@dataclass(frozen=True)
class Conditions:
    """What differs between processes and must not change an episode."""

    hash_seed: int
    """PYTHONHASHSEED: the hashes of strings, and so the order of sets."""
    global_seed: int
    """Of the global generators of `random` and `numpy.random`, at the start of the process."""


@dataclass(frozen=True)
class CheckJob:
    """A piece of work for a process of its own."""

    task: Literal["contract", "examine", "play"]
    """contract: keep the rules. examine: play and play again, in one process. play: play only."""
    subject: Subject
    seed: int
    steps: int
    global_seed: int
    parent_pid: int


class ReportWriter:
    """The way from that process back; everything is written at once, for the environment may end the process."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        os.set_inheritable(fd, False)  # what the environment starts must not hold it open

    def stage(self, text: str) -> None:
        """What is done from now on, for the message should it be the last."""
        self._send(kind="stage", text=text)

    def call(self, section: str, call: Call) -> None:
        self._send(kind="call", section=section, **asdict(call))

    def finding(self, finding: Finding) -> None:
        self._send(kind="finding", **asdict(finding))

    def end(self, kind: Literal["done", "failure", "bad input"], text: str = "") -> None:
        self._send(kind=kind, text=text)

    def _send(self, **message: Any) -> None:
        rest = json.dumps(message).encode() + b"\n"
        while rest:
            rest = rest[os.write(self._fd, rest) :]
