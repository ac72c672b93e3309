"""A run that has had no update for a while says whom it waits for, so that a hang can be told from a slow reset."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import htsrl
from htsrl import A2C, Config, Experiment, Placement
from htsrl.runs import stall
from htsrl.runs.stall import Stall, StallFile
from htsrl.seeding import reset_seed

SLOW_ENV = 2
BLOCKED_SECONDS = 60.0  # the run ends even where nothing is said


class Blocking(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole; in the episodes that were reset with these seeds, the reset and a step wait until there is a file."""

    def __init__(self, folder: Path, in_reset: int, in_step: int) -> None:
        super().__init__(gymnasium.make("CartPole-v1", max_episode_steps=8))
        self._folder, self._in_reset, self._in_step = folder, in_reset, in_step
        self._steps = 0
        self._seed: int | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self._steps, self._seed = 0, seed
        if seed == self._in_reset:
            self._wait_for("reset")
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        self._steps += 1
        if self._seed == self._in_step and self._steps == 3:
            self._wait_for("step")
        return super().step(action)

    def _wait_for(self, name: str) -> None:
        give_up_at = time.monotonic() + BLOCKED_SECONDS
        while not (self._folder / name).exists() and time.monotonic() < give_up_at:
            time.sleep(0.01)


def test_the_environment_that_is_waited_for_is_named_and_whether_it_resets_or_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stall, "QUIET_SECONDS", 0.2)
    monkeypatch.setattr(stall, "LONG_CALL_SECONDS", 0.1)
    written: list[dict[str, Any]] = []
    write = StallFile.write

    def write_and_let_go(self: StallFile, of: Stall) -> None:
        write(self, of)
        if of.env == SLOW_ENV:  # on a loaded machine others may be long, too
            written.append(json.loads((tmp_path / "run" / "stall.json").read_text()))
            (tmp_path / str(of.call)).touch()

    monkeypatch.setattr(StallFile, "write", write_and_let_go)
    in_reset, in_step = reset_seed(1, SLOW_ENV, 1), reset_seed(1, SLOW_ENV, 3)
    experiment = Experiment(
        lambda: Blocking(tmp_path, in_reset, in_step), total_steps=480, algorithm=A2C(), num_envs=4, seed=1
    )
    placement = Placement(
        run_dir=tmp_path / "run",
        num_executors=2,
        executor_threads=False,
        tensorboard=False,
        progress="plain",
        check_env=False,
    )
    htsrl.train(Config(experiment, placement))
    said = re.findall(r"no update for \d+ s: (.*) for \d+ s\n", capsys.readouterr().err)
    who = f"environment {SLOW_ENV} of executor 1 with actor 1 is inside its"
    assert list(dict.fromkeys(line for line in said if line.startswith(who))) == [f"{who} reset", f"{who} step"]
    assert [(of["env"], of["call"]) for of in written] == [(SLOW_ENV, "reset"), (SLOW_ENV, "step")]
    assert not (tmp_path / "run" / "stall.json").exists()
