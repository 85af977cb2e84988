"""Signals: who takes them, when, and how often."""

import os
import signal
import threading

import pytest

from ssl_hub.stopping import REQUEUE, STOPPING, Interrupted, StopSignal, deferred, interruptible


@pytest.fixture(autouse=True)
def noted():
    """What goes past everything that is tested, to whoever runs us; the handlers from before come back."""
    previous = {number: signal.getsignal(number) for number in STOPPING}
    seen: list[int] = []
    for number in STOPPING:
        signal.signal(number, lambda n, _: seen.append(n))
    yield seen
    for number, handler in previous.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1])
def test_a_signal_ends_what_is_interruptible_once(number, noted):
    cleaned = []
    with pytest.raises(Interrupted, match=str(REQUEUE)) as caught, interruptible(), interruptible():
        try:
            signal.raise_signal(number)
        finally:  # schedulers send more than one: what has begun to end is not interrupted
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGUSR1)
            cleaned.append(True)
    assert caught.value.line == f"stopped by {number.name}; start it again to go on"
    assert cleaned == [True] and noted == []
    signal.raise_signal(number)
    assert noted == [number]


@pytest.mark.parametrize("number", STOPPING)
def test_a_loop_notes_the_signal_and_ends_as_it_likes(number, noted):
    with pytest.raises(Interrupted) as caught, interruptible():
        try:
            with StopSignal() as stop:
                assert not stop
                signal.raise_signal(number)
                assert stop
                raise Interrupted
        finally:
            signal.raise_signal(signal.SIGTERM)
    assert caught.value.line is None and noted == []


@pytest.mark.parametrize("number", STOPPING)
def test_a_signal_that_the_loop_did_not_act_on_goes_on(number, noted):
    reached = []
    with pytest.raises(Interrupted) if number != signal.SIGINT else interruptible(), interruptible():
        with StopSignal():
            signal.raise_signal(number)
        reached.append(True)
    assert reached == ([True] if number == signal.SIGINT else [])  # whose handler is the one of this test
    assert noted == ([number] if number == signal.SIGINT else [])


def test_without_anything_to_go_to_it_stays_noted(noted):
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGTERM)
    assert stop and noted == []


def test_a_second_ctrl_c_interrupts_the_loop():
    with pytest.raises(KeyboardInterrupt), StopSignal():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", STOPPING)
def test_deferred_signals_come_afterwards_whichever_thread_takes_them(number, noted):
    go, done = threading.Event(), threading.Event()

    def listen() -> None:  # a thread that blocks nothing, started before
        go.wait()
        signal.raise_signal(number)
        done.set()

    threading.Thread(target=listen).start()
    with deferred():
        os.kill(os.getpid(), number)
        go.set()
        done.wait()
        sum(range(1000))
        assert noted == []
        inherited = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert set(STOPPING) <= inherited
    assert set(noted) == {number}
    assert not set(STOPPING) & signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_elsewhere_than_in_the_main_thread_signals_stay_with_whoever_runs_us(noted):
    def work() -> None:
        with interruptible(), StopSignal() as stop, deferred():
            os.kill(os.getpid(), signal.SIGTERM)
        assert not stop

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert noted == [signal.SIGTERM]
