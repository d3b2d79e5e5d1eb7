"""The offsets of groups that a cluster link copies: never above what the mirror has."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog_node.links.mirror_ends import limited

PLACES = st.tuples(st.sampled_from(["orders", "clicks"]), st.integers(0, 3))
COMMITTED = st.dictionaries(PLACES, st.tuples(st.integers(0, 20), st.integers(-1, 9), st.text(max_size=3)))


@given(COMMITTED, st.dictionaries(PLACES, st.integers(0, 20)))
def test_copied_offset_is_the_one_of_the_source_or_the_end_of_the_mirror_without_an_epoch(found, ends):
    copied = limited(found, ends)
    assert copied.keys() == found.keys() & ends.keys()
    for place, (offset, epoch, metadata) in copied.items():
        of_source = found[place]
        assert offset == min(of_source[0], ends[place])
        assert metadata == of_source[2]
        assert epoch == (of_source[1] if offset == of_source[0] else -1)
