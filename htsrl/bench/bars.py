"""Pictures of limits and throughput: a row for every work."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from htsrl.bench.plots import PART_COLOURS, empty_figure, finish


def draw_limits(summary: Mapping[str, Any], picture: Path) -> None:
    """The shares of a step that its parts take, and the steps per second if there were nothing else."""
    works = list(summary["works"])[::-1]
    figure, (axes,) = empty_figure(height=1.2 + 0.45 * len(works))
    done = [0.0] * len(works)
    for part, colour in PART_COLOURS.items():
        totals = [sum(summary["works"][work][name] for name in PART_COLOURS) for work in works]
        shares = [100 * summary["works"][work][part] / total for work, total in zip(works, totals, strict=True)]
        axes.barh(works, shares, left=done, color=colour, label=part, height=0.62)
        done = [before + share for before, share in zip(done, shares, strict=True)]
    for place, work in enumerate(works):
        axes.text(101, place, f"{summary['works'][work]['roofline']['median']:,.0f} steps/s", va="center", fontsize=9)
    axes.set_xlim(0, 122)
    axes.set_xticks(range(0, 101, 20))
    axes.grid(visible=False, axis="y")
    finish(axes, "What a step consists of, and the most steps per second", "% of the CPU time of a step", "")
    axes.legend(frameon=False, fontsize=9, ncols=3, loc="upper left", bbox_to_anchor=(0, -0.16))
    figure.savefig(picture, format="png")
