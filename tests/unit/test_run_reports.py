"""`htsrl report`: one file about runs, groups and sweeps, also of strangers."""

from __future__ import annotations

import json
import re
import shutil
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import htsrl
from htsrl.cli.report import ReportCommand
from htsrl.errors import ConfigError
from htsrl.reports import page
from htsrl.reports.gather import ReportedSweep, gather
from htsrl.reports.summary import Options, summarise
from htsrl.statistics.aggregates import interquartile_mean, performance_profile
from htsrl.statistics.band import band_over
from htsrl.statistics.curve import final_at_budget, final_return, seconds_to
from htsrl.statistics.intervals import t_quantile
from htsrl.statistics.stratified import profile_band

HOSTILE = "<script>alert(1)</script>|`$x$&\x1b[31m"


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run_dir = tmp_path_factory.mktemp("runs") / "run"
    htsrl.train(
        "CartPole-v1",
        num_envs=2,
        sync_interval=64,
        total_steps=256,
        algorithm=htsrl.PPO(epochs=1),
        backend="inline",
        tensorboard=False,
        progress="off",
        run_dir=run_dir,
    )
    return run_dir


def test_what_a_page_leaves_out_it_says() -> None:
    run = SimpleNamespace(path=Path("run"), timeline={"step": 1.0})
    assert "The first 20 of 21 runs that have one." in page._timelines([run] * 21)  # type: ignore[list-item]
    assert "The first" not in page._timelines([run] * 20)  # type: ignore[list-item]
    trial = {"number": 1, "settings": {"lr": 0.1}, "value": 1.0, "state": "complete"}
    sweep = ReportedSweep(Path("sweep"), [trial] * 203, None, None, {})
    assert "The first 200 trials; sweep_result.json has 3 more." in page._sweep(sweep)


def made(real_run: Path, path: Path, returns: list[float], **experiment: Any) -> Path:
    """A run folder with another curve, a point every 100 steps and 10 seconds, and other settings."""
    shutil.copytree(real_run, path)
    document = json.loads((path / "config.json").read_text())
    document["experiment"].update(experiment)
    (path / "config.json").write_text(json.dumps(document))
    lines = [
        {"step": 100 * (i + 1), "rollout/ep_rew_mean": value, "time/time_elapsed": 10.0 * (i + 1)}
        for i, value in enumerate(returns)
    ]
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def page_of(*runs: Path, tmp_path: Path, **flags: Any) -> str:
    ReportCommand(tuple(map(str, runs)), out=tmp_path / "report.html", **flags).run()
    return (tmp_path / "report.html").read_text()


class Tags(HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str | None]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += attrs


def test_the_papers_three_metrics_by_hand() -> None:
    curve = tuple((100 * (i + 1), float(10 * (i + 1)), 5.0 * (i + 1)) for i in range(10))
    assert final_return(curve, share=0.25) == 90.0  # steps 800, 900 and 1000: (80 + 90 + 100) / 3
    assert final_at_budget(curve, seconds=20.0, share=0.5) == 35.0  # of 400 steps the last half: (30 + 40) / 2
    assert final_at_budget(curve, seconds=4.0) is None
    assert seconds_to(curve, target=55.0) == 30.0
    assert seconds_to(curve, target=101.0) is None


def test_a_band_is_students_interval_where_all_curves_have_values() -> None:
    places = np.array([0.0, 10.0])
    curves = [(places, np.array([0.0, 10.0])), (places + 5, np.array([4.0, 4.0])), (places, np.array([2.0, 2.0]))]
    band = band_over(curves, num_points=2)
    assert band is not None
    assert band.places.tolist() == [5.0, 10.0]
    assert band.mean == pytest.approx([(5 + 4 + 2) / 3, (10 + 4 + 2) / 3])
    half = t_quantile(0.95, 2) * np.std([10, 4, 2], ddof=1) / np.sqrt(3)
    assert band.high[1] - band.mean[1] == pytest.approx(half)
    assert band_over([(places, places), (places + 20, places)]) is None


def test_the_band_of_a_profile_shows_how_far_the_runs_of_a_task_disagree() -> None:
    # At 0.5 one task's runs are all above and the other's all below; at 1.5 one run of two is above.
    found = profile_band([[0.0] * 4, [1.0] * 4], [0.5])
    assert found is not None
    assert [float(side[0]) for side in found] == [0.5, 0.5]
    found = profile_band([[1.0, 2.0], [1.0, 1.0]], [1.5])
    assert found is not None
    assert [float(side[0]) for side in found] == [0.0, 1.0]  # cut: 1/4 +- t(1) / 4 is far outside
    assert profile_band([[1.0, 2.0], [1.0]], [1.5]) is None


def test_the_numbers_agree_with_rliable_where_it_is_installed() -> None:
    library = pytest.importorskip("rliable.library")
    metrics = pytest.importorskip("rliable.metrics")
    scores = np.random.default_rng(0).normal(size=(5, 4))
    assert interquartile_mean(scores) == pytest.approx(metrics.aggregate_iqm(scores))
    taus = np.linspace(-1, 1, 9)
    profiles, _ = library.create_performance_profile({"ours": scores}, taus, reps=10)
    assert performance_profile(scores, taus.tolist()) == pytest.approx(profiles["ours"])


def test_runs_that_differ_in_their_seeds_are_one_variant(real_run: Path, tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        made(real_run, tmp_path / "group" / f"seed-{seed}", [1.0, 2.0, 3.0 + seed], seed=seed)
        made(real_run, tmp_path / "sync" / f"seed-{seed}", [1.0, 1.0, 1.0 + seed], seed=seed, schedule="sync")
    gathered = gather([str(tmp_path / "*")])
    summary = summarise(gathered.runs, Options(target=4.0, budget_seconds=20.0))
    assert list(summary.variants) == ["ppo hts", "ppo sync"]
    ours = summary.cells[0]
    assert list(ours.finals) == [4.0, 5.0, 6.0]
    assert list(ours.at_budget) == [2.0, 2.0, 2.0]
    assert list(ours.to_target) == [30.0, 30.0, 30.0]
    assert list(summary.cells[1].to_target) == [None, None, 30.0]
    assert summary.aggregates[0].iqm == 5.0


def test_a_report_is_one_file_without_scripts_or_addresses(real_run: Path, tmp_path: Path) -> None:
    (real_run / "timeline.json").write_text('{"workers": [{"totals": {"step": 3.0, "odd": null}}, {"totals": 7}]}')
    page = page_of(real_run, tmp_path=tmp_path, png=tmp_path / "png", svg=tmp_path / "svg", markdown=tmp_path / "card")
    found = Tags(page)
    assert "script" not in found.tags
    assert not [value for name, value in found.attributes if name in ("href", "src")]
    assert htsrl.digest.read_links(real_run)[-1].chain in page
    assert "htsrl train CartPole-v1" in page
    assert "prefers-color-scheme: dark" in page
    assert {path.suffix for folder in ("png", "svg") for path in (tmp_path / folder).iterdir()} == {".png", ".svg"}
    assert "| CartPole-v1 |" in (tmp_path / "card").read_text()


def test_what_hostile_folders_say_is_text_and_nothing_of_them_runs(real_run: Path, tmp_path: Path) -> None:
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    path = made(real_run, tmp_path / HOSTILE.replace("/", "_"), [1.0], env=f"evil_module:{HOSTILE}")
    sys.path.insert(0, str(tmp_path))
    try:
        page = page_of(path, tmp_path=tmp_path, markdown=tmp_path / "card", png=tmp_path / "png")
    finally:
        sys.path.remove(str(tmp_path))
    assert "evil_module" not in sys.modules
    assert "script" not in Tags(page).tags
    assert "&lt;script&gt;" in page
    assert "\x1b" not in page
    card = (tmp_path / "card").read_text()
    assert not re.search(r"(?<!\\)<script", card.partition("<details>")[0])


def test_a_hostile_sweep_is_text_too(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "sweep.json").write_text("{}")
    trial = {"number": HOSTILE, "settings": {HOSTILE: HOSTILE, "x": [1]}, "value": 1.0, "state": HOSTILE}
    odd = {"number": 1, "settings": "none", "value": "many"}
    document = {"trials": [trial, {**trial, "value": 1e999, "settings": {}}], "best": trial, "command": HOSTILE}
    (folder / "sweep_result.json").write_text(json.dumps(document))
    (folder / "analysis.json").write_text(json.dumps({"importance": {HOSTILE: 0.5}}))
    assert "script" not in Tags(page_of(folder, tmp_path=tmp_path)).tags
    (folder / "sweep_result.json").write_text(json.dumps({**document, "trials": [odd]}))
    with pytest.raises(ConfigError, match="no run to report"):
        page_of(folder, tmp_path=tmp_path)


def test_what_cannot_be_read_is_named_and_left_out(real_run: Path, tmp_path: Path) -> None:
    broken = made(real_run, tmp_path / "runs" / "broken", [1.0])
    (broken / "metrics.jsonl").write_text("nonsense\n")
    made(real_run, tmp_path / "runs" / "whole", [1.0, 2.0])
    page = page_of(tmp_path / "runs", tmp_path=tmp_path)
    assert "Left out" in page
    assert "broken" in page
    with pytest.raises(ConfigError, match="no run to report"):
        page_of(broken, tmp_path=tmp_path)
    with pytest.raises(ConfigError, match="is no folder"):
        page_of(tmp_path / "nowhere", tmp_path=tmp_path)


def test_several_tasks_are_normalised_before_they_are_averaged(real_run: Path, tmp_path: Path) -> None:
    for seed, (one, other) in enumerate(((0.0, 100.0), (10.0, 300.0))):
        made(real_run, tmp_path / f"a{seed}", [one], seed=seed)
        made(real_run, tmp_path / f"b{seed}", [other], seed=seed, env="Acrobot-v1")
    gathered = gather([str(tmp_path)])
    summary = summarise(gathered.runs, Options())
    assert summary.is_normalised
    assert summary.aggregates[0].iqm == 0.5  # of 0, 0, 1 and 1 the middle half
    ranged = summarise(gathered.runs, Options(ranges={"CartPole-v1": (0.0, 20.0), "Acrobot-v1": (100.0, 500.0)}))
    assert ranged.aggregates[0].iqm == 0.25  # of 0, 0, 0.5 and 0.5
    with pytest.raises(ConfigError, match="no run is of the task 'Pong'"):
        summarise(gathered.runs, Options(ranges={"Pong": (0.0, 1.0)}))
