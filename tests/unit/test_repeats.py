"""An environment that does not repeat itself is warned of before training begins."""

from __future__ import annotations

import math
import random
import warnings
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from htsrl import A2C, Config, Experiment, Placement, train
from htsrl.envs import repeats
from htsrl.envs.looked_at import identity_of, is_known
from htsrl.envs.origins import Origins
from htsrl.envs.repeats import warn_unless_it_repeats


class DrawsGlobally(gymnasium.ObservationWrapper[Any, Any, Any]):
    """Noise from a generator that no reset seeds."""

    def __init__(self, source: str = "numpy") -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._draw: Any = {"numpy": np.random.random, "random": random.random, "torch": lambda: torch.rand(())}[source]

    def observation(self, observation: Any) -> Any:
        return observation + np.float32(self._draw())


def normalized() -> gymnasium.Env[Any, Any]:
    """Statistics that survive resets."""
    return gymnasium.wrappers.NormalizeObservation(gymnasium.make("CartPole-v1"))


def breaks() -> gymnasium.Env[Any, Any]:
    raise ValueError("no such thing")


@pytest.mark.parametrize(
    "make_env", [DrawsGlobally, lambda: DrawsGlobally("random"), lambda: DrawsGlobally("torch"), normalized]
)
def test_what_does_not_repeat_is_warned_of(make_env: Any) -> None:
    with pytest.warns(UserWarning, match=r"the same seed and actions .* in obs, so no run .*htsrl check-env"):
        warn_unless_it_repeats(make_env)


@pytest.mark.parametrize("make_env", [lambda: gymnasium.make("CartPole-v1"), breaks])
def test_what_repeats_or_cannot_be_made_is_not_and_nothing_is_drawn(make_env: Any) -> None:
    before, numpys = random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    torchs = torch.get_rng_state().tolist()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_unless_it_repeats(make_env)
    assert random.getstate() == before
    assert np.random.get_state()[1].tolist() == numpys  # type: ignore[index]
    assert torch.get_rng_state().tolist() == torchs


def test_a_run_looks_unless_told_not_to(tmp_path: Path) -> None:
    experiment = Experiment(normalized, algorithm=A2C(), num_envs=1, sync_interval=4, total_steps=4)
    for looks in (True, False):
        placement = Placement(
            backend="inline", run_dir=tmp_path / str(looks), check_env=looks, tensorboard=False, progress="off"
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            train(Config(experiment, placement))
        assert any("the same seed and actions" in str(warning.message) for warning in caught) == looks


@pytest.fixture(autouse=True)
def a_machine_that_is_never_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "MAX_MAKE_SECONDS", math.inf)
    monkeypatch.setattr(repeats, "MAX_SECONDS", math.inf)


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_each_version_of_an_environment_is_looked_at_once(empty_cache: Path) -> None:
    made = []

    def make() -> gymnasium.Env[Any, Any]:
        made.append(1)
        return gymnasium.make("CartPole-v1")

    for version, looks in (("1.0", 2), ("1.0", 2), ("1.1", 4)):
        warn_unless_it_repeats(make, identity_of("CartPole-v1", {}, Origins({"simulator": version})))
        assert len(made) == looks
    assert identity_of("CartPole-v1", {}, Origins()) != identity_of("CartPole-v1", {"sutton": True}, Origins())


def test_an_environment_that_was_too_slow_to_be_looked_at_is_not_remembered(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repeats, "MAX_MAKE_SECONDS", -1.0)
    warn_unless_it_repeats(lambda: gymnasium.make("CartPole-v1"), "an identity")
    assert not is_known("an identity")


def test_what_does_not_repeat_is_warned_of_every_time(empty_cache: Path) -> None:
    for _ in range(2):
        with pytest.warns(UserWarning, match="the same seed and actions"):
            warn_unless_it_repeats(normalized, "an identity")
    assert not is_known("an identity")


def test_an_environment_that_cannot_be_told_from_its_next_version_has_no_identity() -> None:
    def local(**arguments: Any) -> gymnasium.Env[Any, Any]:
        return gymnasium.make("CartPole-v1", **arguments)

    assert identity_of(local, {}, Origins()) is None
    assert identity_of("CartPole-v1", {"object": object()}, Origins()) is None
    assert identity_of(normalized, {}, Origins()) is not None


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_unless_it_repeats(lambda: gymnasium.make("CartPole-v1"), "an identity")
    assert not is_known("an identity")


def test_a_run_remembers_that_it_looked(empty_cache: Path, tmp_path: Path) -> None:
    experiment = Experiment("CartPole-v1", algorithm=A2C(), num_envs=1, sync_interval=4, total_steps=4)
    train(Config(experiment, Placement("inline", run_dir=tmp_path / "run", tensorboard=False, progress="off")))
    assert len((empty_cache / "htsrl" / "environments_that_repeat").read_text().split()) == 1
