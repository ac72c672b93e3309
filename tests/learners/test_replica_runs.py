"""Runs of several learners: one digest over placements, kept through resumes, and what meetings do to parameters."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from combinations import combination
from helpers import Outcome, assert_same_run, run
from replicated import A2C_PIXELS, CARTPOLE, NORMALIZED, NUM_UPDATES, RULES, oracle, replicated

import htsrl
from htsrl import Config, Experiment, Placement, resume, train
from htsrl.checkpoint.files import newest_valid
from htsrl.config.check import check
from htsrl.errors import ConfigError
from htsrl.runs.trust import Vouched, strange_code

QUIETLY: dict[str, Any] = {"tensorboard": False, "progress": "off", "log_every_steps": 1}


def slots(run_dir: Path, replica: int, version: int) -> np.ndarray[Any, Any]:
    """A replica's parameters and optimizer vectors in the newest checkpoint."""
    found = newest_valid(run_dir / "checkpoints", lambda line: None)
    assert found is not None
    prefix = f"replica {replica}/" if replica else ""
    return found[1].arrays[f"version {version}/{prefix}parameter_slots"]


def are_equal(arrays: Iterable[np.ndarray[Any, Any]]) -> bool:
    first, *others = arrays
    return all(np.array_equal(first, other) for other in others)


def trained(experiment: Experiment, run_dir: Path, **placement: Any) -> htsrl.RunResult:
    settings: dict[str, Any] = {"backend": "inline", "run_dir": run_dir, **QUIETLY, **placement}
    return train(Config(experiment, Placement(**settings)))


def test_one_learner_is_a_plain_run_and_a_rule_for_it_is_refused() -> None:
    experiment = replace(CARTPOLE, total_steps=2 * CARTPOLE.batch_steps)
    assert run(replace(experiment, learners=1)).digest == run(experiment).digest
    with pytest.raises(ConfigError, match="give --learners 2"):
        check(Config(replace(experiment, sync_rule="fixed")))


def test_learners_that_average_every_gradient_are_one_learner_with_as_many_shards() -> None:
    experiment = replace(CARTPOLE, total_steps=3 * CARTPOLE.batch_steps)
    plain = run(replace(experiment, gradient_shards=2))
    every = run(replace(experiment, learners=2), log_every_steps=1)
    assert (every.digest, every.policy) == (plain.digest, plain.policy)
    steps = 3 * 2 * 2  # updates x epochs x minibatches
    # Actions and values: 4x8, 8, then 8x2, 2 and 8x1, 1, each on lines of 16 numbers.
    parameters = (32 + 16) + (16 + 16) + (32 + 16) + (16 + 16)
    assert every.metrics[-1]["sync/rounds"] == steps
    assert every.metrics[-1]["sync/bytes"] == 2 * 2 * 4 * parameters * steps


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_has_one_digest_in_one_process_and_in_many(rule: str) -> None:
    expected = oracle(rule)
    assert_same_run(run(replicated(rule), log_every_steps=1, num_executors=4, num_actors=2), expected)
    if rule in ("fixed", "sync_switch"):
        jittery = run(replicated(rule), backend="processes", jitter_seconds=1e-3, **QUIETLY)
        assert_same_run(jittery, expected)


def test_four_learners_have_one_digest_over_placements() -> None:
    placement = {"backend": "processes", "num_executors": 4, "num_actors": 4, "verify_storages": True}
    assert_same_run(run(replicated("selsync", 4), **(QUIETLY | placement)), oracle("selsync", 4))
    assert oracle("selsync", 4).digest != oracle("selsync", 2).digest


@pytest.mark.parametrize("base", [A2C_PIXELS, NORMALIZED], ids=["a2c_pixels", "normalized_ppo"])
@pytest.mark.parametrize("schedule", ["hts", pytest.param("sync", marks=pytest.mark.slow)])
def test_activations_statistics_and_other_schedules_are_the_same_by_any_workers(
    base: Experiment, schedule: str
) -> None:
    experiment = replicated("fixed", num_updates=4, base=replace(base, schedule=schedule), local_updates=2)
    one, many = (run(experiment, log_every_steps=1, num_executors=n, verify_storages=True) for n in (2, 4))
    assert_same_run(one, many)


@pytest.mark.parametrize("name", ["team_mask_lstm", pytest.param("dict_mask_lstm", marks=pytest.mark.slow)])
def test_teams_masks_and_recurrent_states_are_the_same_by_any_workers(name: str) -> None:
    experiment = replicated("fixed", num_updates=3, base=combination(name, 3), local_updates=2)
    one, many = (run(experiment, log_every_steps=1, num_executors=n) for n in (2, 4))
    assert_same_run(one, many)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["team_mask_lstm", "dict_mask_lstm", "hybrid_gru"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("learners", [2, 4])
def test_combinations_have_one_digest_in_processes(name: str, rule: str, learners: int) -> None:
    args = {"momentum_factor": 1.0} if rule == "sync_switch" else {}
    experiment = replicated(rule, learners, num_updates=5, base=combination(name, 5), **args)
    assert_same_run(run(experiment, backend="processes", **QUIETLY), run(experiment, log_every_steps=1))


def test_rounds_and_bytes_are_counted_as_the_rule_decides() -> None:
    fixed = oracle("fixed").metrics
    assert [line["sync/rounds"] for line in fixed] == [0, 0, 1, 1, 1, 2, 2, 3]
    per_round = (fixed[2]["sync/bytes"] or 0.0) / (2 * 2)
    assert fixed[-1]["sync/bytes"] == 3 * 2 * 2 * per_round
    assert [line["sync/rounds"] for line in oracle("sync_switch").metrics] == list(range(1, NUM_UPDATES + 1))
    selsync = oracle("selsync").metrics  # two numbers of each of two replicas in every update
    rounds = selsync[-1]["sync/rounds"] or 0.0
    assert 2 <= rounds < NUM_UPDATES
    assert selsync[-1]["sync/bytes"] == rounds * 2 * 2 * per_round + NUM_UPDATES * 2 * 16


def test_between_rounds_replicas_part_and_after_a_round_they_are_one(tmp_path: Path) -> None:
    trained(replicated("fixed", num_updates=3), tmp_path / "run")
    own, other = (slots(tmp_path / "run", replica, version=3) for replica in (0, 1))
    assert np.array_equal(own[0], other[0])
    assert not np.array_equal(own[1:], other[1:])  # the optimizer's vectors are each replica's own
    before = [slots(tmp_path / "run", replica, version=2)[0] for replica in (0, 1)]
    assert not are_equal(before)


def test_the_optimizers_vectors_are_averaged_on_request(tmp_path: Path) -> None:
    trained(replicated("fixed", num_updates=3, optimizer="average"), tmp_path / "run")
    assert are_equal(slots(tmp_path / "run", replica, version=3) for replica in (0, 1))


def test_after_the_switch_a_replica_pulls_the_pushes_before_its_own(tmp_path: Path) -> None:
    experiment = replicated("sync_switch", num_updates=4, switch_share=0.25)
    trained(experiment, tmp_path / "run", checkpoint_every_updates=3, keep_checkpoints=5)
    own, other = (slots(tmp_path / "run", replica, version=3)[0] for replica in (0, 1))
    assert not np.array_equal(own, other)
    assert are_equal(slots(tmp_path / "run", replica, version=4)[0] for replica in (0, 1))


def test_the_policy_in_the_end_is_the_average_and_can_be_loaded_evaluated_and_exported(tmp_path: Path) -> None:
    result = trained(replicated("fixed", num_updates=4), tmp_path / "run")
    assert are_equal(slots(tmp_path / "run", replica, version=4)[0] for replica in (0, 1))
    policy = htsrl.load_policy(result.run_dir)
    assert policy.act(np.zeros(4, np.float32))[0] in (0, 1)
    assert htsrl.evaluate(result.run_dir, episodes=2).mean_return > 0


@pytest.fixture(scope="module")
def with_all_checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("kept") / "run"
    trained(replicated("selsync"), run_dir, checkpoint_every_updates=1, keep_checkpoints=NUM_UPDATES + 1)
    return run_dir


@pytest.mark.parametrize("version", range(1, NUM_UPDATES))
def test_a_run_that_is_resumed_from_any_barrier_comes_to_the_same_bits(
    with_all_checkpoints: Path, tmp_path: Path, version: int
) -> None:
    run_dir = tmp_path / "run"
    shutil.copytree(with_all_checkpoints, run_dir)
    for path in (run_dir / "checkpoints").iterdir():
        found = path.name.rpartition("-")[2]
        if found.isdigit() and int(found) > version:
            shutil.rmtree(path)
    (run_dir / "result.json").unlink()
    resume(run_dir, placement=Placement("inline", **QUIETLY))
    assert_same_run(Outcome.read(run_dir), oracle("selsync"))


def test_a_longer_run_says_that_its_rounds_are_others(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = replicated("fixed", num_updates=2)
    trained(experiment, tmp_path / "run")
    resume(tmp_path / "run", total_steps=2 * experiment.total_steps, placement=Placement("inline", **QUIETLY))
    assert "averaged after its last update" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"num_envs": 5}, "num_envs=5 does not divide into learners=2; use 4 or 6"),
        ({"learners": 0}, "learners=0 must be from 1"),
        ({"sync_rule": "sometimes"}, "sync rule 'sometimes' is not known; use every, fixed, qsr"),
        ({"sync_args": {"every": 3}}, "unknown key 'every' in sync_args of fixed"),
        ({"sync_args": {"local_updates": 2.5}}, "local_updates=2.5 must be a whole number"),
        ({"sync_args": {"local_updates": 0}}, "local_updates=0 must be at least 1"),
        ({"sync_args": {"optimizer": "none"}}, "optimizer='none' must be local, average"),
        ({"schedule": "async"}, "schedule=async has none; use hts"),
        ({"algorithm": htsrl.SAC()}, "replay buffer of sac's"),
        ({"sync_rule": "os:path"}, "must be a class with a dataclass"),
        ({"sync_rule": "replicated:Experiment"}, "must be a class with a dataclass"),
    ],
)
def test_what_cannot_work_with_several_learners_is_refused(change: dict[str, Any], complaint: str) -> None:
    asked: dict[str, Any] = {"learners": 2, "sync_rule": "fixed", **change}
    with pytest.raises(ConfigError, match=complaint):
        check(Config(replace(CARTPOLE, **asked)))


@pytest.mark.parametrize(
    ("placement", "complaint"),
    [
        ({"learner_workers": 2}, "leave it out, or use --sync-rule every"),
        ({"num_executors": 3}, "num_executors=3 cannot be shared out to learners=2 evenly; use 2 or 4"),
        ({"device": "cuda"}, "device=cuda is not built"),
    ],
)
def test_placements_that_replicas_cannot_have_are_refused(placement: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        check(Config(replicated("fixed"), Placement(**placement)))


def test_momentum_is_adjusted_only_where_there_is_some() -> None:
    experiment = replicated("sync_switch", base=replace(CARTPOLE, algorithm=htsrl.A2C()))
    with pytest.raises(ConfigError, match=r"momentum_factor=0\.5 is for Adam; rmsprop has no momentum"):
        check(Config(experiment))


def test_a_rule_of_ones_own_runs_by_its_name() -> None:
    steps = NUM_UPDATES * CARTPOLE.batch_steps
    own = replace(CARTPOLE, learners=2, sync_rule="own_rule:Growing", sync_args={"first": 2}, total_steps=steps)
    rounds = [line["sync/rounds"] for line in run(own, log_every_steps=1).metrics]
    assert rounds == [0, 1, 1, 1, 2, 2, 2, 2]  # after 2, then 3, then 4 updates


def test_a_folder_that_names_a_rule_of_somebodys_own_runs_nothing() -> None:
    strange = replace(CARTPOLE, learners=2, sync_rule="own_rule:Growing")
    assert list(strange_code(strange, Vouched())) == ["the sync rule 'own_rule:Growing'"]
    assert list(strange_code(replace(strange, sync_rule="qsr"), Vouched())) == []


def test_time_travel_refuses_a_run_of_several_replicas(tmp_path: Path) -> None:
    from htsrl.replay.rebuild import rebuilt_config
    from htsrl.runs.folder import RunFolder

    with pytest.raises(ConfigError, match="learners=2 under sync_rule=fixed"):
        rebuilt_config(Config(replicated("fixed")), RunFolder(tmp_path))
