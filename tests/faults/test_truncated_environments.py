"""With on_env_error="truncate", an exception in an environment costs the rest of its episode and is counted."""

from __future__ import annotations

from collections.abc import Collection
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
    run_dir: Path,
    fault: Fault,
    where: Literal["step", "reset"] = "step",
    on_env_error: Literal["truncate", "exclude"] = "truncate",
    episodes: Collection[int] = (1,),
    **placement: Any,
) -> RunResult:
    """Two environments; in the second episode of the first, something goes wrong, or in those that are said."""
    seeds = [reset_seed(seed=1, env=0, episode=episode) for episode in episodes]
    env = partial(Faulty, fault, where, seeds, FAULT_STEP, EPISODE_STEPS)
    experiment = Experiment(
        env, algorithm=A2C(), num_envs=2, sync_interval=8, total_steps=320, on_env_error=on_env_error
    )
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


@pytest.mark.parametrize("on_env_error", ["truncate", "exclude"])
def test_an_episode_whose_reset_fails_is_counted_and_left_out(
    tmp_path: Path, on_env_error: Literal["truncate", "exclude"]
) -> None:
    result = train_with(tmp_path / "run", "raise", where="reset", on_env_error=on_env_error)
    assert (result.env_errors, result.interrupted) == (1, False)
    lines = read_json_lines(tmp_path / "run" / "metrics.jsonl")
    assert lines[-1]["rollout/ep_len_mean"] == EPISODE_STEPS, "the episode after it takes its place"
    processes = train_with(
        tmp_path / "processes", "raise", where="reset", on_env_error=on_env_error, backend="processes", num_executors=2
    )
    assert (processes.digest, processes.env_errors, processes.restarts) == (result.digest, 1, 0)


def test_an_environment_that_cannot_begin_any_episode_ends_the_run(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFailure, match=r"environment 0 raised ValueError in reset.*\(episode 4, seed"):
        train_with(tmp_path / "run", "raise", where="reset", episodes=range(1, 9))


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
