"""The puzzles are worth the numbers that their docstrings state: with memory and mask, without, and by chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv
from test_puzzles import choose

from htsrl.envs.puzzles.crane import DIRECTIONS, Crane
from htsrl.envs.puzzles.hidden_cartpole import HiddenCartPole
from htsrl.envs.puzzles.lock import Lock
from htsrl.envs.puzzles.memoir import WAIT, Memoir
from htsrl.envs.puzzles.recall import Recall
from htsrl.envs.puzzles.relay import HOLD, LENGTH, Relay

Policy = Callable[[Any, dict[str, Any]], Any]


def play(env: Any, seed: int, policy: Policy) -> list[float]:
    """The rewards of one episode."""
    observation, info = env.reset(seed=seed)
    rewards: list[float] = []
    over = False
    while not over:
        observation, reward, terminated, truncated, info = env.step(policy(observation, info))
        rewards.append(reward)
        over = terminated or truncated
    return rewards


def mean_return(env: Any, policy: Policy, num_episodes: int) -> float:
    return float(np.mean([sum(play(env, seed, policy)) for seed in range(num_episodes)]))


def by_chance(env: Any) -> Policy:
    """Whatever the mask says."""
    env.action_space.seed(0)
    return lambda observation, info: env.action_space.sample()


def legal_by_chance(env: Any) -> Policy:
    env.action_space.seed(0)
    return lambda observation, info: choose(env.action_space, observation, info)


def remembering(shown: Callable[[Any], int], act: Callable[[int, Any], int]) -> Policy:
    """Acts by the last thing that was shown (0 is nothing) and what it sees now."""
    memory = 0

    def policy(observation: Any, info: dict[str, Any]) -> int:
        nonlocal memory
        memory = shown(observation) or memory
        return act(memory, observation)

    return policy


def balance_by_memory() -> Policy:
    """Push the way that the pole leans and falls; its speed is the difference to the last observation."""
    last: Any = None

    def policy(observation: Any, info: dict[str, Any]) -> int:
        nonlocal last
        (position, angle), (speed, spin) = observation, (0, 0) if last is None else (observation - last) / 0.02
        last = observation
        return int(angle + 0.3 * spin + 0.05 * position + 0.1 * speed > 0)

    return policy


def test_hidden_cartpole_shows_positions_of_gymnasiums_cartpole() -> None:
    env, cartpole = HiddenCartPole(), CartPoleEnv()
    observation, state = env.reset(seed=4)[0], cartpole.reset(seed=4)[0]
    for action in [0, 1, 1, 0, 1]:
        assert observation.tolist() == [state[0], state[2]]
        observation, state = env.step(np.int64(action))[0], cartpole.step(action)[0]  # type: ignore[no-untyped-call]


def test_hidden_cartpole_is_balanced_by_a_policy_that_remembers_and_truncated_after_500_steps() -> None:
    for seed in range(10):
        assert play(HiddenCartPole(), seed, balance_by_memory()) == [1.0] * 500
    env = HiddenCartPole(step_limit=3)
    env.reset(seed=0)
    assert [env.step(np.int64(step % 2))[2:4] for step in range(3)] == [(False, False), (False, False), (False, True)]


def test_hidden_cartpole_falls_under_memoryless_policies() -> None:
    chance = np.random.default_rng(0)

    def leaning(slope: float) -> Policy:
        return lambda observation, info: int(chance.random() < 1 / (1 + np.exp(-slope * observation[1])))

    assert 45 < max(mean_return(HiddenCartPole(), leaning(slope), 100) for slope in (10, 20, 40, 200)) < 60
    assert 18 < mean_return(HiddenCartPole(), by_chance(HiddenCartPole()), 200) < 26


def test_hidden_cartpole_that_falls_at_its_step_limit_is_terminated() -> None:
    def pushing_right(limit: int) -> tuple[int, bool, bool]:
        env, steps, terminated, truncated = HiddenCartPole(step_limit=limit), 0, False, False
        env.reset(seed=0)
        while not (terminated or truncated):
            _, _, terminated, truncated, _ = env.step(np.int64(1))
            steps += 1
        return steps, terminated, truncated

    fall, *_ = pushing_right(500)
    assert pushing_right(fall) == (fall, True, False)
    assert pushing_right(fall - 1) == (fall - 1, False, True)


def test_recall_shows_the_cue_once_and_then_asks_for_it() -> None:
    env = Recall(num_cues=3, delay=2)
    seen = [env.reset(seed=0)[0]]
    outcomes = []
    for action in (0, 0, 0, int(seen[0].argmax())):
        observation, *outcome, _ = env.step(np.int64(action))
        seen.append(observation)
        outcomes.append(outcome)
    assert [view.sum() for view in seen] == [1, 0, 0, 1, 0]
    assert (seen[0][3], seen[3][3]) == (0, 1)
    assert outcomes == [[0.0, False, False]] * 3 + [[1.0, True, False]]


def test_recall_is_solved_with_memory_and_by_nothing_else() -> None:
    env = Recall()
    remember = remembering(lambda seen: int(seen[:4].any()) and 1 + int(seen.argmax()), lambda cue, seen: cue - 1)
    assert {len(play(env, seed, remember)) for seed in range(5)} == {52}
    assert mean_return(env, remember, 20) == 1.0
    answers = [mean_return(env, lambda observation, info, answer=answer: answer, 200) for answer in range(4)]  # type: ignore[misc]
    assert sum(answers) == pytest.approx(1.0)  # each cue is somebody's answer: no mixture of the four exceeds the best
    assert max(answers) < 0.25 + 0.1


def press_by_mask(observation: Any, info: dict[str, Any]) -> int:
    shown, mask = (
        (observation["observation"], observation["action_mask"])
        if isinstance(observation, dict)
        else (observation, info["action_mask"])
    )
    (button,) = (button for button in np.flatnonzero(mask) if button % 4 == shown[:4].argmax())
    return int(button)


def press_without_mask(observation: Any, info: dict[str, Any]) -> int:
    shown = observation["observation"] if isinstance(observation, dict) else observation
    return int(shown[:4].argmax())


@pytest.mark.parametrize("mask_in", ["observation", "info"])
def test_the_lock_opens_by_the_mask_and_stays_shut_without_it(mask_in: Any) -> None:
    env = Lock(mask_in=mask_in)
    assert [play(env, seed, press_by_mask) for seed in range(20)] == [[1.0] * 20] * 20
    assert mean_return(env, press_without_mask, 2000) == pytest.approx(-0.933, abs=0.03)


def test_the_lock_by_chance() -> None:
    assert mean_return(Lock(), legal_by_chance(Lock()), 300) == pytest.approx(5.0, abs=0.4)
    assert mean_return(Lock(), by_chance(Lock()), 1000) < -0.95


def test_the_lock_is_the_same_wherever_its_mask_is() -> None:
    inside, beside, nowhere = Lock(), Lock(mask_in="info"), Lock(mask_in="nowhere")
    (seen, _), (shown, info), (alone, nothing) = (env.reset(seed=5) for env in (inside, beside, nowhere))
    for step in range(20):
        assert seen["observation"][-1] == np.float32(step / 20)
        assert seen["observation"].tobytes() == shown.tobytes() == alone.tobytes()
        assert seen["action_mask"].tobytes() == info["action_mask"].tobytes()
        assert nothing == {}
        button = press_by_mask(seen, {})
        (seen, *outcome, _), (shown, *_, info), (alone, *bare, nothing) = (
            env.step(np.int64(button)) for env in (inside, beside, nowhere)
        )
        assert outcome == bare


def test_what_the_lock_shows_does_not_tell_which_buttons_are_legal() -> None:
    """Every button is legal as often under every wanted colour."""
    counts = np.zeros((4, 64))
    for seed in range(3000):
        seen = Lock(length=1).reset(seed=seed)[0]
        counts[seen["observation"][:4].argmax()] += seen["action_mask"]
    shares = counts / counts.sum(axis=1, keepdims=True) * 4
    assert np.abs(shares - 1 / 16).max() < 0.05


def steer(seen: Any) -> dict[str, Any]:
    """The right action by the instruments alone."""
    gear, hook = seen["state"]
    rows, columns, _ = np.nonzero(seen["camera"])
    crate = np.array([columns.min(), rows.min()]) / 5 - 1
    return {
        "grip": int(seen["dial"].sum()) % 3,
        "move": ((crate - hook) / 2 * DIRECTIONS[gear]).astype(np.float32),
        "lamps": seen["switches"][:2] ^ seen["switches"][2],
    }


def test_the_crane_earns_everything_by_its_instruments_and_needs_every_part_of_its_action() -> None:
    env = Crane()
    assert mean_return(env, lambda seen, info: steer(seen), 20) == pytest.approx(20.0, abs=1e-4)
    chance = by_chance(env)

    def all_but(part: str) -> Policy:
        return lambda seen, info: steer(seen) | {part: chance(seen, info)[part]}

    by_chance_instead = {part: mean_return(env, all_but(part), 50) for part in ("grip", "lamps", "move")}
    assert by_chance_instead == {
        "grip": pytest.approx(20 * (2 + 1 / 3) / 3, abs=0.3),
        "lamps": pytest.approx(20 * (2 + 1 / 2) / 3, abs=0.3),
        "move": pytest.approx(20 * (2 + 0.58) / 3, abs=0.3),
    }
    assert mean_return(env, chance, 150) == pytest.approx(9.4, abs=0.25)


def test_the_crane_is_truncated_at_its_length() -> None:
    env = Crane(length=2)
    seen, _ = env.reset(seed=0)
    seen, _, *first, _ = env.step(steer(seen))
    assert (first, env.step(steer(seen))[2:4]) == ([False, False], (False, True))


def note(seen: Any) -> int:
    return int(seen["note"])


def test_memoir_is_solved_with_memory_and_mask_together() -> None:
    follow_the_note = remembering(note, lambda door, seen: door if seen["action_mask"][door] else WAIT)
    for seed in range(50):
        rewards = play(Memoir(), seed, follow_the_note)
        assert sum(rewards) == rewards[-1] == 1.0
        assert 2 <= len(rewards) <= 10


def test_memoir_without_memory_or_without_the_mask() -> None:
    env = Memoir()

    def any_open_door(seen: Any, info: dict[str, Any]) -> int:
        return int(np.flatnonzero(seen["action_mask"])[-1])

    halfway = remembering(note, lambda door, seen: door if seen["clock"][0] == np.float32(0.5) else WAIT)
    assert mean_return(env, any_open_door, 1000) == pytest.approx(0.25, abs=0.05)
    assert mean_return(env, legal_by_chance(env), 1000) == pytest.approx(0.23, abs=0.05)
    assert mean_return(env, halfway, 2000) == pytest.approx(1 / 9 - 8 / 9, abs=0.05)
    assert play(env, 0, lambda seen, info: WAIT) == [0.0] * 10
    assert mean_return(env, by_chance(env), 500) < -0.9


def test_relay_keeps_the_rules_of_a_team_and_of_its_shifts() -> None:
    env = Relay()
    for seed in range(10):
        env.reset(seed=seed)
        duty, truncations = [], np.zeros(3, int)
        while env.active.any():
            acted = env.active.copy()
            duty.append(acted)
            _, rewards, terminated, truncated, _ = env.step(np.full(3, HOLD))
            ended = terminated | truncated
            assert not (terminated & truncated).any()
            assert not (ended & (env.active | ~acted)).any()
            assert (ended == (acted & ~env.active)).all()
            assert not rewards[~acted].any()
            truncations += truncated
        assert len(duty) == LENGTH
        assert sorted(np.sum(duty, axis=0)) == [8, 8, 10]
        assert sorted(truncations) == [0, 0, 1]


def relay_returns(policy: Callable[[int, Any], int], num_episodes: int) -> float:
    env = Relay()
    total = 0.0
    for seed in range(num_episodes):
        seen, _ = env.reset(seed=seed)
        while env.active.any():
            seen, rewards, *_ = env.step(np.array([policy(agent, seen[agent]) for agent in range(3)]))
            total += float(rewards.sum())
    return total / num_episodes


def test_relay_is_worth_26_with_memory_and_15_without() -> None:
    batons = [0, 0, 0]

    def named_if_legal(baton: int, seen: Any) -> int:
        return baton if seen["action_mask"][baton] else HOLD

    def with_memory(agent: int, seen: Any) -> int:
        batons[agent] = int(seen["baton"]) or batons[agent]
        return named_if_legal(batons[agent], seen)

    env = Relay()
    env.action_space.seed(0)
    assert relay_returns(with_memory, 20) == 26.0
    assert relay_returns(lambda agent, seen: named_if_legal(int(seen["baton"]), seen), 300) == pytest.approx(
        15, abs=0.5
    )
    assert relay_returns(lambda agent, seen: choose(env.action_space, seen, {}), 150) == pytest.approx(26 / 3, abs=0.6)


def test_relay_punishes_what_is_illegal() -> None:
    env = Relay()
    seen, _ = env.reset(seed=0)
    illegal = np.array([np.flatnonzero(view["action_mask"] == 0)[0] for view in seen])
    expected = np.where(env.active, -1.0, 0.0)
    assert env.step(illegal)[1].tolist() == expected.tolist()
