"""The verdict of a soak test: growth is found, noise and the steps of restarts are not taken for it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from benchmarks.soak_trend import BOUNDS, Sample, Trend, trends_of

HOUR_S = 3_600.0


def samples(value: Callable[[float], float], *, restart_s: float = 0.0) -> list[Sample]:
    """Return samples of an hour in which every quantity has this value."""
    return [
        Sample("node 1", 1 if time_s < restart_s else 2, time_s, dict.fromkeys(BOUNDS, value(time_s)))
        for time_s in range(0, int(HOUR_S), 5)
    ]


def verdicts(found: list[Trend]) -> set[bool]:
    assert {trend.quantity for trend in found} == set(BOUNDS)
    return {trend.is_flat for trend in found}


def test_steady_growth_above_the_bound_is_found() -> None:
    for quantity, bound in BOUNDS.items():
        found = trends_of(samples(lambda t: 100 + 1.5 * bound * t / HOUR_S), HOUR_S)  # noqa: B023
        [trend] = [each for each in found if each.quantity == quantity]
        assert not trend.is_flat
        assert trend.growth_per_hour == pytest.approx(1.5 * bound, rel=0.01)
        assert "GROWS" in str(trend)


def test_noise_and_a_sawtooth_are_flat() -> None:
    noise = random.Random(7)
    assert verdicts(trends_of(samples(lambda _: 100 + noise.uniform(-20, 20)), HOUR_S)) == {True}
    assert verdicts(trends_of(samples(lambda t: 100 + t % 300), HOUR_S)) == {True}


def test_warm_up_and_earlier_processes_do_not_count() -> None:
    def value(time_s: float) -> float:
        since_start = time_s if time_s < 1_200 else time_s - 1_200
        return 100 + min(since_start, 150) * 2

    assert verdicts(trends_of(samples(value, restart_s=1_200), HOUR_S)) == {True}


def test_process_without_enough_samples_has_no_verdict() -> None:
    assert trends_of(samples(lambda _: 1, restart_s=HOUR_S - 20), HOUR_S) == []
