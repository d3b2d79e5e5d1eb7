"""The threads of a run, and the deadlines of its waits."""

from __future__ import annotations

import threading
import time

import pytest

from tidelog_chaos.background import BackgroundThread, StillRunningError
from tidelog_chaos.deadline import Deadline


class Endless(BackgroundThread):
    """Works until it is released, whatever it is told."""

    def __init__(self) -> None:
        super().__init__("endless")
        self.released = threading.Event()

    def _run(self) -> None:
        self.released.wait(30)


def test_thread_that_does_not_end_is_named_with_what_it_is_in() -> None:
    endless = Endless()
    endless.stop()
    endless._stopping.clear()
    endless.start()
    with pytest.raises(StillRunningError) as raised:
        endless.stop(0.05)
    assert str(raised.value).startswith("endless does not end: it is in ")
    assert "Endless._run (test_chaos_background.py:" in str(raised.value)
    endless.released.set()
    endless.stop()


def test_deadline_of_a_part_is_not_after_that_of_the_whole() -> None:
    whole = Deadline(0.05)
    assert whole.within(10).limit_s <= 0.05
    assert whole.within(0.01).limit_s == 0.01
    assert not whole.is_over
    time.sleep(whole.left_s)
    assert whole.is_over
    assert whole.left_s == whole.within(10).limit_s == 0
