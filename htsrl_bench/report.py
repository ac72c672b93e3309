"""All records in one page, and as a table of results."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from htsrl.errors import ConfigError
from htsrl_bench.highlights import highlights_of
from htsrl_bench.markdown_html import to_html

FIRST = ("throughput", "peers", "limits", "variance", "sleeping", "determinism", "learning", "lag", "runs")
"""Records whose names begin like this come first, in this order."""
BEGIN, END = "<!-- results: made by `make report` -->", "<!-- end of results -->"

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
        return self.json_file.stem

    @property
    def date(self) -> str:
        return str(self.document["date"])

    @property
    def summary(self) -> Any:
        return self.document["summary"]

    def markdown(self) -> str:
        return self.json_file.with_suffix(".md").read_text()

    def picture(self, file_name: str) -> str:
        """A picture of this record, inside the address itself."""
        data = (self.json_file.parent / file_name).read_bytes()
        return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def read_records(folder: Path) -> list[Published]:
    """All records of a folder, the most telling names first."""
    records = [_read(path) for path in folder.glob("*.json")]
    if not records:
        raise ConfigError(f"{folder} holds no records; run `htsrl bench` first, or name another folder")
    return sorted(records, key=lambda record: (_place(record.name), record.name))


def _read(path: Path) -> Published:
    try:
        document = json.loads(path.read_text())
        name, _, _ = (document[key] for key in ("name", "date", "summary"))
    except (ValueError, TypeError, KeyError) as error:
        raise ConfigError(f"{path} is not a record of `htsrl bench` ({error!r}); remove it") from error
    if name != path.stem:
        raise ConfigError(f"{path} holds the record {name!r}; rename it to {name}.json, or remove it")
    return Published(path, document)


def html_page(records: Sequence[Published]) -> str:
    """Self-contained: nothing is fetched from anywhere."""
    links = "".join(f'<li><a href="#{escape(record.name)}">{escape(record.name)}</a></li>' for record in records)
    sections = "\n".join(
        f'<section id="{escape(record.name)}">\n{to_html(record.markdown(), record.picture)}\n'
        f"<p>Measured on {escape(record.date)}. All repetitions: <code>{escape(record.json_file.name)}</code></p>\n"
        "</section>"
        for record in records
    )
    results = to_html(results_table(records), embed=str)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>htsrl: what was measured</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        "<h1>htsrl: what was measured</h1>\n"
        "<p>The newest record of every benchmark: the command and the machine, then what came of it.</p>\n"
        f"<nav><ul>{links}</ul></nav>\n<section id=results>\n<h2>Results</h2>\n{results}\n</section>\n{sections}\n"
        "</body>\n</html>\n"
    )


def results_table(records: Iterable[Published], links_to: str | None = None) -> str:
    """What each record comes down to; `links_to` is the folder of the records, seen from the document."""
    lines = ["| measured | result | record |", "| --- | --- | --- |"]
    for record in records:
        source = record.name if links_to is None else f"[{record.name}]({links_to}/{record.name}.md)"
        for what, result in highlights_of(record.name, record.summary):
            lines.append(f"| {what} | {result} | {source}, {record.date} |")
    return "\n".join(lines) + "\n"


def with_results(text: str, table: str) -> str:
    """A document with a table of results between its two markers."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ConfigError(f"the document lacks the lines {BEGIN!r} and {END!r}, between which the table belongs")
    return f"{before}{BEGIN}\n{table}{END}{after}"


def _place(name: str) -> int:
    return next((place for place, first in enumerate(FIRST) if name.startswith(first)), len(FIRST))
