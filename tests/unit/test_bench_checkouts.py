"""Two checkouts beside one another."""

from __future__ import annotations

from pathlib import Path

import pytest

from htsrl import ConfigError
from htsrl_bench.checkouts import BEFORE, NOW, CheckoutsBench, Pair, counted_rate, summary, table

HERE = Path(__file__).parents[2]


def bench(before: Path = HERE, **changes: object) -> CheckoutsBench:
    settings = {"work": ("cartpole-ppo",), "steps_per_run": (4096,), "repetitions": 2}
    return CheckoutsBench(before, HERE, **{**settings, **changes})  # type: ignore[arg-type]


def test_the_first_quarter_of_a_run_is_not_counted() -> None:
    seconds = [1.0, 9.0, 10.0, 11.0, 12.0, 13.0, 14.0, 15.0]
    lines = [{"time/time_elapsed": at, "step": 100 * (i + 1)} for i, at in enumerate(seconds)]
    assert counted_rate(lines) == pytest.approx(100)


def test_a_ratio_is_that_of_its_pair() -> None:
    """Runs of a machine that slows down in between would else be compared across the change."""
    found = summary([Pair("cartpole-ppo", 100.0, 110.0), Pair("cartpole-ppo", 50.0, 60.0)])
    assert found["cartpole-ppo"]["ratio"]["lowest"] == pytest.approx(1.1)
    assert found["cartpole-ppo"]["ratio"]["highest"] == pytest.approx(1.2)
    row = table(bench(), {BEFORE: "a", NOW: "b"}, found).rows[0]
    assert row == ["cartpole-ppo", "75 (50 to 100)", "85 (60 to 110)", "1.150 (1.100 to 1.200)"]


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no htsrl; give the root of a checkout"):
        bench(before=tmp_path)
    with pytest.raises(ConfigError, match="is not known; choose among cartpole-ppo"):
        bench(work=("chess",))
    with pytest.raises(ConfigError, match="must have a number for each"):
        bench(steps_per_run=(1, 2))
