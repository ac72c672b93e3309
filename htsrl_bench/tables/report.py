"""`htsrl bench report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from htsrl.errors import ConfigError
from htsrl_bench.readme_table import readme_table
from htsrl_bench.report import html_page, read_records, results_table, with_results


@dataclass(frozen=True)
class ReportTable:
    """One page of all records, and tables of results in documents; measures nothing."""

    records: Path = Path("benchmarks")
    """Folder of the records."""
    page: Path = Path("build/report.html")
    """File for the page."""
    readme: Path | None = None
    """Also renew the short table of results between the markers of this document."""
    results: Path | None = None
    """Also renew the table of all results between the markers of this document, in a folder beside the records'."""

    def run(self) -> int:
        records = read_records(self.records)
        self.page.parent.mkdir(parents=True, exist_ok=True)
        self.page.write_text(html_page(records))
        print(f"{len(records)} records in {self.page}")
        if self.readme:
            _renew(self.readme, readme_table(records))
        if self.results:
            _renew(self.results, results_table(records, links_to=f"../{self.records.name}"))
        return 0


def _renew(document: Path, table: str) -> None:
    try:
        text = document.read_text()
    except OSError as error:
        raise ConfigError(f"cannot read {document}: {error.strerror}") from error
    document.write_text(with_results(text, table))
    print(f"table of results in {document}")
