"""The comparison with other frameworks: who is measured, how, and what a reader is told about those that failed."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import tyro

from htsrl.envs.make import make_env
from htsrl.errors import ConfigError
from htsrl_bench.command import Bench
from htsrl_bench.highlights import highlights_of
from htsrl_bench.peers import command, comparison, environments, process
from htsrl_bench.peers.command import PeersTable
from htsrl_bench.peers.comparison import Installed, Measured, PeersBench, Row, measure, rows
from htsrl_bench.peers.failures import PeerFailed, last_words
from htsrl_bench.peers.frameworks import OFF_POLICY, PEERS, SCRIPTS, WIDEST, Peer, Source
from htsrl_bench.peers.rate import Reading, Window, parse
from htsrl_bench.peers.scripts.peer.envs import make_atari
from htsrl_bench.peers.scripts.peer.job import Job, OffPolicyJob
from htsrl_bench.peers.table import tables
from htsrl_bench.peers.work import WORK, htsrl_config, job

# Updates of 100 steps; the variant says how long one takes, or that nothing goes.
FAKE_PEER = """
import json, sys, time
job_file, variant, readings_file = sys.argv[1:]
assert json.load(open(job_file))["num_envs"] == 16
if variant == "broken":
    sys.exit("this framework needs another machine")
with open(readings_file, "w", buffering=1) as readings:
    for update in range(1, 10_000):
        time.sleep(0.05 if variant == "fast" else 0.4)
        readings.write(f"{100 * update} {time.monotonic()}\\n")
"""


# The rate


def test_a_rate_is_that_of_whole_updates_after_the_warm_up() -> None:
    window = Window(seconds=4.0, warm_up_seconds=2.0, skipped_updates=1)
    readings = [Reading(100, 50.0), Reading(101, 51.5), Reading(501, 53.5), Reading(901, 55.5)]

    assert window.rate(readings) == pytest.approx(800 / 4.0)


def test_too_short_a_run_has_no_rate() -> None:
    window = Window(seconds=4.0, warm_up_seconds=0.0, skipped_updates=1)

    assert window.rate([]) is None
    assert window.rate([Reading(100, 1.0), Reading(200, 2.0), Reading(300, 4.9)]) is None
    assert window.rate([Reading(100, 1.0)]) is None
    assert replace(window, skipped_updates=2).rate([Reading(1, 0.0), Reading(2, 1.0), Reading(3, 9.0)]) is None
    assert window.rate([Reading(100, 1.0), Reading(200, 3.0), Reading(300, 5.0)]) == pytest.approx(50.0)


def test_what_was_rolled_out_before_the_clock_started_is_not_counted() -> None:
    """The second update of a run that overlaps comes early; slow updates leave the warm-up before it."""
    readings = [Reading(2048, 100.0), Reading(4096, 103.0), Reading(6144, 113.0), Reading(8192, 123.0)]

    assert Window(10.0, 2.0, skipped_updates=2).rate(readings) == pytest.approx(204.8)
    assert Window(10.0, 2.0, skipped_updates=1).rate(readings) == pytest.approx(3 * 2048 / 23)


def test_a_line_that_is_being_written_is_not_read() -> None:
    assert parse("80 1.5\n160 2.5\n24") == [Reading(80, 1.5), Reading(160, 2.5)]
    assert parse("") == []


def test_only_runs_that_overlap_are_skipped_for_two_updates(tmp_path: Path) -> None:
    bench = replace(_bench(tmp_path), peers=PEERS)

    assert bench.htsrl_window().skipped_updates == 2
    assert bench.window(PEERS["sample-factory"], "async").skipped_updates == 2
    assert bench.window(PEERS["sample-factory"], "sync").skipped_updates == 1


# The work


@pytest.mark.parametrize("work", [work for work in WORK if work not in OFF_POLICY])
def test_peers_are_told_all_of_the_work(work: str) -> None:
    told = Job(**json.loads(json.dumps(job(work))))

    is_wide = work == WIDEST
    assert told.num_envs == (4096 if is_wide else 16)
    sizes = (262_144, 32_768) if is_wide else (80, 80) if work.endswith("a2c") else (2048, 512)
    assert (told.batch_steps, told.minibatch_steps) == sizes
    assert told.epochs == (1 if is_wide or work.endswith("a2c") else 4)
    assert {field.name for field in fields(Job)} == set(job(work))


@pytest.mark.parametrize("work", OFF_POLICY)
def test_peers_are_told_all_of_the_work_with_a_replay_buffer(work: str) -> None:
    told = OffPolicyJob(**json.loads(json.dumps(job(work))))

    assert told.gradient_steps == told.num_envs * told.rollout_steps, "one for each step of an environment"
    assert told.hidden_sizes == list(WORK[work].network.hidden_sizes)
    assert {field.name for field in fields(OffPolicyJob)} == set(job(work))
    assert [name for name, peer in PEERS.items() if peer.variants_of(work)] == ["sb3"]
    assert PEERS["sb3"].module_of(work) == "peer.sb3_off_policy"


def test_htsrl_is_measured_as_it_comes() -> None:
    config = htsrl_config("pong-ppo")

    assert config.experiment.schedule == "hts"
    assert config.placement.num_executors is None
    assert config.placement.restart_workers


def test_programs_of_peers_import_nothing_of_htsrl() -> None:
    programs = sorted((SCRIPTS / "peer").glob("*.py"))
    assert {peer.module.removeprefix("peer.") for peer in PEERS.values()} <= {path.stem for path in programs}
    for path in programs:
        for node in ast.walk(ast.parse(path.read_text())):
            imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            imported += [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
            assert not [name for name in imported if name.split(".")[0] == "htsrl"], path.name


@pytest.mark.parametrize("game", ["Pong", "Breakout"])
def test_peers_see_the_same_game(game: str) -> None:
    """Up to the first lost life, at which we stop at once and peers end the step.

    The first frames may differ, for a peer sees the maximum of two after FIRE.
    """
    pytest.importorskip("ale_py")
    ours, theirs = make_env(f"ALE/{game}-v5", {}, ()), make_atari(f"ALE/{game}-v5")
    ours.reset(seed=3)
    theirs.reset(seed=3)
    actions, ended = np.random.default_rng(0), False
    rewards, num_steps = 0.0, 0
    while not ended and num_steps < 300:
        action = int(actions.integers(int(ours.action_space.n)))  # type: ignore[attr-defined]
        seen, *outcome, _ = ours.step(action)
        seen_by_peer, *outcome_of_peer, _ = theirs.step(action)
        num_steps += 1
        assert outcome == outcome_of_peer, f"step {num_steps}"
        rewards, ended = rewards + abs(float(outcome[0])), bool(outcome[1])
        if num_steps >= 4 and not ended:
            np.testing.assert_array_equal(seen, seen_by_peer, f"step {num_steps}")
    assert rewards or ended, "nothing happened that could have differed"


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_has_pinned_packages(name: str) -> None:
    peer = PEERS[name]
    pinned = {line.split("==")[0].split("[")[0] for line in peer.requirements.read_text().splitlines() if "==" in line}

    assert "torch" in pinned
    assert set(peer.packages) <= pinned | ({name} if peer.source else set())


def test_a_variant_may_exist_for_some_work_only() -> None:
    assert PEERS["cleanrl"].variants_of("pong-a2c") == ["native", "sync", "async"]
    assert PEERS["cleanrl"].variants_of("halfcheetah-ppo") == ["sync", "async"]
    assert PEERS["cleanrl"].variants_of(WIDEST) == ["native"]
    assert not PEERS["sb3"].variants_of(WIDEST)
    assert not PEERS["pufferlib"].variants_of("pong-ppo")


# Who is best


def test_the_best_variant_is_the_peers_number_and_the_ratio_is_that_of_one_repetition(tmp_path: Path) -> None:
    row = _row(
        tmp_path,
        ours=[1000.0, 500.0, 600.0],
        theirs={("a", "slow"): [100.0], ("a", "quick"): [500.0, 250.0, 200.0], ("b", "only"): [90.0, 80.0, 70.0]},
    )

    assert (row.peers["a"].variant, row.peers["b"].variant) == ("quick", "only")
    assert set(row.peers["a"].variants) == {"slow", "quick"}
    assert row.fastest == "a"
    assert row.ratio is not None
    assert (row.ratio.lowest, row.ratio.median, row.ratio.highest) == (2.0, 2.0, 3.0)


def test_a_peer_that_failed_is_in_the_table_with_the_reason(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    measured = [
        Measured("pong-a2c", "htsrl", "", 1, 900.0),
        Measured("pong-a2c", "a", "quick", 1, 450.0),
        Measured("pong-a2c", "a", "slow", 1, failure="it ended after 0 updates: no such option"),
        Measured("pong-a2c", "b", "", 1, failure="pip cannot install it: no matching distribution"),
    ]

    text = tables(bench, rows(bench, measured))[0].markdown()

    assert "| pong-a2c | 900 (900 to 900) | 450 (450 to 450), quick | failed | A " in text
    assert "2.00 (2.00 to 2.00)" in text
    assert "A slow failed: it ended after 0 updates: no such option (pong-a2c)" in text
    assert "B failed: pip cannot install it: no matching distribution (pong-a2c)" in text


def test_without_any_peer_that_runs_there_is_no_ratio(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    measured = [
        Measured("pong-a2c", "htsrl", "", 1, 900.0),
        Measured("pong-a2c", "a", "", 1, failure="x"),
        Measured("pong-a2c", "b", "", 1, failure="x"),
    ]

    assert "| none         | none " in tables(bench, rows(bench, measured))[0].markdown()


def test_all_take_turns_and_hopeless_variants_are_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {("A", "slow"): 69.0, ("A", "quick"): 100.0, ("B", "only"): 1.0}
    ran: list[str] = []

    def run_peer(peer: Peer, python: Path, variant: str, work: str, window: Window) -> process.Speed:
        ran.append(f"{peer.title} {variant}")
        return process.Speed(rates[peer.title, variant], 5.0)

    def run_htsrl(work: str, precision: str, window: Window) -> process.Speed:
        ran.append(f"htsrl {precision}")
        return process.Speed(200.0, 10.0)

    monkeypatch.setattr(process, "run_peer", run_peer)
    monkeypatch.setattr(process, "run_htsrl", run_htsrl)
    python = Path(sys.executable)

    bench = replace(_bench(tmp_path, repetitions=2), precisions=("float32", "bfloat16"))
    measured = measure(bench, Installed({"a": python, "b": python}, {}, {}))

    ours = ["htsrl float32", "htsrl bfloat16"]
    assert ran == [*ours, "A slow", "A quick", "B only", *ours, "A quick", "B only"]
    assert [run.repetition for run in measured] == [1, 1, 1, 1, 1, 2, 2, 2, 2]
    text = tables(bench, rows(bench, measured))[2].markdown()
    assert "| htsrl bfloat16 | 10 (10 to 10) | 100,000 " in text


def test_bfloat16_is_compared_with_float32_of_the_same_repetition(tmp_path: Path) -> None:
    bench = _bench(tmp_path, repetitions=2)
    sides = {("htsrl", ""): (100.0, 50.0), ("htsrl", "bfloat16"): (150.0, 100.0), ("b", "only"): (75.0, 50.0)}
    measured = [
        Measured("pong-a2c", side, variant, repetition, rate)
        for (side, variant), rates in sides.items()
        for repetition, rate in enumerate(rates, start=1)
    ]

    (row,) = found = rows(bench, measured)

    assert row.in_half is not None
    assert row.in_half.over_float32 is not None
    assert (row.in_half.over_float32.lowest, row.in_half.over_float32.highest) == (1.5, 2.0)
    cells = [cell.strip() for cell in tables(bench, found)[0].markdown().splitlines()[2].split("|")]
    assert cells[-4:-1] == ["125 (100 to 150)", "1.75 (1.50 to 2.00)", "2.00 (2.00 to 2.00)"]


def test_a_package_is_built_where_its_set_up_finds_what_it_would_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = tmp_path / "thing-1.0"
    built.mkdir()
    (built / "setup.py").touch()
    (tmp_path / "nvcc").touch()
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    def run(command: list[str], failure: str, folder: Path, variables: dict[str, str]) -> str:
        assert command[-1] == "thing==1.0"
        assert str(tmp_path) not in variables["PATH"].split(os.pathsep)
        subprocess.run([sys.executable, "-c", ""], cwd=built, env={**os.environ, **variables}, check=True)
        return ""

    monkeypatch.setattr(environments, "_run", run)

    environments._build(Path("python"), Source("thing==1.0", ("assets",)))

    assert (built / "assets").is_dir()


def test_on_a_busy_machine_cpu_time_is_the_result(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    measured = [
        Measured("pong-a2c", "htsrl", "", 1, 900.0, 2.0),
        Measured("pong-a2c", "a", "quick", 1, 100.0, 3.0),
        Measured("pong-a2c", "b", "only", 1, 200.0, 8.0),
    ]
    (row,) = found = rows(bench, measured)

    ((_, said),) = highlights_of("peers-x", {"work": {"pong-a2c": row.document()}, "busy": True})

    assert said == "1.50x a quick in steps for a core-second (500,000), on a busy machine"
    assert "The machine was busy" in tables(bench, found, busy=True)[0].markdown()
    assert "The machine was busy" not in tables(bench, found)[0].markdown()


def test_last_words_are_those_that_say_something(tmp_path: Path) -> None:
    said = f"Traceback\nOSError: {tmp_path}/lib is gone\n\n[notice] a new release of pip\n----\n"

    assert last_words(said, [tmp_path]) == "OSError: .../lib is gone"
    assert last_words("") == "it said nothing"


# The command


def test_the_command_line_names_work_and_peers(tmp_path: Path) -> None:
    words = ["peers", "--work", "pong-a2c", "cartpole-ppo", "--peers", "sb3", "--repetitions", "2", "--venvs", "x"]

    table = tyro.cli(Bench, args=words, config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes)).table

    assert isinstance(table, PeersTable)
    assert (table.work, table.peers, table.repetitions) == (("pong-a2c", "cartpole-ppo"), ("sb3",), 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"work": ("pong-dqn",)}, "work 'pong-dqn' is not known; choose among pong-a2c"),
        ({"peers": ("sb4",)}, "peer 'sb4' is not known; choose among sb3"),
        ({"peers": ()}, "at least one work and one peer"),
        ({"repetitions": 0}, "repetitions=0 must be at least 1"),
        ({"seconds_per_run": 0.0}, "seconds_per_run=0 above 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        replace(PeersTable(venvs=tmp_path), **change).run()  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_comparison_from_the_virtual_environment_to_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "fake.py").write_text(FAKE_PEER)
    (tmp_path / "none.txt").write_text("# needs nothing\n")
    (tmp_path / "venvs").mkdir()
    (tmp_path / "venvs" / "absent").touch()  # where its virtual environment should be
    fake = Peer("Fake", "fake", tmp_path / "none.txt", ("slow", "fast", "broken"), (), scripts=tmp_path / "scripts")
    absent = replace(fake, title="Absent")
    monkeypatch.setattr(command, "PEERS", {"fake": fake, "absent": absent})
    monkeypatch.setattr(comparison, "WARM_UP_SECONDS", 0.5)
    table = PeersTable(("cartpole-ppo",), ("fake", "absent"), 1, 1.0, tmp_path / "venvs", output=tmp_path / "out")

    assert table.run() == 0

    (path,) = (tmp_path / "out").glob("peers-cartpole-ppo.json")
    document = json.loads(path.read_text())
    row = document["summary"]["work"]["cartpole-ppo"]
    assert row["htsrl"]["median"] > 100
    assert row["peers"]["fake"]["variant"] == "fast"
    assert 0 < row["peers"]["fake"]["steps_per_second"]["median"] <= 2000
    assert row["peers"]["fake"]["failures"] == {
        "broken": "it ended after 0 updates: this framework needs another machine"
    }
    assert row["ratio"]["median"] == pytest.approx(
        row["htsrl"]["median"] / row["peers"]["fake"]["steps_per_second"]["median"]
    )
    assert row["peers"]["absent"]["failures"][""].startswith("a virtual environment cannot be made: ")
    assert str(tmp_path) not in path.read_text() + path.with_suffix(".md").read_text()
    assert "making a virtual environment" in capsys.readouterr().err
    monkeypatch.setattr(environments, "_run", _no_second_installation)
    assert environments.prepare("fake", fake, tmp_path / "venvs").exists()


def _no_second_installation(*_: object) -> str:
    raise PeerFailed("it is there already")


def _bench(folder: Path, repetitions: int = 1) -> PeersBench:
    a = Peer("A", "a", folder / "a.txt", ("slow", "quick"), ())
    b = replace(a, title="B", variants=("only",))
    return PeersBench(("pong-a2c",), {"a": a, "b": b}, repetitions, 1.0, folder)


def _row(folder: Path, ours: list[float], theirs: dict[tuple[str, str], list[float]]) -> Row:
    sides = {("htsrl", ""): ours, **theirs}
    measured = [
        Measured("pong-a2c", side, variant, repetition, rate)
        for (side, variant), rates in sides.items()
        for repetition, rate in enumerate(rates, start=1)
    ]
    (row,) = rows(_bench(folder), measured)
    return row
