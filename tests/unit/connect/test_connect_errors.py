"""Retries and tolerance of failed records, by the rules of Connect's RetryWithToleranceOperator."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_connect.configuration import ConfigException
from tidelog_connect.errors import (
    ErrorSettings,
    Verdict,
    retry_delay_ms,
    verdict_on_failure,
)
from tidelog_connect.metrics import ConnectorCounts
from tidelog_connect.server.retries import with_retries
from tidelog_foundation.errors import ErrorCode, RetriableError, error_for


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


class Source:
    """Fails a number of times, each with the same error."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.failures, self.error, self.calls = failures, error, 0

    def poll(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise self.error
        return "rows"


RETRIABLE = error_for(ErrorCode.LEADER_NOT_AVAILABLE, "later")


def test_call_of_a_connector_is_repeated_while_its_error_is_retriable() -> None:
    settings = ErrorSettings.of({"errors.retry.timeout": "-1", "errors.retry.delay.max.ms": "1"})
    source = Source(3, RETRIABLE)
    counts = ConnectorCounts()
    assert with_retries(settings, source.poll, threading.Event(), counts.retried) == "rows"
    assert counts.retries == 3
    assert source.calls == 4
    with pytest.raises(ValueError, match="never"):
        with_retries(settings, Source(1, ValueError("never")).poll, threading.Event(), counts.retried)


@pytest.mark.parametrize(("timeout", "is_stopped"), [("0", False), ("-1", True)])
def test_call_of_a_connector_is_not_repeated_without_a_timeout_or_when_it_is_stopped(
    timeout: str, is_stopped: bool
) -> None:
    stopping = threading.Event()
    if is_stopped:
        stopping.set()
    source = Source(1, RETRIABLE)
    with pytest.raises(RetriableError, match="later"):
        with_retries(
            ErrorSettings.of({"errors.retry.timeout": timeout}), source.poll, stopping, ConnectorCounts().retried
        )
    assert source.calls == 1
