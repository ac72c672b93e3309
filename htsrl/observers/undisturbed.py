"""What a call of the user's sets for the whole process, set back when it has returned."""

from __future__ import annotations

import random

import numpy as np

from htsrl.numerics import NumericsOfProcess


class Surroundings:
    """The numerics and the global random generators as they are when this is made."""

    def __init__(self, settings: NumericsOfProcess) -> None:
        import torch  # here, for commands that only speak of observers do without

        self._settings = settings
        self._numerics = settings.read()
        self._generators = random.getstate(), np.random.get_state(), torch.get_rng_state()

    def set_back(self) -> None:
        import torch

        if self._settings.read() != self._numerics:
            self._settings.write(self._numerics)
        of_python, of_numpy, of_torch = self._generators
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        torch.set_rng_state(of_torch)
