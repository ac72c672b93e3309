"""`htsrl report`: runs, groups and sweeps in one file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from htsrl.errors import ConfigError
from htsrl.metrics.line_file import warn_on_stderr
from htsrl.metrics.line_progress import LineProgress
from htsrl.plain_files import printable

Repeatable = tyro.conf.UseAppendAction[tuple[str, ...]]


@dataclass(frozen=True)
class ReportCommand:
    """Write one self-contained HTML file about runs, groups of seeds and sweeps; executes nothing in them."""

    runs: Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="RUNS")]
    """Folders of runs, groups or sweeps, folders that hold them, or patterns."""
    out: Path = Path("report.html")
    """The file to write."""
    title: str = "Results"
    """Its title."""
    png: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Also write the charts as PNG there, for papers."""
    svg: Annotated[Path | None, tyro.conf.arg(metavar="DIR")] = None
    """Also write the charts as SVG there."""
    markdown: Annotated[Path | None, tyro.conf.arg(metavar="FILE")] = None
    """Also write a result card for a pull request; - is standard output."""
    target: float | None = None
    """Return for the time to a target. None: the lowest final mean of the variants, task by task."""
    budget_seconds: float | None = None
    """For the final return at a time budget. None: as long as the quickest run of the task took."""
    score_range: Annotated[Repeatable, tyro.conf.arg(metavar="TASK=LOW:HIGH")] = ()
    """Returns that count as 0 and 1 on a task, for the interquartile mean and profiles."""

    def run(self) -> int:
        from htsrl.reports.card import markdown_card
        from htsrl.reports.gather import gather
        from htsrl.reports.page import html_page
        from htsrl.reports.pictures import write_pictures
        from htsrl.reports.summary import Options, summarise

        ranges = dict(map(_score_range, self.score_range))
        warn_on_stderr("reading   " + printable(", ".join(self.runs)))
        with LineProgress() as progress:
            gathered = gather(self.runs, lambda num_read: progress.show(f"read {num_read} runs and sweeps"))
            progress.show("computing means, intervals and profiles")
            options = Options(target=self.target, budget_seconds=self.budget_seconds, ranges=ranges)
            summary = summarise(gathered.runs, options) if gathered.runs else None
            progress.show("drawing")
            page = html_page(gathered, summary, self.title)
        for line in gathered.skipped:
            warn_on_stderr(printable(f"left out  {line}"))
        _write(self.out, page)
        print(f"report    {self.out}")
        for folder, kind in ((self.png, "png"), (self.svg, "svg")):
            if folder is not None and summary is not None:
                for path in write_pictures(summary, folder, kind):
                    print(f"picture   {path}")
        if self.markdown is not None:
            card = markdown_card(gathered, summary, self.title)
            if str(self.markdown) == "-":
                print(card)
            else:
                _write(self.markdown, card)
                print(f"card      {self.markdown}")
        return 0


def _score_range(text: str) -> tuple[str, tuple[float, float]]:
    task, _, span = text.rpartition("=")
    low, _, high = span.partition(":")
    try:
        found = float(low), float(high)
    except ValueError:
        found = (0.0, 0.0)
    if not task or not found[0] < found[1]:
        raise ConfigError(f"--score-range {text} must be TASK=LOW:HIGH, such as CartPole-v1=0:500")
    return task, found


def _write(path: Path, text: str) -> None:
    """All of it or nothing."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}; name another file") from error
    finally:
        temporary.unlink(missing_ok=True)
