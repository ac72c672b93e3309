"""All records in one page, and the README's table of results."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from htsrl.bench.highlights import highlights_of
from htsrl.bench.markdown_html import to_html
from htsrl.errors import ConfigError

WORKS = {"throughput": "works", "peers": "work", "limits": "works", "determinism": "works"}
"""Where the summary of a record has an entry for each work, of which it may be about a part only."""
STEM = re.compile(r"(\d{4}-\d\d-\d\d)-(.+)")
FIRST = ("throughput", "peers", "limits", "variance", "sleeping", "determinism", "learning", "runs")
"""Records whose names begin like this come first, in this order."""
BEGIN, END = "<!-- results: made by `htsrl bench report --readme README.md` -->", "<!-- end of results -->"

STYLE = """
:root { color-scheme: light dark; --text: #1c1e21; --quiet: #5f6671; --back: #ffffff; --box: #f4f5f7; --line: #dcdfe4;
  --link: #1f5fa8; }
@media (prefers-color-scheme: dark) { :root { --text: #e4e6ea; --quiet: #9aa3af; --back: #15171a; --box: #1f2227;
  --line: #343940; --link: #7fb3ee; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1rem; max-width: 64rem; background: var(--back); color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; margin: .5rem 0; } h2 { font-size: 1.25rem; margin: 0 0 .5rem; }
a { color: var(--link); } p { margin: .6rem 0; color: var(--quiet); font-size: .9rem; }
nav ul { display: flex; flex-wrap: wrap; gap: .3rem .9rem; padding: 0; list-style: none; font-size: .9rem; }
section { border-top: 1px solid var(--line); padding: 1.5rem 0; }
ul.origin { margin: 0 0 1rem; padding: .6rem .9rem; list-style: none; background: var(--box); border-radius: 6px;
  color: var(--quiet); font-size: .8rem; overflow-wrap: anywhere; }
ul.origin li:first-child { color: var(--text); font-size: .9rem; }
code { font: .88em ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
img { display: block; max-width: 100%; height: auto; margin: 1rem 0; padding: .5rem; background: #ffffff;
  border: 1px solid var(--line); border-radius: 6px; }
.table { overflow-x: auto; margin: 1rem 0; }
table { border-collapse: collapse; font-size: .88rem; }
th, td { padding: .35rem .8rem .35rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top;
  white-space: nowrap; }
th { color: var(--quiet); font-weight: 600; }
.number { font-variant-numeric: tabular-nums; }
#results table { width: 100%; } #results td { white-space: normal; } #results td:last-child { white-space: nowrap; }
@media (max-width: 45rem) {
  #results table, #results tbody, #results tr, #results td { display: block; } #results thead { display: none; }
  #results td { border: 0; padding: .05rem 0; overflow-wrap: anywhere; } #results td:first-child { font-weight: 600; }
  #results tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
}
"""


@dataclass(frozen=True)
class Published:
    """A record's files."""

    json_file: Path
    document: Any

    @property
    def name(self) -> str:
        """That of the file, without the number of a second one on the same day."""
        name = self.json_file.stem.removeprefix(f"{self.date}-")
        own = str(self.document["name"])
        return own if re.fullmatch(rf"{re.escape(own)}-\d+", name) else name

    @property
    def date(self) -> str:
        return str(self.document["date"])

    @property
    def anchor(self) -> str:
        """Where it stands on the page."""
        return escape(self.json_file.stem)

    @property
    def attempt(self) -> int:
        """Which of several on one day under one name."""
        number = self.json_file.stem.removeprefix(f"{self.date}-{self.name}").removeprefix("-")
        return int(number or 1)

    @property
    def works(self) -> Mapping[str, Any]:
        """The entries of its works, none where it has no such."""
        key = WORKS.get(self.name)
        return self.document["summary"].get(key, {}) if key else {}

    def about(self, works: Collection[str]) -> Published:
        """As if it were about some of its works only."""
        summary = {**self.document["summary"], WORKS[self.name]: {name: self.works[name] for name in works}}
        return replace(self, document={**self.document, "summary": summary})

    def markdown(self) -> str:
        return self.json_file.with_suffix(".md").read_text()

    def picture(self, file_name: str) -> str:
        """A picture of this record, inside the address itself."""
        data = (self.json_file.parent / file_name).read_bytes()
        return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def newest_records(folder: Path) -> list[Published]:
    """Of every name the newest, and older ones about works that it leaves out; the most telling names first."""
    paths = [path for path in folder.glob("*.json") if STEM.fullmatch(path.stem)]
    records = [Published(path, json.loads(path.read_text())) for path in paths]
    if not records:
        raise ConfigError(f"{folder} holds no records; run `htsrl bench` first, or name another folder")
    found: list[Published] = []
    told: dict[str, set[str]] = {}
    for record in sorted(records, key=lambda record: (record.date, record.attempt), reverse=True):
        if record.name not in told:
            found.append(record)
        elif new := [work for work in record.works if work not in told[record.name]]:
            found.append(record.about(new))
        told.setdefault(record.name, set()).update(record.works)
    return sorted(found, key=lambda record: (_place(record.name), record.name))


def html_page(records: Sequence[Published]) -> str:
    """Self-contained: nothing is fetched from anywhere."""
    links = "".join(f'<li><a href="#{record.anchor}">{escape(record.name)}</a></li>' for record in records)
    sections = "\n".join(
        f'<section id="{record.anchor}">\n{to_html(record.markdown(), record.picture)}\n'
        f"<p>Measured on {escape(record.date)}. All repetitions: <code>{escape(record.json_file.name)}</code></p>\n"
        "</section>"
        for record in records
    )
    results = to_html(results_table(records, links=False), embed=str)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>htsrl: what was measured</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        "<h1>htsrl: what was measured</h1>\n"
        "<p>The newest record of every benchmark, and older ones about works that it leaves out: the command and the "
        "machine, then what came of it.</p>\n"
        f"<nav><ul>{links}</ul></nav>\n<section id=results>\n<h2>Results</h2>\n{results}\n</section>\n{sections}\n"
        "</body>\n</html>\n"
    )


def results_table(records: Iterable[Published], links: bool = True) -> str:
    """What each record comes down to, and the command behind it."""
    lines = ["| measured | result | command | record |", "| --- | --- | --- | --- |"]
    for record in records:
        source = f"[{record.date}](benchmarks/{record.json_file.stem}.md)" if links else record.date
        for what, result in highlights_of(record.name, record.document["summary"]):
            lines.append(f"| {what} | {result} | `{record.document['command']}` | {source} |")
    return "\n".join(lines) + "\n"


def with_results(text: str, records: Iterable[Published]) -> str:
    """A document with the table of results between its two markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigError(f"the document lacks the lines {BEGIN!r} and {END!r}, between which the table belongs")
    return f"{before}{BEGIN}\n{results_table(records)}{END}{after}"


def _place(name: str) -> int:
    return next((place for place, first in enumerate(FIRST) if name.startswith(first)), len(FIRST))
