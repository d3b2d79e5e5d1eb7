"""Retries, tolerance and headers of failed records, by the rules of Connect's RetryWithToleranceOperator."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_connect.configuration import ConfigException
from tidelog_connect.errors import (
    ErrorSettings,
    FailedRecord,
    Verdict,
    error_headers,
    retry_delay_ms,
    verdict_on_failure,
)

FAILED = FailedRecord(
    topic="orders",
    partition=3,
    offset=17,
    stage="TRANSFORMATION",
    executing_class="org.apache.kafka.connect.transforms.Cast$Value",
    exception="org.apache.kafka.connect.errors.DataException",
    message="Value (x) was out of range for requested data type",
)


@pytest.mark.parametrize(
    ("settings", "verdict"),
    [
        ({}, Verdict(fails_task=True, to_dead_letters=False)),
        ({"errors.tolerance": "all"}, Verdict(fails_task=False, to_dead_letters=False)),
        (
            {"errors.tolerance": "all", "errors.deadletterqueue.topic.name": "dead"},
            Verdict(fails_task=False, to_dead_letters=True),
        ),
        ({"errors.deadletterqueue.topic.name": "dead"}, Verdict(fails_task=True, to_dead_letters=True)),
    ],
)
def test_verdict_on_a_failed_record(settings: dict[str, str], verdict: Verdict) -> None:
    assert verdict_on_failure(ErrorSettings.of(settings)) == verdict


def test_tolerance_of_another_kind_refused() -> None:
    with pytest.raises(ConfigException, match="String must be one of: none, all"):
        ErrorSettings.of({"errors.tolerance": "some"})


def test_no_retry_without_a_timeout() -> None:
    assert retry_delay_ms(ErrorSettings.of({}), 1, 0, 0, lambda _: 0) is None


def test_retry_delays_double_until_the_limit_and_end_at_the_deadline() -> None:
    settings = ErrorSettings.of({"errors.retry.timeout": "5000", "errors.retry.delay.max.ms": "1000"})
    now, delays = 0, []
    for attempt in range(1, 20):
        delay = retry_delay_ms(settings, attempt, 0, now, lambda below: below - 1)
        if delay is None:
            break
        delays.append(delay)
        now += delay

    assert delays == [300, 600, 999, 999, 999, 999, 104]
    assert now == 5000


@given(st.integers(1, 10**6), st.integers(0, 10**6), st.integers(-1, 10**6), st.integers(0, 10**6))
def test_retry_delay_is_within_the_limits(attempt: int, now: int, timeout: int, limit: int) -> None:
    settings = ErrorSettings.of({"errors.retry.timeout": str(timeout), "errors.retry.delay.max.ms": str(limit)})

    delay = retry_delay_ms(settings, attempt, 0, now, lambda below: below // 2)

    if timeout >= 0 and now >= timeout:
        assert delay is None
    else:
        assert delay is not None
        assert 0 <= delay <= limit
        assert timeout < 0 or now + delay <= timeout


def test_headers_describe_the_error() -> None:
    assert error_headers(FAILED, "sink", 0) == [
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"17"),
        ("__connect.errors.connector.name", b"sink"),
        ("__connect.errors.task.id", b"0"),
        ("__connect.errors.stage", b"TRANSFORMATION"),
        ("__connect.errors.class.name", b"org.apache.kafka.connect.transforms.Cast$Value"),
        ("__connect.errors.exception.class.name", b"org.apache.kafka.connect.errors.DataException"),
        ("__connect.errors.exception.message", b"Value (x) was out of range for requested data type"),
        (
            "__connect.errors.exception.stacktrace",
            b"org.apache.kafka.connect.errors.DataException: Value (x) was out of range for requested data type",
        ),
    ]
