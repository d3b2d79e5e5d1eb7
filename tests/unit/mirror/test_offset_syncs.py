"""Offset syncs: translations never pass what has been copied, and the store keeps the rules of Kafka's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_mirror.internal_records import OffsetSync
from tidelog_mirror.offset_syncs import TOO_OLD, OffsetSyncStore, SyncPacing


def loaded() -> OffsetSyncStore:
    store = OffsetSyncStore()
    store.is_loaded = True
    return store


def sync(upstream: int, downstream: int) -> OffsetSync:
    return OffsetSync("t", 0, upstream, downstream)


@st.composite
def copied_records(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """Return the source's offsets of copied records, with gaps, and those of their copies, also with gaps."""
    count = draw(st.integers(1, 400))
    gaps = st.integers(0, 400).filter(lambda number: number)
    special = draw(st.dictionaries(st.integers(0, count - 1), st.tuples(gaps, gaps), max_size=10))
    upstream, downstream = draw(st.integers(0, 10**6)), draw(st.integers(0, 10**6))
    sources, targets = [], []
    for number in range(count):
        more = special.get(number, (0, 0))
        upstream, downstream = upstream + 1 + more[0], downstream + 1 + more[1]
        sources.append(upstream)
        targets.append(downstream)
    return sources, targets


@given(copied_records(), st.integers(0, 50), st.data())
def test_a_translation_skips_no_unread_record_and_is_not_past_what_is_copied(
    records: tuple[list[int], list[int]], max_lag: int, data: st.DataObject
) -> None:
    sources, targets = records
    store, pacing = loaded(), SyncPacing(max_lag)
    for upstream, downstream in zip(sources, targets, strict=True):
        if pacing.needs_sync(upstream, downstream):
            store.add(sync(upstream, downstream))
    store.check_invariants()
    committed = data.draw(st.integers(sources[0] - 2, sources[-1] + 2))
    translated = store.translate("t", 0, committed)
    assert translated is not None
    if translated == TOO_OLD:
        assert committed < sources[0] or committed not in sources[-1:]
        return
    unread = [copy for source, copy in zip(sources, targets, strict=True) if source >= committed]
    assert translated <= (unread[0] if unread else targets[-1] + 1)
    read = [source for source in sources if source < committed]
    # At the end of the topic, the translation is at most offset.lag.max behind.
    if len(read) == len(sources):
        assert translated >= targets[-1] + 1 - max_lag - 1


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=200, unique=True))
def test_translations_of_a_store_grow_with_the_offset_and_keep_the_rules(offsets: list[int]) -> None:
    store = loaded()
    for upstream in sorted(offsets):
        store.add(sync(upstream, upstream))
        store.check_invariants()
    translated = [store.translate("t", 0, offset) for offset in range(0, 10_001, 37)]
    known = [offset for offset in translated if offset is not None]
    assert known == sorted(known)
    assert store.translate("t", 0, max(offsets)) == max(offsets)


def test_a_store_is_dense_near_the_end_and_remembers_far_back() -> None:
    store = loaded()
    for upstream in range(0, 100_001, 100):
        store.add(sync(upstream, upstream))
    for distance in (200, 1_000, 10_000, 50_000):
        translated = store.translate("t", 0, 100_000 - distance)
        assert translated is not None
        assert 0 <= 100_000 - distance - translated <= 2 * distance, distance
        assert translated > 0, distance


def test_a_store_translates_nothing_before_it_is_loaded_and_nothing_unknown() -> None:
    store = OffsetSyncStore()
    store.add(sync(10, 5))
    assert store.translate("t", 0, 10) is None
    store.is_loaded = True
    assert store.translate("t", 0, 10) == 5
    assert store.translate("t", 0, 11) == 6
    assert store.translate("t", 0, 99) == 6
    assert store.translate("t", 0, 9) == TOO_OLD
    assert store.translate("u", 0, 10) is None


def test_a_sync_before_the_latest_replaces_all_since_the_source_has_lost_records() -> None:
    store = loaded()
    for upstream in (10, 100, 200):
        store.add(sync(upstream, upstream))
    store.add(sync(50, 201))
    assert store.translate("t", 0, 60) == 202
    assert store.translate("t", 0, 20) == TOO_OLD


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([(0, 0)], [True]),
        ([(0, 0), (1, 1), (9, 9)], [True, False, True]),
        ([(0, 0), (1, 1), (2, 0)], [True, False, True]),
        ([(n, n) for n in range(12)], [True, *[False] * 10, True]),
    ],
    ids=["first", "gap in the source", "target went back", "offset.lag.max"],
)
def test_pacing_needs_a_sync_for(calls: list[tuple[int, int]], expected: list[bool]) -> None:
    pacing = SyncPacing(10)
    assert [pacing.needs_sync(*call) for call in calls] == expected


@given(st.integers(1, 300), st.integers(0, 100))
def test_pacing_of_batches_is_as_late_as_that_of_records_at_most(count: int, max_lag: int) -> None:
    pacing = SyncPacing(max_lag)
    assert pacing.batch_syncs(100, 50, 1) == [(100, 50)]
    syncs = pacing.batch_syncs(101, 51, count)
    last = syncs[-1][1] if syncs else 50
    assert 50 + count - (last + 1) < max(max_lag, 1)
