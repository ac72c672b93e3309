"""What a call of the user's sets for the whole process, set back when it returns."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from htsrl.numerics import NumericsOfProcess
from htsrl.processes.current_folder import current_folder_kept


@contextmanager
def undisturbed(settings: NumericsOfProcess) -> Iterator[None]:
    """The current folder, the numerics and the global random generators are afterwards what they were."""
    import torch  # here, for commands that only speak of observers do without

    before, generators = settings.read(), (random.getstate(), np.random.get_state(), torch.get_rng_state())
    with current_folder_kept():
        yield
    if settings.read() != before:
        settings.write(before)
    of_python, of_numpy, of_torch = generators
    random.setstate(of_python)
    np.random.set_state(of_numpy)
    torch.set_rng_state(of_torch)
