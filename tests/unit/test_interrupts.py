"""In a Python program that calls htsrl a signal waits for the end of a deed, and then has its usual effect."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from types import FrameType

import pytest
from signalled_program import BOTH, Program

from htsrl.processes.interrupts import Handler, _CommandLineEnd, uninterrupted


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


@pytest.mark.parametrize(("signum", "said"), [(signal.SIGINT, "stopping; once more kills"), (signal.SIGTERM, "")])
def test_the_first_signal_is_answered_at_once(
    signum: signal.Signals, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert _CommandLineEnd().is_first(signum)
    assert capfd.readouterr().err.strip() == said
