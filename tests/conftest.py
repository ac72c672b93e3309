"""Being here puts this folder on the path, for helpers that several suites import."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator

import hypothesis
import pytest
import torch

from htsrl.numerics import single_threaded

# A shell that runs the suite in the background lets it ignore Ctrl-C, and everything it starts; some tests send one.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says something about the machine, not about the code.
hypothesis.settings.register_profile("htsrl", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("htsrl")

# Run folders are signed with a key of the suite's own, never with that of the user who runs it.
_state = tempfile.TemporaryDirectory(prefix="htsrl-tests-state-")
os.environ["XDG_STATE_HOME"] = os.environ["XDG_CACHE_HOME"] = _state.name


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """A command that ran in this process has counted its first Ctrl-C; a later test's would be its second, and kill."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        if handler is not None:  # somebody else's, not Python's
            signal.signal(number, handler)


@pytest.fixture(scope="module", autouse=True)
def no_ray_of_another_file() -> Iterator[None]:
    """A local Ray serves all runs of a process, and its processes are that one's children."""
    yield
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Compute with one thread, as every worker does."""
    with single_threaded():
        yield


@pytest.fixture
def fixed_seed() -> Iterator[None]:
    """What is drawn from torch's global generator is the same every time, and nobody else notices."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield
