"""The lines that the leading controller writes about brokers and partitions."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tidelog_foundation.logs.events import MAX_LINES, EventLog
from tidelog_quorum.controller.state_machine import PeriodicTask
from tidelog_quorum.server.event_lines import report_brokers, report_partitions


def commit_and_report(driver: Any, log: EventLog) -> None:
    """Commit what was written, as the controller's shell does, with its lines."""
    for offset, epoch, records in driver.log[driver.committed :]:
        before = driver.controller.committed
        changed = driver.controller.replay(offset, epoch, records)
        driver.committed += 1
        report_brokers(log, before, driver.controller.committed)
        report_partitions(log, before, driver.controller.committed, changed)


def lose_broker_1(driver: Any, log: EventLog) -> None:
    """Let the session of broker 1 end, and settle its partitions."""
    driver.now_ms += 8_000
    for broker_id in (2, 3):
        driver.heartbeat(broker_id)
    driver.now_ms += 8_000
    task: PeriodicTask | None = PeriodicTask.EXPIRE_SESSIONS
    while task is not None:
        result, task = driver.controller.tick(task, driver.now_ms)
        driver.append(result)
        commit_and_report(driver, log)


def test_failover_has_a_line_for_the_broker_and_for_each_partition(
    driver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2], [2, 1], [2, 3]])
    lose_broker_1(driver, EventLog(logging.getLogger("events"), lambda: 0.0))
    broker_epoch = driver.image.brokers[1].broker_epoch
    assert [record.getMessage() for record in caplog.records] == [
        f"Broker 1 is fenced (epoch {broker_epoch}), was active (epoch {broker_epoch})",
        "Leader of t-0 is broker 2 in leader epoch 1 with ISR [2], was broker 1 with ISR [1, 2]",
        "ISR of t-1 is [2] in leader epoch 0, was [2, 1]",
    ]


def test_smaller_isr_has_a_line(driver: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    driver.up(1, 2)
    driver.create(assignments=[[1, 2]])
    before = driver.controller.committed
    driver.alter(1, [1])
    changed = [(driver.image.topics["t"].topic_id, 0)]
    report_partitions(EventLog(logging.getLogger("events")), before, driver.controller.committed, changed)
    assert [r.getMessage() for r in caplog.records] == ["ISR of t-0 is [1] in leader epoch 0, was [1, 2]"]


def test_failover_of_1000_partitions_writes_a_bounded_number_of_lines(
    driver: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    driver.up(1, 2, 3)
    driver.create(assignments=[[1, 2]] * 1_000)
    lose_broker_1(driver, EventLog(logging.getLogger("events"), lambda: 0.0))
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) < MAX_LINES + 10
    summaries = [line for line in lines if "more events" in line]
    assert sum(int(line.split()[0]) for line in summaries) + len(lines) - len(summaries) == 1_001
    assert all(driver.partition(index=index).leader == 2 for index in range(1_000))


def test_level_debug_has_a_line_for_every_event(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    log = EventLog(logging.getLogger("events"), lambda: 0.0)
    for number in range(3 * MAX_LINES):
        log.write("event %d", number)
    log.summarize()
    assert len(caplog.records) == 3 * MAX_LINES


def test_next_period_begins_with_the_number_of_omitted_events(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    now = 0.0
    log = EventLog(logging.getLogger("events"), lambda: now)
    for number in range(MAX_LINES + 5):
        log.write("event %d", number)
    assert len(caplog.records) == MAX_LINES
    now = 10.0
    log.write("later")
    assert [r.getMessage() for r in caplog.records[MAX_LINES:]] == [
        "5 more events have no line; the level DEBUG shows all",
        "later",
    ]
