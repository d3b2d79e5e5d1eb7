"""The errors of the tests' own load."""

from __future__ import annotations

import time
from collections.abc import Iterator

import acknowledged
import pytest
from acknowledged import Load, wait_for

from tidelog.testing import FakeCluster


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as running:
        running.create_topic("t")
        yield running
        running.resume()


def silence(cluster: FakeCluster, load: Load) -> None:
    load.wait_for_progress(10)
    cluster.pause()
    sent = load.sent
    wait_for(lambda: load.sent > sent + 100, "records that nobody answers")


def test_load_does_not_hide_why_a_test_failed(cluster: FakeCluster) -> None:
    def fail() -> None:
        with Load(cluster.bootstrap_servers, "t") as load:
            silence(cluster, load)
            raise ValueError("the reason")

    started_s = time.monotonic()
    with pytest.raises(ValueError, match="the reason") as caught:
        fail()
    assert time.monotonic() - started_s < 30, "it waited for records that nobody will answer"
    [note] = caught.value.__notes__
    assert "were not reported" in note


def test_load_says_how_many_records_were_never_reported(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    load = Load(cluster.bootstrap_servers, "t")
    load.__enter__()
    silence(cluster, load)
    monkeypatch.setattr(acknowledged, "_DEADLINE_S", 0.5)
    with pytest.raises(AssertionError, match=r"\d+ of \d+ records were never reported"):
        load.stop()
