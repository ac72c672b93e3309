"""Why a peer has no number, in a line that may be published."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

LONGEST = 200


class PeerFailed(Exception):
    """A peer could not be installed or did not train; the others continue."""


def last_words(output: str, folders: Sequence[Path] = ()) -> str:
    """The last line that says something, without the folders of this machine."""
    lines = [line.strip() for line in output.splitlines() if re.search(r"\w", line)]
    # pip's own advice on pip comes after the error
    lines = [line for line in lines if not line.startswith(("[notice]", "WARNING"))] or lines
    return without_folders(lines[-1], folders)[:LONGEST] if lines else "it said nothing"


def without_folders(text: str, folders: Sequence[Path] = ()) -> str:
    for folder in sorted((*folders, Path(tempfile.gettempdir()), Path.home()), key=lambda path: -len(str(path))):
        text = text.replace(str(folder), "...")
    return text
