"""Two runs side by side: whether they are identical, and if not, why and where they part."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from htsrl.checkpoint.of_run import experiment_document
from htsrl.config.file import differences, from_document
from htsrl.digest import Link, first_difference, read_links
from htsrl.errors import ConfigError, RunFolderError
from htsrl.plain_files import read_document
from htsrl.runs.folder import RunFolder


class Comparison(NamedTuple):
    """What there is to say about two runs."""

    are_identical: bool
    lines: list[str]


def compare(run_a: Path, run_b: Path, watch: Callable[[str], None] = lambda line: None) -> Comparison:
    """Of runs that differ, first the experiments' settings that do, then the place. `watch` is told what is read."""

    def links_of(run_dir: Path) -> list[Link]:
        return read_links(run_dir, lambda num_read: watch(f"read {num_read:,} updates of {run_dir}"))

    links_a, links_b = links_of(run_a), links_of(run_b)
    difference = first_difference(links_a, links_b)
    if difference is None:
        same_kind = all(bool(a.learner) == bool(b.learner) for a, b in zip(links_a, links_b, strict=True))
        known = "" if same_kind else " in batches and parameters; one digest is older and lacks the optimizer's state"
        return Comparison(True, [f"identical{known}"])
    return Comparison(False, _what_differs(run_a, run_b, difference))


def _what_differs(run_a: Path, run_b: Path, difference: str) -> list[str]:
    notes: list[str] = []
    try:
        settings = list(differences(_experiment(run_a), _experiment(run_b), between=" / "))
    except RunFolderError as error:
        settings, notes = [], [str(error)]
    if settings:
        settings = ["the experiments differ, so their digests must:", *(f"  {line}" for line in settings)]
    notes += _differences_of_numerics(run_a, run_b)
    return [*settings, f"first difference at {difference}", *(f"note: {line}" for line in notes)]


def _experiment(run_dir: Path) -> dict[str, Any]:
    """As the run's folder has it, with what was no setting yet as its default; nothing that it names is imported."""
    path = RunFolder(run_dir).config_file
    try:
        document = read_document(path)["experiment"]
        complete = experiment_document(from_document({"experiment": document}, env="its own"))
        return {**complete, "env": document["env"]}
    except (OSError, ValueError, TypeError, KeyError, ConfigError) as error:
        raise RunFolderError(f"{run_dir / path.name} cannot be read: {error}") from error


def _differences_of_numerics(run_a: Path, run_b: Path) -> Iterator[str]:
    try:
        a, b = RunFolder(run_a).fingerprint(), RunFolder(run_b).fingerprint()
    except RunFolderError as error:
        yield str(error)
        return
    yield from (f"the runs were computed differently, {line}" for line in a.differences(b))
    if a.code is None and b.code is None:
        yield "by which code of htsrl the runs were computed is unknown: both are from before that was noted"
    for run_dir in (run_a, run_b):
        for change in RunFolder(run_dir).numerics_changes():
            what = "; ".join(change.get("changes", ()))
            yield f"{run_dir} continues under other numerics after update {change['version']} ({what})"
