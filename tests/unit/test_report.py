"""The page and the documents' tables say what the records say."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import htsrl
from htsrl.errors import ConfigError
from htsrl_bench.highlights import KINDS, highlights_of
from htsrl_bench.learned import Learned
from htsrl_bench.markdown_html import to_html
from htsrl_bench.readme_table import ROWS, readme_table
from htsrl_bench.report import BEGIN, END, html_page, read_records, results_table, with_results
from htsrl_bench.tables.report import ReportTable
from htsrl_bench.verdict import Verdict

ROOT = Path(htsrl.__file__).parent.parent
RECORDS = ROOT / "benchmarks"
PIXEL = b"\x89PNG\r\n\x1a\n"


def write(folder: Path, name: str, summary: Any) -> None:
    document = {"name": name, "date": "2026-01-10", "command": f"htsrl bench {name}", "summary": summary}
    (folder / f"{name}.json").write_text(json.dumps(document))
    text = f"# {name}\n\n- `htsrl bench {name}`\n- a machine\n\n![{name}]({name}.png)\n\n| a |\n| - |\n| 1 |\n"
    (folder / f"{name}.md").write_text(text)
    (folder / f"{name}.png").write_bytes(PIXEL)


RESTART = {"median_standstill_seconds": 0.25}


def learning(*intervals: tuple[str, float, float, float] | None, seeds: int = 5) -> dict[str, Any]:
    """The summary of a record: (way, mean, low, high) of hts less others."""
    differences = {way: {"mean": mean, "low": low, "high": high} for way, mean, low, high in filter(None, intervals)}
    compared = {"means": {"hts": 12.0, "sync": 10.0}, "differences": differences}
    reached = {"hts": 5, "sync": 4}
    return {"goal": 475, "num_seeds": seeds, "reached": reached, "over_run": compared, "scores": compared}


# Records


def test_the_most_telling_records_come_first(tmp_path: Path) -> None:
    for name in ("restart", "learning-b", "throughput-b", "learning-a", "throughput-a"):
        write(tmp_path, name, {})

    names = [record.name for record in read_records(tmp_path)]

    assert names == ["throughput-a", "throughput-b", "learning-a", "learning-b", "restart"]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"name": "restart"}'])
def test_what_is_not_a_record_is_named(tmp_path: Path, content: str) -> None:
    (tmp_path / "restart.json").write_text(content)
    with pytest.raises(ConfigError, match=r"restart\.json is not a record"):
        read_records(tmp_path)


def test_a_record_under_another_name_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "restart", RESTART)
    (tmp_path / "restart.json").rename(tmp_path / "2026-01-10-restart.json")
    with pytest.raises(ConfigError, match=r"rename it to restart\.json"):
        read_records(tmp_path)


def test_a_folder_without_records_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no records"):
        read_records(tmp_path)


# The folder


def test_the_folder_of_records_is_small_and_holds_nothing_else() -> None:
    files = [path for path in RECORDS.rglob("*") if path.is_file()]
    names = {record.name for record in read_records(RECORDS)}
    assert sum(path.stat().st_size for path in files) < 3_500_000
    assert {(path.parent, path.stem) for path in files} == {(RECORDS, name) for name in names}
    assert {path.suffix for path in files} == {".json", ".md", ".png"}


def test_every_recorded_interval_follows_from_the_runs_in_its_record() -> None:
    learned = [record for record in read_records(RECORDS) if record.name.startswith("learning-")]
    assert len(learned) >= 5
    for record in learned:
        runs = [Learned.from_document(run) for run in record.document["repetitions"]]
        verdict = Verdict.of(record.summary["goal"], runs)
        assert json.loads(json.dumps(verdict.document())) == record.summary, record.name
        assert all(sentence in record.markdown() for sentence in verdict.sentences()), record.name


# The page


def test_the_page_holds_every_record_and_asks_nobody_for_anything() -> None:
    records = read_records(RECORDS)

    page = html_page(records)

    for record in records:
        assert f'<section id="{record.name}">' in page
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


def test_every_number_has_its_record_beside_it(tmp_path: Path) -> None:
    write(tmp_path, "restart", RESTART)

    table = results_table(read_records(tmp_path), links_to="../benchmarks")

    assert "| a killed executor holds the run up | 0.25 s | [restart](../benchmarks/restart.md), 2026-01-10 |" in table


def test_only_what_is_between_the_markers_changes() -> None:
    text = with_results(f"before\n{BEGIN}\nold\n{END}\nafter\n", "new\n")

    assert text == f"before\n{BEGIN}\nnew\n{END}\nafter\n"
    assert with_results(text, "new\n") == text
    with pytest.raises(ConfigError, match="lacks the lines"):
        with_results(f"{BEGIN} without an end", "new\n")


def test_the_documents_say_what_the_records_say() -> None:
    records = read_records(RECORDS)
    for name, table in {
        "README.md": readme_table(records),
        "docs/results.md": results_table(records, links_to="../benchmarks"),
    }.items():
        text = (ROOT / name).read_text()
        assert with_results(text, table) == text, f"the records say something else than {name}; run `make report`"


def test_the_readme_has_six_results_at_most_each_a_line_or_two() -> None:
    rows = readme_table(read_records(RECORDS)).splitlines()
    assert len(rows) == 2 + len(ROWS) <= 8
    assert max(len(row) for row in rows) < 240


def test_the_readme_counts_every_task_that_was_learned_and_names_what_is_decided(tmp_path: Path) -> None:
    write(tmp_path, "learning-good", learning(("sync", 2.0, 1.25, 2.75)))
    write(tmp_path, "learning-lone", learning(seeds=1))
    write(tmp_path, "learning-open", learning(("sync", -2.0, -3.0, 0.5), seeds=2))
    write(tmp_path, "learning-worse", learning(("sync", -2.0, -3.0, -1.0), seeds=2))

    assert readme_table(read_records(tmp_path)).endswith(
        " | better on 1 (good); worse on 1 (worse); undecided on 1; 1 with one seed, which shows nothing |\n"
    )


def test_the_readmes_speeds_are_those_of_all_works_by_kind_of_algorithm(tmp_path: Path) -> None:
    for name, ratio in (("a-ppo", 1.5), ("b-a2c", 2.25), ("c-sac", 0.5), ("d-sac", 1.0)):
        of = {"fastest": "sb3", "ratio": {"median": ratio}}
        write(tmp_path, f"peers-{name}", {"work": {name: of}})
    write(tmp_path, "peers-e-ppo", {"work": {"e-ppo": {"fastest": None, "ratio": None}}})

    rows = readme_table(read_records(tmp_path)).splitlines()[2:]
    assert [row.split(" | ")[1] for row in rows] == ["1.50 to 2.25 times, 2 works |", "0.50 to 1.00 times, 2 works |"]


def test_every_kind_of_record_that_there_is_comes_down_to_something() -> None:
    silent = [record.name for record in read_records(RECORDS) if not highlights_of(record.name, record.summary)]
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


def test_learning_is_compared_with_every_other_way_and_names_its_seeds() -> None:
    found = highlights_of("learning-cartpole", learning(("sync", 0.5, -1.25, 2.0)))

    what = "hts less others (95 % interval, paired seeds)"
    assert found == [
        ("cartpole, 5 seeds: how many reached 475", "hts 5, sync 4"),
        (f"cartpole, 5 seeds: mean return over the run, {what}", "sync +0.5 (-1.25 to +2)"),
        (f"cartpole, 5 seeds: score, {what}", "sync +0.5 (-1.25 to +2)"),
    ]
    assert highlights_of("learning-cartpole", learning(seeds=1))[1] == (
        f"cartpole, 1 seed: mean return over the run, {what}",
        "sync +2 (no interval)",
    )
    assert highlights_of("learning-cartpole", learning(("sync", 0.0, 0.0, 0.0)))[2][1] == "sync +0 on each"


def test_scores_of_several_seeds_have_an_interval() -> None:
    scores = {f"CartPole-v1 ppo hts seed {seed}": {"score": score} for seed, score in ((1, 2.0), (2, 4.0), (3, 6.0))}

    assert highlights_of("runs-cartpole", scores) == [
        ("cartpole, 3 seeds: score of CartPole-v1 ppo hts", "4 (95 % interval -0.9683 to 8.968)")
    ]


def test_a_record_of_an_unknown_kind_has_no_highlights() -> None:
    assert highlights_of("weather", {"rain": 1}) == []
    assert {"throughput", "limits", "variance", "determinism"} <= set(KINDS)


def test_bench_report_writes_the_page_and_renews_the_documents(tmp_path: Path) -> None:
    records, page = tmp_path / "benchmarks", tmp_path / "build" / "report.html"
    records.mkdir()
    write(records, "restart", RESTART)
    write(records, "learning-good", learning(("sync", 2.0, 1.25, 2.75)))
    readme, results = tmp_path / "README.md", tmp_path / "results.md"
    for document in (readme, results):
        document.write_text(f"{BEGIN}\n{END}\n")

    assert ReportTable(records=records, page=page, readme=readme, results=results).run() == 0

    assert "better on 1 (good)" in readme.read_text()
    assert "0.25 s" in results.read_text()
    assert page.read_text().startswith("<!doctype html>")
    with pytest.raises(ConfigError, match="cannot read"):
        ReportTable(records=records, page=page, readme=tmp_path / "nowhere.md").run()
