"""A hook of MkDocs: links out of docs/, to code and records, become links into the repository."""

from __future__ import annotations

import os
import posixpath
import re
from typing import Any

REPOSITORY = os.environ.get("HTSRL_REPOSITORY_URL", "")
"""Where the code can be read, as in https://HOST/OWNER/htsrl/blob/main; without it such links become plain text."""
LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)([^)\s]+)\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    def to_repository(link: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), link[2]))
        if place.startswith("docs/") and not place.endswith((".py", ".pml")):
            return link[0]
        return f"[{link[1]}]({REPOSITORY}/{place})" if REPOSITORY else link[1]

    return LINK.sub(to_repository, markdown)
