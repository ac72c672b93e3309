"""What the user is told beside the results."""

from __future__ import annotations

import sys


def warn_on_stderr(line: str) -> None:
    try:
        print(line, file=sys.stderr, flush=True)
    except OSError:
        pass  # it may be a file on the very disk that is full
