"""A waiter sleeps until its doorbell rings, however close the ring, and no longer than its deadline."""

from __future__ import annotations

import inspect
import mmap
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import psutil  # type: ignore[import-untyped]
import pytest

import htsrl
from htsrl.dataflow.signals import Doorbell, Waiter
from htsrl.errors import WaitTimeout
from htsrl.placements.sleeper import Sleeper
from htsrl.placements.worker import _sleeper, _take_turns

DEADLINE_SECONDS = 20.0


@pytest.fixture
def doorbells() -> Iterator[tuple[Doorbell, Doorbell]]:
    made = Doorbell.create(), Doorbell.create()
    yield made
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()  # or it would ring whatever gets the number of the doorbell next
    for doorbell in made:
        doorbell.close()


@pytest.fixture
def doorbell(doorbells: tuple[Doorbell, Doorbell]) -> Doorbell:
    return doorbells[0]


@pytest.fixture
def lifeline() -> Iterator[int]:
    read_fd, write_fd = os.pipe()
    yield read_fd
    os.close(read_fd)
    os.close(write_fd)


def test_a_ring_before_the_wait_is_heard(doorbell: Doorbell, lifeline: int) -> None:
    waiter = Waiter(doorbell, lifeline)
    doorbell.ring()
    assert waiter.wait(0.0)


def test_a_ring_between_clearing_and_waiting_is_heard(doorbell: Doorbell, lifeline: int) -> None:
    waiter = Waiter(doorbell, lifeline)
    doorbell.ring()
    waiter.clear()
    doorbell.ring()
    assert waiter.wait(0.0)


def test_clearing_silences_any_number_of_rings(doorbell: Doorbell, lifeline: int) -> None:
    waiter = Waiter(doorbell, lifeline)
    for _ in range(100):
        doorbell.ring()
    waiter.clear()
    assert not waiter.wait(0.0)


def test_a_doorbell_that_nobody_hears_never_blocks_the_ringer(doorbell: Doorbell, lifeline: int) -> None:
    for _ in range(20_000):
        doorbell.ring()
    waiter = Waiter(doorbell, lifeline)
    assert waiter.wait(0.0)
    waiter.clear()
    assert not waiter.wait(0.0)


def test_clearing_a_silent_doorbell_does_not_block(doorbell: Doorbell) -> None:
    doorbell.clear()


def test_a_wait_ends_at_its_deadline_and_counts_its_seconds(doorbell: Doorbell, lifeline: int) -> None:
    waiter = Waiter(doorbell, lifeline)
    start = time.monotonic()
    assert not waiter.wait(0.2)
    assert 0.2 <= waiter.waited_seconds <= time.monotonic() - start


@pytest.mark.parametrize("forever", [1e9, float("inf")])
def test_a_deadline_may_lie_beyond_what_the_system_can_count(doorbell: Doorbell, lifeline: int, forever: float) -> None:
    doorbell.ring()
    assert Waiter(doorbell, lifeline).wait(forever)


def test_a_waiter_sleeps_until_the_ring_and_uses_no_processor(doorbell: Doorbell, lifeline: int) -> None:
    waiter = Waiter(doorbell, lifeline)
    looks = Mock(wraps=waiter._poll)
    waiter._poll = looks
    threading.Timer(0.5, doorbell.ring).start()
    cpu_before, start = time.thread_time(), time.monotonic()
    assert waiter.wait(DEADLINE_SECONDS)
    assert time.monotonic() - start >= 0.4
    assert time.thread_time() - cpu_before < 0.2, "who spins for half a second takes what others leave of it"
    assert looks.poll.call_count == 1, "which may be little"


def test_a_process_ends_when_the_one_that_holds_its_lifeline_dies() -> None:
    """Three generations: the middle one is killed, the youngest must notice by itself."""
    youngest_script = """
import os, sys
from htsrl.dataflow.signals import Doorbell, Waiter
print(os.getpid(), flush=True)
Waiter(Doorbell.create(), int(sys.argv[1])).wait(60)
"""
    middle_script = f"""
import os, subprocess, sys, time
read_fd, write_fd = os.pipe()
subprocess.Popen([sys.executable, "-c", {youngest_script!r}, str(read_fd)], pass_fds=[read_fd])
time.sleep(60)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(htsrl.__file__).parents[1])}
    with subprocess.Popen([sys.executable, "-c", middle_script], stdout=subprocess.PIPE, env=environment) as middle:
        assert middle.stdout is not None
        youngest = psutil.Process(int(middle.stdout.readline()))
        time.sleep(0.2)
        assert youngest.is_running()
        middle.kill()
    gone, _ = psutil.wait_procs([youngest], timeout=30.0)
    assert gone or youngest.status() == psutil.STATUS_ZOMBIE


# Two sides throw a number back and forth; a single lost wake-up leaves both asleep.

BALL = 0  # the byte of shared memory that both look at


def play(shared: Any, mine: Waiter, other: Doorbell, odd: int, rounds: int) -> int:
    """Wait for every ball that is ours and throw it back; returns the rounds played, fewer if a ring was lost."""
    for played in range(rounds):
        while shared[BALL] % 2 != odd:
            mine.clear()
            if shared[BALL] % 2 == odd:
                break
            if not mine.wait(DEADLINE_SECONDS):
                return played
        shared[BALL] = (shared[BALL] + 1) % 256
        other.ring()
    return rounds


def test_no_ring_is_lost_between_threads(doorbells: tuple[Doorbell, Doorbell], lifeline: int) -> None:
    left, right = doorbells
    shared = bytearray(1)
    played: list[int] = []
    thread = threading.Thread(target=lambda: played.append(play(shared, Waiter(right, lifeline), left, 1, 20_000)))
    switch_interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        played.append(play(shared, Waiter(left, lifeline), right, 0, 20_000))
        thread.join()
    finally:
        sys.setswitchinterval(switch_interval)
    assert played == [20_000, 20_000]


def test_no_ring_is_lost_between_processes(doorbells: tuple[Doorbell, Doorbell], tmp_path: Path) -> None:
    rounds = 20_000
    left, right = doorbells
    lifeline, life = os.pipe()
    file = tmp_path / "ball"
    file.write_bytes(b"\0" * mmap.PAGESIZE)
    script = f"""
import mmap, sys
from typing import Any
from htsrl.dataflow.signals import Doorbell, Waiter

BALL, DEADLINE_SECONDS = {BALL}, {DEADLINE_SECONDS}

{inspect.getsource(play)}

fds = [int(argument) for argument in sys.argv[2:]]
with open(sys.argv[1], "r+b") as file, mmap.mmap(file.fileno(), 0) as shared:
    played = play(shared, Waiter(Doorbell(fds[0]), fds[2]), Doorbell(fds[1]), odd=1, rounds={rounds})
sys.exit(played != {rounds})
"""
    fds = [right.fd, left.fd, lifeline]
    with open(file, "r+b") as opened, mmap.mmap(opened.fileno(), 0) as shared:
        other = subprocess.Popen(
            [sys.executable, "-c", script, str(file), *map(str, fds)],
            pass_fds=fds,
            env={**os.environ, "PYTHONPATH": str(Path(htsrl.__file__).parents[1])},
        )
        played = play(shared, Waiter(left, lifeline), right, 0, rounds)
        assert other.wait(DEADLINE_SECONDS) == 0
    os.close(lifeline)
    os.close(life)
    assert played == rounds


# The worker's loop, which is where the order of looking and clearing matters.


class Postbox:
    """A role that finds its work in a box; others fill it at the worst of moments."""

    def __init__(self, shared: Any, doorbell: Doorbell, arrives_after_look: int) -> None:
        self._shared = shared
        self._doorbell = doorbell
        self._arrives_after_look = arrives_after_look
        self._letters = 0
        self.looks = 0

    def advance(self) -> bool:
        found = self._letters > 0
        if found:
            self._shared.exchange.stopping = True
        self.looks += 1
        if self.looks == self._arrives_after_look:
            self._letters += 1
            self._doorbell.ring()
        return found

    def waits_for(self) -> str:
        return "a letter"


def take_turns(doorbell: Doorbell, lifeline: int, arrives_after_look: int, deadline_seconds: float) -> Postbox:
    """Drive a worker's loop over one role, without a run around it."""
    placement = SimpleNamespace(jitter_seconds=0.0, deadline_seconds=deadline_seconds)
    post = SimpleNamespace(
        assignment=SimpleNamespace(
            number=0, hosted=SimpleNamespace(name="postman"), doorbells=SimpleNamespace(own=doorbell)
        ),
        equipment=SimpleNamespace(lifeline_fd=lifeline),
        blueprint=SimpleNamespace(config=SimpleNamespace(placement=placement)),
    )
    exchange = SimpleNamespace(stopping=False, waited_seconds=[0.0], naps=[0], pulse=lambda: b"nobody moves")
    shared = SimpleNamespace(exchange=exchange)
    role = Postbox(shared, doorbell, arrives_after_look)
    run: tuple[Any, Any] = post, shared
    _take_turns(*run, [role], _sleeper(*run), meter=None, instruments=None)
    return role


@pytest.mark.parametrize("arrives_after_look", [1, 2, 3, 4])
def test_work_that_arrives_at_any_moment_of_a_workers_loop_is_found(
    doorbell: Doorbell, lifeline: int, arrives_after_look: int
) -> None:
    """After look 1 comes the clearing, after look 2 the sleep; a ring wakes it for looks 3 and 4."""
    if arrives_after_look > 2:
        threading.Timer(0.1, doorbell.ring).start()  # somebody else's ring, to bring it that far
    role = take_turns(doorbell, lifeline, arrives_after_look, deadline_seconds=5.0)
    assert role.looks == arrives_after_look + 1


def test_a_worker_that_waits_in_vain_says_who_it_is_and_for_what_it_waited(doorbell: Doorbell, lifeline: int) -> None:
    who = rf"postman \(pid {os.getpid()}\)"
    with pytest.raises(WaitTimeout, match=rf"{who} waited 3 times deadline_seconds=0.2 for a letter"):
        take_turns(doorbell, lifeline, arrives_after_look=99, deadline_seconds=0.2)


# The sleep in the middle of a role's work, for what others do meanwhile.


def sleeper_on(doorbell: Doorbell, lifeline: int, exchange: Any, deadline_seconds: float = 5.0) -> Sleeper:
    return Sleeper("learner", 0, exchange, Waiter(doorbell, lifeline), deadline_seconds)


def some_exchange() -> Any:
    return SimpleNamespace(stopping=False, waited_seconds=[0.0], naps=[2], pulse=lambda: b"nobody moves")


@pytest.mark.parametrize("true_at_look", [1, 2, 3, 4])
def test_what_comes_true_at_any_moment_ends_the_sleep(doorbell: Doorbell, lifeline: int, true_at_look: int) -> None:
    """Look 1 comes before the clearing, look 2 before the sleep; a ring wakes it for look 3, and so on."""
    exchange, looks = some_exchange(), list[int]()
    if true_at_look > 2:
        threading.Timer(0.1, doorbell.ring).start()

    def it_is_so() -> bool:
        looks.append(exchange.naps[0])
        if len(looks) == true_at_look - 1:
            doorbell.ring()
        return len(looks) >= true_at_look

    sleeper_on(doorbell, lifeline, exchange).sleep_until(it_is_so, lambda: "it")
    assert len(looks) - true_at_look in (0, 1)
    assert all(nap % 2 == 0 for nap in looks), "whoever looks does not wait, and may be found to hang"


def test_who_sleeps_in_the_middle_of_its_work_is_seen_to_wait(doorbell: Doorbell, lifeline: int) -> None:
    exchange, seen = some_exchange(), list[int]()

    def ring_after_a_look() -> None:
        seen.append(exchange.naps[0])
        doorbell.ring()

    threading.Timer(0.2, ring_after_a_look).start()
    sleeper_on(doorbell, lifeline, exchange).sleep_until(lambda: bool(seen), lambda: "it")
    assert seen == [3]
    assert exchange.naps == [4]
    assert exchange.waited_seconds[0] > 0.1


def test_who_sleeps_in_the_middle_of_its_work_gives_up_with_a_name(doorbell: Doorbell, lifeline: int) -> None:
    who = rf"learner \(pid {os.getpid()}\)"
    sleeper = sleeper_on(doorbell, lifeline, some_exchange(), deadline_seconds=0.1)
    with pytest.raises(WaitTimeout, match=rf"{who} waited 3 times deadline_seconds=0.1 for the other"):
        sleeper.sleep_until(lambda: False, lambda: "the other")


def test_who_sees_others_get_on_does_not_give_up(doorbell: Doorbell, lifeline: int) -> None:
    exchange, beats = some_exchange(), iter(range(8))
    exchange.pulse = lambda: b"%d" % next(beats, 8)
    with pytest.raises(WaitTimeout):
        sleeper_on(doorbell, lifeline, exchange, deadline_seconds=0.05).sleep_until(lambda: False, lambda: "the other")
    assert exchange.naps[0] == 2 + 2 * (9 + 3), "nine waits in which others may have got on, and three in vain"


def test_when_a_run_stops_nobody_goes_on_waiting_for_others(doorbell: Doorbell, lifeline: int) -> None:
    exchange = some_exchange()
    exchange.stopping = True
    with pytest.raises(SystemExit):
        sleeper_on(doorbell, lifeline, exchange).sleep_until(lambda: False, lambda: "the other")
