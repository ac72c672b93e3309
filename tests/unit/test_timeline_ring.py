"""A track in shared memory: one process writes, another copies, and nobody sees half of a record."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.timeline.arrays import EnvWord, Record, TimelineShape, Word, copy_records
from htsrl.timeline.env_clock import EnvClock
from htsrl.timeline.kinds import Kind
from htsrl.timeline.track import LONG_NS, WINDOW_NS, Track

SHAPE = TimelineShape(num_tracks=1000, num_envs=2, depth=3)  # so many that each has the smallest ring
WRITE_RECORDS = """
import random, struct, sys, time
from htsrl.dataflow.shared_arrays import SharedArrays
from htsrl.timeline.arrays import TimelineShape
from htsrl.timeline.kinds import Kind
from htsrl.timeline.track import LONG_NS, Track

fd, seed = map(int, sys.argv[1:])
pauses = random.Random(seed)

class SlowRecord:
    size = 40

    def pack_into(self, buffer, offset, *fields):
        for place, field in enumerate(fields):
            if pauses.random() < 0.02:
                time.sleep(pauses.uniform(0, 0.0005))
            struct.pack_into("q", buffer, offset + 8 * place, field)

track = Track(SharedArrays(TimelineShape(1000, 2, 3).arrays(), fd), 0)
track._record = SlowRecord()
number = 0
while True:
    number += 1
    start = number * 10**10
    track.add(Kind.STEP, start, start + LONG_NS + number, number)
"""


@pytest.fixture
def block() -> Iterator[SharedArrays]:
    arrays = SharedArrays(SHAPE.arrays())
    yield arrays
    arrays.close()


def test_a_ring_that_wraps_while_it_is_copied_gives_no_torn_record(block: SharedArrays) -> None:
    seed = random.SystemRandom().randrange(2**31)
    print(f"seed {seed}")
    arguments = [sys.executable, "-c", WRITE_RECORDS, str(block.fd), str(seed)]
    writer = subprocess.Popen(arguments, pass_fds=[block.fd])
    newest, copies, pauses = 0, 0, random.Random(seed)
    try:
        while newest < 20 * SHAPE.num_records:
            assert writer.poll() is None
            records = copy_records(block, 0)
            for record in records:
                number = record.subject
                assert record == Record(Kind.STEP, number * 10**10, LONG_NS + number, number, 1), f"seed {seed}"
            numbers = [record.subject for record in records]
            assert numbers == sorted(set(numbers)), f"seed {seed}"
            newest, copies = max([newest, *numbers]), copies + 1
            if pauses.random() < 0.1:
                time.sleep(pauses.uniform(0, 0.001))
    finally:
        writer.kill()
        writer.wait()
    assert copies > 20


def test_a_worker_that_is_started_again_goes_on_with_its_ring_and_its_totals(block: SharedArrays) -> None:
    first = Track(block, 0)
    first.add(Kind.INFERENCE, 0, LONG_NS, 8)
    block["timeline_records"][0, 1] = [Kind.STEP, 1, 1, 1, 1]  # and was killed in the middle of the next record
    second = Track(block, 0)
    assert [record.kind for record in copy_records(block, 0)] == [Kind.INFERENCE]
    second.add(Kind.STEP, 10 * LONG_NS, 12 * LONG_NS, 1)
    assert [record.subject for record in copy_records(block, 0)] == [8, 1]
    assert block["timeline_totals"][0, Kind.INFERENCE] == LONG_NS
    assert block["timeline_tracks"][0, Word.STARTS] == 2


def test_short_spans_are_written_together_and_long_ones_one_by_one(block: SharedArrays) -> None:
    track = Track(block, 0, start_ns=0)
    for turn in range(10):
        track.add(Kind.INFERENCE, turn * 1000, turn * 1000 + 300, 4)
        track.add(Kind.RESET, turn * 1000 + 300, turn * 1000 + 400, 1)
    assert copy_records(block, 0) == []
    track.add(Kind.WAIT_LEARNER, 20_000, 20_000 + WINDOW_NS)
    assert copy_records(block, 0) == [
        Record(Kind.INFERENCE, 0, 3000, -1, 10),
        Record(Kind.RESET, 3000, 1000, -1, 10),
        Record(Kind.WAIT_LEARNER, 20_000, WINDOW_NS, -1, 1),
    ]


def test_the_time_of_an_inner_span_is_not_counted_for_the_outer(block: SharedArrays) -> None:
    track = Track(block, 0)
    with track.span(Kind.UPDATE, 7), track.span(Kind.LEARNING):
        start = time.monotonic_ns()
        time.sleep(0.005)
        track.add(Kind.GRADIENT, start, time.monotonic_ns())
    records = {Kind(record.kind): record for record in copy_records(block, 0)}
    totals = block["timeline_totals"][0]
    assert totals[Kind.GRADIENT] == records[Kind.GRADIENT].duration_ns >= 5_000_000
    assert totals[[Kind.UPDATE, Kind.LEARNING, Kind.GRADIENT]].sum() == records[Kind.UPDATE].duration_ns
    assert records[Kind.UPDATE].subject == 7


def test_every_step_is_in_the_histogram_bin_of_its_duration(block: SharedArrays) -> None:
    durations = [1, 2, 3, 4, 1023, 1024, 5 * LONG_NS, 2**40]
    track = Track(block, 0, start_ns=0)
    clock, start = EnvClock(block, 1, track), 0
    for duration in durations:
        clock.add_steps(start, start + duration, 1)
        start += duration
    clock.count()
    track.flush(start)
    row = block["timeline_envs"][1]
    expected = np.bincount([duration.bit_length() for duration in durations], minlength=48)
    np.testing.assert_array_equal(row[len(EnvWord) :], expected)
    assert row[EnvWord.STEP_NS] == sum(durations)
    assert row[EnvWord.STEP_MAX_NS] == 2**40
    assert block["timeline_totals"][0, Kind.STEP] == sum(durations)


def test_a_step_stands_for_those_that_were_not_timed_and_for_no_more_time_than_there_was(block: SharedArrays) -> None:
    track = Track(block, 0, start_ns=0)
    clock = EnvClock(block, 1, track)
    clock.add_steps(0, 1000, 8)
    track.flush(10_000)
    clock.add_steps(10_000, 11_000, 8)
    track.flush(15_000)
    clock.count()
    row = block["timeline_envs"][1]
    assert row[len(EnvWord) :].sum() == 16
    assert row[EnvWord.STEP_NS] == 16_000
    assert [record.duration_ns for record in copy_records(block, 0)] == [8_000, 5_000]
    assert block["timeline_totals"][0, Kind.STEP] == 13_000


def test_quick_batches_are_timed_one_in_eight_and_never_counted_twice(
    block: SharedArrays, monkeypatch: pytest.MonkeyPatch
) -> None:
    readings = iter(range(0, 10**9, 50_000))
    monkeypatch.setattr("htsrl.timeline.track.now", lambda: next(readings))
    track, calls = Track(block, 0, start_ns=0), list[int]()

    def act(version: int, cells: list[int]) -> int:
        calls.append(version)
        return version

    timed = track.timed_batches(act, Kind.INFERENCE)
    assert [timed(version, [0, 1]) for version in range(20)] == calls == list(range(20))
    track.flush(10**9)
    assert (
        block["timeline_counts"][0, Kind.INFERENCE] == 17
    )  # the first, and with the ninth and the seventeenth all before
    assert block["timeline_totals"][0, Kind.INFERENCE] == 17 * 50_000
