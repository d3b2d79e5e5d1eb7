"""The choices of the cleaner: the cleanable part of a log, the next log, and the segments to merge."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidelog_foundation.config.topic import TopicConfig
from tidelog_node.log.cleaner.policy import (
    Cleanable,
    LogState,
    SealedSegment,
    SegmentSize,
    cleanable_range,
    filthiest,
    group_segments,
)

NOW_MS = 1_000_000


def state(checkpoint: int | None = None, **changes: int) -> LogState:
    """Four sealed segments of 100 offsets and 10, 20, 30, 40 bytes; segment i has the timestamps from 1000 * i on."""
    segments = tuple(SealedSegment(100 * i, 10 * (i + 1), 1000 * i + 999, 1000 * i) for i in range(4))
    return replace(LogState(segments, 0, 400, 450, 450, 450, checkpoint), **changes)


@pytest.mark.parametrize(
    ("log", "first_dirty", "first_uncleanable", "clean_bytes", "cleanable_bytes"),
    [
        (state(), 0, 400, 0, 100),
        (state(200), 200, 400, 30, 70),
        (state(250), 250, 400, 60, 70),
        (state(400), 400, 400, 100, 0),
        (state(430), 430, 400, 100, 0),
        (state(last_stable_offset=300), 0, 300, 0, 60),
        (state(last_stable_offset=350), 0, 300, 0, 60),
        (state(last_stable_offset=99), 0, 0, 0, 0),
        (state(200, last_stable_offset=150), 200, 200, 30, 0),
        (state(recovery_point=350), 0, 300, 0, 60),
        (state(log_start_offset=120), 120, 400, 30, 90),
    ],
)
def test_cleanable_range_is_the_sealed_and_stable_part_behind_the_checkpoint(
    log: LogState, first_dirty: int, first_uncleanable: int, clean_bytes: int, cleanable_bytes: int
) -> None:
    found = cleanable_range(log, TopicConfig(), NOW_MS)
    assert (found.first_dirty_offset, found.first_uncleanable_offset) == (first_dirty, first_uncleanable)
    assert (found.clean_bytes, found.cleanable_bytes) == (clean_bytes, cleanable_bytes)
    assert not found.is_reset


@pytest.mark.parametrize("log", [state(50, log_start_offset=120), state(451, log_start_offset=120)])
def test_cleanable_range_begins_at_the_log_start_when_the_checkpoint_does_not_fit(log: LogState) -> None:
    found = cleanable_range(log, TopicConfig(), NOW_MS)
    assert found.is_reset
    assert found.first_dirty_offset == 120


def test_cleanable_range_of_an_empty_log_is_empty() -> None:
    found = cleanable_range(LogState((), 7, 7, 7, 7, 7, None), TopicConfig(), NOW_MS)
    assert (found.first_dirty_offset, found.first_uncleanable_offset, found.dirty_ratio) == (7, 7, 0.0)
    assert not found.is_due(0.0)


@pytest.mark.parametrize(
    ("now_ms", "first_uncleanable"), [(6000, 400), (5999, 400), (4998, 300), (2999, 200), (2998, 100), (1000, 0)]
)
def test_cleanable_range_ends_before_the_first_segment_within_the_least_lag(
    now_ms: int, first_uncleanable: int
) -> None:
    found = cleanable_range(state(), TopicConfig(min_compaction_lag_ms=1000), now_ms)
    assert found.first_uncleanable_offset == first_uncleanable


@pytest.mark.parametrize(
    ("checkpoint", "now_ms", "overdue_ms"), [(None, 6000, 0), (None, 6001, 1), (100, 6500, 500), (400, 99_999, 0)]
)
def test_cleanable_range_tells_how_long_the_oldest_dirty_segment_is_overdue(
    checkpoint: int | None, now_ms: int, overdue_ms: int
) -> None:
    # The first segment has no timestamp: a record without one cannot be overdue.
    found = cleanable_range(state(checkpoint), TopicConfig(max_compaction_lag_ms=5000), now_ms)
    assert found.overdue_ms == overdue_ms


def cleanable(clean: int, dirty: int, overdue_ms: int = 0) -> Cleanable:
    return Cleanable(0, 100, clean, dirty, overdue_ms, False)


@pytest.mark.parametrize(
    ("candidate", "is_due"),
    [
        (cleanable(50, 50), False),
        (cleanable(49, 51), True),
        (cleanable(99, 1, overdue_ms=1), True),
        (cleanable(100, 0, overdue_ms=1), False),
        (cleanable(0, 0), False),
    ],
)
def test_cleanable_is_due_above_the_dirty_ratio_or_when_overdue(candidate: Cleanable, is_due: bool) -> None:
    assert candidate.is_due(0.5) is is_due


def test_filthiest_is_the_due_log_with_the_largest_dirty_share() -> None:
    logs = [("a", cleanable(40, 60), 0.5), ("b", cleanable(20, 80), 0.9), ("c", cleanable(30, 70), 0.5)]
    assert filthiest(logs) == "c"
    assert filthiest(logs[1:2]) is None
    assert filthiest([]) is None


def sizes(*log_bytes: int) -> list[SegmentSize]:
    return [SegmentSize(100 * i, size, 8, 12) for i, size in enumerate(log_bytes)]


@pytest.mark.parametrize(
    ("segments", "groups"),
    [
        ([], []),
        (sizes(10, 20, 30), [[10, 20, 30]]),
        (sizes(60, 40, 1, 100, 101, 0, 0), [[60, 40], [1], [100], [101], [0, 0]]),
    ],
)
def test_group_segments_joins_neighbours_that_fit_into_one(
    segments: list[SegmentSize], groups: list[list[int]]
) -> None:
    found = group_segments(segments, max_log_bytes=100, max_index_bytes=1000, end_offset=1000)
    assert [[segment.log_bytes for segment in segments[group]] for group in found] == groups


def test_group_segments_bounds_the_indexes() -> None:
    found = group_segments(sizes(1, 1, 1, 1, 1), max_log_bytes=100, max_index_bytes=24, end_offset=1000)
    assert found == [slice(0, 2), slice(2, 4), slice(4, 5)]


def test_group_segments_bounds_the_range_of_offsets() -> None:
    far = [SegmentSize(0, 1, 0, 0), SegmentSize(2**31 - 10, 1, 0, 0), SegmentSize(2**31 + 1, 1, 0, 0)]
    assert group_segments(far, max_log_bytes=9, max_index_bytes=9, end_offset=2**31 + 5) == [slice(0, 1), slice(1, 3)]
    far[2] = replace(far[2], base_offset=2**31)
    assert group_segments(far, max_log_bytes=9, max_index_bytes=9, end_offset=2**31 + 1) == [slice(0, 2), slice(2, 3)]
