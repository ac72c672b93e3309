"""With on_env_error="truncate", an exception in an environment costs the rest of its episode and is counted."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from fault_envs import Fault, Faulty

from htsrl import A2C, Config, EnvironmentFailure, Experiment, Placement, RunResult, resume, train
from htsrl.digest import read_links
from htsrl.metrics.sinks import read_json_lines
from htsrl.seeding import reset_seed

EPISODE_STEPS, FAULT_STEP = 10, 4


def train_with(
    run_dir: Path, fault: Fault, where: Literal["step", "reset"] = "step", once: str | None = None, **placement: Any
) -> RunResult:
    """Two environments; in the second episode of the first, something goes wrong."""
    seed = reset_seed(seed=1, env=0, episode=1)
    env = partial(Faulty, fault, where, seed, FAULT_STEP, EPISODE_STEPS, once=once)
    experiment = Experiment(env, algorithm=A2C(), num_envs=2, sync_interval=8, total_steps=320, on_env_error="truncate")
    settings: dict[str, Any] = {"backend": "inline", "tensorboard": False, "progress": "off", "log_every_steps": 1}
    return train(Config(experiment, Placement(**{**settings, "run_dir": run_dir, **placement})))


@pytest.mark.parametrize("fault", ["raise", "sys.exit", "not finite", "shape"])
def test_a_failed_step_ends_the_episode_as_truncated_and_is_counted(tmp_path: Path, fault: Fault) -> None:
    result = train_with(tmp_path / "run", fault)
    assert (result.env_errors, result.interrupted) == (1, False)
    lines = read_json_lines(tmp_path / "run" / "metrics.jsonl")
    assert [line["rollout/env_errors"] for line in lines] == [0, *[1] * (len(lines) - 1)], "in the second rollout"
    # Its first episode has ten steps of reward 1, its second ends after the four that went well.
    assert lines[1]["rollout/ep_len_mean"] == pytest.approx((10 + 10 + 5) / 3)
    assert lines[1]["rollout/ep_rew_mean"] == pytest.approx((10 + 10 + 4) / 3)


def test_without_failures_nothing_is_counted(tmp_path: Path) -> None:
    assert train_with(tmp_path / "run", "none").env_errors == 0


def test_a_reset_that_fails_once_is_tried_again_with_a_new_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = train_with(tmp_path / "run", "raise", where="reset", once="it_happened")
    assert Path("it_happened").exists()
    assert result.digest == train_with(tmp_path / "undisturbed", "none").digest


def test_a_reset_that_fails_again_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match=r"environment 0 raised ValueError in reset"):
        train_with(tmp_path / "run", "raise", where="reset")


def test_the_placement_and_a_resume_change_neither_bits_nor_count(tmp_path: Path) -> None:
    inline = train_with(tmp_path / "inline", "raise", checkpoint_every_updates=1, keep_checkpoints=100)
    processes = train_with(tmp_path / "processes", "raise", backend="processes", num_executors=2, num_actors=1)
    assert read_links(tmp_path / "processes") == read_links(tmp_path / "inline")
    assert (processes.env_errors, processes.restarts) == (1, 0)
    threads = train_with(tmp_path / "threads", "raise", backend="processes", num_executors=1, executor_threads=True)
    assert read_links(tmp_path / "threads") == read_links(tmp_path / "inline")
    assert (threads.env_errors, threads.restarts) == (1, 0)
    for checkpoint in sorted((tmp_path / "inline" / "checkpoints").iterdir())[4:]:
        for file in checkpoint.iterdir():
            file.unlink()
        checkpoint.rmdir()
    seed = reset_seed(seed=1, env=0, episode=1)
    env = partial(Faulty, "raise", "step", seed, FAULT_STEP, EPISODE_STEPS)
    resumed = resume(tmp_path / "inline", env=env)
    assert (resumed.digest, resumed.env_errors) == (inline.digest, 1)
