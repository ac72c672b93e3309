"""What a check makes of measured times, by numbers that can be computed by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from htsrl.config import available_cores
from htsrl.envs.check.advice import barrier_losses, executors_advice, sync_interval_advice
from htsrl.envs.check.calls import Call, first_difference
from htsrl.envs.check.plot import check_picture, draw_times
from htsrl.envs.check.timing import Spread, StepTimes, histogram, shown_seconds
from htsrl.errors import ConfigError


def call(episode: int, step: int, seconds: float = 1.0, ended: bool = False, cpu_share: float = 1.0) -> Call:
    return Call(episode, step, {"obs": f"{episode}/{step}", "reward": "0"}, ended, seconds, seconds * cpu_share)


def times_of(step_seconds: list[float], cpu_share: float = 1.0) -> StepTimes:
    steps = [call(0, number, seconds, cpu_share=cpu_share) for number, seconds in enumerate(step_seconds, 1)]
    return StepTimes.of([call(0, 0), *steps])


def test_a_reset_counts_with_the_step_that_ended_the_episode() -> None:
    calls = [call(0, 0, 10.0), call(0, 1), call(0, 2, ended=True), call(1, 0, 30.0), call(1, 1, ended=True)]
    times = StepTimes.of(calls)
    assert times.turn_seconds.tolist() == [1.0, 31.0, 1.0]
    assert times.step_seconds.tolist() == [1.0, 1.0, 1.0]
    assert times.reset_seconds.tolist() == [10.0, 30.0]
    assert times.episode_steps.tolist() == [2, 1]
    assert times.replay_seconds == 20.0 + 2 * 1.0


def test_where_no_episode_ended_its_length_so_far_counts() -> None:
    times = times_of([1.0, 1.0, 1.0])
    assert (times.long_episode_steps, times.any_ended) == (3, False)


def test_spread_has_the_textbook_numbers() -> None:
    spread = Spread.of(np.array([1.0, 2.0, 3.0, 2.0]))
    assert (spread.mean, spread.p50) == (2.0, 2.0)
    assert spread.std == pytest.approx(0.5**0.5)
    assert spread.cv == pytest.approx(0.5**0.5 / 2)


def test_constant_times_lose_nothing_at_the_barrier() -> None:
    assert [loss.share for loss in barrier_losses(times_of([0.01] * 50))] == [0.0, 0.0, 0.0, 0.0]


def test_exponential_times_lose_what_the_harmonic_number_says() -> None:
    """The largest of 16 exponential times is on average 1 + 1/2 + ... + 1/16 of their mean."""
    times = times_of([0.5, 1.5])  # mean 1, cv 0.5
    quick, *_, slow = barrier_losses(times)
    assert quick.share > slow.share > 0
    exponential = times_of([0.0, 2.0])  # mean 1, cv 1
    harmonic = sum(1 / k for k in range(1, 17))
    assert barrier_losses(exponential)[0].share == pytest.approx(1 - 1 / harmonic, abs=1e-3)


def test_an_executor_with_several_environments_waits_for_their_sum() -> None:
    times = times_of([0.0, 2.0])
    alone, shared = barrier_losses(times), barrier_losses(times, num_executors=1)
    assert all(loss.share == pytest.approx(0, abs=1e-3) for loss in shared)
    assert shared[0].mean_seconds == 16 * alone[0].mean_seconds


def test_who_computes_is_given_cores_and_who_waits_executors() -> None:
    assert f"--num-executors {min(16, available_cores())} here" in executors_advice(times_of([1.0, 1.0], cpu_share=0.9))
    assert f"{max(available_cores() - 1, 1)} here" in executors_advice(times_of([1e-5, 1e-5], cpu_share=0.9)), (
        "as a run"
    )
    assert "--num-executors 16 for --num-envs 16" in executors_advice(times_of([1.0, 1.0], cpu_share=0.1))


def test_even_steps_may_meet_often_and_uneven_ones_must_not() -> None:
    assert sync_interval_advice(times_of([1.0, 1.0], cpu_share=0.1)).endswith("use 1 or more")
    assert sync_interval_advice(times_of([0.0, 2.0], cpu_share=0.1)).endswith("use 128 or even more")


def test_the_histogram_has_every_step_in_one_bar() -> None:
    seconds = np.concatenate([np.full(90, 1e-3), np.full(10, 0.1)])
    lines = histogram(seconds)
    assert lines[0] == "time of a step (100 steps)"
    assert [int(line.split()[5]) for line in lines[1:]] == [90, 0, 0, 0, 0, 0, 0, 0, 0, 10]
    assert (lines[1].count("#"), lines[-1].count("#")) == (50, 6)


def test_the_histogram_of_equal_times_stands() -> None:
    assert sum(int(line.split()[5]) for line in histogram(np.full(7, 0.25))[1:]) == 7


def test_seconds_are_shown_in_a_unit_that_fits() -> None:
    assert [shown_seconds(s) for s in (2.0, 0.0123, 0.000456)] == ["2 s", "12.3 ms", "456 us"]


def test_the_first_difference_is_named_with_its_step_and_fields() -> None:
    one = [call(0, 0), call(0, 1), call(0, 2)]
    other = [call(0, 0), call(0, 1), Call(0, 2, {"obs": "else", "reward": "1"}, False, 1.0, 1.0)]
    assert first_difference(one, one) is None
    assert str(first_difference(one, other)) == "step 2 of episode 0, in obs and reward"


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "times.png"
    draw_times("CartPole-v1", times_of([1e-5, 2e-5, 4e-5]), picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("picture", [Path("times.pdf"), Path("nowhere/times.png")])
def test_a_picture_that_could_not_be_written_is_refused_at_once(picture: Path) -> None:
    with pytest.raises(ConfigError, match=picture.name):
        check_picture(picture)
