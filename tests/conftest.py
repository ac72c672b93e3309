"""Being here puts this folder on the path, for helpers that several suites import."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import torch

from htsrl.numerics import single_threaded

# A shell that runs the suite in the background lets it ignore Ctrl-C, and everything it starts; some tests send one.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
