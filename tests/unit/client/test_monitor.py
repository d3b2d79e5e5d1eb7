"""Ctrl-C at any instruction around a monitor's lock leaves the lock free."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator

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


@pytest.mark.usefixtures("alarm")
@pytest.mark.timeout(60, method="thread")
def test_monitor_is_free_after_ctrl_c_at_any_point() -> None:
    monitor = Monitor()
    moments = random.Random(5)
    for _ in range(INTERRUPTS):
        with pytest.raises(KeyboardInterrupt):
            _enter_until_interrupted(monitor, moments.uniform(0.0001, 0.001))
    assert _is_free(monitor)
