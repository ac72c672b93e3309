"""An environment that changes the current folder, as some simulators do to find their files."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import gymnasium


class Wandering(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole; when it is made and at every reset it goes to a new folder."""

    def __init__(self) -> None:
        super().__init__(gymnasium.make("CartPole-v1", max_episode_steps=5))
        self.made_in = Path.cwd()
        self._go()

    def reset(self, **arguments: Any) -> Any:
        self._go()
        return super().reset(**arguments)

    def _go(self) -> None:
        os.chdir(tempfile.mkdtemp(dir=os.environ["WANDERS_TO"]))
