"""`htsrl bench report`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from htsrl.bench.report import html_page, newest_records, with_results
from htsrl.errors import ConfigError


@dataclass(frozen=True)
class ReportTable:
    """One page of all records, the newest of each name; measures nothing."""

    records: Path = Path("benchmarks")
    """Folder of the records."""
    page: Path | None = None
    """File for the page. None: report.html beside the records."""
    readme: Path | None = None
    """Also renew the table of results between the markers of this document."""

    def run(self) -> int:
        records = newest_records(self.records)
        page = self.page or self.records / "report.html"
        page.write_text(html_page(records))
        print(f"{len(records)} records in {page}")
        if self.readme:
            try:
                text = self.readme.read_text()
            except OSError as error:
                raise ConfigError(f"cannot read {self.readme}: {error.strerror}") from error
            self.readme.write_text(with_results(text, records))
            print(f"table of results in {self.readme}")
        return 0
