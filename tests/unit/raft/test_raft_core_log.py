"""The log and the history of the voters beside plain models of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from raft_voter import data, voter_set

from tidelog_quorum.raft.core.log import MAX_BATCH_ENTRIES, RaftLog
from tidelog_quorum.raft.core.messages import Entry
from tidelog_quorum.raft.core.voters import VoterHistory, VoterSet

terms_of_a_log = st.lists(st.integers(1, 4), max_size=12).map(sorted)


@given(terms_of_a_log, st.data())
def test_log_answers_as_a_plain_list_does_after_compaction_and_truncation(
    terms: list[int], draw: st.DataObject
) -> None:
    entries = [data(i + 1, term, b"x" * (i % 3)) for i, term in enumerate(terms)]
    log = RaftLog(entries)
    first = draw.draw(st.integers(1, len(entries) + 1))
    log.compact_to(first)
    end = draw.draw(st.integers(first, len(entries) + 1))
    log.truncate_from(end)
    log.check_invariants()
    kept = entries[first - 1 : end - 1]
    assert (log.first_index, log.last_index) == (first, end - 1)
    assert log.slice(first, end) == tuple(kept)
    before = entries[first - 2].term if first > 1 else 0
    assert (log.start_term, log.last_term) == (before, kept[-1].term if kept else before)
    for index in range(first - 1, end + 1):
        for term in range(6):
            there = index < end and (before if index == first - 1 else entries[index - 1].term) == term
            assert log.matches(index, term) == there


@given(terms_of_a_log, st.integers(0, 12), st.integers(0, 14), st.integers(0, 5))
def test_latest_not_after_is_the_last_place_where_the_terms_allow_equality(
    terms: list[int], compacted: int, index: int, term: int
) -> None:
    log = RaftLog([data(i + 1, t) for i, t in enumerate(terms)])
    log.compact_to(min(compacted, len(terms)) + 1)
    known = [(log.start_index, log.start_term), *((e.index, e.term) for e in log.slice(log.first_index, 99))]
    allowed = [i for i, t in known if i <= index and t <= term]
    answer = log.latest_not_after(index, term)
    if allowed:
        assert answer == max(allowed)
    else:
        assert answer < log.start_index or log.start_index == 0, "it may match before the start, which is unknown here"


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=10), st.integers(0, 12), st.data())
def test_batch_takes_what_fits_and_at_least_one(payloads: list[bytes], max_bytes: int, draw: st.DataObject) -> None:
    entries = [data(i + 1, 1, payload) for i, payload in enumerate(payloads)]
    start = draw.draw(st.integers(1, len(entries)))
    batch, size = RaftLog(entries).batch(start, max_bytes)
    assert batch == tuple(entries[start - 1 : start - 1 + len(batch)])
    assert size == sum(len(entry.payload) for entry in batch)
    assert len(batch) == 1 or size <= max_bytes
    rest = entries[start - 1 + len(batch) :]
    assert batch
    assert not rest or size + len(rest[0].payload) > max_bytes


@given(st.lists(st.binary(max_size=5), max_size=10), st.integers(0, 12), st.integers(0, 12), st.data())
def test_first_of_last_is_within_both_limits_and_no_entry_short(
    payloads: list[bytes], max_entries: int, max_bytes: int, draw: st.DataObject
) -> None:
    entries = [data(i + 1, 1, payload) for i, payload in enumerate(payloads)]
    end = draw.draw(st.integers(0, len(entries)))
    first = RaftLog(entries).first_of_last(end, max_entries, max_bytes)
    kept = entries[first - 1 : end]
    assert 1 <= first <= end + 1
    assert len(kept) <= max_entries
    assert sum(len(entry.payload) for entry in kept) <= max_bytes
    if first > 1 and len(kept) < max_entries:
        assert sum(len(entry.payload) for entry in entries[first - 2 : end]) > max_bytes


def test_log_hands_each_change_to_the_disk_once() -> None:
    log = RaftLog([data(6, 1), data(7, 1)], (5, 1))
    assert not log.has_unwritten
    log.append(data(8, 1))
    assert log.take_unwritten() == (None, (data(8, 1),))
    log.truncate_from(7)
    log.append(data(7, 2))
    assert log.take_unwritten() == (7, (data(7, 2),))
    log.append(data(8, 2))
    log.truncate_from(8)
    assert not log.has_unwritten, "the disk never had it"
    log.restart_at(20, 3)
    assert (log.has_unwritten, log.first_index, log.last_index, log.last_term) == (False, 21, 20, 3)


def test_entries_before_the_start_count_as_equal() -> None:
    log = RaftLog([data(6, 2)], (5, 2))
    assert log.first_difference([data(4, 1), data(5, 2), data(6, 2)]) is None
    assert log.first_difference([data(5, 2), data(6, 3)]) == 6
    assert log.first_difference([data(6, 2), Entry(7, 2, data(1, 1).kind, b"")]) == 7


def test_voter_history_gives_the_set_in_force_at_an_index() -> None:
    sets: list[VoterSet] = [voter_set(1), voter_set(1, 2), voter_set(1, 2, 3)]
    history = VoterHistory(0, sets[0])
    history.add(4, sets[1])
    history.add(9, sets[2])
    assert [history.at(index) for index in (0, 3, 4, 8, 9, 50)] == [*sets[:1] * 2, *sets[1:2] * 2, *sets[2:] * 2]
    assert history.since(5) == sets[1:]
    history.truncate_from(9)
    assert (history.current, history.index) == (sets[1], 4)
    history.compact_to(4)
    history.truncate_from(1)
    assert (history.current, history.index) == (sets[1], 4), "what a snapshot stands for stays"
    history.restart_at(12, sets[2])
    assert history.since(12) == sets[2:]


def test_batch_is_bounded_in_number_where_entries_have_no_bytes() -> None:
    log = RaftLog([data(i, 1, b"") for i in range(1, 2 * MAX_BATCH_ENTRIES)])
    batch, size = log.batch(2, 1_000)
    assert (batch[0].index, len(batch), size) == (2, MAX_BATCH_ENTRIES, 0)
    rest, _ = log.batch(2 + MAX_BATCH_ENTRIES, 1_000)
    assert rest[-1].index == log.last_index
