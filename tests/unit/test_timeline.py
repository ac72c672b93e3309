"""What runs leave in `timeline.json`: a straggler, a kill, spans in order, shares that add up, and no bit changed."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from straggler_env import Straggler

from htsrl import A2C, Experiment, Observer, train
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.timeline.arrays import TimelineShape
from htsrl.timeline.document import TimelineFile, TrackName
from htsrl.timeline.kinds import Kind
from htsrl.timeline.read import Span, Timeline, Worker, read_timeline
from htsrl.timeline.summary import groups_of, shares_of, straggler_of, summary_lines
from htsrl.timeline.trace import trace_document
from htsrl.timeline.track import LONG_NS, Track
from htsrl_bench.process_tree import workers_named

SLOW_ENV = 5
SLACK_SECONDS = 1e-6  # times are floats
QUIETLY: dict[str, Any] = {"progress": "off", "tensorboard": False, "check_env": False}
EXPERIMENT = Experiment(
    Straggler,
    {"slow_env": SLOW_ENV, "seconds": 0.02},
    algorithm=A2C(),
    num_envs=8,
    sync_interval=8,
    gradient_shards=2,
    total_steps=8 * 8 * 8,
)


class KillsAnExecutor(Observer):
    """Once, after the third update."""

    def on_update(self, event: Any) -> None:
        if event.version == 3:
            os.kill(workers_named("executor", os.getpid())[0], signal.SIGKILL)


@pytest.fixture(scope="module")
def killed_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Two executors, of which one is killed."""
    run_dir = tmp_path_factory.mktemp("timeline") / "run"
    placement = {"num_executors": 2, "learner_workers": 1, "run_dir": run_dir, **QUIETLY}
    return train(EXPERIMENT, observers=[KillsAnExecutor()], **placement).digest, run_dir


@pytest.fixture(scope="module")
def threaded_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """Environments on threads, an actor, a learner and a gradient worker."""
    run_dir = tmp_path_factory.mktemp("timeline") / "run"
    placement = {"executor_threads": True, "learner_workers": 2, "run_dir": run_dir, **QUIETLY}
    return train(EXPERIMENT, **placement).digest, run_dir


@pytest.fixture(scope="module")
def inline_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    run_dir = tmp_path_factory.mktemp("timeline") / "run"
    return train(EXPERIMENT, backend="inline", run_dir=run_dir, **QUIETLY).digest, run_dir


@pytest.fixture(params=["killed_run", "threaded_run", "inline_run"])
def timeline(request: pytest.FixtureRequest) -> Timeline:
    return read_timeline(request.getfixturevalue(request.param)[1])


def test_a_timeline_changes_no_bit_under_any_placement(
    killed_run: tuple[str, Path], threaded_run: tuple[str, Path], inline_run: tuple[str, Path], tmp_path: Path
) -> None:
    without = train(EXPERIMENT, backend="inline", timeline=False, run_dir=tmp_path / "run", **QUIETLY)
    assert not (tmp_path / "run" / "timeline.json").exists()
    assert {killed_run[0], threaded_run[0], inline_run[0]} == {without.digest}


def test_the_environment_that_sleeps_longer_is_named_the_slowest(timeline: Timeline) -> None:
    straggler = straggler_of(timeline)
    assert straggler is not None
    assert straggler.environment.env == SLOW_ENV
    assert straggler.factor > 2
    named = [line for line in summary_lines(timeline) if line.startswith("slowest")]
    if timeline.workers[0].role == "inline":
        assert named == [], "in turn, nobody waits for another"
    else:
        assert f"environment {SLOW_ENV}" in named[0]


def test_barriers_wait_for_the_slow_environment_and_not_for_its_neighbour(killed_run: tuple[str, Path]) -> None:
    """Its executor steps others after it in every turn, which end their rollouts last."""
    timeline = read_timeline(killed_run[1])
    times_slowest = {environment.env: environment.times_slowest for environment in timeline.environments}
    assert max(times_slowest, key=times_slowest.__getitem__) == SLOW_ENV
    waits = [span for worker in timeline.workers for span in worker.spans if span.kind is Kind.WAIT_SLOWEST]
    assert SLOW_ENV in {span.subject for span in waits}


def test_a_killed_executor_is_a_restart_of_that_worker(killed_run: tuple[str, Path]) -> None:
    timeline = read_timeline(killed_run[1])
    assert [(event.what, event.worker) for event in timeline.events] == [("restart", "executor 0 with actor 0")]
    assert {worker.name: worker.starts for worker in timeline.workers} == {
        "executor 0 with actor 0": 2,
        "executor 1 with actor 1": 1,
        "learner": 1,
    }
    untouched = [
        environment.steps for environment in timeline.environments if environment.worker.startswith("executor 1")
    ]
    assert untouched == [EXPERIMENT.total_steps // EXPERIMENT.num_envs] * 4


def test_without_kills_every_step_is_counted_once(threaded_run: tuple[str, Path], inline_run: tuple[str, Path]) -> None:
    for _, run_dir in (threaded_run, inline_run):
        document = json.loads((run_dir / "timeline.json").read_text())
        for environment in document["environments"]:
            assert environment["steps"] == EXPERIMENT.total_steps // EXPERIMENT.num_envs
            assert environment["steps"] == sum(count for _, count in environment["histogram"])
            assert environment["seconds"] <= sum(upper * count for upper, count in environment["histogram"])


def test_spans_of_a_worker_nest_and_do_not_overlap(timeline: Timeline) -> None:
    for worker in timeline.workers:
        assert overlap_in(worker.spans) is None, worker.name
        assert worker.spans, worker.name


def overlap_in(spans: Sequence[Span]) -> tuple[Span, Span] | None:
    """Two spans of which neither is inside of the other, though they have time in common."""
    open_spans: list[Span] = []
    for span in spans:
        while open_spans and open_spans[-1].start + open_spans[-1].seconds <= span.start + SLACK_SECONDS:
            open_spans.pop()
        if open_spans and span.start + span.seconds > open_spans[-1].start + open_spans[-1].seconds + SLACK_SECONDS:
            return open_spans[-1], span
        open_spans.append(span)
    return None


def test_an_overlap_would_be_found() -> None:
    outer, inner = Span(Kind.UPDATE, 0.0, 2.0, 1), Span(Kind.GRADIENT, 0.5, 1.5, None)
    assert overlap_in([outer, inner]) is None
    assert overlap_in([outer, Span(Kind.GRADIENT, 0.5, 1.6, None)]) is not None


def test_what_a_worker_did_is_never_more_than_its_time_and_the_shares_sum_to_all_of_it(timeline: Timeline) -> None:
    for worker in timeline.workers:
        assert sum(worker.totals.values()) <= worker.seconds + SLACK_SECONDS * len(worker.totals), worker.name
        assert sum(shares_of([worker]).values()) == pytest.approx(1.0)
    assert sum(shares_of(timeline.workers).values()) == pytest.approx(1.0)


def test_most_of_the_workers_time_is_accounted_for(timeline: Timeline) -> None:
    """The rest is overhead: what a worker does between its spans."""
    workers = [worker for worker in timeline.workers if worker.starts == 1]  # the others were dead for a while
    assert sum(_accounted(worker) for worker in workers) > 0.3 * sum(worker.seconds for worker in workers)


def _accounted(worker: Worker) -> float:
    return sum(worker.totals.values())


def test_every_role_says_whom_it_waited_for(threaded_run: tuple[str, Path]) -> None:
    groups = groups_of(read_timeline(threaded_run[1]))
    expected = {
        "executors": Kind.WAIT_ANSWERS,
        "actors": Kind.WAIT_REQUESTS,
        "gradient workers": Kind.WAIT_ORDERS,
        "learner": Kind.WAIT_SLOWEST,
    }
    for group, kind in expected.items():
        assert any(worker.totals.get(kind, 0.0) > 0 for worker in groups[group]), group


def test_a_trace_has_a_lane_for_every_worker_and_an_event_for_every_span(timeline: Timeline) -> None:
    trace = json.loads(json.dumps(trace_document(timeline, "a run")))
    events = trace["traceEvents"]
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert sorted(lanes.values()) == sorted(worker.name for worker in timeline.workers)
    for lane, name in lanes.items():
        worker = next(worker for worker in timeline.workers if worker.name == name)
        spans = [event for event in events if event["tid"] == lane and event["ph"] == "X"]
        assert len(spans) == len(worker.spans)
        assert all(event["ts"] >= 0 and event["dur"] >= 0 and event["pid"] == 1 for event in spans)
    assert len([event for event in events if event["ph"] == "i"]) == len(timeline.events)


def test_the_file_stays_bounded_however_many_workers_there_are(tmp_path: Path) -> None:
    block = SharedArrays(TimelineShape(50, 1, 3).arrays())
    try:
        for number in range(50):
            track = Track(block, number)
            for turn in range(200):
                track.add(Kind.INFERENCE, 2 * turn * LONG_NS, (2 * turn + 1) * LONG_NS, 1)
        names = [TrackName(f"actor {number}", "actor") for number in range(50)]
        document = TimelineFile(block, names, tmp_path).document(max_spans=2000)
        assert sum(len(worker["spans"]) for worker in document["workers"]) == 2000
    finally:
        block.close()


def test_writing_while_a_run_goes_on_takes_a_small_share_of_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds, writings = [0.0], list[float]()

    def write(self: TimelineFile, max_spans: int) -> None:
        writings.append(seconds[0])
        seconds[0] += 0.05

    block = SharedArrays(TimelineShape(1, 1, 3).arrays())
    try:
        monkeypatch.setattr("htsrl.timeline.document.time.monotonic", lambda: seconds[0])
        monkeypatch.setattr(TimelineFile, "_write", write)
        file = TimelineFile(block, [TrackName("inline", "inline")], tmp_path)
        while seconds[0] < 40:
            file.write_if_due()
            seconds[0] += 0.5
        assert len(writings) == 3
    finally:
        block.close()
