"""The declarations of metrics and their values."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.metrics import Histogram, Kind, Metric

VALID: dict[str, Any] = {"name": "tidelog_log_bytes", "kind": Kind.GAUGE, "help": "The size.", "unit": "bytes"}


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"name": "log_bytes"}, "begins with tidelog"),
        ({"name": "tidelog_Log_bytes"}, "lower-case"),
        ({"kind": Kind.COUNTER}, "_total"),
        ({"name": "tidelog_log_bytes_total"}, "_total"),
        ({"unit": "seconds"}, "does not end with seconds"),
        ({"name": "tidelog_log_count", "unit": ""}, "reserved suffix"),
        ({"help": "the size"}, "sentence"),
        ({"labels": ("Topic",)}, "label's name"),
        ({"labels": ("topic", "topic")}, "twice"),
        ({"kind": Kind.HISTOGRAM}, "histograms alone"),
        ({"buckets": (1.0,)}, "histograms alone"),
        ({"kind": Kind.HISTOGRAM, "buckets": (2.0, 1.0)}, "ascending"),
    ],
)
def test_declaration_breaks_a_convention_and_is_refused(changes: dict[str, Any], text: str) -> None:
    Metric(**VALID)
    with pytest.raises(ValueError, match=text):
        Metric(**{**VALID, **changes})


@given(st.lists(st.integers(0, 100_000)))
def test_histogram_counts_each_observation_in_the_bucket_that_has_it(observed: list[int]) -> None:
    histogram = Histogram((0.5, 1, 10), per_unit=1_000)
    for value in observed:
        histogram.observe(value)
    snapshot = histogram.snapshot()
    limits = (0, 500, 1_000, 10_000, 1 << 62)
    expected = [
        sum(low < value <= high or value == low == 0 for value in observed) for low, high in itertools.pairwise(limits)
    ]
    assert list(snapshot.counts) == expected
    assert snapshot.total == sum(observed) / 1_000
