"""Returns against steps, and against rounds of communication, under each sync rule."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from htsrl_bench.plots import empty_figure, finish, save

Curves = Mapping[str, Sequence[Sequence[tuple[int, float, int]]]]
"""By rule, of each seed: steps, return and rounds so far."""


def drawing(name: str, curves: Curves, controls: Sequence[str]) -> Callable[[Path], None]:
    """Means over seeds; controls, thinner, have the colour of the rule before them."""

    def draw(picture: Path) -> None:
        figure, (against_steps, against_rounds) = empty_figure(columns=2, width=13.0, height=5.5)
        colour = -1
        for way, seeds in curves.items():
            is_control = way in controls
            colour += not is_control
            shade, width = f"C{colour}", 1.0 if is_control else 2.0
            style = ":" if is_control and "drawn" in way else "--" if is_control else "-"
            length = min(map(len, seeds))
            points = np.mean([seed[:length] for seed in seeds], axis=0)  # [points, (steps, return, rounds)]
            against_steps.plot(points[:, 0], points[:, 1], style, label=way, color=shade, linewidth=width)
            against_rounds.plot(np.maximum(points[:, 2], 0.5), points[:, 1], style, color=shade, linewidth=width)
        against_rounds.set_xscale("log")
        finish(against_steps, name, "environment steps", "return, mean of 100 episodes")
        finish(against_rounds, "the same", "rounds of communication", "")
        save(figure, picture)

    return draw
