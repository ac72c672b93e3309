"""The page and the README's table say what the records say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import htsrl
from htsrl.bench.highlights import KINDS, highlights_of
from htsrl.bench.markdown_html import to_html
from htsrl.bench.report import BEGIN, END, html_page, newest_records, results_table, with_results
from htsrl.bench.tables.report import ReportTable
from htsrl.errors import ConfigError

ROOT = Path(htsrl.__file__).parent.parent
PIXEL = b"\x89PNG\r\n\x1a\n"


def write(folder: Path, file_stem: str, name: str, seconds: float = 0.5) -> None:
    summary = {"median_standstill_seconds": seconds} if name == "restart" else {}
    document = {"name": name, "date": file_stem[:10], "command": f"htsrl bench {name}", "summary": summary}
    (folder / f"{file_stem}.json").write_text(json.dumps(document))
    text = f"# {name}\n\n- `htsrl bench {name}`\n- a machine\n\n![{name}]({name}.png)\n\n| a |\n| - |\n| {seconds} |\n"
    (folder / f"{file_stem}.md").write_text(text)
    (folder / f"{name}.png").write_bytes(PIXEL)


# Records


def test_of_every_name_the_newest_record_counts(tmp_path: Path) -> None:
    for stem in ("2026-01-09-restart", "2026-01-10-restart-2", "2026-01-10-restart-10", "2026-01-10-restart"):
        write(tmp_path, stem, "restart")
    write(tmp_path, "2025-12-31-throughput", "throughput")
    write(tmp_path, "2026-01-10-restart-busy", "restart")  # renamed by hand: a name of its own
    (tmp_path / "notes.json").write_text("{}")

    records = newest_records(tmp_path)

    assert [record.json_file.stem for record in records] == [
        "2025-12-31-throughput",
        "2026-01-10-restart-10",
        "2026-01-10-restart-busy",
    ]


def test_a_record_about_some_works_does_not_hide_what_is_known_of_others(tmp_path: Path) -> None:
    standing = {"htsrl": {"median": 100.0}, "fastest": None, "peers": {}, "ratio": None}
    faster = {**standing, "htsrl": {"median": 200.0}}
    for stem, works in {
        "2026-01-09-peers": {"pong": standing, "cartpole": standing},
        "2026-01-10-peers": {"cartpole": standing},
        "2026-01-10-peers-2": {"cartpole": faster},
    }.items():
        document = {"name": "peers", "date": stem[:10], "command": "htsrl bench peers", "summary": {"work": works}}
        (tmp_path / f"{stem}.json").write_text(json.dumps(document))

    records = newest_records(tmp_path)

    assert [record.json_file.stem for record in records] == ["2026-01-10-peers-2", "2026-01-09-peers"]
    table = results_table(records)
    assert table.count("cartpole, htsrl") == table.count("200 steps/s") == 1
    assert table.count("pong, htsrl") == 1


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no records"):
        newest_records(tmp_path)


# The page


def test_the_page_holds_every_record_and_asks_nobody_for_anything() -> None:
    records = newest_records(ROOT / "benchmarks")

    page = html_page(records)

    for record in records:
        assert f'<section id="{record.json_file.stem}">' in page
        assert record.document["cpu"] in page
        assert record.json_file.name in page
    num_pictures = sum("![" in record.markdown() for record in records)
    assert page.count("data:image/png;base64,") == num_pictures > 0
    assert not re.search(r'(src|href)="(?!data:|#)', page)
    assert "http://" not in page
    assert "https://" not in page


def test_markdown_becomes_elements_and_nothing_slips_through() -> None:
    table = "| n | <i> |\n| - | --- |\n| 1,000 (9 to 10) | `c` |"
    text = f"# a <b>\n\n- `x & y`\n- z\n\n![p](f.png)\n\n{table}\n\nWords\nmore."

    html = to_html(text, embed=lambda name: f"data:{name}")

    assert "<h2>a &lt;b&gt;</h2>" in html
    assert "<li><code>x &amp; y</code></li><li>z</li>" in html
    assert '<img alt="p" src="data:f.png">' in html
    assert "<th>n</th><th>&lt;i&gt;</th>" in html
    assert "<td class=number>1,000 (9 to 10)</td><td><code>c</code></td>" in html
    assert "<p>Words more.</p>" in html


# The table of results


def test_every_number_has_its_command_and_record_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "2026-01-10-restart", "restart", seconds=0.25)

    table = results_table(newest_records(tmp_path))

    assert "| a killed executor holds the run up | 0.25 s |" in table
    assert "`htsrl bench restart`" in table
    assert "[2026-01-10](benchmarks/2026-01-10-restart.md)" in table


def test_only_what_is_between_the_markers_changes(tmp_path: Path) -> None:
    write(tmp_path, "2026-01-10-restart", "restart")
    records = newest_records(tmp_path)

    text = with_results(f"before\n{BEGIN}\nold\n{END}\nafter\n", records)

    assert text == f"before\n{BEGIN}\n{results_table(records)}{END}\nafter\n"
    assert with_results(text, records) == text
    with pytest.raises(ConfigError, match="lacks the lines"):
        with_results(f"{BEGIN} without an end", records)


def test_the_readme_says_what_the_records_say() -> None:
    text = (ROOT / "README.md").read_text()

    assert with_results(text, newest_records(ROOT / "benchmarks")) == text, (
        "the records have changed; run `htsrl bench report --readme README.md`"
    )


def test_every_kind_of_record_that_there_is_comes_down_to_something() -> None:
    silent = [
        record.name
        for record in newest_records(ROOT / "benchmarks")
        if not highlights_of(record.name, record.document["summary"])
    ]
    assert silent == []


def test_peers_are_named_with_their_speed_and_those_that_fail_are_not_hidden() -> None:
    standing = {"steps_per_second": {"median": 480.0}}
    row = {"htsrl": {"median": 960.4}, "fastest": "sb3", "peers": {"sb3": standing}, "ratio": {"median": 2.0}}
    alone = {"htsrl": {"median": 100.0}, "fastest": None, "peers": {}, "ratio": None}

    assert highlights_of("peers", {"work": {"pong-a2c": row, "cartpole": alone}}) == [
        ("pong-a2c, htsrl against the fastest peer", "960 steps/s, 2.00x sb3 (480)"),
        ("cartpole, htsrl", "100 steps/s; no peer ran"),
    ]


def test_a_schedule_has_its_speed_and_share() -> None:
    sync = {"steps_per_second": {"median": 620.0}, "share_of_roofline": {"median": 0.9}}
    hts = {"steps_per_second": {"median": 1640.4}, "share_of_roofline": {"median": 0.97}}

    (found,) = highlights_of("throughput", {"works": {"pong-ppo": {"schedules": {"hts": hts, "sync": sync}}}})

    assert found == ("pong-ppo: steps/s, and share of the roofline", "hts 1,640 (97%), sync 620 (90%)")


def test_learning_is_compared_with_every_other_way() -> None:
    difference = {"low": -1.25, "high": 2.0}
    reached = {"goal": 475, "reached": {"hts": 5, "sync": 4}}
    compared = {"differences": {"sync": difference, "async": difference}}

    found = highlights_of("learning-cartpole", {**reached, "over_run": compared, "scores": compared})

    assert found == [
        ("cartpole: seeds that reached 475", "hts 5, sync 4"),
        ("cartpole: mean return over the run, hts less others (95 %)", "sync -1.25 to +2, async -1.25 to +2"),
        ("cartpole: score, hts less others (95 %)", "sync -1.25 to +2, async -1.25 to +2"),
    ]
    for older in ({"difference": difference}, {"differences": {"sync": difference}}):
        found = highlights_of("learning-cartpole", {**reached, **older})
        assert found[1:] == [("cartpole: mean return over the run, hts less others (95 %)", "sync -1.25 to +2")]
    assert len(highlights_of("learning-cartpole", {**reached, "difference": None})) == 1


def test_a_record_of_an_unknown_kind_has_no_highlights() -> None:
    assert highlights_of("weather", {"rain": 1}) == []
    assert {"throughput", "limits", "variance", "determinism"} <= set(KINDS)


def test_bench_report_writes_the_page_and_renews_the_readme(tmp_path: Path) -> None:
    write(tmp_path, "2026-01-10-restart", "restart")
    readme = tmp_path / "README.md"
    readme.write_text(f"{BEGIN}\n{END}\n")

    assert ReportTable(records=tmp_path, readme=readme).run() == 0

    assert "0.50 s" in readme.read_text()
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    with pytest.raises(ConfigError, match="cannot read"):
        ReportTable(records=tmp_path, readme=tmp_path / "nowhere.md").run()
