"""The sampled rate against a list of all events, Kafka's own examples, and token buckets."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.quotas.rate import SampledRate, Windows
from tidelog_foundation.quotas.token_bucket import TokenBucket


@dataclass
class _OracleSample:
    start_ms: int
    events: list[tuple[int, float]] = field(default_factory=list)


class RateOracle:
    """Kafka's rules over a list of samples that only grows."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.samples: list[_OracleSample] = []

    def record(self, value: float, now_ms: int) -> None:
        if not self.samples or now_ms - self.samples[-1].start_ms >= self.windows.window_ms:
            self.samples.append(_OracleSample(now_ms))
        self.samples[-1].events.append((now_ms, value))

    def rate(self, now_ms: int) -> float:
        span_ms = self.windows.samples * self.windows.window_ms
        if self.samples:
            newest = self.samples[-1]
            if now_ms - max((at for at, _ in newest.events), default=newest.start_ms) >= span_ms:
                # A forgotten current sample begins again with the measurement.
                newest.start_ms, newest.events = now_ms, []
        alive = [s for s in self.samples if s.events and now_ms - s.events[-1][0] < span_ms]
        alive += [s for s in self.samples[-1:] if not s.events]
        elapsed_ms = now_ms - min((s.start_ms for s in alive), default=now_ms)
        full = elapsed_ms // self.windows.window_ms
        elapsed_ms += max(0, self.windows.samples - 1 - full) * self.windows.window_ms
        return sum(v for s in alive for _, v in s.events) / (max(elapsed_ms, 1) / 1_000)


steps = st.lists(st.tuples(st.integers(0, 4_000), st.integers(0, 1_000), st.booleans()), max_size=60)


@given(steps, st.integers(2, 12), st.sampled_from([100, 1_000]))
def test_rate_is_that_of_all_events_under_kafkas_rules(steps, samples, window_ms) -> None:
    windows, now_ms = Windows(samples, window_ms), 5_000
    rate, oracle = SampledRate(windows), RateOracle(windows)
    for pause_ms, value, measures in steps:
        now_ms += pause_ms
        rate.record(value, now_ms)
        oracle.record(value, now_ms)
        if measures:
            assert rate.rate(now_ms) == pytest.approx(oracle.rate(now_ms))
    now_ms += 1
    assert rate.rate(now_ms) == pytest.approx(oracle.rate(now_ms))


def test_excess_is_the_delay_of_kafkas_quota_manager() -> None:
    """ClientQuotaManagerTest.testQuotaViolation: a limit of 500 in the 11th window, after ten windows of 400."""
    rate, now_ms = SampledRate(Windows()), 0
    for _ in range(10):
        rate.record(400, now_ms)
        assert rate.excess_ms(500, now_ms) == 0
        now_ms += 1_000
    now_ms += 500
    rate.record(2_300, now_ms)
    # 6,300 over 10.5 s are 600 per second: (600 - 500) / 500 * 10.5 s.
    assert rate.rate(now_ms) == 600
    assert rate.excess_ms(500, now_ms) == 2_100


def test_a_value_that_is_taken_back_leaves_the_rate_as_it_was() -> None:
    rate = SampledRate(Windows())
    rate.record(100, 0)
    before = rate.rate(2_500)
    rate.record(5_000, 2_500)
    rate.record(-5_000, 2_500)
    assert rate.rate(2_500) == before


@settings(max_examples=examples(20))
@given(st.integers(100, 10**6), st.floats(0.01, 0.5), st.floats(1.5, 50))
def test_a_client_that_waits_as_told_converges_to_its_limit(limit, share, eagerness) -> None:
    """A client that asks for more than its limit, and waits as it is told, gets its limit within 10 %."""
    rate, size = SampledRate(Windows()), limit * share
    now_ms, counted, pause_ms = 0, 0.0, max(1, int(share / eagerness * 1_000))
    while now_ms < 120_000:
        rate.record(size, now_ms)
        counted += size if now_ms >= 20_000 else 0
        now_ms += max(pause_ms, rate.excess_ms(limit, now_ms))
    assert counted / (now_ms / 1_000 - 20) == pytest.approx(limit, rel=0.1)


def test_a_burst_delays_a_token_bucket_for_its_debt_alone() -> None:
    """Kafka's example: a limit of 5, 100 samples of 1 s, a burst of 560."""
    bucket = TokenBucket(Windows(100, 1_000), 5, 0)
    bucket.take(560, 0)
    assert bucket.debt_ms(0) == 12_000
    assert bucket.debt_ms(11_000) == 1_000
    assert bucket.debt_ms(12_000) == 0
    bucket.take(1, 12_000)
    assert bucket.debt_ms(12_000) == 200


@given(st.lists(st.tuples(st.integers(0, 30_000), st.integers(0, 200)), max_size=40), st.floats(0.1, 50))
def test_a_token_bucket_grants_at_most_its_burst_and_its_rate(steps, limit) -> None:
    """A strict client, which takes only without a debt, never gets more than burst + rate * time + one request."""
    bucket, now_ms, taken = TokenBucket(Windows(), limit, 0), 0, 0
    for pause_ms, count in steps:
        now_ms += pause_ms
        if bucket.debt_ms(now_ms) == 0:
            bucket.take(count, now_ms)
            taken += count
        assert taken <= bucket.burst + limit * now_ms / 1_000 + 200 + 1e-6
        assert math.isfinite(bucket.debt_ms(now_ms))
