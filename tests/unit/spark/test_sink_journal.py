"""The journal's readers agree on the winner of two writers, also after compaction."""

from __future__ import annotations

import pytest

from tidelog_spark.sink.journal import MAX_RETIRED, Journal, Prepared, SinkState, key_of

PREPARED = (Prepared("id-0", 7, 1),)


def read(*records: tuple[bytes, SinkState | None]) -> Journal:
    journal = Journal("q")
    for key, state in records:
        journal.apply(key, None if state is None else state.to_json())
    return journal


def test_journal_takes_the_first_record_of_a_version() -> None:
    claimed = SinkState().claimed("a")
    commit, claim = claimed.decided("a", 0, PREPARED), claimed.claimed("b")
    records = [(key_of("q", 1, "x"), claimed), (key_of("q", 2, "x"), commit), (key_of("q", 2, "y"), claim)]
    assert read(*records).state == commit
    assert read(records[1], records[2]).state == commit, "compaction has removed what was replaced"
    assert read(records[0], records[2], records[1]).state == claim


def test_journal_ignores_other_sinks_deletions_and_markers() -> None:
    state = SinkState().claimed("a")
    journal = read((b"q2/1/x", state), (b"q/marker", None), (b"q/1/x", None))
    assert journal.state == SinkState()
    assert journal.replaced_key is None


def test_journal_names_the_record_that_was_replaced() -> None:
    first = SinkState().claimed("a")
    journal = read((b"q/1/x", first), (b"q/2/x", first.decided("a", 3, PREPARED)))
    assert (journal.replaced_key, journal.key) == (b"q/1/x", b"q/2/x")
    assert journal.state.has_committed(3)
    assert not journal.state.has_committed(4)


def test_state_remembers_the_last_runs_only() -> None:
    state = SinkState()
    for number in range(MAX_RETIRED + 5):
        state = state.claimed(f"run-{number}")
    assert len(state.retired) == MAX_RETIRED
    assert state.without("x").retired[-1] == "x"
    assert state.without("x").owner == state.owner
    assert state.without(f"run-{number}").owner is None


@pytest.mark.parametrize("value", [b"{", b"[]", b"{}", b'{"version":1,"committed":[],"retired":[],"more":1}'])
def test_record_that_is_no_state_is_an_error(value: bytes) -> None:
    with pytest.raises(ValueError, match=r"not the state of a sink|Expecting"):
        SinkState.from_json(value)
