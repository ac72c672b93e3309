"""A warm start begins with another run's weights, says what it took, and never needs that run again."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from htsrl import A2C, PPO, Config, ConfigError, Experiment, Network, Placement, load_policy, resume, train
from htsrl.config.init_from import InitFrom
from htsrl.digest import read_links
from htsrl.errors import RunFolderError, UntrustedFolder
from htsrl.policies.policy import policy_for
from htsrl.runs.comparison import compare
from htsrl.train import resume_or_start

SMALL = Experiment(
    "CartPole-v1",
    algorithm=A2C(anneal_learning_rate=False),
    network=Network(hidden_sizes=(8, 8), normalize_observations=True),
    num_envs=2,
    sync_interval=8,
    total_steps=64,
)
WARM = replace(SMALL, algorithm=replace(SMALL.algorithm, learning_rate=0.01))


def config(experiment: Experiment, run_dir: Path, **placement: Any) -> Config:
    quiet: dict[str, Any] = {"backend": "inline", "progress": "off", "tensorboard": False, "check_env": False}
    return Config(experiment, Placement(**quiet | placement, run_dir=run_dir))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("warm") / "source"
    return train(config(SMALL, run_dir, checkpoint_every_updates=2, keep_checkpoints=9)).run_dir


@pytest.fixture
def source(trained: Path, tmp_path: Path) -> Path:
    """One of one's own, to move and to break."""
    return Path(shutil.copytree(trained, tmp_path / "source"))


def begin(experiment: Experiment, init_from: Any, run_dir: Path, **placement: Any) -> Path:
    return train(config(replace(experiment, init_from=init_from), run_dir, **placement)).run_dir


def initial(run_dir: Path) -> dict[str, torch.Tensor]:
    return load_file(run_dir / "initial_policy.safetensors")


def said(run_dir: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((run_dir / "init_from.json").read_text())
    return document


def pinned(run_dir: Path) -> InitFrom:
    return InitFrom.parse(json.loads((run_dir / "config.json").read_text())["experiment"]["init_from"])


def digest(run_dir: Path) -> str:
    return read_links(run_dir)[-1].chain


# What is taken over.


def test_a_run_of_the_same_network_begins_with_all_of_it(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hardly_learning = PPO(num_minibatches=2, learning_rate=1e-9)
    run_dir = begin(replace(WARM, algorithm=hardly_learning), source, tmp_path / "warm")
    expected = load_file(source / "policy.safetensors")
    assert expected.keys() == initial(run_dir).keys()
    assert all(torch.equal(expected[name], tensor) for name, tensor in initial(run_dir).items())
    assert "15 of 15 tensors taken over, running statistics among them; the opt" in capsys.readouterr().err
    final = load_file(run_dir / "policy.safetensors")
    weights = [name for name in final if not name.startswith("observation_scales")]
    assert all(torch.allclose(final[name], expected[name], rtol=0, atol=1e-6) for name in weights)


def test_what_does_not_fit_starts_as_it_would_have_and_is_listed(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = replace(WARM, env="Acrobot-v1", network=Network(hidden_sizes=(8, 8), recurrent="gru", recurrent_size=8))
    run_dir = begin(other, source, tmp_path / "warm")
    document, lines = said(run_dir), capsys.readouterr().err.splitlines()
    assert document["new"]["encoder.mlp.layers.0.weight"] == "is 8x4 there, 8x6 here"
    assert document["new"]["memory.bias"] == "is not there"
    assert document["unused"] == [f"observation_scales.scales.0.{name}" for name in ("count", "mean", "variance")]
    assert any("action_head.bias" in line and line.endswith("starts new: is 2 there, 3 here") for line in lines)
    assert any("scales.0.mean" in line and line.endswith("is left: not here") for line in lines)
    theirs, own = load_file(source / "policy.safetensors"), initial(run_dir)
    assert torch.equal(own["encoder.mlp.layers.2.weight"], theirs["encoder.mlp.layers.2.weight"])
    untrained = policy_for(other, load_policy(run_dir).interface).state_dict()
    assert all(torch.equal(own[name], untrained[name]) for name in document["new"])


def test_statistics_that_belong_together_are_taken_together(source: Path, tmp_path: Path) -> None:
    """A count without its mean would make the next batch weigh nothing."""
    run_dir = begin(replace(WARM, env="Acrobot-v1"), source, tmp_path / "warm")
    assert not said(run_dir)["with_statistics"]
    assert initial(run_dir)["observation_scales.scales.0.count"] == 0
    assert said(run_dir)["new"]["observation_scales.scales.0.count"] == (
        "as observation_scales.scales.0.mean, observation_scales.scales.0.variance"
    )


@pytest.mark.parametrize("asked", ["", "@4"])
def test_a_checkpoint_and_a_policy_file_of_one_version_are_the_same_source(
    source: Path, asked: str, tmp_path: Path
) -> None:
    by_name = begin(WARM, f"{source}{asked}", tmp_path / "by name")
    (source / "policy.safetensors").unlink()
    flat = begin(WARM, f"{source}{asked}", tmp_path / "flat")
    assert pinned(by_name) == pinned(flat)
    assert digest(by_name) == digest(flat)
    assert pinned(flat).version == 4


def test_an_older_version_is_another_source(source: Path, tmp_path: Path) -> None:
    older, newer = (begin(WARM, f"{source}@{version}", tmp_path / str(version)) for version in (2, 4))
    comparison = compare(older, newer)
    assert not comparison.are_identical
    assert any(line.startswith(f'  init_from: "{source}@2#') for line in comparison.lines)


# Bits.


def test_equal_weights_of_another_history_make_another_run(source: Path, tmp_path: Path) -> None:
    first = begin(WARM, source, tmp_path / "first")
    links = (source / "digest.jsonl").read_text()
    chain = digest(source)
    (source / "digest.jsonl").write_text(links.replace(chain, chain[::-1]))
    second = begin(WARM, source, tmp_path / "second")
    assert initial(first).keys() == initial(second).keys()
    comparison = compare(first, second)
    assert not comparison.are_identical
    assert any("init_from" in line for line in comparison.lines)
    assert "what they were taken from (init_from), differ" in "\n".join(comparison.lines)


def test_placements_begin_with_the_same_bits(source: Path, tmp_path: Path) -> None:
    inline = begin(WARM, f"{source}@best", tmp_path / "inline")
    processes = begin(WARM, f"{source}@best", tmp_path / "processes", backend="processes", num_executors=2)
    assert compare(inline, processes).lines == ["identical"]


def test_a_resumed_run_needs_the_source_no_more(source: Path, tmp_path: Path) -> None:
    whole = begin(replace(WARM, total_steps=128), source, tmp_path / "whole")
    half = begin(WARM, source, tmp_path / "half")
    shutil.rmtree(source)
    resume(half, total_steps=128)
    assert compare(whole, half).lines == ["identical"]


def test_a_run_without_a_checkpoint_starts_over_without_the_source(source: Path, tmp_path: Path) -> None:
    run_dir = begin(WARM, source, tmp_path / "warm")
    before = digest(run_dir)
    shutil.rmtree(source)
    shutil.rmtree(run_dir / "checkpoints")
    for name in ("result.json", "digest.jsonl"):
        (run_dir / name).unlink()
    resume(run_dir)
    assert digest(run_dir) == before


def test_a_job_that_asks_for_the_best_resumes_what_it_has_begun_with(source: Path, tmp_path: Path) -> None:
    asked = config(replace(WARM, init_from=f"{source}@best"), tmp_path / "job")
    begun = resume_or_start(asked)
    shutil.rmtree(source)
    assert resume_or_start(asked).digest == begun.digest
    with pytest.raises(ConfigError, match="init_from"):
        resume_or_start(config(replace(WARM, init_from=f"{source}@2"), tmp_path / "job"))


def test_a_folder_that_was_left_before_its_configuration_is_begun_again(source: Path, tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "initial_policy.safetensors").write_bytes(b"half")
    asked = config(replace(WARM, init_from=str(source)), job)
    assert resume_or_start(asked).updates == 4


def test_the_same_configuration_begins_with_the_same_weights_or_not_at_all(source: Path, tmp_path: Path) -> None:
    written = pinned(begin(WARM, source, tmp_path / "warm"))
    again = begin(WARM, str(written), tmp_path / "again")
    assert compare(tmp_path / "warm", again).are_identical
    tensors = load_file(source / "policy.safetensors")
    tensors["action_head.bias"] += 1
    save_file(tensors, source / "policy.safetensors", metadata={"version": "4"})
    with pytest.raises(ConfigError, match=rf"version 4 of .* is not what it was .* use {source}@4"):
        begin(WARM, str(written), tmp_path / "changed")


# Refusals, before there is a folder.


def no_finite_weights(source: Path) -> None:
    tensors = load_file(source / "policy.safetensors")
    tensors["action_head.bias"][0] = float("nan")
    save_file(tensors, source / "policy.safetensors", metadata={"version": "4"})


@pytest.mark.parametrize(
    ("asked", "change", "message"),
    [
        ("elsewhere", None, r"elsewhere is not the folder of a run"),
        ("source@3", None, r"holds no version 3; there are 2, 4"),
        ("source", no_finite_weights, r"action_head.bias holds numbers that are not finite"),
        ("@best", None, r"init_from='@best' must be the folder of a run"),
    ],
)
def test_a_source_that_cannot_be_had_is_refused(
    source: Path, tmp_path: Path, asked: str, change: Callable[[Path], None] | None, message: str
) -> None:
    if change:
        change(source)
    init_from = asked if asked.startswith("@") else str(tmp_path / asked)
    with pytest.raises((ConfigError, RunFolderError), match=message):
        begin(WARM, init_from, tmp_path / "warm")
    assert not (tmp_path / "warm").exists()


def test_a_source_of_which_nothing_fits_is_refused(source: Path, tmp_path: Path) -> None:
    """The value's bias, a single number, would fit anywhere."""
    with pytest.raises(ConfigError, match=r"nothing of it fits.*layers\.0\.weight is 8x4 there, 16x4 here"):
        begin(replace(WARM, network=Network(hidden_sizes=(16, 4))), source, tmp_path / "warm")
    assert not (tmp_path / "warm").exists()


# Folders of others.

NETWORK = """
import torch
class Stranger(torch.nn.Module):
    num_features = 8
    def __init__(self, space):
        super().__init__()
        self.layer = torch.nn.Linear(4, 8)
    def forward(self, obs):
        return self.layer(obs)
"""


def test_a_strangers_network_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strange_network.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(tmp_path)
    own = replace(SMALL, network=Network(policy="strange_network:Stranger"))
    source = begin(own, None, tmp_path / "source", checkpoint_every_updates=2, keep_checkpoints=9)
    (source / "config.json.signature").unlink()
    monkeypatch.delitem(sys.modules, "strange_network")
    (tmp_path / "strange_network.py").write_text("raise AssertionError('a strange module was imported')")
    plain = replace(WARM, network=Network(hidden_sizes=(8,), separate_value=False))
    run_dir = begin(plain, source, tmp_path / "warm")
    assert "action_head.weight" in said(run_dir)["taken_over"]
    assert said(run_dir)["unused"] == ["encoder.network.layer.bias", "encoder.network.layer.weight"]
    with pytest.raises(UntrustedFolder, match=r"'strange_network:Stranger'.*htsrl did not write for you"):
        begin(plain, f"{source}@2", tmp_path / "flat")
    assert "strange_network" not in sys.modules
