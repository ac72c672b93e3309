"""The first signal ends a command in order, the second at once; real signals to real processes."""

from __future__ import annotations

import os
import pty
import signal
import time
from pathlib import Path

import pytest
from signalled_program import BOTH, Program

from htsrl.processes.interrupts import ECHO_SECONDS

LONGER_THAN_AN_ECHO = 3 * ECHO_SECONDS
EXIT_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}

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
