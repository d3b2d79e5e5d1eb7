"""Ctrl-C at any instruction around a monitor's lock leaves the lock free."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from tidelog.monitor import Monitor

INTERRUPTS = 1_000


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.fixture
def alarm() -> Iterator[None]:
    previous = signal.signal(signal.SIGALRM, _interrupt)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, previous)


def _is_free(monitor: Monitor) -> bool:
    answers: list[bool] = []

    def try_it() -> None:
        answers.append(monitor.lock.acquire(timeout=5))
        if answers[0]:
            monitor.lock.release()

    other = threading.Thread(target=try_it)
    other.start()
    other.join()
    return answers[0]


def _enter_until_interrupted(monitor: Monitor, after_s: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, after_s)
    while True:
        with monitor.lock:
            pass


def _wait_until_interrupted(monitor: Monitor, after_s: float) -> None:
    signal.setitimer(signal.ITIMER_REAL, after_s)
    while True:
        with monitor.lock, monitor.lock:
            monitor.changed.wait(0)


@pytest.mark.costly
@pytest.mark.usefixtures("alarm")
@pytest.mark.timeout(60, method="thread")
@pytest.mark.parametrize("use", [_enter_until_interrupted, _wait_until_interrupted])
def test_monitor_is_free_after_ctrl_c_at_any_point(use: Callable[[Monitor, float], None]) -> None:
    monitor = Monitor()
    moments = random.Random(5)
    for _ in range(INTERRUPTS):
        with pytest.raises(KeyboardInterrupt):
            use(monitor, moments.uniform(0.0001, 0.001))
    assert _is_free(monitor)


def test_notification_wakes_all_threads_and_is_announced() -> None:
    monitor, announced = Monitor(), threading.Event()
    woken: list[bool] = []
    monitor.announce_to(announced.set)

    def wait() -> None:
        with monitor.lock:
            waiting.release()
            woken.append(monitor.changed.wait(10))

    waiting = threading.Semaphore(0)
    threads = [threading.Thread(target=wait) for _ in range(3)]
    for thread in threads:
        thread.start()
        waiting.acquire()
    with monitor.lock:
        monitor.changed.notify_all()
    for thread in threads:
        thread.join()
    assert woken == [True] * 3
    assert announced.is_set()


def test_wait_ends_after_its_timeout_or_when_the_condition_is_true() -> None:
    monitor = Monitor()
    with monitor.lock:
        assert not monitor.changed.wait(0.001)
        assert not monitor.changed.wait_for(lambda: False, 0.001)
        assert monitor.changed.wait_for(lambda: True, 0)
    with pytest.raises(RuntimeError):
        monitor.changed.wait(0)
