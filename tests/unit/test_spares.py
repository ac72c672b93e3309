"""A spare is taken when it may be, and given up when it does not get ready; it is not tried for ever."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any, cast

import gymnasium
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from htsrl.config import Config, Experiment, Placement
from htsrl.placements.blueprint import Blueprint, write_blueprint
from htsrl.placements.messages import ReportReader, ReportWriter
from htsrl.placements.preparation import make_ahead, prepare
from htsrl.placements.spares import FIRST_AFTER_SECONDS, NEXT_AFTER_SECONDS, PREPARATION_SECONDS, Spares
from htsrl.placements.survey import draw_blueprint


class Process:
    """As much of a worker process as its keeper looks at."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.report_reader = self
        self.has_ended = False

    def read(self) -> list[dict[str, Any]]:
        messages, self.messages = self.messages, []
        return messages

    def end(self) -> None:
        self.has_ended = True


class World:
    """A keeper of spares, the clock that it looks at, and the processes that it has started."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.launched: list[Process] = []
        monkeypatch.setattr("htsrl.placements.spares.time.monotonic", lambda: self.now)
        self.spares = Spares(cast(Any, self._launch), drop=lambda process: None)

    def _launch(self) -> Process:
        self.launched.append(Process())
        return self.launched[-1]

    def pass_by(self, seconds: float) -> None:
        self.now += seconds
        self.spares.look_after()

    def say(self, done: bool) -> None:
        self.launched[-1].messages.append({"kind": "preparing", "done": done})


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_spare_is_started_after_a_while_and_the_next_soon_after_it_was_taken(world: World) -> None:
    world.pass_by(FIRST_AFTER_SECONDS - 0.1)
    assert world.launched == []
    world.pass_by(0.1)
    assert world.spares.take() is None, "it still imports"
    world.say(done=True)
    assert world.spares.take() is cast(Any, world.launched[0])
    assert world.spares.take() is None
    world.pass_by(NEXT_AFTER_SECONDS)
    assert len(world.launched) == 2


def test_a_spare_is_not_taken_while_it_is_in_the_users_code(world: World) -> None:
    world.pass_by(FIRST_AFTER_SECONDS)
    world.say(done=False)
    assert world.spares.take() is None
    world.say(done=True)
    assert world.spares.take() is cast(Any, world.launched[0])


def test_a_spare_that_hangs_is_ended(world: World) -> None:
    world.pass_by(FIRST_AFTER_SECONDS)
    world.say(done=False)
    world.pass_by(1.0)
    world.pass_by(PREPARATION_SECONDS)
    assert world.spares.process is cast(Any, world.launched[0])
    world.pass_by(0.1)
    assert world.spares.process is None
    assert world.launched[0].has_ended


def test_spares_that_end_by_themselves_are_tried_again_ever_later(world: World) -> None:
    for pause in (1, 1, 2, 4):  # times as long
        world.pass_by(pause * FIRST_AFTER_SECONDS - 0.1)
        assert world.spares.process is None
        world.pass_by(0.1)
        world.launched[-1].has_ended = True
        assert world.spares.take() is None
        world.pass_by(0.0)
    assert len(world.launched) == 4


# What it prepares


class Listed(CartPoleEnv):
    """Notes when it is made and closed."""

    log: list[str] = []  # noqa: RUF012  (of all instances)

    def __init__(self, may_be_made_ahead: bool) -> None:
        super().__init__()
        self.may_be_made_ahead = may_be_made_ahead
        self.log.append("made")

    def close(self) -> None:
        self.log.append("closed")


def blueprint_of(env: Any) -> Blueprint:
    """Five environments, so that one executor has three and the other two."""
    blueprint = draw_blueprint(Config(Experiment(env, num_envs=5), Placement(num_executors=2)))
    Listed.log.clear()
    return blueprint


def test_of_an_ordinary_environment_one_is_made_and_closed() -> None:
    assert make_ahead(blueprint_of(partial(Listed, may_be_made_ahead=False))) == []
    assert Listed.log == ["made", "closed"]


def test_of_one_that_may_be_made_ahead_there_are_as_many_as_the_largest_executor_has() -> None:
    stock = make_ahead(blueprint_of(partial(Listed, may_be_made_ahead=True)))
    assert [type(env) for env in stock] == [Listed] * 3
    assert Listed.log == ["made"] * 3


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_an_environment_that_cannot_be_made_ahead_stops_no_spare(tmp_path: Path, error: type[BaseException]) -> None:
    def fragile() -> gymnasium.Env[Any, Any]:
        if trouble.exists():
            raise error("not now")
        return CartPoleEnv()

    trouble = tmp_path / "trouble"
    blueprint_fd = write_blueprint(blueprint_of(fragile))
    trouble.touch()
    read_fd, write_fd = os.pipe()
    assert prepare(blueprint_fd, ReportWriter(write_fd)) == []
    assert [message["done"] for message in ReportReader(read_fd).read()] == [False, True]
    for fd in (blueprint_fd, read_fd, write_fd):
        os.close(fd)
