"""The fake decides about every batch of an idempotent producer as the node does."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from producer_headers import TRANSACTIONAL, header_of

from tidelog.testing.fake.producers import AppendResult, Producers
from tidelog_foundation.errors import TidelogError
from tidelog_node.log.producers import ProducerState

NEAR_THE_END = 2**31 - 4


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1),
            st.sampled_from([0, 0, 0, 1, 2]),
            st.one_of(st.none(), st.integers(-7, 3)),
            st.integers(1, 3),
            st.sampled_from([False, False, False, False, True]),
        ),
        max_size=30,
    ),
    st.sampled_from([0, NEAR_THE_END]),
)
def test_fake_checks_sequences_as_the_node_does(
    batches: list[tuple[int, int, int | None, int, bool]], first: int
) -> None:
    """A sequence is the next one, or so far from it; None begins anew."""
    fake, node = Producers(), ProducerState(86_400_000)
    following = {0: first, 1: first}
    end_offset = 0
    for producer_id, epoch, distance, count, is_transactional in batches:
        sequence = 0 if distance is None else (following[producer_id] + distance) % 2**31
        attributes = TRANSACTIONAL if is_transactional else 0
        header = header_of(producer_id, epoch, sequence, count, offset=end_offset, attributes=attributes)
        answers = []
        try:
            duplicate = node.check(header)
            answers.append(None if duplicate is None else duplicate.base_offset)
        except TidelogError as error:
            answers.append(error.code)
        try:
            found = fake.find_duplicate(header)
            answers.append(None if found is None else found.base_offset)
        except TidelogError as error:
            answers.append(error.code)
        assert answers[0] == answers[1], header
        if answers[0] is None:
            node.append(header, None, 0)
            fake.take(header, AppendResult(end_offset, -1))
            end_offset += count
            following[producer_id] = (sequence + count) % 2**31
