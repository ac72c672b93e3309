"""`digest` and `compare` tell whether two runs are identical, and if not, where they part."""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from command_line import Outcome, run_htsrl

from htsrl import A2C, Config, Experiment, Placement, train
from htsrl.seeding import reset_seed

NUM_ENVS, SYNC_INTERVAL, NUM_INTERVALS, SEED = 4, 8, 6, 1
ODD_ENV, ODD_INTERVAL, ODD_ROW = 2, 3, 5
ODD_SEED = reset_seed(SEED, ODD_ENV, episode=0)


class Slightly(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An endless walk in which one number of one environment can be off by its last bit, once."""

    def __init__(self, off: str | None) -> None:
        super().__init__(gymnasium.make("htsrl/Sleeping-v0", mean_seconds=0, episode_steps=1000))
        self._off = off

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        self._is_odd = seed == ODD_SEED
        self._steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        if self._is_odd and self._off == "obs" and self._steps == ODD_INTERVAL * SYNC_INTERVAL + ODD_ROW:
            observation = np.nextafter(observation, np.float32(0))
        if self._is_odd and self._off == "rewards" and self._steps == ODD_INTERVAL * SYNC_INTERVAL + ODD_ROW + 1:
            reward = float(reward) + 0.5
        return observation, reward, terminated, truncated, info


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two equal runs, one with another seed, and two in which one number is off."""
    made = tmp_path_factory.mktemp("compare")

    def make_run(name: str, seed: int = SEED, off: str | None = None, intervals: int = NUM_INTERVALS) -> None:
        experiment = Experiment(
            env=partial(Slightly, off),
            algorithm=A2C(anneal_learning_rate=False),
            num_envs=NUM_ENVS,
            sync_interval=SYNC_INTERVAL,
            total_steps=intervals * NUM_ENVS * SYNC_INTERVAL,
            seed=seed,
        )
        placement = Placement("inline", num_executors=1, run_dir=made / name, tensorboard=False, progress="off")
        train(Config(experiment, placement))

    make_run("a")
    make_run("b")
    make_run("short", intervals=4)
    make_run("other_seed", seed=2)
    make_run("odd_obs", off="obs")
    make_run("odd_rewards", off="rewards")
    return made


def test_digest_prints_the_digest_alone_on_a_line(folder: Path) -> None:
    outcome = run_htsrl(folder, "digest", "a")
    expected = json.loads((folder / "a" / "result.json").read_text())["digest"]
    assert outcome == Outcome(0, f"{expected}\n", "", "")


def test_equal_runs_are_identical(folder: Path) -> None:
    assert run_htsrl(folder, "compare", "a", "b") == Outcome(0, "identical\n", "", "")


def test_runs_with_different_seeds_are_told_so_before_they_part_at_the_first_barrier(folder: Path) -> None:
    outcome = run_htsrl(folder, "compare", "a", "other_seed")
    assert (outcome.exit_code, outcome.stderr) == (1, "")
    assert outcome.stdout.startswith(
        "the experiments differ, so their digests must:\n"
        "  seed: 1 / 2\n"
        "first difference at barrier 0: environment 0, tensor obs"
    )


@pytest.mark.parametrize("tensor", ["obs", "rewards"])
def test_a_number_that_is_off_is_found_by_barrier_environment_and_tensor(folder: Path, tensor: str) -> None:
    outcome = run_htsrl(folder, "compare", "a", f"odd_{tensor}")
    assert outcome.exit_code == 1
    expected = f"first difference at barrier {ODD_INTERVAL}: environment {ODD_ENV}, tensor {tensor}"
    assert outcome.stdout.startswith(expected)


def test_a_run_that_ended_earlier_is_not_identical(folder: Path) -> None:
    outcome = run_htsrl(folder, "compare", "a", "short")
    assert outcome.exit_code == 1
    expected = "first difference at barrier 4: one run ends here, the other has 6 barriers\n"
    assert outcome.stdout.endswith(f"  total_steps: 192 / 128\n{expected}")


def test_a_cut_last_line_is_tolerated(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "a", tmp_path / "cut")
    file = tmp_path / "cut" / "digest.jsonl"
    file.write_bytes(file.read_bytes()[:-40])
    last_whole_line = file.read_text().splitlines()[-2]
    assert run_htsrl(tmp_path, "digest", "cut").stdout.strip() == json.loads(last_whole_line)["chain"]
    outcome = run_htsrl(tmp_path, "compare", str(folder / "a"), "cut")
    assert outcome.exit_code == 1
    assert f"barrier {NUM_INTERVALS - 1}: one run ends here" in outcome.stdout


def test_a_changed_line_is_found_at_its_barrier(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "a", tmp_path / "changed")
    file = tmp_path / "changed" / "digest.jsonl"
    lines = file.read_text().splitlines()
    lines[2] = json.dumps(json.loads(lines[2]) | {"chain": "0" * 32, "parameters": "1" * 32})
    file.write_text("\n".join(lines) + "\n")
    outcome = run_htsrl(tmp_path, "compare", str(folder / "a"), "changed")
    assert outcome.exit_code == 1
    expected = "first difference at barrier 2: the batches are equal, the parameters after the update are not\n"
    assert outcome.stdout == expected


@pytest.mark.parametrize("content", [b"not json\n", b"\xff\xfe\n"])
def test_a_damaged_file_is_named(folder: Path, tmp_path: Path, content: bytes) -> None:
    shutil.copytree(folder / "a", tmp_path / "damaged")
    (tmp_path / "damaged" / "digest.jsonl").write_bytes(content)
    outcome = run_htsrl(tmp_path, "digest", "damaged")
    assert outcome.exit_code != 0
    assert re.fullmatch(r"error: damaged/digest.jsonl is damaged in line 1: [^\n]+\n", outcome.stderr), outcome.stderr


def test_runs_without_a_single_barrier_are_not_called_identical(folder: Path, tmp_path: Path) -> None:
    for name in ("x", "y"):
        shutil.copytree(folder / "a", tmp_path / name)
        (tmp_path / name / "digest.jsonl").write_text("")
    outcome = run_htsrl(tmp_path, "compare", "x", "y")
    assert outcome.exit_code != 0
    assert "finished no update" in outcome.stderr


def test_a_lost_fingerprint_does_not_hide_the_difference(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "odd_obs", tmp_path / "lost")
    (tmp_path / "lost" / "fingerprint.json").unlink()
    outcome = run_htsrl(tmp_path, "compare", str(folder / "a"), "lost")
    assert f"barrier {ODD_INTERVAL}" in outcome.stdout
    assert outcome.exit_code == 1
    assert "Traceback" not in outcome.stderr


def test_a_setting_that_an_older_folder_does_not_say_is_its_default_and_no_difference(
    folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(folder / "odd_obs", tmp_path / "older")
    file = tmp_path / "older" / "config.json"
    document = json.loads(file.read_text())
    del document["experiment"]["gradient_shards"]
    document["experiment"]["env"] = "callable os:system"  # which nobody may import
    file.write_text(json.dumps(document))
    lines = run_htsrl(tmp_path, "compare", str(folder / "a"), "older").stdout.splitlines()
    assert lines[1].startswith("  env: ")
    assert lines[1].endswith('/ "callable os:system"')
    assert lines[2].startswith("first difference at ")


def test_a_damaged_configuration_does_not_hide_the_difference(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "odd_obs", tmp_path / "damaged_config")
    (tmp_path / "damaged_config" / "config.json").write_text("{")
    outcome = run_htsrl(tmp_path, "compare", str(folder / "a"), "damaged_config")
    assert outcome.stdout.startswith(f"first difference at barrier {ODD_INTERVAL}: ")
    assert "note: damaged_config/config.json cannot be read" in outcome.stdout


def test_a_digest_from_before_the_optimizers_state_was_in_it_says_so(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "a", tmp_path / "older_digest")
    file = tmp_path / "older_digest" / "digest.jsonl"
    links = [json.loads(line) | {"chain": "0" * 32} for line in file.read_text().splitlines()]
    file.write_text("".join(json.dumps({k: v for k, v in x.items() if k != "learner"}) + "\n" for x in links))
    outcome = run_htsrl(tmp_path, "compare", str(folder / "a"), "older_digest")
    assert outcome.exit_code == 0
    assert (
        outcome.stdout == "identical in batches and parameters; one digest is older and lacks the optimizer's state\n"
    )


def test_a_fingerprint_from_before_the_code_was_in_it_is_unknown(folder: Path, tmp_path: Path) -> None:
    for name, source in (("one", "a"), ("two", "odd_obs")):
        shutil.copytree(folder / source, tmp_path / name)
        file = tmp_path / name / "fingerprint.json"
        document = json.loads(file.read_text())
        file.write_text(json.dumps({k: v for k, v in document.items() if isinstance(v, str)}))
    beside_new = run_htsrl(tmp_path, "compare", "one", str(folder / "odd_obs")).stdout
    assert "note: the runs were computed differently, code of htsrl: unknown / " in beside_new
    both = run_htsrl(tmp_path, "compare", "one", "two").stdout
    assert "note: by which code of htsrl the runs were computed is unknown" in both


def test_another_fingerprint_is_reported_beside_the_difference(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "odd_obs", tmp_path / "elsewhere")
    file = tmp_path / "elsewhere" / "fingerprint.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"machine": "abacus"}))
    outcome = run_htsrl(tmp_path, "compare", str(folder / "a"), "elsewhere")
    assert "note: the runs were computed differently, machine: " in outcome.stdout
    assert "/ abacus" in outcome.stdout
