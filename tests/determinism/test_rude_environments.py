"""Whatever an environment sets in its process, for torch or for NumPy, the bits of a run stay as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gymnasium
import pytest
import torch
from helpers import assert_same_run, run
from threadpoolctl import threadpool_limits

from htsrl import A2C, Experiment, Network
from htsrl.numerics import OURS, OwnNumerics, _torch_settings, single_threaded


class Rude(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Wants threads of its own at one moment."""

    def __init__(self, moment: str | None) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._moment = moment
        self._be_rude("constructor")

    def reset(self, **arguments: Any) -> Any:
        self._be_rude("reset")
        return self.env.reset(**arguments)

    def step(self, action: Any) -> Any:
        self._be_rude("step")
        return self.env.step(action)

    def _be_rude(self, moment: str) -> None:
        if moment == self._moment:
            torch.set_num_threads(4)
            threadpool_limits(4, user_api="blas")
            torch.set_float32_matmul_precision("medium")
            torch._C._set_mkldnn_enabled(False)
            torch.set_grad_enabled(False)
            torch.set_autocast_enabled("cpu", True)


@pytest.fixture(autouse=True)
def settings_of_torch_restored() -> Iterator[None]:
    with threadpool_limits(None), single_threaded():
        yield


def experiment(moment: str | None) -> Experiment:
    """Layers so wide that several threads share their sums."""
    network, algorithm = Network(hidden_sizes=(512, 512)), A2C()
    make = partial(Rude, moment)
    return Experiment(make, algorithm=algorithm, network=network, num_envs=8, sync_interval=16, total_steps=256)


@pytest.mark.parametrize("moment", ["constructor", "reset", "step"])
def test_what_an_environment_sets_in_torch_changes_no_digest(moment: str) -> None:
    assert_same_run(run(experiment(moment)), run(experiment(None)))


def test_nor_does_it_in_processes() -> None:
    assert_same_run(run(experiment("step"), backend="processes", num_executors=1, num_actors=0), run(experiment(None)))


def test_what_an_environment_set_is_ours_inside_and_its_own_again_outside() -> None:
    smallest_normal = torch.finfo(torch.float64).tiny
    with single_threaded():
        numerics = OwnNumerics()
        torch.set_num_threads(3)
        torch.set_default_dtype(torch.float64)
        torch.set_float32_matmul_precision("medium")
        torch.set_flush_denormal(True)
        theirs = _torch_settings()
        try:
            with numerics:
                assert _torch_settings() == OURS
                assert smallest_normal / 2 > 0
            assert (torch.get_num_threads(), torch.get_default_dtype()) == (3, torch.float64)
            assert _torch_settings() == theirs != OURS
            assert torch.get_float32_matmul_precision() == "medium"
            assert smallest_normal / 2 == 0
        finally:
            torch.set_flush_denormal(False)


@pytest.mark.parametrize(
    ("be_rude", "restore"),
    [
        (lambda: torch.set_float32_matmul_precision("medium"), lambda: torch.set_float32_matmul_precision("highest")),
        (lambda: set_rounding("bf16"), lambda: set_rounding("none")),
        (lambda: torch.set_autocast_enabled("cpu", True), lambda: torch.set_autocast_enabled("cpu", False)),
        (lambda: torch.set_grad_enabled(False), lambda: torch.set_grad_enabled(True)),
        (lambda: torch.set_default_dtype(torch.float64), lambda: torch.set_default_dtype(torch.float32)),
    ],
    ids=["products", "by operation", "autocast", "no gradients", "float64"],
)
def test_what_the_caller_set_is_ours_inside_and_its_own_again_outside(
    be_rude: Callable[[], Any], restore: Callable[[], Any]
) -> None:
    be_rude()
    theirs = _torch_settings()
    try:
        assert theirs != OURS
        with single_threaded():
            assert _torch_settings() == OURS
        assert _torch_settings() == theirs
    finally:
        restore()


def set_rounding(rounding: str) -> None:
    torch.backends.mkldnn.matmul.fp32_precision = rounding  # type: ignore[attr-defined]
