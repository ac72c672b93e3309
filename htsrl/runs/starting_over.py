"""Training a run from its first step once more, in its folder: it was killed before its first checkpoint."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from htsrl.config import Config, Experiment
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.errors import RunFolderError
from htsrl.metrics.line_file import warn_on_stderr
from htsrl.metrics.result import RunResult
from htsrl.observers.dispatch import Watching
from htsrl.runs.changes_of_numerics import changes_of_numerics
from htsrl.runs.filming import drop_films_after
from htsrl.runs.folder import RunFolder
from htsrl.runs.recorder import Standing
from htsrl.runs.run import run_to_end
from htsrl.runs.start import fingerprint_for, initialise, survey


def start_over(
    config: Config, before: Experiment, folder: RunFolder, watching: Watching, allow_different_numerics: bool
) -> RunResult:
    """Nothing that was computed is kept; under other numerics than the run began with it is refused or marked."""
    blueprint = survey(config, folder, watching.is_watched, allow_different_numerics)
    fingerprint = fingerprint_for(blueprint)
    # Killed while its folder was made, it has computed nothing that could differ.
    has_computed = folder.has_fingerprint() or folder.digest_file.exists()
    changes = changes_of_numerics(folder, fingerprint, allow_different_numerics) if has_computed else []
    block = SharedArrays(blueprint.block_specs())
    try:
        with or_as_it_was(folder):
            folder.clear(config, fingerprint, blueprint.interface, changes)
            drop_films_after(folder, steps=0)
        what = _what_becomes_of_bits(before, config.experiment, changes)
        warn_on_stderr(f"{folder.shown} holds no checkpoint yet: the run starts over, {what}")
        initialise(blueprint, block, folder)
        return run_to_end(blueprint, block, folder, Standing(), watching)
    finally:
        block.close()


def _what_becomes_of_bits(before: Experiment, now: Experiment, changes: list[str]) -> str:
    if changes:
        return "computed differently than before, and is marked so"
    if now.is_recorded:
        return f"to other bits: schedule={now.schedule} depends on timing"
    return "to the same bits" if now == before else "to the bits of the experiment as it is now"


@contextmanager
def or_as_it_was(folder: RunFolder) -> Iterator[None]:
    """For what is written before a run resumes."""
    try:
        yield
    except OSError as error:
        raise RunFolderError(
            f"cannot write to {folder.shown}: {error.strerror}; make room there and resume again, nothing is lost"
        ) from error
