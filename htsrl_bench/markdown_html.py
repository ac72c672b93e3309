"""The markdown of records as HTML: headings, bullets, pictures, tables and paragraphs are all that they hold."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from html import escape

PICTURE = re.compile(r"!\[(.*)\]\((.*)\)")
NUMBER = re.compile(r"[-+]?[\d,.]+\s?[%x]?(\s\(.*\))?")

Embed = Callable[[str], str]
"""From the file name of a picture to the address that shows it."""


def to_html(markdown: str, embed: Embed) -> str:
    """Every block between empty lines as one element."""
    blocks = [block.splitlines() for block in re.split(r"\n\s*\n", markdown.strip())]
    return "\n".join(element for lines in blocks for element in _elements(lines, embed))


def _elements(lines: Sequence[str], embed: Embed) -> Iterator[str]:
    first = lines[0]
    if first.startswith("# "):
        yield f"<h2>{_inline(first[2:])}</h2>"
    elif match := PICTURE.fullmatch(first):
        yield f'<img alt="{escape(match[1])}" src="{escape(embed(match[2]))}">'
    elif first.startswith("- "):
        yield f'<ul class="origin">{"".join(f"<li>{_inline(line[2:])}</li>" for line in lines)}</ul>'
    elif first.startswith("|"):
        yield _table([_cells(line) for line in lines])
    else:
        yield f"<p>{_inline(' '.join(lines))}</p>"


def _table(lines: Sequence[Sequence[str]]) -> str:
    headings, _, *rows = lines
    head = "".join(f"<th>{_inline(cell)}</th>" for cell in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    return f'<div class="table"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(text: str) -> str:
    return f"<td{' class=number' if NUMBER.fullmatch(text) else ''}>{_inline(text)}</td>"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _inline(text: str) -> str:
    """Escaped, with `code` as code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text, quote=False))
