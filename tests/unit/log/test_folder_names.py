"""No folder's name is too long for a file system, and those of replicas and copies lead back to their partition."""

from hypothesis import given
from hypothesis import strategies as st

from tidelog_node.log.directory.partition_folder import (
    DELETED_SUFFIX,
    FUTURE_SUFFIX,
    MOVED_SUFFIX,
    STRAY_SUFFIX,
    copy_folder,
    moved_folder,
    parse_copy_folder,
    parse_partition_folder,
    partition_folder,
    suffixed_folder,
)

LONGEST = 255
topics = st.integers(1, 249).flatmap(lambda n: st.text("abcXYZ019._-", min_size=n, max_size=n))
partitions = st.integers(0, 99_999)


@given(topics, partitions)
def test_partition_of_a_replica_is_read_from_its_folder(topic, partition):
    name = partition_folder(topic, partition)
    assert len(name) <= LONGEST
    assert parse_partition_folder(name) == (topic, partition)
    assert parse_copy_folder(name) is None


@given(topics, partitions)
def test_folder_that_is_deleted_or_stray_has_a_name_that_fits_and_is_no_replicas(topic, partition):
    for suffix in (DELETED_SUFFIX, STRAY_SUFFIX):
        for name in (partition_folder(topic, partition), copy_folder((topic, partition))):
            renamed = suffixed_folder(name, suffix)
            assert len(renamed) <= LONGEST
            assert renamed.endswith(suffix)
            assert renamed[:20] == name[:20] or len(topic) < 20
            assert parse_partition_folder(renamed) is None
            assert parse_copy_folder(renamed) is None


@given(topics, partitions)
def test_folder_of_a_copy_has_a_name_that_fits_and_says_whether_it_is_whole(topic, partition):
    future = copy_folder((topic, partition))
    moved = moved_folder(future)
    assert (future.endswith(FUTURE_SUFFIX), moved.endswith(MOVED_SUFFIX)) == (True, True)
    for name, is_moved in ((future, False), (moved, True)):
        assert len(name) <= LONGEST
        parsed = parse_copy_folder(name)
        assert parsed is not None
        assert parsed.is_moved == is_moved
        assert parsed.key[1] == partition
        assert parsed.is_shortened == (parsed.key[0] != topic)
        assert topic.startswith(parsed.key[0])
        assert parsed.is_shortened == (len(f"{topic}-{partition}.{'0' * 32}-future") > LONGEST)
