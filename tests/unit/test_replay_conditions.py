"""What `--until` understands, and that it is never run as code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from htsrl import ConfigError
from htsrl.replay.conditions import Condition


def batch(**changed: Any) -> dict[str, Any]:
    zeros = np.zeros((3, 2), np.float32)
    fields = {"rewards": zeros, "values": zeros, "episode_returns": zeros, "episode_lengths": zeros.astype(int)}
    return {**fields, "obs": np.zeros((3, 2, 4), np.float32), "info/x": np.full((3, 2), np.nan), **changed}


@pytest.mark.parametrize("text", ["return>300", " return >  3e2 ", "return>=300", "train/loss != 0", "reward<-0.5"])
def test_a_quantity_a_comparison_and_a_number_are_understood(text: str) -> None:
    assert Condition.parse(text).sign in text


@pytest.mark.parametrize(
    "text", ["", "return", "return>", ">3", "return>x", "return>1 and 2", "__import__('os').system('true')>1", "a>b>1"]
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError, match="until="):
        Condition.parse(text)


def test_a_return_counts_only_where_an_episode_ends() -> None:
    returns = np.array([[0, 9], [9, 0], [0, 0]], np.float64)
    lengths = np.array([[0, 0], [5, 0], [0, 0]])
    hits = Condition.parse("return>5").steps_where(batch(episode_returns=returns, episode_lengths=lengths))
    assert np.argwhere(hits).tolist() == [[1, 0]]


def test_nan_is_found_in_observations_and_not_in_infos() -> None:
    obs = np.zeros((3, 2, 4), np.float32)
    assert not Condition.parse("nan").steps_where(batch()).any()
    obs[2, 1, 3] = np.inf
    assert np.argwhere(Condition.parse("NaN").steps_where(batch(obs=obs))).tolist() == [[2, 1]]


def test_a_metric_that_an_update_does_not_report_holds_for_nothing() -> None:
    condition = Condition.parse("rollout/ep_rew_mean<5")
    assert condition.is_of_metric
    assert not condition.holds_for({})
    assert condition.holds_for({"rollout/ep_rew_mean": 4.0})
