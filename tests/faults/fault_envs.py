"""An environment that does something bad, once, at a moment that a test chooses."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

Fault = Literal[
    "none", "raise", "sys.exit", "fork and exit", "hang", "segfault", "not finite", "shape", "open files", "leak", "hog"
]  # fmt: skip
LEAK_BYTES = 8 << 20
MAX_LEAKS = 40
"""Steps that a process has memory for."""
MAX_OPEN_FILES = 256
HANG_SECONDS = 60.0  # longer than any test waits, and short enough for a test that fails to end by itself
DIED_AT = "died_at"
"""File in the current folder that holds the time of a sudden end."""


class Faulty(gymnasium.Env[NDArray[np.float32], np.int64]):
    """Endless; in an episode that was reset with `fault_seed`, its step `fault_step`, or its reset, goes wrong."""

    def __init__(
        self,
        fault: Fault = "none",
        where: Literal["step", "reset"] = "step",
        fault_seed: int | Collection[int] = -1,
        fault_step: int = 0,
        episode_steps: int = 1000,
        step_seconds: float = 0.0,
        once: str | None = None,
    ) -> None:
        """With `once`, the name of a file, the fault happens only as long as there is no such file, and makes it."""
        self.observation_space = spaces.Box(0.0, 1.0, (2,), np.float32)
        self.action_space = spaces.Discrete(2)
        self._fault = fault
        self._where = where
        self._fault_seeds = {fault_seed} if isinstance(fault_seed, int) else {*fault_seed}
        self._fault_step = fault_step
        self._episode_steps = episode_steps
        self._step_seconds = step_seconds
        self._once = once
        self._leaked: list[Any] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._steps = 0
        self._armed = seed in self._fault_seeds
        if self._armed and self._where == "reset":
            self._go_wrong()
        return self._observation(), {}

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self._step_seconds:
            time.sleep(self._step_seconds * random.uniform(0.5, 1.5))
        if self._armed and self._where == "step" and self._steps == self._fault_step:
            self._go_wrong()
        self._steps += 1
        if "htsrl.placements.worker" in sys.orig_argv:  # and not where it is only looked at
            self._leak()
        return self._observation(), 1.0, self._steps == self._episode_steps, False, {}

    def _leak(self) -> None:
        if self._fault == "open files":
            if not self._leaked:
                resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_OPEN_FILES, MAX_OPEN_FILES))
            self._leaked.append(Path(os.devnull).open())  # noqa: SIM115  (a leak is what is wanted)
        if self._fault == "leak":
            if not self._leaked:
                limit_memory(MAX_LEAKS * LEAK_BYTES)
            self._leaked.append(bytearray(LEAK_BYTES))

    def _observation(self) -> NDArray[np.float32]:
        seen = np.full(2, self._steps % 2, np.float32)
        if self._is_due() and self._fault == "not finite":
            return seen * np.nan
        return seen[:1] if self._is_due() and self._fault == "shape" else seen

    def _is_due(self) -> bool:
        return self._armed and self._steps == self._fault_step + 1

    def _go_wrong(self) -> None:
        if self._once is not None:
            try:
                Path(self._once).touch(exist_ok=False)
            except FileExistsError:
                return
        if self._fault == "segfault":
            signal.raise_signal(signal.SIGSEGV)  # in this very thread
        if self._fault == "hog":  # as the kernel does it
            self._leaked.append(b"x" * LEAK_BYTES)
            os.kill(os.getpid(), signal.SIGKILL)
        if self._fault == "raise":
            raise ValueError("the robot fell over")
        if self._fault == "sys.exit":
            sys.exit("the simulator wants no more")
        if self._fault == "hang":
            time.sleep(HANG_SECONDS)
            return
        if self._fault == "fork and exit":
            # As a simulator with helpers of its own may: the child inherits every file that is open here.
            if os.fork() == 0:
                time.sleep(HANG_SECONDS)
            Path(DIED_AT).write_text(str(time.time()))
            os._exit(3)


class Patient(Faulty):
    """Takes its time until there is a file "killed", and hangs where it is made by a spare, if asked to."""

    may_be_made_ahead = True

    def __init__(self, hangs_in_spare: bool) -> None:
        super().__init__(episode_steps=50)
        with Path("made").open("a") as made:
            made.write(f"{os.getpid()}\n")
        if hangs_in_spare and "--spare" in sys.argv:
            Path("hanging").touch()
            time.sleep(HANG_SECONDS)

    def step(self, action: np.int64) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not Path("killed").exists():
            time.sleep(0.05)
        return super().step(action)


def limit_memory(more_bytes: int) -> None:
    """Let this process have so much more than it has, and nothing beyond."""
    (data,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmData:")]
    most = int(data.split()[1]) * 1024 + more_bytes
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


gymnasium.register(id="Faulty-v0", entry_point=f"{__name__}:Faulty")
