"""PettingZoo's parallel environments as teams: a row per agent, whoever comes and goes."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from numpy.typing import NDArray
from replay import assert_episodes_repeat

from htsrl.envs.contract import check_contract
from htsrl.envs.pettingzoo import PettingZooTeam, make_pettingzoo
from htsrl.errors import ConfigError
from htsrl.spaces import action_layout, observation_leaves

TEAMS = [
    pytest.param("mpe2", partial(make_pettingzoo, "pettingzoo/mpe2.simple_spread_v3"), id="spread"),
    pytest.param(
        "mpe2", partial(make_pettingzoo, "pettingzoo/mpe2.simple_spread_v3", continuous_actions=True), id="continuous"
    ),
    pytest.param(
        "pygame",
        partial(make_pettingzoo, "pettingzoo/butterfly.knights_archers_zombies_v11", spawn_delay=5),
        id="knights",
    ),
    pytest.param("Box2D", partial(make_pettingzoo, "pettingzoo/sisl.multiwalker_v9"), id="walkers"),
]

A_ENDS, A_IS_AWAY, A_IS_BACK, ALL_END = range(4)


class ComingAndGoing:
    """Agent a terminates in the first step, is away in the second, and back in the third; the fourth ends all.

    PettingZoo wants agents off the list in the step that ends them; not all environments comply.
    """

    possible_agents = ("a", "b")

    def __init__(self, a_space: spaces.Space[Any] | None = None, lists_the_ended: bool = False) -> None:
        self.agents: list[str] = []
        self._ended = ["a", "b"] if lists_the_ended else []
        self.received: list[dict[str, Any]] = []
        self._a_space = a_space or self.observation_space("b")

    def observation_space(self, name: str) -> spaces.Space[Any]:
        return self._a_space if name == "a" else spaces.Box(0, 99, (1,), np.float32)

    def action_space(self, name: str) -> spaces.Space[Any]:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents = ["a", "b"]
        self._step = -1
        return self._seen("a", "b"), {}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self.received.append(actions)
        self._step += 1
        present = ("b",) if self._step == A_IS_AWAY else ("a", "b")
        self.agents = {A_ENDS: self._ended or ["b"], A_IS_AWAY: ["b"], A_IS_BACK: ["b", "a"], ALL_END: self._ended}[
            self._step
        ]
        return (
            self._seen(*present),
            {name: 10.0 * self._step + (name == "b") for name in present},
            {name: self._step == A_ENDS and name == "a" for name in present},
            dict.fromkeys(present, self._step == ALL_END),
            {},
        )

    def _seen(self, *names: str) -> dict[str, NDArray[np.float32]]:
        return {name: np.array([10 * self._step + 10 + (name == "b")], np.float32) for name in names}


def require(package: str) -> None:
    pytest.importorskip("pettingzoo")
    pytest.importorskip(package)


@pytest.mark.parametrize(("package", "make"), TEAMS)
def test_it_keeps_the_contract_in_spaces_that_policies_know(package: str, make: partial[PettingZooTeam]) -> None:
    require(package)
    team = make()
    check_contract(team)
    assert observation_leaves(team.observation_space)
    assert action_layout(team.action_space)
    team.close()


@pytest.mark.parametrize(("package", "make"), TEAMS)
def test_an_episode_is_a_function_of_its_seed_and_actions(package: str, make: partial[PettingZooTeam]) -> None:
    require(package)
    assert_episodes_repeat(make)


@pytest.mark.parametrize("lists_the_ended", [False, True])
def test_agents_keep_their_rows_while_they_come_and_go(lists_the_ended: bool) -> None:
    team = PettingZooTeam(ComingAndGoing(lists_the_ended=lists_the_ended))
    rows = [team.reset(seed=0)[0].ravel().tolist()]
    active = [team.active.tolist()]
    results = []
    for _ in range(4):
        observation, rewards, terminated, truncated, _ = team.step(np.array([1, 2]))
        rows.append(observation.ravel().tolist())
        active.append(team.active.tolist())
        results.append((rewards.tolist(), terminated.tolist(), truncated.tolist()))

    assert rows == [[0, 1], [10, 11], [10, 21], [30, 31], [40, 41]]
    assert active == [[True, True], [False, True], [False, True], [True, True], [False, False]]
    assert results == [
        ([0, 1], [True, False], [False, False]),
        ([0, 11], [False, False], [False, False]),
        ([20, 21], [False, False], [False, False]),
        ([30, 31], [False, False], [True, True]),
    ]


def test_only_active_agents_act_and_in_their_own_terms() -> None:
    parallel = ComingAndGoing()
    team = PettingZooTeam(parallel)
    team.reset(seed=0)
    for _ in range(4):
        team.step(np.array([1, 2]))
    assert parallel.received == [{"a": 1, "b": 2}, {"b": 2}, {"b": 2}, {"a": 1, "b": 2}]
    assert type(parallel.received[0]["a"]) is int


def test_what_a_team_returned_is_not_changed_by_later_steps() -> None:
    team = PettingZooTeam(ComingAndGoing())
    first, _ = team.reset(seed=0)
    team.step(np.array([0, 0]))
    assert first.ravel().tolist() == [0, 1]


def test_a_new_episode_begins_with_everyone() -> None:
    team = PettingZooTeam(ComingAndGoing())
    team.reset(seed=0)
    team.step(np.array([0, 0]))
    assert team.reset(seed=1)[0].ravel().tolist() == [0, 1]
    assert team.active.all()


def test_knights_that_fall_leave_the_others_playing() -> None:
    require("pygame")
    team = make_pettingzoo("pettingzoo/butterfly.knights_archers_zombies_v11", spawn_delay=1, max_zombies=50)
    team.reset(seed=0)
    counts = []
    for _ in range(500):
        team.step(np.full(team.num_agents, 5))
        counts.append(int(team.active.sum()))
        if not counts[-1]:
            break
    assert counts[0] == team.num_agents
    assert any(0 < count < team.num_agents for count in counts)
    assert counts[-1] == 0


def test_agents_with_different_spaces_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"a has the observation space Discrete\(4\), but b has Box.*wrap the env"):
        PettingZooTeam(ComingAndGoing(a_space=spaces.Discrete(4)))


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    with pytest.raises(ConfigError, match=r"pettingzoo cannot be imported: .*; pip install htsrl\[pettingzoo\]"):
        make_pettingzoo("pettingzoo/mpe2.simple_spread_v3")


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("pettingzoo/mpe2.simple_spred_v3", "there is neither a module mpe2.simple_spred_v3 nor pettingzoo.mpe2"),
        ("pettingzoo/nowhere", "there is neither a module nowhere nor pettingzoo.nowhere"),
        ("pettingzoo/utils.wrappers", "pettingzoo.utils.wrappers has no parallel_env"),
    ],
)
def test_a_name_without_a_parallel_environment_is_refused(env_id: str, message: str) -> None:
    pytest.importorskip("pettingzoo")
    with pytest.raises(ConfigError, match=message):
        make_pettingzoo(env_id)
