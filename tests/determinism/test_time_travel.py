"""A stretch of a run, rebuilt, is what happened: to the bit, whatever the run was, or it is said where it parts."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from teams import Relay

from examples.reach import Reach
from htsrl import (
    A2C,
    PPO,
    SAC,
    Config,
    ConfigError,
    Experiment,
    MomentNotFound,
    Network,
    Placement,
    Replay,
    UntrustedFolder,
    record,
    replay,
    train,
)
from htsrl import resume as resume_run
from htsrl.checkpoint.files import Checkpoint, commit_checkpoint, newest_first, prepare_checkpoint, read_checkpoint
from htsrl.digest import hash_batch, read_links
from htsrl.envs.toy import PixelCatch

NUM_ENVS, STEPS, UPDATES = 3, 5, 6
CUT = {"max_episode_steps": 9}
BASE = Experiment(
    "CartPole-v1", CUT, algorithm=A2C(), num_envs=NUM_ENVS, sync_interval=STEPS, total_steps=UPDATES * NUM_ENVS * STEPS
)
LSTM = Network(recurrent="lstm", recurrent_size=8)
EXPERIMENTS = {
    "a small policy": BASE,
    "a memory": replace(BASE, network=LSTM),
    "pixels": replace(BASE, env="htsrl/PixelCatch-v0", env_args={"step_limit": 7}),
    "normalised": replace(
        BASE,
        env="Pendulum-v1",
        algorithm=PPO(epochs=1, num_minibatches=1, normalize_rewards=True),
        network=Network(normalize_observations=True),
    ),
    "a lag of two": replace(BASE, schedule="hts", lag=2),
    "a team": replace(BASE, env=Relay, env_args={}, algorithm=PPO(epochs=1, num_minibatches=1)),
    "asynchronous": replace(BASE, schedule="async", network=LSTM),
    "off-policy": replace(
        BASE,
        env="Pendulum-v1",
        algorithm=SAC(learning_starts=20, minibatch_size=8, replay_capacity=60),
        network=Network(hidden_sizes=(8,)),
    ),
    "lanes": replace(BASE, num_envs=4, lanes=2, total_steps=UPDATES * 4 * STEPS),
    "a lane that idles": replace(BASE, env=Reach, env_args={}, num_envs=4, lanes=2, total_steps=UPDATES * 4 * STEPS),
}


def quiet(run_dir: Path, **settings: Any) -> Placement:
    every = {"checkpoint_every_updates": 2, "keep_checkpoints": 9}
    return Placement(
        **{"backend": "inline", "run_dir": run_dir, "tensorboard": False, "progress": "off", **every, **settings}
    )


@cache
def run_of(name: str, folder: Path) -> Path:
    train(Config(EXPERIMENTS[name], quiet(folder)))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


def made(name: str, folders: Path) -> Path:
    return run_of(name, folders / name.replace(" ", "-"))


def hash_of_env(rebuilt: Replay, run_dir: Path) -> str:
    """Of the environment's part of a batch, from the arrays that a user gets, as the digest has it."""
    arrays = {"versions": rebuilt.arrays["version"], **rebuilt.arrays}
    return hash_batch({name: arrays[name][:, None] for name in read_links(run_dir)[0].tensors}, 1).envs


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_any_stretch_is_rebuilt_to_the_bit(name: str, folders: Path) -> None:
    run_dir = made(name, folders)
    before = {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")}
    env_id = {"a team": Relay, "a lane that idles": Reach}.get(name)
    update = UPDATES - 2
    env = 1
    if name == "asynchronous":
        picks = json.loads((run_dir / "schedule.jsonl").read_text().splitlines()[update])["picks"]
        env = picks[0][0]
    rebuilt = replay(run_dir, update=update, env=env, env_id=env_id)
    assert rebuilt.is_verified, rebuilt.verification
    assert rebuilt.verification.digest == read_links(run_dir)[update].chain
    if name not in ("a team", "asynchronous"):
        assert rebuilt.verification.first_update == update  # from a checkpoint
    if EXPERIMENTS[name].lanes is None and name not in ("a team", "asynchronous"):  # of a lane, the hash is of all
        assert hash_of_env(rebuilt, run_dir) == read_links(run_dir)[update].env_hashes()[env]
    assert {path: path.stat().st_mtime_ns for path in run_dir.rglob("*")} == before  # nothing was touched


def test_environments_of_lanes_have_episodes_and_moments_of_their_own(folders: Path) -> None:
    run_dir = made("lanes", folders)
    parts = [replay(run_dir, update=update, env=3, from_start=True).arrays for update in range(UPDATES)]
    whole = {
        name: np.concatenate([of_update[name] for of_update in parts]) for name in ("obs", "terminated", "truncated")
    }
    ends = np.flatnonzero(whole["terminated"] | whole["truncated"]) + 1
    episode = replay(run_dir, episode=1, env=3)
    np.testing.assert_array_equal(episode.arrays["obs"], whole["obs"][ends[0] : ends[1]])
    moment = replay(run_dir, until="length>0", env=3).moment
    assert moment is not None
    assert (moment.env, moment.step) == (3, ends[0] - 1)
    with pytest.raises(ConfigError, match="no frames"):
        replay(run_dir, update=1, env=3, frames=True)


@pytest.mark.parametrize("name", ["a small policy", "a memory", "pixels", "asynchronous", "lanes"])
def test_logits_are_those_that_the_stored_log_probabilities_came_from(name: str, folders: Path) -> None:
    run_dir = made(name, folders)
    rebuilt = next(found for env in range(NUM_ENVS) if (found := _or_none(run_dir, UPDATES - 1, env)) is not None)
    arrays = rebuilt.arrays
    log_probs = torch.log_softmax(torch.from_numpy(arrays["logits"]), dim=-1).numpy()
    chosen = np.take_along_axis(log_probs, arrays["actions"][:, None], axis=1)[:, 0]
    np.testing.assert_array_equal(chosen, arrays["log_probs"])
    np.testing.assert_allclose(arrays["probabilities"], np.exp(log_probs), rtol=1e-5)


def _or_none(run_dir: Path, update: int, env: int) -> Replay | None:
    try:
        return replay(run_dir, update=update, env=env)
    except (ConfigError, MomentNotFound):  # nothing of this environment, as happens under async
        return None


def test_a_run_that_was_resumed_is_rebuilt_over_the_seam(tmp_path: Path) -> None:
    # What is annealed over a run would be stretched by another length of it, and the start is gone then.
    half = replace(BASE, algorithm=A2C(anneal_learning_rate=False), total_steps=BASE.total_steps // 2)
    train(Config(half, quiet(tmp_path / "run", checkpoint_every_updates=None)))
    resume_run(tmp_path / "run", total_steps=BASE.total_steps)
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    assert replay(tmp_path / "run", update=UPDATES - 1, env=2).is_verified


def test_an_episode_is_shown_from_its_reset_to_its_end(folders: Path) -> None:
    run_dir = made("a small policy", folders)
    fields = [replay(run_dir, update=update, env=1, from_start=True).arrays for update in range(UPDATES)]
    whole = {name: np.concatenate([of_update[name] for of_update in fields]) for name in ("obs", "step", "actions")}
    ends = np.concatenate([x["terminated"] | x["truncated"] for x in fields])
    second = np.flatnonzero(ends)[:2] + 1
    rebuilt = replay(run_dir, episode=1, env=1)
    for name, array in whole.items():
        np.testing.assert_array_equal(rebuilt.arrays[name], array[second[0] : second[1]])
    assert rebuilt.is_verified
    last = replay(run_dir, episode=2, env=1)
    assert last.arrays["step"][0] == second[1]
    with pytest.raises(MomentNotFound, match="never came to episode 99"):
        replay(run_dir, episode=99, env=1)


def test_moments_are_found_and_marked(folders: Path) -> None:
    run_dir = made("a small policy", folders)
    rebuilt = replay(run_dir, until="length>=9", update=2)
    moment = rebuilt.moment
    assert moment is not None
    assert moment.update >= 2
    assert moment.step is not None
    row = rebuilt.arrays["step"].tolist().index(moment.step)
    assert rebuilt.arrays["episode_lengths"][row] >= 9
    by_metric = replay(run_dir, until="train/n_updates>=3")
    assert by_metric.moment is not None
    assert by_metric.moment.update == 2  # which makes version 3
    with pytest.raises(MomentNotFound, match="nan held in no environment"):
        replay(run_dir, until="nan")
    with pytest.raises(ConfigError, match="is not one of"):
        replay(run_dir, until="train/no_such_thing>1")


def copied(run_dir: Path, to: Path) -> Path:
    shutil.copytree(run_dir, to)
    return to


def test_a_damaged_checkpoint_is_passed_over(folders: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = copied(made("a small policy", folders), tmp_path / "run")
    state = run_dir / "checkpoints" / "000000004" / "state.safetensors"
    data = bytearray(state.read_bytes())
    data[-1] ^= 1
    state.write_bytes(data)
    rebuilt = replay(run_dir, update=4, env=0)
    assert rebuilt.is_verified
    assert rebuilt.verification.first_update == 2
    assert "passed over a damaged checkpoint" in capsys.readouterr().err


def test_a_checkpoint_with_other_weights_and_a_true_sum_is_noticed(folders: Path, tmp_path: Path) -> None:
    run_dir = copied(made("a small policy", folders), tmp_path / "run")
    checkpoints = run_dir / "checkpoints"
    path = dict(newest_first(checkpoints))[4]
    checkpoint = read_checkpoint(path)
    arrays = {name: np.array(x) for name, x in checkpoint.arrays.items()}
    arrays["version 4/parameter_slots"][0, 0] += 1e-3
    commit_checkpoint(prepare_checkpoint(checkpoints, Checkpoint(checkpoint.document, arrays)))
    rebuilt = replay(run_dir, update=4, env=0)
    assert not rebuilt.is_verified
    assert "barrier 4" in str(rebuilt.verification)
    assert "parameters" in str(rebuilt.verification)


def test_a_changed_digest_is_noticed(folders: Path, tmp_path: Path) -> None:
    run_dir = copied(made("a small policy", folders), tmp_path / "run")
    lines = (run_dir / "digest.jsonl").read_text().splitlines()
    link = json.loads(lines[4])
    link["envs"] = link["envs"][:8].translate(str.maketrans("0123456789abcdef", "123456789abcdef0")) + link["envs"][8:]
    (run_dir / "digest.jsonl").write_text("\n".join([*lines[:4], json.dumps(link), *lines[5:]]) + "\n")
    rebuilt = replay(run_dir, update=4, env=0)
    assert not rebuilt.is_verified
    assert "barrier 4" in (rebuilt.verification.parted or "")


def test_other_code_is_refused_and_marked_where_it_is_allowed(folders: Path, tmp_path: Path) -> None:
    run_dir = copied(made("a small policy", folders), tmp_path / "run")
    fingerprint = json.loads((run_dir / "fingerprint.json").read_text())
    fingerprint["code"]["roles"] = "0123456789abcdef"
    (run_dir / "fingerprint.json").write_text(json.dumps(fingerprint))
    with pytest.raises(ConfigError, match="differs in roles"):
        replay(run_dir, update=4, env=0)
    rebuilt = replay(run_dir, update=4, env=0, allow_different_numerics=True)
    assert rebuilt.is_verified
    assert "computed differently" in str(rebuilt.verification)


def test_what_is_not_there_is_refused_with_what_is(folders: Path) -> None:
    run_dir = made("a small policy", folders)
    with pytest.raises(ConfigError, match="has updates 0 to 5"):
        replay(run_dir, update=UPDATES, env=0)
    with pytest.raises(ConfigError, match="environments 0 to 2"):
        replay(run_dir, update=0, env=NUM_ENVS)
    with pytest.raises(ConfigError, match="say what to rebuild"):
        replay(run_dir, env=0)


class Blows(PixelCatch):
    """An environment whose reward makes gradients overflow in its fourth rollout."""

    total = 0

    def step(self, action: Any) -> Any:
        observation, reward, terminated, truncated, info = super().step(action)
        self.total += 1
        return observation, 3e38 if self.total > 3 * STEPS else reward, terminated, truncated, info


def test_the_batch_that_a_run_diverged_on_is_found_by_nan(tmp_path: Path) -> None:
    from htsrl import TrainingDiverged

    with pytest.raises(TrainingDiverged):
        train(Config(replace(BASE, env=Blows, env_args={}), quiet(tmp_path / "run", check_env=False)))
    rebuilt = replay(tmp_path / "run", until="nan", env_id=Blows, from_start=True)
    assert rebuilt.moment is not None
    assert rebuilt.moment.update == len(read_links(tmp_path / "run"))
    assert rebuilt.is_verified, rebuilt.verification
    assert rebuilt.arrays["rewards"].max() > 1e38


def test_a_folder_of_somebody_else_runs_no_code_that_it_names(folders: Path, tmp_path: Path) -> None:
    run_dir = copied(made("a small policy", folders), tmp_path / "run")
    config = json.loads((run_dir / "config.json").read_text())
    config["experiment"]["env"] = "no_such_module:Env-v0"
    (run_dir / "config.json").write_text(json.dumps(config))
    with pytest.raises(UntrustedFolder, match="no_such_module"):
        replay(run_dir, update=1, env=0)
    with pytest.raises(UntrustedFolder, match="no_such_module"):
        record(run_dir)
