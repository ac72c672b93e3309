"""What a lag does to an update is measured without doing anything to it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from htsrl import PPO, Config, ConfigError, Experiment, Placement, train
from htsrl.metrics.sinks import read_json_lines
from htsrl_bench.lag_divergence import summary
from htsrl_bench.lag_probe import GRADIENT_COSINE, GRADIENT_LENGTH, MEASURED, OUTSIDE_CLIP, RATIO_DEVIATION, LagProbe
from htsrl_bench.tables.lag_divergence import LagDivergenceTable

# 2,048 steps an update, so that each has a line of metrics.
PROBED = Experiment(
    "CartPole-v1", algorithm=LagProbe.Settings(epochs=2, num_minibatches=4), sync_interval=128, total_steps=3 * 2048
)


def digest_and_metrics(experiment: Experiment, run_dir: Path) -> tuple[str, list[dict[str, float | None]]]:
    placement = Placement("inline", tensorboard=False, check_env=False, progress="off", run_dir=run_dir)
    return train(Config(experiment, placement)).digest, read_json_lines(run_dir / "metrics.jsonl")


def test_a_probed_run_has_the_bits_of_ppo_and_sees_a_lag_from_the_second_update_on(tmp_path: Path) -> None:
    digest, updates = digest_and_metrics(PROBED, tmp_path / "probed")
    plain = replace(PROBED, algorithm=PPO(epochs=2, num_minibatches=4))
    assert digest_and_metrics(plain, tmp_path / "plain")[0] == digest
    # The first two rollouts are of version 0, from which the first update starts and the second does not.
    assert updates[0][RATIO_DEVIATION] == pytest.approx(0.0, abs=1e-6)
    assert updates[0][OUTSIDE_CLIP] == 0.0
    assert (updates[0][GRADIENT_COSINE], updates[0][GRADIENT_LENGTH]) == pytest.approx((1.0, 1.0), abs=1e-4)
    for later in updates[1:]:
        assert (later[RATIO_DEVIATION] or 0.0) > 1e-4
        assert (later[GRADIENT_COSINE] or 1.0) < 1 - 1e-6
    _, without = digest_and_metrics(replace(PROBED, schedule="sync"), tmp_path / "sync")
    assert all(update[RATIO_DEVIATION] == pytest.approx(0.0, abs=1e-6) for update in without)


def test_a_record_has_every_number_of_optimizer_steps(tmp_path: Path) -> None:
    LagDivergenceTable(("cartpole",), minibatches=(1, 2), seeds=(1,), updates=2, output=tmp_path).run()
    record = json.loads((tmp_path / "lag-divergence.json").read_text())
    assert [(run["optimizer_steps"], run["updates"]) for run in record["repetitions"]] == [(10, 1), (20, 1)]
    assert record["summary"] == summary(record["repetitions"])
    assert set(record["summary"]["tasks"]["cartpole"]["10"]) == {*MEASURED}


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        (LagDivergenceTable(("chess",)), "task 'chess' is not known"),
        (LagDivergenceTable(updates=1), "two updates"),
        (LagDivergenceTable(("cartpole",), minibatches=(3,)), "num_minibatches=3"),
    ],
)
def test_what_cannot_be_measured_is_refused(table: LagDivergenceTable, complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        table.run()
