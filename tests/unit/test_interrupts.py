"""A signal waits for the end of a deed, the second one for nothing; real signals to real processes."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

import htsrl
from htsrl.interrupts import ECHO_SECONDS, Handler, uninterrupted

PACKAGE_ROOT = Path(htsrl.__file__).parents[1]
SECONDS = 30.0
LONGER_THAN_AN_ECHO = 3 * ECHO_SECONDS
BOTH = [signal.SIGINT, signal.SIGTERM]
EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}

# What every script below starts with: a program that ends as the command line does.
COMMON = """
import os, signal, sys, time
from htsrl.interrupts import Terminated, end_at_second_signal, uninterrupted

def say(line):
    print(line, flush=True)

def as_command_line(work):
    end_at_second_signal()
    try:
        work()
    except Terminated:
        say("terminated")
        sys.exit(143)
    except KeyboardInterrupt:
        say("interrupted")
        sys.exit(130)
"""


class Program:
    """A script in a process of its own, which says how far it has come."""

    def __init__(self, script: str, *wrapper: str, stderr: int | None = None) -> None:
        self._process = subprocess.Popen(
            [*wrapper, sys.executable, "-c", COMMON + script],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            cwd=PACKAGE_ROOT,
        )

    def wait_for(self, line: str) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == line + "\n"

    def send(self, signum: signal.Signals) -> None:
        self._process.send_signal(signum)

    def is_running_after(self, seconds: float) -> bool:
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return True
        return False

    def end(self) -> tuple[str, int]:
        """What it still says, and its exit code."""
        try:
            said, _ = self._process.communicate(timeout=SECONDS)
        finally:
            self._process.kill()
        return said, self._process.returncode


# The command line

SLEEP = """
def work():
    if True:
        say("works")
        time.sleep(600)

as_command_line(work)
"""

WRITE_RESULTS = """
def work():
    try:
        say("works")
        time.sleep(600)
    finally:
        say("writes results")
        if True:
            time.sleep(600)

as_command_line(work)
"""

PUT_OFF = """
def work():
    with uninterrupted():
        say("works")
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        say("has finished")
    say("never gets here")

sys.argv[1:] = [PATH]
as_command_line(work)
"""


@pytest.mark.parametrize(
    ("signum", "ending"), [(signal.SIGINT, ("interrupted\n", 130)), (signal.SIGTERM, ("terminated\n", 143))]
)
def test_the_first_signal_ends_a_command_in_order(signum: signal.Signals, ending: tuple[str, int]) -> None:
    program = Program(SLEEP)
    program.wait_for("works")
    program.send(signum)
    assert program.end() == ending


@pytest.mark.parametrize("signum", BOTH)
@pytest.mark.parametrize("block", ["if True", "with uninterrupted()"])
def test_the_second_signal_ends_a_command_while_it_writes_results(signum: signal.Signals, block: str) -> None:
    program = Program(WRITE_RESULTS.replace("if True", block))
    program.wait_for("works")
    program.send(signum)
    program.wait_for("writes results")
    assert program.is_running_after(LONGER_THAN_AN_ECHO)
    program.send(signum)
    assert program.end() == ("", EXIT_CODES[signum])


@pytest.mark.parametrize("block", ["with uninterrupted()", "with uninterrupted(), uninterrupted()"])
@pytest.mark.parametrize("second", BOTH)
def test_two_signals_end_a_command_in_the_middle_of_an_uninterrupted_deed(second: signal.Signals, block: str) -> None:
    program = Program(SLEEP.replace("if True", block))
    program.wait_for("works")
    program.send(signal.SIGINT)
    assert program.is_running_after(LONGER_THAN_AN_ECHO)
    program.send(second)
    assert program.end() == ("", EXIT_CODES[second])


@pytest.mark.parametrize(("signum", "ending"), [(signal.SIGINT, "interrupted"), (signal.SIGTERM, "terminated")])
def test_a_signal_that_was_put_off_for_long_is_still_the_first(
    tmp_path: Path, signum: signal.Signals, ending: str
) -> None:
    may_finish = tmp_path / "may finish"
    program = Program(PUT_OFF.replace("PATH", repr(str(may_finish))))
    program.wait_for("works")
    program.send(signum)
    assert program.is_running_after(LONGER_THAN_AN_ECHO)
    may_finish.touch()
    assert program.end() == (f"has finished\n{ending}\n", EXIT_CODES[signum])


def test_after_a_signal_that_was_put_off_the_next_is_the_second() -> None:
    script = """
def work():
    try:
        with uninterrupted():
            say("works")
            time.sleep(0.5)
        say("never gets here")
    finally:
        say("writes results")
        time.sleep(600)

as_command_line(work)
"""
    program = Program(script)
    program.wait_for("works")
    program.send(signal.SIGINT)
    program.wait_for("writes results")
    program.send(signal.SIGTERM)
    assert program.end() == ("", 143)


def test_a_signal_between_two_exchanges_of_handlers_is_counted_as_any_other() -> None:
    script = """
def exchange(number, handler, set_handler=signal.signal):
    signal.signal = set_handler
    set_handler(number, handler)
    signal.raise_signal(signal.SIGTERM)

def work():
    signal.signal = exchange
    try:
        with uninterrupted():
            say("never gets here")
    finally:
        with uninterrupted():
            say("writes results")
            time.sleep(600)

as_command_line(work)
"""
    program = Program(script)
    program.wait_for("writes results")
    assert program.is_running_after(LONGER_THAN_AN_ECHO)
    program.send(signal.SIGINT)
    assert program.end() == ("", 130)


@pytest.mark.parametrize("block", ["if True", "with uninterrupted()"])
def test_a_signal_and_its_echo_are_one_wish(block: str) -> None:
    script = f"""
def work():
    {block}:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGTERM)
            say("has finished")

as_command_line(work)
"""
    assert Program(script).end() == ("has finished\ninterrupted\n", 130)


def test_a_command_that_ignores_ctrl_c_from_its_start_goes_on_ignoring_it() -> None:
    program = Program(SLEEP, "sh", "-c", 'trap "" INT; exec "$0" "$@"')
    program.wait_for("works")
    program.send(signal.SIGINT)
    assert program.is_running_after(LONGER_THAN_AN_ECHO)
    program.send(signal.SIGINT)
    assert program.is_running_after(LONGER_THAN_AN_ECHO)
    program.send(signal.SIGTERM)
    assert program.end() == ("terminated\n", 143)


def test_the_second_signal_gives_the_terminal_its_cursor_back() -> None:
    ours, theirs = pty.openpty()
    program = Program(WRITE_RESULTS, stderr=theirs)
    os.close(theirs)
    program.wait_for("works")
    program.send(signal.SIGINT)
    program.wait_for("writes results")
    time.sleep(LONGER_THAN_AN_ECHO)
    program.send(signal.SIGINT)
    assert program.end() == ("", 130)
    assert b"\x1b[?25h" in os.read(ours, 1000)
    os.close(ours)


# A Python program that calls htsrl


def test_in_a_program_of_its_own_every_ctrl_c_is_a_keyboard_interrupt() -> None:
    script = """
for attempt in range(3):
    try:
        with uninterrupted():
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)
                time.sleep(0.15)
            say("has finished")
        say("never gets here")
    except KeyboardInterrupt:
        say("interrupted")
"""
    assert Program(script).end() == ("has finished\ninterrupted\n" * 3, 0)


def test_in_a_program_of_its_own_sigterm_has_its_usual_effect_after_the_deed() -> None:
    script = """
with uninterrupted():
    signal.raise_signal(signal.SIGTERM)
    say("has finished")
say("never gets here")
"""
    assert Program(script).end() == ("has finished\n", -signal.SIGTERM)


def test_deeds_stay_whole_in_a_storm_of_signals_and_none_is_swallowed_afterwards() -> None:
    script = """
import threading

class Told(Exception):
    pass

calm, counts = [], {"begun": 0, "finished": 0, "told": 0}

def deeds():
    while not calm:
        with uninterrupted():
            counts["begun"] += 1
            counts["finished"] += 1

def tell(signum, frame):
    while frame is not None:  # nobody catches it elsewhere
        if frame.f_code is deeds.__code__ or calm:
            raise Told
        frame = frame.f_back

def storm():
    for i in range(2000):
        os.kill(os.getpid(), (signal.SIGINT, signal.SIGTERM)[i % 2])
        time.sleep(1e-4)
    time.sleep(0.2)
    calm.append(True)

for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, tell)
threading.Thread(target=storm).start()
while not calm:
    try:
        deeds()
    except Told:
        counts["told"] += 1
say(counts["begun"] == counts["finished"] and counts["told"] > 100)
for number in (signal.SIGINT, signal.SIGTERM):
    try:
        signal.raise_signal(number)
    except Told:
        say("told")
"""
    assert Program(script).end() == ("True\ntold\ntold\n", 0)


class Told(Exception):
    """A signal took effect."""


def tell(signum: int, frame: FrameType | None) -> None:
    raise Told(signum)


@pytest.fixture
def signals_that_tell() -> Iterator[None]:
    before = {number: signal.signal(number, tell) for number in BOTH}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("num_exchanges", [1, 2, 3, 4])
@pytest.mark.parametrize("signum", BOTH)
@pytest.mark.usefixtures("signals_that_tell")
def test_a_signal_between_two_exchanges_of_handlers_takes_effect_and_so_do_all_later_ones(
    monkeypatch: pytest.MonkeyPatch, num_exchanges: int, signum: signal.Signals
) -> None:
    set_handler, exchanges = signal.signal, []

    def exchange(number: int, handler: Handler) -> None:
        exchanges.append(number)
        set_handler(number, handler)
        if len(exchanges) == num_exchanges:
            signal.raise_signal(signum)

    with monkeypatch.context() as patch:
        patch.setattr(signal, "signal", exchange)
        with pytest.raises(Told), uninterrupted():
            pass

    for number in BOTH:
        with pytest.raises(Told, match=str(int(number))):
            signal.raise_signal(number)
        with pytest.raises(Told, match=str(int(number))), uninterrupted():
            signal.raise_signal(number)
        assert signal.getsignal(number) is tell


@pytest.mark.usefixtures("signals_that_tell")
def test_the_end_of_a_deed_within_a_deed_lets_nothing_through() -> None:
    finished = []

    def deed() -> None:
        with uninterrupted():
            with uninterrupted():
                signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGTERM)
            finished.append(True)

    with pytest.raises(Told, match=str(int(signal.SIGINT))):
        deed()
    assert finished == [True]


@pytest.mark.usefixtures("signals_that_tell")
def test_a_block_in_another_thread_leaves_the_handlers_alone() -> None:
    seen = []

    def look() -> None:
        with uninterrupted():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [tell]
