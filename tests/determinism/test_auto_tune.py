"""A run that moves between placements while it continues has the bits of one that does not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from straggler_env import Straggler

from htsrl.algorithms.ppo import PPO
from htsrl.config import Config, Experiment, Placement
from htsrl.errors import ConfigError
from htsrl.planning import tune
from htsrl.runs.folder import RunFolder
from htsrl.train import train

NUM_STEPS = 2400
# Steps wait a little: the run must not be over before it was asked to stop, twice.
EXPERIMENT = Experiment(
    Straggler, {"slow_env": 0, "seconds": 0.005}, algorithm=PPO(epochs=1, num_minibatches=2), num_envs=4,
    sync_interval=4, total_steps=NUM_STEPS, gradient_shards=2,
)  # fmt: skip
QUIET = Placement(tensorboard=False, progress="off", check_env=False, timeline=False)


def test_an_auto_tuned_run_ends_with_the_digest_of_an_untuned_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def two(config: Config) -> Iterator[Placement]:
        plain = replace(config.placement, auto_tune=False)
        yield plain
        yield replace(plain, num_executors=2, num_actors=0, executor_threads=False, learner_workers=2)

    monkeypatch.setattr(tune, "SECONDS_PER_PLACEMENT", 0.0)
    monkeypatch.setattr(tune, "WORTH_IT", 0.0)
    monkeypatch.setattr(tune, "placements", two)

    untuned = train(Config(EXPERIMENT, replace(QUIET, backend="inline", run_dir=tmp_path / "inline")))
    tuned = train(Config(EXPERIMENT, replace(QUIET, auto_tune=True, run_dir=tmp_path / "tuned")))

    assert (tuned.digest, tuned.steps, tuned.stop_reason) == (untuned.digest, NUM_STEPS, None)
    assert "auto-tune " in capsys.readouterr().err
    assert not RunFolder(tmp_path / "tuned").load_config(None).placement.auto_tune


def test_placements_that_are_tried_begin_with_the_usual_one_and_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "available_cores", lambda: 8)

    found = list(tune.placements(Config(EXPERIMENT, replace(QUIET, auto_tune=True))))

    assert found[0] == QUIET
    assert {(of.num_executors, of.learner_workers) for of in found[1:]} == {(1, 1), (1, 2), (4, 1), (4, 2)}


@pytest.mark.parametrize(
    ("experiment", "placement", "message"),
    [
        (EXPERIMENT, replace(QUIET, backend="inline"), "leave it out with placement inline"),
        (replace(EXPERIMENT, schedule="async"), QUIET, "under schedule=async its bits depend on timing"),
    ],
)
def test_what_cannot_be_tuned_is_refused(experiment: Experiment, placement: Placement, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        train(Config(experiment, replace(placement, auto_tune=True)))
