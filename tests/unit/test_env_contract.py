"""The look at an environment before training: each breach of the contract has its own message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import OrderEnforcing, TimeLimit, TransformObservation

from htsrl.envs.contract import CHECKED_STEPS, check_contract
from htsrl.envs.make import make_env
from htsrl.envs.observing import ObservationGuard
from htsrl.errors import ConfigError, RuleBroken
from htsrl.spaces import observation_leaves

GOOD = np.zeros(3, np.float32)


class Puppet(gymnasium.Env[Any, Any]):
    """Returns what it is told to, or calls it if it is a function."""

    def __init__(
        self, reset: Any = (GOOD, {}), step: Any = (GOOD, 0.0, False, False, {}), space: Any = None, actions: Any = None
    ) -> None:
        self.observation_space = space or spaces.Box(-1, 1, (3,), np.float32)
        self.action_space = actions or spaces.Discrete(2)
        self.reset_answer, self.step_answer = reset, step
        self.calls: list[str] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.calls.append(f"reset {seed}")
        return self.reset_answer() if callable(self.reset_answer) else self.reset_answer

    def step(self, action: Any) -> Any:
        self.calls.append("step")
        return self.step_answer() if callable(self.step_answer) else self.step_answer


def stepping(**changes: Any) -> Puppet:
    """A puppet whose steps are right but for `changes`."""
    answer = {"obs": GOOD, "reward": 0.0, "terminated": False, "truncated": False, "info": {}} | changes
    return Puppet(step=tuple(answer.values()))


def observing(space: spaces.Space[Any], observation: Any) -> Puppet:
    return Puppet(reset=(observation, {}), step=(observation, 0.0, False, False, {}), space=space)


def raising(error: Exception) -> Callable[[], Any]:
    def answer() -> Any:
        raise error

    return answer


def complaint(env: gymnasium.Env[Any, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        check_contract(env)
    return str(caught.value)


@pytest.mark.parametrize(
    "env_id",
    ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "MountainCarContinuous-v0", "htsrl/PixelCatch-v0"],
)
def test_a_good_environment_passes(env_id: str) -> None:
    check_contract(make_env(env_id, {}, ()))


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (spaces.Discrete(3, start=2), np.int64(4)),
        (spaces.Box(0, 1, (), np.float32), np.float32(0.5)),
        (spaces.Box(-np.inf, np.inf, (1,), np.float64), np.array([1e300])),
        (spaces.MultiDiscrete([2, 3]), np.array([1, 2])),
        (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))), (1, 0)),
        (spaces.Dict(x=spaces.Discrete(2), y=spaces.MultiBinary(2)), {"y": np.array([0, 1], np.int8), "x": 1}),
    ],
)
def test_observations_inside_their_space_pass(space: spaces.Space[Any], observation: Any) -> None:
    check_contract(observing(space, observation))


@pytest.mark.parametrize("reward", [1, 1.5, True, np.float32(1), np.float64(-1), np.int8(1), np.bool_(True)])
def test_every_kind_of_real_number_is_a_reward(reward: Any) -> None:
    check_contract(stepping(reward=reward))


def test_numpy_flags_pass() -> None:
    check_contract(stepping(terminated=np.bool_(False), truncated=np.bool_(True)))


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_an_environment_is_reset_with_a_new_seed_when_an_episode_ends(flag: str) -> None:
    env = stepping(**{flag: True})
    check_contract(env)
    assert env.calls[:4] == ["reset 0", "step", "reset 1", "step"]
    assert env.calls.count("step") == CHECKED_STEPS


def test_an_environment_is_not_reset_in_the_middle_of_an_episode() -> None:
    env = Puppet()
    check_contract(env)
    assert env.calls == ["reset 0"] + ["step"] * CHECKED_STEPS


def test_the_reset_after_an_episode_is_checked_too() -> None:
    answers: Iterator[Any] = iter([(GOOD, {}), (GOOD, None)])
    env = Puppet(reset=lambda: next(answers), step=(GOOD, 0.0, True, False, {}))
    assert "reset(seed=1) returned info=None" in complaint(env)


def test_the_environments_own_action_space_is_left_as_it_was() -> None:
    env, twin = Puppet(), spaces.Discrete(1000, seed=3)
    env.action_space = spaces.Discrete(1000, seed=3)
    check_contract(env)
    assert env.action_space.sample() == twin.sample()


@pytest.mark.parametrize("attribute", ["observation_space", "action_space"])
def test_a_missing_space_is_named(attribute: str) -> None:
    env = Puppet()
    delattr(env, attribute)
    assert f"Puppet: {attribute} raised AttributeError" in complaint(env)


@pytest.mark.parametrize("attribute", ["observation_space", "action_space"])
def test_something_else_in_place_of_a_space_is_named(attribute: str) -> None:
    env = Puppet()
    setattr(env, attribute, (3,))
    assert f"Puppet: {attribute} is a builtins.tuple, not a Gymnasium space" in complaint(env)


@pytest.mark.parametrize(
    ("space", "observation"),
    [
        (spaces.Box(-1, 1, (3,), np.float32), GOOD),
        (spaces.Discrete(3), 1),
        (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))), (1, 0)),
    ],
)
def test_a_reset_that_returns_a_bare_observation_is_recognised_as_the_old_gym(
    space: spaces.Space[Any], observation: Any
) -> None:
    message = complaint(Puppet(reset=observation, space=space))
    assert "alone, not (obs, info)" in message
    assert "old Gym" in message
    assert "shimmy" in message


def test_a_step_that_returns_four_values_is_recognised_as_the_old_gym() -> None:
    message = complaint(Puppet(step=(GOOD, 0.0, False, {})))
    assert "returned 4 values, (obs, reward, done, info)" in message
    assert "old Gym" in message
    assert "shimmy" in message


def test_the_old_gym_is_recognised_behind_wrappers_that_fail_on_it() -> None:
    space = spaces.Box(-1, 1, (3,), np.float32)
    for env in (
        TimeLimit(OrderEnforcing(Puppet(step=(GOOD, 0.0, False, {}))), 10),
        TransformObservation(Puppet(reset=GOOD), lambda observation: observation, space),
    ):
        assert "old Gym" in complaint(env)


def test_a_reset_without_a_seed_argument_is_told_the_signature() -> None:
    class Seedless(Puppet):
        def reset(self) -> Any:  # type: ignore[override]
            return GOOD, {}

    message = complaint(Seedless())
    assert "TypeError" in message
    assert "reset(self, *, seed=None, options=None)" in message


@pytest.mark.parametrize(
    ("env", "count"), [(Puppet(reset=(GOOD, {}, 1)), 3), (Puppet(step=(GOOD, 0.0, False)), 3), (Puppet(step=()), 0)]
)
def test_a_wrong_number_of_values_is_counted(env: Puppet, count: int) -> None:
    assert f"returned {count} values" in complaint(env)


def test_a_step_that_returns_no_tuple_is_told_so() -> None:
    assert "returned None (NoneType), not a tuple" in complaint(Puppet(step=None))


@pytest.mark.parametrize(
    ("space", "observation", "difference"),
    [
        (spaces.Box(-1, 1, (3,), np.float32), np.zeros(3), "obs has dtype float64, the space has float32"),
        (spaces.Box(0, 255, (3,), np.float32), np.zeros(3, np.uint8), "obs has dtype uint8, the space has float32"),
        (spaces.Box(-1, 1, (3,), np.float32), np.zeros((1, 3), np.float32), "shape (1, 3), the space has (3,)"),
        (spaces.Box(-1, 1, (3,), np.float32), [0.0, 0.0, 0.0], "obs is a list, not an array"),
        (spaces.Box(-9, 9, (1, 2), np.float32), np.array([[0, np.nan]], np.float32), "obs[0, 1] is nan, which is not"),
        (spaces.Box(-np.inf, np.inf, (1,), np.float32), np.array([np.inf], np.float32), "obs[0] is inf, which is not"),
        (spaces.Box(-np.inf, np.inf, (1,), np.float32), np.array([np.nan], np.float32), "obs[0] is nan"),
        (spaces.Discrete(3), 3, "obs is 3 (int), not in Discrete(3)"),
        (spaces.Discrete(3), 1.0, "obs is 1.0 (float), not in Discrete(3)"),
        (spaces.MultiBinary(2), np.array([0, 2], np.int8), "not in MultiBinary(2)"),
        (spaces.Dict(x=spaces.Discrete(2)), {"y": 1}, "return a dict with the keys 'x'"),
        (spaces.Dict(x=spaces.Discrete(2)), {"x": 2}, "obs['x'] is 2 (int), not in Discrete(2)"),
        (spaces.Tuple((spaces.Discrete(2),)), (1, 1), "return a tuple of 1"),
        (spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))), (1, 5), "obs[1] is 5"),
    ],
)
def test_an_observation_outside_its_space_is_told_what_differs(
    space: spaces.Space[Any], observation: Any, difference: str
) -> None:
    message = complaint(observing(space, observation))
    assert "reset(seed=0) returned an observation outside observation_space" in message
    assert difference in message


def test_an_observation_that_leaves_its_space_later_is_found_as_well() -> None:
    assert "step(" in complaint(stepping(obs=np.full(3, np.nan, np.float32)))


def test_an_observation_out_of_bounds_is_a_warning_at_the_start_and_taken_by_a_run() -> None:
    """One rule for all steps: bounds are no reason to refuse, what is not finite is."""
    space = spaces.Box(-1, 1, (3,), np.float32)
    with pytest.warns(UserWarning, match=r"obs\[1\] is 2.0, the space allows -1.0 to 1.0; training takes it"):
        check_contract(observing(space, np.array([0, 2, 0], np.float32)))
    guard = ObservationGuard("obs", observation_leaves(space)["obs"])
    assert guard(np.array([0, 2, 0], np.float32))[1] == 2
    with pytest.raises(RuleBroken, match="not finite"):
        guard(np.array([0, np.inf, 0], np.float32))


@pytest.mark.parametrize("reward", [None, "1", 1j, np.zeros(1), np.array(1.0), [1.0]])
def test_a_reward_that_is_no_number_is_refused(reward: Any) -> None:
    message = complaint(stepping(reward=reward))
    assert f"reward={reward!r}" in message
    assert "must be one number" in message


@pytest.mark.parametrize("reward", [float("nan"), float("inf"), np.float32("-inf"), 10**400])
def test_a_reward_that_is_not_finite_is_refused(reward: Any) -> None:
    assert "which must be finite" in complaint(stepping(reward=reward))


@pytest.mark.parametrize("flag", ["terminated", "truncated"])
@pytest.mark.parametrize("value", [None, 0, "False", {}])
def test_a_flag_that_is_no_truth_value_is_refused(flag: str, value: Any) -> None:
    assert f"{flag}={value!r} ({type(value).__name__}), which must be True or False" in complaint(
        stepping(**{flag: value})
    )


@pytest.mark.parametrize("info", [None, [], 3])
def test_info_that_is_no_dict_is_refused(info: Any) -> None:
    assert "which must be a dict" in complaint(stepping(info=info))
    assert "which must be a dict" in complaint(Puppet(reset=(GOOD, info)))


@pytest.mark.parametrize("method", ["reset", "step"])
def test_what_the_environment_raises_is_named_and_kept_as_the_cause(method: str) -> None:
    broken = KeyError("joint_7")
    with pytest.raises(ConfigError) as caught:
        check_contract(Puppet(**{method: raising(broken)}))
    assert f"Puppet: {method}(" in str(caught.value)
    assert "raised KeyError: 'joint_7'" in str(caught.value)
    assert caught.value.__cause__ is broken


def test_a_long_action_does_not_flood_the_message() -> None:
    env = Puppet(step=None, actions=spaces.Box(-1, 1, (500,), np.float32))
    assert len(complaint(env)) < 250
    assert "\n" not in complaint(env)


def test_a_registered_environment_is_named_by_its_id() -> None:
    env = make_env("CartPole-v1", {}, ())
    env.unwrapped.step = lambda action: (GOOD, 0.0, False, {})  # type: ignore[assignment, method-assign, return-value]
    assert complaint(env).startswith("CartPole-v1: step(")
