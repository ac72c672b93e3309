"""The dashboard in a real browser: what its user sees."""

from __future__ import annotations

import json
import math
import os
import re
import signal
import statistics
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import held_env
import pytest
from dashboard_runs import HOSTILE, add_metrics, make_hostile_run, make_run, make_sweep, make_timeline
from dashboard_server import Dashboard, serving
from playwright.sync_api import Browser, Page, expect
from straggler_env import Straggler

import htsrl
from htsrl import A2C, Config, Experiment, Placement
from htsrl.dashboard import catalog
from htsrl.timeline.kinds import Kind
from htsrl_bench.chromium import chromium_path, open_chromium

expect.set_options(timeout=20_000)  # a busy machine is slow and not wrong


class DiesOnce(gymnasium.Wrapper[Any, Any, Any, Any]):
    """CartPole whose worker process is killed at its first step, unless there is this file already."""

    def __init__(self, died: Path, test_pid: int) -> None:
        super().__init__(gymnasium.make("CartPole-v1"))
        self._died = died
        self._is_in_worker = os.getpid() != test_pid

    def step(self, action: Any) -> Any:
        if not self._is_in_worker:  # where a run takes a look before it begins
            return super().step(action)
        with suppress(FileExistsError):
            self._died.touch(exist_ok=False)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(action)


ONE_PIXEL = "47494638396101000100800000ffffff00000021f90401000000002c00000000010001000002024401003b"
"""A GIF."""
LEGEND = ".chart.large .legend li"
DRAWN = """async () => {
    await new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(painted)));
    const canvas = document.querySelector('.chart.large canvas');
    const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    const seen = new Set();
    for (let i = 0; i < data.length; i += 4) {
        if (data[i + 3] > 250) seen.add(`${data[i]},${data[i + 1]},${data[i + 2]}`);
    }
    const probe = document.createElement('span');
    document.body.append(probe);
    return Array.from({length: 10}, (_, i) => {
        probe.style.color = `var(--c${i})`;
        return getComputedStyle(probe).color.match(/\\d+/g).join(',');
    }).filter((color) => seen.has(color)).length;
}"""
"""How many of the colours of curves are on the large chart."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if chromium_path() is None:
        pytest.skip("no Chromium is installed, so pages are not tested; `make browser` installs one")
    with open_chromium() as opened:
        yield opened


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    path = tmp_path / "runs"
    path.mkdir()
    return path


@pytest.fixture
def dashboard(runs: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Dashboard]:
    monkeypatch.setattr(catalog, "REFRESH_SECONDS", 0.1)
    with serving(runs) as made:
        yield made


@pytest.fixture
def page(browser: Browser, dashboard: Dashboard) -> Iterator[Page]:
    """Fails the test for every error of a script and every message that the policy of the page was broken.

    Closed before the dashboard, which it would otherwise miss.
    """
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    made = context.new_page()
    made.set_default_timeout(20_000)
    problems: list[str] = []
    made.on("pageerror", lambda error: problems.append(str(error)))
    made.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    yield made
    context.close()
    assert problems == []


def test_the_page_shows_a_run_and_its_curve(page: Page, dashboard: Dashboard, runs: Path) -> None:
    make_run(runs / "first", returns=[1.0, 5.0, 42.0])
    page.goto(dashboard.address)
    row = page.locator("#table tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("first")
    expect(row).to_contain_text("finished")
    expect(page.locator(LEGEND)).to_contain_text("42")
    expect(page.locator("#live")).to_contain_text("live")
    assert page.evaluate(DRAWN) == 1
    assert page.title() == "htsrl dashboard"


def test_two_runs_overlay_and_each_can_be_taken_away(page: Page, dashboard: Dashboard, runs: Path) -> None:
    make_run(runs / "one", returns=[1.0, 2.0, 3.0])
    make_run(runs / "two", seed=2, returns=[3.0, 2.0, 1.0])
    page.goto(dashboard.address)
    expect(page.locator(LEGEND)).to_have_count(2)
    assert page.evaluate(DRAWN) == 2
    page.get_by_label("Select two", exact=True).uncheck()
    expect(page.locator(LEGEND)).to_have_count(1)
    assert page.evaluate(DRAWN) == 1
    page.get_by_label("Filter").fill("seed=2")
    expect(page.locator("#table tbody tr")).to_have_count(1)
    expect(page.locator("#table tbody tr")).to_contain_text("two")


def test_five_seeds_become_a_mean_with_its_interval(page: Page, dashboard: Dashboard, runs: Path) -> None:
    last = [10.0, 14.0, 11.0, 18.0, 12.0]
    for seed, value in enumerate(last, start=1):
        make_run(runs / f"seed{seed}", seed=seed, returns=[0.0, value / 2, value])
    page.goto(dashboard.address)
    expect(page.locator(LEGEND)).to_have_count(5)
    page.get_by_label("Group by").select_option("*")
    expect(page.locator(LEGEND)).to_have_count(1)
    item = page.locator(LEGEND)
    expect(item).to_contain_text("n = 5")
    low, high = map(float, (item.get_attribute("data-interval") or "").split(","))
    half = 2.776 * statistics.stdev(last) / math.sqrt(5)
    assert (low, high) == pytest.approx((statistics.mean(last) - half, statistics.mean(last) + half))
    expect(page.locator("#reading")).to_contain_text("95 % t-intervals")


def test_groups_are_drawn_whole_and_only_as_far_as_the_filter_shows_them(
    page: Page, dashboard: Dashboard, runs: Path
) -> None:
    for steps in (5_000, 6_000, 7_000, 8_000):
        for seed in (1, 2, 3):
            make_run(runs / f"{steps}-seed{seed}", seed=seed, total_steps=steps, returns=[1.0, float(steps)])
    page.goto(dashboard.address)
    expect(page.locator(LEGEND)).to_have_count(9)  # three whole groups: a fourth would be more lines than colours
    expect(page.locator("#count")).to_have_text("12, 9 selected")
    page.get_by_label("Group by").select_option("*")
    expect(page.locator(LEGEND)).to_have_count(4)
    expect(page.locator(LEGEND).filter(has_text="n = 3")).to_have_count(4)
    page.get_by_label("Select 5000-seed1", exact=True).uncheck()
    expect(page.locator("tr.group").filter(has_text="2 of 3 runs selected")).to_have_count(1)
    page.get_by_label("Filter").fill("total_steps=8000")
    expect(page.locator(LEGEND)).to_have_count(1)
    expect(page.locator(LEGEND)).to_contain_text("n = 3")
    expect(page.locator("#count")).to_have_text("3 of 12, 3 selected, 8 more hidden by the filter")
    page.get_by_label("Filter").fill("")
    page.get_by_label("Group by").select_option("seed")
    expect(page.locator("tr.group").filter(has_text="(4 runs)")).to_have_count(3)


def test_a_long_table_is_whole_and_in_order_in_a_moment(page: Page, dashboard: Dashboard, runs: Path) -> None:
    for i in range(70):
        make_run(runs / f"run{i:02d}", seed=i, returns=[1.0, float(i)])
    page.goto(dashboard.address)
    names = page.locator("#table tbody .name")
    expect(names).to_have_count(70)
    for sign in (1, -1):
        page.locator("th[data-key=seed] button").click()
        expect(names).to_have_text([f"run{i:02d}" for i in range(70)][::-sign])
    page.get_by_label("Filter").fill("run0")
    expect(names).to_have_count(10)


def test_a_chart_below_the_window_is_drawn_again_when_it_is_scrolled_to(
    page: Page, dashboard: Dashboard, runs: Path
) -> None:
    make_run(runs / "first", returns=[1.0, 5.0, 42.0])
    page.set_viewport_size({"width": 390, "height": 300})
    page.goto(dashboard.address)
    expect(page.locator(LEGEND)).to_have_count(1)
    last = page.locator(".chart canvas").last
    is_drawn = "(canvas) => canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)"
    page.wait_for_function(f"() => ({is_drawn})([...document.querySelectorAll('.chart canvas')].at(-1))")
    page.get_by_role("button", name="Clear").click()
    expect(page.locator(LEGEND)).to_have_count(0)
    assert last.evaluate(is_drawn)
    last.scroll_into_view_if_needed()
    page.wait_for_function(f"() => !({is_drawn})([...document.querySelectorAll('.chart canvas')].at(-1))")


def test_curves_grow_while_a_run_trains_and_its_slow_environment_is_named(
    page: Page, dashboard: Dashboard, runs: Path
) -> None:
    experiment = Experiment(
        held_env.make, total_steps=1280, algorithm=A2C(), num_envs=16, sync_interval=4, seed=held_env.SEED
    )
    quietly = Placement("inline", run_dir=runs / "live", tensorboard=False, progress="off", log_every_steps=64)
    config = Config(experiment, replace(quietly, check_env=False))
    training = threading.Thread(target=htsrl.train, args=[config])
    training.start()
    try:
        assert held_env.is_held.wait(timeout=120)
        page.goto(dashboard.address)
        expect(page.locator("#table tbody .state")).to_have_text("running")
        before = float(page.locator(LEGEND).get_attribute("data-last-x") or "nan")
    finally:
        held_env.may_go_on.set()
        training.join()
    expect(page.locator("#table tbody .state")).to_have_text("finished")
    expect(page.locator(LEGEND)).to_have_attribute("data-last-x", "1280")
    assert 0 < before < 1280
    page.get_by_role("tab", name="Environments").click()
    expect(page.locator("table.environments tbody tr")).to_have_count(16)
    expect(page.locator("table.environments tbody tr").first).to_contain_text(f"environment {held_env.SLOW_ENV}")
    expect(page.get_by_label("Stragglers")).to_have_count(0)  # stepped in turn, nobody waits for it


def test_the_straggler_of_a_run_with_several_executors_is_named(page: Page, dashboard: Dashboard, runs: Path) -> None:
    experiment = Experiment(lambda: Straggler(slow_env=11, seconds=0.004), total_steps=960, algorithm=A2C(), seed=1)
    quietly = Placement(
        run_dir=runs / "slow", num_executors=4, executor_threads=False, tensorboard=False, progress="off"
    )
    htsrl.train(Config(experiment, replace(quietly, check_env=False)))
    page.goto(dashboard.address)
    page.get_by_role("tab", name="Timeline").click()
    expect(page.get_by_label("Stragglers").locator("li")).to_have_count(1)
    expect(page.get_by_label("Stragglers")).to_contain_text("environment 11 in executor 2")


def test_a_straggler_is_marked_and_named(page: Page, dashboard: Dashboard, runs: Path) -> None:
    make_timeline(make_run(runs / "slow"), straggler=11)
    page.goto(dashboard.address)
    page.get_by_role("tab", name="Timeline").click()
    expect(page.get_by_label("Stragglers")).to_contain_text("environment 11 in executor 2")
    page.get_by_role("tab", name="Environments").click()
    marked = page.locator("tr.straggler")
    expect(marked).to_have_count(1)
    expect(marked).to_contain_text("environment 11")
    assert page.locator("table.environments tbody tr").count() == 16


def test_a_killed_executor_shows_as_a_restart(page: Page, dashboard: Dashboard, runs: Path) -> None:
    pid = os.getpid()
    experiment = Experiment(lambda: DiesOnce(runs / "died", pid), total_steps=80, algorithm=A2C(), num_envs=2)
    quietly = Placement(run_dir=runs / "killed", num_executors=2, tensorboard=False, progress="off", check_env=False)
    assert htsrl.train(Config(experiment, quietly)).restarts == 1
    page.goto(dashboard.address)
    page.get_by_role("tab", name="Timeline").click()
    expect(page.get_by_label("Events")).to_contain_text(re.compile(r"restart: executor [01]\b.* at \d"))
    expect(page.locator("#table tbody [data-key=restarts]")).to_have_text("1")


def test_a_sweep_shows_what_mattered_and_every_trial(page: Page, dashboard: Dashboard, runs: Path) -> None:
    page.goto(dashboard.address)
    expect(page.locator("#live")).to_contain_text("live")
    expect(page.locator("#sweeps")).to_be_hidden()
    make_sweep(runs / "search")
    expect(page.locator("#sweeps")).to_be_visible()
    shares = page.get_by_label("Importance of settings").locator("tr")
    expect(shares).to_contain_text([re.compile("learning_rate.*75 %"), re.compile("activation.*25 %")])
    slices = page.locator(".slice")
    expect(slices).to_have_count(2)
    expect(slices.first).to_contain_text("learning_rate (logarithmic)")
    expect(slices.first.locator("circle")).to_have_count(6)
    expect(slices.first.locator("circle.ring")).to_have_count(1)


def test_a_hostile_folder_shows_as_text(page: Page, dashboard: Dashboard, runs: Path) -> None:
    make_hostile_run(runs)
    sweep = {"importance": {HOSTILE: 1.0}, "slices": {HOSTILE: [{"trial": 1, "value": HOSTILE, "objective": 1.0}]}}
    (runs / "sweep").mkdir()
    (runs / "sweep" / "analysis.json").write_text(json.dumps(sweep))
    page.goto(dashboard.address)
    page.locator("#differences summary").click()
    expect(page.locator("#table tbody tr")).to_contain_text("<script>document.title")
    expect(page.locator("#sweep-panel figcaption")).to_contain_text("<script>document.title")
    for name in ("Overview", "Timeline", "Environments", "Evaluation", "Settings"):
        page.get_by_role("tab", name=name).click()
        expect(page.get_by_role("tab", name=name)).to_have_attribute("aria-selected", "true")
        expect(page.locator("#panel")).not_to_be_empty()
    expect(page.locator("#panel")).to_contain_text("<script>document.title")
    page.locator(".chart.large select").select_option(HOSTILE)
    expect(page.locator(LEGEND)).to_have_attribute("data-last-y", "1")
    page.get_by_label("Group by").select_option("*")
    page.wait_for_timeout(300)
    assert page.title() == "htsrl dashboard"
    assert page.locator("main script, main img").count() == 0


def test_the_settings_that_differ_are_shown_side_by_side(page: Page, dashboard: Dashboard, runs: Path) -> None:
    make_run(runs / "a", seed=1)
    make_run(runs / "b", seed=2, algorithm="a2c")
    page.goto(dashboard.address)
    page.locator("#differences summary").click()
    lines = page.locator("#differences tbody tr")
    expect(lines).to_have_count(2)
    expect(lines.filter(has_text="algorithm.name")).to_contain_text("a2c")


def test_the_command_that_reproduces_a_run_can_be_copied(page: Page, dashboard: Dashboard, runs: Path) -> None:
    run = make_run(runs / "a")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.goto(dashboard.address)
    page.get_by_role("button", name="Copy reproduce").click()
    expect(page.get_by_role("button", name="Copy reproduce")).to_have_text("Copied")
    copied = page.evaluate("() => navigator.clipboard.readText()")
    assert copied == f"htsrl train --config {run}/config.json --run-dir {run}-again"


def test_keys_are_enough(page: Page, dashboard: Dashboard, runs: Path) -> None:
    make_run(runs / "a")
    page.goto(dashboard.address)
    expect(page.locator(LEGEND)).to_have_count(1)
    page.locator("#tab-overview").focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Timeline")).to_be_focused()
    page.locator(".chart.large canvas").focus()
    page.keyboard.press("Home")
    expect(page.locator(".chart.large .tip")).to_contain_text("10")
    page.keyboard.press("Escape")
    expect(page.locator(".chart.large .tip")).to_be_hidden()
    add_metrics(runs / "a", [{"rollout/ep_rew_mean": 99.0}])
    page.get_by_label("Select a", exact=True).focus()
    expect(page.locator(LEGEND)).to_contain_text("99")
    expect(page.get_by_label("Select a", exact=True)).to_be_focused()


def test_a_phone_shows_all_of_it_without_scrolling_sideways(page: Page, dashboard: Dashboard, runs: Path) -> None:
    make_timeline(make_run(runs / "a-run-with-a-name-that-is-longer-than-a-phone-is-wide-20260101-120000"))
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(dashboard.address)
    expect(page.locator(LEGEND)).to_have_count(1)
    for name in ("Overview", "Timeline", "Environments", "Settings"):
        page.get_by_role("tab", name=name).click()
        expect(page.locator("#panel")).not_to_be_empty()
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 390


CONTRASTS = """() => {
    const light = (color) => {
        const [r, g, b] = color.match(/[\\d.]+/g).map(Number).map((x) => x / 255)
            .map((x) => (x <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const probe = document.body.appendChild(document.createElement('span'));
    const shown = (name) => { probe.style.color = `var(--${name})`; return light(getComputedStyle(probe).color); };
    const ratio = (a, b) => (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const texts = ['text', 'muted', 'accent', 'warn', 'good', 'bad'];
    const curves = Array.from({length: 10}, (_, i) => `c${i}`);
    return Object.fromEntries([...texts.flatMap((name) => ['card', 'page', 'hover'].map((on) => [name, on])),
        ['warn', 'warn-page'], ...curves.map((name) => [name, 'card'])]
        .map(([name, on]) => [`${name} on ${on}`, ratio(shown(name), shown(on))]));
}"""
"""Of texts and curves with what is behind them, as WCAG 2 defines it; it asks for 4.5 of texts, 3 of drawings."""


def test_light_and_dark_can_both_be_read_and_nothing_moves_where_that_is_unwanted(
    page: Page, dashboard: Dashboard, runs: Path
) -> None:
    make_timeline(make_run(runs / "a"))
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    page.goto(dashboard.address)
    expect(page.locator(LEGEND)).to_have_count(1)
    theme, pages = page.locator("#theme"), []
    for choice in ("auto", "light", "dark"):
        expect(theme).to_have_text(f"Theme: {choice}")
        pages.append(page.evaluate("() => getComputedStyle(document.body).backgroundColor"))
        contrasts = page.evaluate(CONTRASTS)
        weak = {what: x for what, x in contrasts.items() if x < (3 if what.startswith("c") else 4.5)}
        assert weak == {}, choice
        theme.click()
    assert pages[0] == pages[2] != pages[1], "auto is as the system has it"
    page.get_by_role("tab", name="Timeline").click()
    expect(page.locator(".lanes canvas")).to_be_visible()
    moving = "() => document.getAnimations().filter((one) => one.effect.getTiming().duration > 1).length"
    assert page.evaluate(moving) == 0
    durations = """() => [...document.querySelectorAll('*')].map((node) => getComputedStyle(node))
        .filter((style) => parseFloat(style.transitionDuration) > 0.01 || parseFloat(style.animationDuration) > 0.01
            || style.scrollBehavior === 'smooth').length"""
    assert page.evaluate(durations) == 0


def test_videos_are_shown_and_every_kind_of_work_has_its_colour(page: Page, dashboard: Dashboard, runs: Path) -> None:
    run = make_run(runs / "a")
    kinds = [kind.label for kind in Kind if not kind.label.startswith("wait")]
    worker = {"name": "learner", "pid": 1, "spans": [[kind, i, 1, None] for i, kind in enumerate(kinds)], "totals": {}}
    (run / "timeline.json").write_text(json.dumps({"workers": [worker], "environments": []}))
    (run / "videos").mkdir()
    (run / "videos" / "step-1.gif").write_bytes(bytes.fromhex(ONE_PIXEL))
    page.goto(dashboard.address)
    page.get_by_role("tab", name="Videos").click()
    expect(page.locator(".videos figcaption")).to_have_text("step-1.gif")
    page.wait_for_function("() => document.querySelector('.videos img')?.naturalWidth === 1")
    page.get_by_role("tab", name="Timeline").click()
    swatches = page.locator("#panel .legend .swatch")
    expect(swatches).to_have_count(len(kinds))
    colours = swatches.evaluate_all("(all) => all.map((one) => getComputedStyle(one).backgroundColor)")
    assert len(set(colours)) == len(kinds)


def test_a_page_without_the_token_is_refused(page: Page, dashboard: Dashboard) -> None:
    for path in ("", "api/runs", "wrong-token/"):
        answer = page.request.get(f"http://127.0.0.1:{dashboard.port}/{path}")
        assert answer.status == 403
