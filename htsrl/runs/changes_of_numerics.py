"""What a run's bits depend on besides the experiment, then and now: machine, libraries, and the code that computes."""

from __future__ import annotations

from htsrl.errors import ConfigError
from htsrl.fingerprint import Fingerprint
from htsrl.runs.folder import RunFolder


def changes_of_numerics(folder: RunFolder, now: Fingerprint, allowed: bool) -> list[str]:
    """How the run was computed otherwise until now; ConfigError where that is not allowed."""
    changes = folder.fingerprint().differences(now)
    if changes and not allowed:
        raise ConfigError(
            "the run was computed differently before (before / now):\n  "
            + "\n  ".join(changes)
            + "\nIt cannot resume to the same bits here: put back what it was computed by. --allow-different-numerics "
            "resumes all the same, on this machine with these libraries and this code, and marks the run for good"
        )
    return changes
