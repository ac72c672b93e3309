"""What `htsrl timeline` says of numbers that are made up, and of files that nobody should believe."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from htsrl.cli.timeline import TimelineCommand
from htsrl.errors import RunFolderError
from htsrl.timeline.document import FORMAT
from htsrl.timeline.kinds import SHARES, Kind
from htsrl.timeline.read import Environment, Timeline, Worker, read_timeline
from htsrl.timeline.summary import advice, shares_of, straggler_of, summary_lines

SECONDS = 10.0


def worker(role: str, cpu_seconds: float = SECONDS, **totals: float) -> Worker:
    """Its totals are shares of its time, by kind."""
    parts = {Kind[name.upper()]: share * SECONDS for name, share in totals.items()}
    return Worker(f"{role} 0", role, 1, 0.0, SECONDS, cpu_seconds, [], parts)


def environments(*mean_ms: float) -> list[Environment]:
    return [
        Environment(env, "executor 0", 1000, mean, mean / 500, reset_seconds=0.0, times_slowest=env)
        for env, mean in enumerate(mean_ms)
    ]


BALANCED = Timeline(
    SECONDS,
    cores=2,
    workers=[
        worker("executor", step=0.7, inference=0.2, wait_learner=0.05),
        worker("learner", gradient=0.6, learning=0.3, wait_environments=0.05),
    ],
    environments=environments(1, 1, 1, 1),
    events=[],
)


def with_workers(*workers: Worker, **changes: Any) -> Timeline:
    return replace(BALANCED, workers=list(workers), **changes)


def test_where_nothing_is_wrong_the_advice_says_so() -> None:
    assert "nothing stands out: 90%" in advice(BALANCED)


@pytest.mark.parametrize(
    ("timeline", "expected"),
    [
        (with_workers(worker("executor", step=0.3, wait_learner=0.6), worker("learner", learning=0.9)), "--epochs"),
        (
            with_workers(worker("executor", step=0.3, wait_learner=0.6), worker("learner", learning=0.9)),
            "--learner-workers, up to the 2 cores",
        ),
        (
            with_workers(
                worker("executor", step=0.3, wait_learner=0.6),
                worker("learner", learning=0.9),
                worker("gradient worker", gradient=0.9),
            ),
            "every core has a learner worker, so only less to do",
        ),
        (with_workers(worker("executor", step=0.3, wait_answers=0.6), worker("learner", learning=0.9)), "--num-actors"),
        (
            with_workers(worker("executor", step=0.9), worker("learner", wait_environments=0.6)),
            "2 cores for one executor, so try more --num-executors",
        ),
        (
            with_workers(worker("executor", step=0.9), worker("learner", wait_environments=0.6), cores=1),
            "every core has an executor",
        ),
        (
            with_workers(worker("executor", cpu_seconds=1.0, step=0.9), worker("learner", wait_environments=0.6)),
            "--executor-threads",
        ),
        (
            with_workers(worker("executor", step=0.9), worker("learner", wait_gradients=0.6)),
            "waits 60% of its time for gradient workers",
        ),
        (
            with_workers(
                worker("executor", step=0.5, wait_slowest=0.4),
                worker("learner", wait_slowest=0.3),
                environments=environments(1, 1, 9, 1),
            ),
            "environment 2 alone needs 1.5 s of every interval, 9.0 times the median: at most 444 steps/s",
        ),
        (
            with_workers(
                worker("executor", cpu_seconds=1.0, step=0.5, wait_slowest=0.4),
                worker("learner", wait_slowest=0.3),
                environments=environments(1, 1, 3, 1),
            ),
            "environment 2 is 3.0 times slower than the median, and up to 40% of a worker's time is spent waiting for "
            "the slowest; see what it does, or its steps wait for something, so --executor-threads True",
        ),
        (with_workers(worker("inline", step=0.2, gradient=0.7)), "learning takes most, 70%"),
    ],
)
def test_the_advice_follows_from_whom_the_others_wait_for(timeline: Timeline, expected: str) -> None:
    assert expected in advice(timeline)


def test_the_slowest_environment_is_compared_with_the_median() -> None:
    straggler = straggler_of(with_workers(environments=environments(2, 3, 12, 2)))
    assert straggler is not None
    assert (straggler.environment.env, straggler.factor) == (2, 6.0)


def test_an_environment_is_named_where_it_stands_out_and_others_can_wait_for_it() -> None:
    def names_one(num_executors: int, *mean_ms: float) -> bool:
        executors = [worker("executor", step=0.5) for _ in range(num_executors)]
        lines = summary_lines(with_workers(*executors, worker("learner"), environments=environments(*mean_ms)))
        return any(line.startswith("slowest") for line in lines)

    assert names_one(2, 1, 1, 4, 1)
    assert not names_one(2, 1, 1, 1.4, 1)
    assert not names_one(1, 1, 1, 4, 1), "stepped in turn"


def test_what_is_in_no_span_is_overhead_and_so_is_an_updates_own_time() -> None:
    shares = shares_of([worker("learner", update=0.1, gradient=0.6)])
    assert shares["learning"] == pytest.approx(0.6)
    assert shares["overhead"] == pytest.approx(0.4)


def test_every_kind_is_in_at_most_one_share() -> None:
    kinds = [kind for of_share in SHARES.values() for kind in of_share]
    assert len(kinds) == len(set(kinds))
    assert set(Kind) - set(kinds) == {Kind.UPDATE}


def document(**changes: Any) -> dict[str, Any]:
    of_worker = {
        "name": "executor 0\x1b[2J<script>",
        "role": "executor",
        "pid": 1,
        "starts": 1,
        "started": 0.0,
        "as_of": 1.0,
        "cpu_seconds": 1.0,
        "spans": [["step", 0.5, 0.25, 0]],
        "totals": {"step": 0.25},
        "counts": {"step": 1},
    }
    events = [["restart", 0.5, "executor 0\x1b[2J<script>"]]
    whole = {"format": FORMAT, "written_at": 1.0, "cores": 2, "workers": [of_worker], "environments": []}
    return {**whole, "events": events, **changes}


def written(folder: Path, content: Any) -> Path:
    (folder / "timeline.json").write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def changed_worker(**changes: Any) -> dict[str, Any]:
    whole = document()
    return {**whole, "workers": [{**whole["workers"][0], **changes}]}


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", "Expecting value"),
        ("[" * 100_000, "nested too deeply"),
        ("[]", "not a timeline of format 1"),
        (document(format=2), "not a timeline of format 1"),
        (document(workers=None), "workers=None is not a list"),
        (document(written_at="soon"), "written_at='soon' is not a number"),
        (document(cores=-1), "cores=-1 is not a whole number"),
        (document(events=[["restart"]]), "is not an event"),
        (document(environments=[7]), "env=None is not a int"),
        (changed_worker(spans=[["step", 1]]), "is not a span"),
        (changed_worker(spans=[["__import__", 0.0, 1.0, None]]), "kind='__import__' is none of"),
        (changed_worker(spans=[["step", float("nan"), 1.0, None]]), "start=nan is not a number"),
        (changed_worker(totals={"step": True}), "step=True is not a number"),
        (changed_worker(role="wizard"), "role='wizard' is none of"),
        (changed_worker(name=["x" * 1000]), "is not a str"),
    ],
)
def test_a_malformed_file_is_an_error_that_names_what_is_wrong(tmp_path: Path, content: Any, expected: str) -> None:
    with pytest.raises(RunFolderError, match=r"timeline\.json cannot be read") as caught:
        read_timeline(written(tmp_path, content))
    assert expected in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_folder_without_a_timeline_says_why(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="--no-timeline"):
        read_timeline(tmp_path)
    with pytest.raises(RunFolderError, match="cannot be read"):
        read_timeline(tmp_path / "nowhere")


def test_a_pipe_in_place_of_the_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "timeline.json")
    with pytest.raises(RunFolderError, match="not a plain file"):
        read_timeline(tmp_path)


def test_names_in_a_strangers_folder_are_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert TimelineCommand(written(tmp_path, document())).run() == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "executor 0\\x1b[2J<script>" in shown
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_a_link_in_a_strangers_folder_does_not_lead_the_trace_elsewhere(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    (run_dir / "trace.json").symlink_to(precious)
    TimelineCommand(written(run_dir, document())).run()
    assert precious.read_text() == "mine"


def test_a_trace_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match="--output"):
        TimelineCommand(written(tmp_path, document()), tmp_path / "nowhere" / "trace.json").run()
    assert not list(tmp_path.glob(".trace*"))
