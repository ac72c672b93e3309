"""Environments with one fault each, which `check_env` names, and some without, which pass."""

from __future__ import annotations

from typing import Any

import pytest
from faulty_walks import (
    CannotRestore,
    ChangingShape,
    ChangingType,
    Deterministic,
    DrawsWhileSaving,
    Ending,
    ForgetsGenerator,
    Gated,
    GlobalNumpy,
    InfiniteReward,
    Leaking,
    NotANumber,
    OneBuffer,
    Pair,
    Saving,
    SavingLeaky,
    SharedByClass,
    StringHash,
    SystemRandom,
    Unsupported,
    Walk,
)

import htsrl
from htsrl.envs.check.findings import Level


def check(env: Any, steps: int = 60, **arguments: Any) -> htsrl.Report:
    return htsrl.check_env(env, steps=steps, **arguments)


def text_of(report: htsrl.Report, level: Level, topic: str) -> str:
    """The one finding of this kind."""
    found = [finding.text for finding in report.of_level(level) if finding.topic == topic]
    assert len(found) == 1, str(report)
    return found[0]


def test_an_environment_without_a_fault_passes() -> None:
    report = check(Walk)
    assert not report.failed, str(report)
    assert {finding.level for finding in report.findings} == {"ok"}
    assert report.times is not None
    assert len(report.times.step_seconds) == 60
    assert "99 % of the episodes have at most 12 steps" in text_of(report, "ok", "state")


@pytest.mark.parametrize(
    ("env", "cause"),
    [(GlobalNumpy, "a global generator"), (SystemRandom, "os.urandom"), (StringHash, "PYTHONHASHSEED")],
)
def test_what_differs_in_another_process_is_found_with_its_step_field_and_cause(env: Any, cause: str) -> None:
    text = text_of(check(env), "fail", "other process")
    assert "first at step 1 of episode 0, in reward" in text
    assert cause in text


def test_state_that_survives_a_reset_is_found_and_replaying_fails_with_it() -> None:
    report = check(Leaking)
    assert "first at step 1 of episode 0, in reward" in text_of(report, "fail", "reset")
    assert "played again in a new environment" in text_of(report, "fail", "state")
    assert "same, to the bit" in text_of(report, "ok", "other process")


def test_state_that_environments_share_is_found() -> None:
    report = check(SharedByClass)
    assert "keep no state in the class" in text_of(report, "fail", "same process")
    assert text_of(report, "ok", "other process")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (NotANumber, "obs holds nan at step 7 of episode 0 (5 of 65 calls)"),
        (InfiniteReward, "the reward is inf at step 7 of episode 0 (5 of 65 calls)"),
        (ChangingType, "obs has dtype float64, its space float32, at step 7 of episode 0 (5 of 65 calls)"),
        (ChangingShape, "obs has shape (2,), its space (3,), at step 7 of episode 0 (5 of 65 calls)"),
    ],
)
def test_a_value_that_cannot_be_learned_from_is_counted_and_the_first_is_named(env: Any, expected: str) -> None:
    assert expected in text_of(check(env), "fail", "values")


def test_a_state_that_is_saved_whole_goes_on_as_before() -> None:
    assert "saved after step 5 and restored in a new environment" in text_of(check(Saving), "ok", "state")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (ForgetsGenerator, "the episode continues otherwise: step 6 of episode 0, in obs and reward"),
        (DrawsWhileSaving, "save_state changes what follows: step 6 of episode 0, in obs and reward"),
        (CannotRestore, "restore_state raised OSError: the simulator is gone"),
    ],
)
def test_a_state_that_is_not_saved_whole_is_found(env: Any, expected: str) -> None:
    assert expected in text_of(check(env), "fail", "state")


def test_episodes_that_depend_on_earlier_ones_are_legal_where_the_state_is_saved() -> None:
    report = check(SavingLeaky, steps=55)  # the last episode is not played to its end
    assert "right after an episode that had ended" in text_of(report, "warn", "reset")
    assert text_of(report, "ok", "state")


def test_a_space_that_is_not_supported_is_named() -> None:
    assert "observation space Text(" in text_of(check(Unsupported), "fail", "spaces")


def test_a_deterministic_environment_is_legal_but_said_to_be_one() -> None:
    report = check(Deterministic)
    assert "3 other seeds gave the same episode" in text_of(report, "warn", "seeds")
    assert not report.failed


def test_a_buffer_returned_again_and_again_is_mentioned_and_no_fault() -> None:
    report = check(OneBuffer)
    assert "step 1 of episode 0 overwrote the observation" in text_of(report, "ok", "memory")
    assert not report.failed, str(report)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("raise", "step(1) raised RuntimeError at step 7 of episode 0: out of bananas"),
        ("sys.exit", "step(1) raised SystemExit at step 7 of episode 0: 3"),
        ("os._exit", "exited with code 3 while it was played, after step 6 of episode 0"),
        ("hang", "nothing was heard for 6 s while it was played, after step 6 of episode 0"),
    ],
)
def test_an_environment_that_breaks_off_is_a_finding_that_says_where(how: str, expected: str) -> None:
    report = check(Ending, env_args={"how": how}, deadline_seconds=6.0 if how == "hang" else 60.0)
    assert expected in text_of(report, "fail", "run")
    assert report.times is None


def test_a_team_is_checked_by_the_rules_of_teams() -> None:
    report = check(Pair)
    assert "a team of 2" in text_of(report, "ok", "contract")
    assert "at most 8 steps" in text_of(report, "ok", "state")
    assert not report.failed, str(report)


def test_a_team_with_a_reward_too_few_is_found() -> None:
    report = check(Pair, env_args={"reward_rows": 1})
    assert "team, step 1: rewards has shape (1,)" in text_of(report, "fail", "contract")


def test_an_environment_that_cannot_be_made_is_bad_input() -> None:
    with pytest.raises(htsrl.ConfigError, match="does not take env_args"):
        check(Walk, env_args={"gravity": 9.81})


@pytest.mark.parametrize("argument", [{"steps": 0}, {"seed": -1}, {"deadline_seconds": 0.0}])
def test_a_number_that_makes_no_sense_is_bad_input(argument: dict[str, Any]) -> None:
    name, value = next(iter(argument.items()))
    with pytest.raises(htsrl.ConfigError, match=f"{name}={value} must be"):
        htsrl.check_env(Walk, **argument)


def test_an_environment_that_raises_for_what_its_mask_forbids_passes() -> None:
    report = check(Gated)
    assert report.of_level("fail") == [], str(report)
    assert "allows something" in text_of(report, "ok", "masks")


def test_a_mask_that_allows_nothing_is_found_and_its_step_named() -> None:
    report = check(lambda: Gated(shuts_down=True))
    assert "step 4: the action mask allows nothing" in text_of(report, "fail", "masks")
