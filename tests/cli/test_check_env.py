"""`htsrl check-env` as a user runs it: what it prints, and its exit code."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import run_htsrl

FAULTY = """
import os
import gymnasium
import numpy as np

class Faulty(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, fault):
        self.fault = fault

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        print("chatter of the simulator")
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        if self.fault == "exit" and self.np_random.random() < 0.05:
            os._exit(7)
        reward = np.random.random() if self.fault == "random" else 1.0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), reward, self.np_random.random() < 0.1, False, {}

gymnasium.register(id="Faulty-v0", entry_point=Faulty)
"""
LINE = re.compile(r"(ok|warn|fail) +([a-z ]+): (.+)")
needs_atari = pytest.mark.skipif(find_spec("ale_py") is None, reason="needs htsrl[atari]")


def findings(stdout: str) -> list[tuple[str, str, str]]:
    return [(found[1], found[2], found[3]) for line in stdout.splitlines() if (found := LINE.fullmatch(line))]


@pytest.mark.parametrize(
    "env", ["CartPole-v1", "Pendulum-v1", "htsrl/PixelCatch-v0", pytest.param("ALE/Pong-v5", marks=needs_atari)]
)
def test_a_sound_environment_passes(tmp_path: Path, env: str) -> None:
    outcome = run_htsrl(tmp_path, "check-env", env, "--steps", "400")
    assert outcome.exit_code == 0, outcome.stdout + outcome.stderr
    found = findings(outcome.stdout)
    assert {level for level, _, _ in found} <= {"ok", "warn"}
    topics = {topic for _, topic, _ in found}
    assert topics == {
        *("spaces", "contract", "values", "memory", "same process", "reset", "other process", "seeds", "state"),
        *("timing", "advice"),
    }
    assert "time of a step (400 steps)" in outcome.stdout
    assert re.search(r"^ +128 .+%$", outcome.stdout, re.MULTILINE)


def test_stages_are_announced_on_stderr_and_a_picture_is_drawn(tmp_path: Path) -> None:
    outcome = run_htsrl(tmp_path, "check-env", "CartPole-v1", "--steps", "50", "--plot", "times.png")
    assert outcome.exit_code == 0
    assert outcome.stderr.splitlines() == [
        "looking at its spaces and its contract ...",
        "playing 50 steps and episodes again ...",
        "playing in another process (PYTHONHASHSEED=2, global generators seeded with 2) ...",
        "drawing times.png ...",
    ]
    assert (tmp_path / "times.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("fault", "topic"), [("random", "other process"), ("exit", "run")])
def test_a_fault_ends_with_exit_code_1_and_a_line_that_names_it(tmp_path: Path, fault: str, topic: str) -> None:
    (tmp_path / "faulty.py").write_text(FAULTY)
    arguments = ("--import", "faulty", "--env-arg", f"fault={fault}", "--steps", "200")
    outcome = run_htsrl(tmp_path, "check-env", "Faulty-v0", *arguments)
    assert outcome.exit_code == 1, outcome.stdout + outcome.stderr
    assert topic in {topic for level, topic, _ in findings(outcome.stdout) if level == "fail"}
    assert "Traceback" not in outcome.stderr
    assert "chatter" not in outcome.stdout, "what an environment prints is no finding"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("CartPoel-v1", "did you mean CartPole-v1"),
        ("CartPole-v1 --env-arg gravity=9.81", "does not take env_args={'gravity': 9.81}"),
        ("CartPole-v1 --env-arg gravity", "--env-arg gravity must be KEY=VALUE"),
        ("CartPole-v1 --import no_such_module", "module 'no_such_module' cannot be imported"),
        ("CartPole-v1 --steps 0", "steps=0 must be at least 1"),
        ("CartPole-v1 --plot times.pdf", "--plot times.pdf must end in .png"),
    ],
)
def test_bad_input_ends_with_exit_code_2_and_one_sentence(tmp_path: Path, arguments: str, expected: str) -> None:
    outcome = run_htsrl(tmp_path, "check-env", *arguments.split())
    assert (outcome.exit_code, outcome.stdout) == (2, "")
    assert expected in outcome.stderr.splitlines()[-1]
    assert "Traceback" not in outcome.stderr
