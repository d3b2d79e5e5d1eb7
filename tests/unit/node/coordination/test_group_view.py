"""The view of the groups in RocksDB: what is in it, what a crash leaves, what is made of a database that is broken."""

import shutil
import time

import pytest

from tidelog_foundation.errors import ErrorCode
from tidelog_node.coordination.rocks_view import RocksView
from tidelog_node.coordination.view_layout import (
    FORMAT_KEY,
    ShardName,
    ViewPosition,
    after,
    entry_key,
    split_entry_key,
)
from tidelog_node.coordination.views import ViewFailedError
from tidelog_node.groups.records import GroupMetadataKey, OffsetCommitKey, encode_key
from tidelog_node.shards.events import ShardRecord
from tidelog_node.shards.pending import PendingRecord, StoredChange

SHARD = ShardName(7, b"0123456789abcdef")


def offset_key(group, partition=0, topic="t"):
    return encode_key(OffsetCommitKey(group, topic, partition))


@pytest.fixture
def view(tmp_path):
    opened = RocksView.open(tmp_path / "group-view")
    yield opened
    opened.close()


def test_view_returns_the_newest_value_of_each_key_of_a_group_in_their_order(view):
    shard = view.shard(SHARD)
    keys = [offset_key("g", p) for p in (0, 1, 2)] + [encode_key(GroupMetadataKey("g"))]
    shard.apply([ShardRecord(key, b"old") for key in reversed(keys)] + [ShardRecord(offset_key("gg"), b"other")])
    shard.apply([ShardRecord(keys[0], b""), ShardRecord(keys[1], None)])

    assert shard.records_of("g") == [
        ShardRecord(keys[0], b""),
        ShardRecord(keys[2], b"old"),
        ShardRecord(keys[3], b"old"),
    ]
    assert shard.records_of("gg") == [ShardRecord(offset_key("gg"), b"other")]
    assert shard.records_of("nobody") == []


def test_view_lists_each_group_once_and_none_of_another_shard(view):
    shards = [SHARD, ShardName(7, b"f" * 16), ShardName(8, SHARD.topic_id)]
    for number, name in enumerate(shards):
        groups = [f"{number}-b", f"{number}-a", f"{number}-\xff" * 20, f"{number}"]
        records = [ShardRecord(offset_key(g, p), b"x") for g in groups for p in range(3)]
        view.shard(name).apply(records, ViewPosition(number, 1, 2))

    for number, name in enumerate(shards):
        assert sorted(view.shard(name).ids()) == sorted(
            [f"{number}", f"{number}-a", f"{number}-b", f"{number}-\xff" * 20]
        )
    view.shard(SHARD).clear()
    assert view.shard(SHARD).position() is None
    assert list(view.shard(SHARD).ids()) == []
    assert view.shards() == sorted(shards[1:])
    assert view.shard(shards[1]).records_of("1-a") != []


def test_view_returns_the_records_of_stored_transactions_until_they_are_removed(view, tmp_path):
    shards = [SHARD, ShardName(8, SHARD.topic_id)]
    records = [
        PendingRecord(2**40, 5, ShardRecord(offset_key("g"), b"\x00value")),
        PendingRecord(2**40, 6, ShardRecord(offset_key("g", 1), b"")),
        PendingRecord(2**40 + 1, 7, ShardRecord(offset_key("g"), None)),
    ]
    for name in shards:
        changes = [StoredChange(each.producer_id, each.record.key, each) for each in records]
        view.shard(name).apply((), ViewPosition(9, 1, 2), changes)
    assert list(view.shard(SHARD).ids()) == []

    view.close()
    again = RocksView.open(tmp_path / "group-view")
    assert sorted(again.shard(SHARD).pending()) == sorted(records)
    again.shard(SHARD).apply((), None, [StoredChange(2**40, offset_key("g"), None)])
    assert sorted(again.shard(SHARD).pending()) == sorted(records[1:])
    again.shard(SHARD).clear()
    assert list(again.shard(SHARD).pending()) == []
    assert sorted(again.shard(shards[1]).pending()) == sorted(records)
    again.close()


@pytest.mark.parametrize("key", [b"", b"\x00\x01", b"\x00\x01\x00\x05abc", b"\x00\x02\xff\xff"])
def test_view_passes_over_what_is_no_record_of_a_group(view, key):
    view.shard(SHARD).apply([ShardRecord(key, b"x"), ShardRecord(offset_key("g"), b"y")], ViewPosition(2, 0, 0))
    assert view.shard(SHARD).records_of("g") == [ShardRecord(offset_key("g"), b"y")]
    assert list(view.shard(SHARD).ids()) == ["g"]


def test_keys_come_back_as_they_were():
    for key in (
        offset_key("g"),
        offset_key(""),
        offset_key("\xe9" * 300, 2**31 - 1),
        encode_key(GroupMetadataKey("x")),
    ):
        entry = entry_key(SHARD, key)
        assert split_entry_key(SHARD, entry)[1] == key
    assert after(b"a\xff\xff") == b"b"


def test_view_is_whole_again_after_a_close(tmp_path):
    view = RocksView.open(tmp_path / "v")
    view.shard(SHARD).apply([ShardRecord(offset_key("g"), b"x")], ViewPosition(5, 3, 1_000))
    view.close()

    view = RocksView.open(tmp_path / "v")
    assert view.shard(SHARD).position() == ViewPosition(5, 3, 1_000)
    assert view.shard(SHARD).records_of("g") == [ShardRecord(offset_key("g"), b"x")]
    view.close()


def test_crash_leaves_the_view_of_an_earlier_moment_with_its_position(tmp_path):
    view = RocksView.open(tmp_path / "v")
    shard = view.shard(SHARD)
    for offset in range(1, 2_001):
        shard.apply([ShardRecord(offset_key("g", offset % 10), b"%d" % offset)], ViewPosition(offset, 0, 0))
        if offset == 1_500:
            view.begin_flush()
    deadline = time.monotonic() + 10
    while True:
        # What a kill leaves: the files as they are, without what is in memory alone.
        shutil.rmtree(tmp_path / "crashed", ignore_errors=True)
        shutil.copytree(tmp_path / "v", tmp_path / "crashed")
        crashed = RocksView.open(tmp_path / "crashed")
        position = crashed.shard(SHARD).position()
        if position is not None:
            break
        crashed.close()
        assert time.monotonic() < deadline, "the flush has not ended"
    view.close()
    assert position.offset == 1_500
    values = sorted(int(record.value) for record in crashed.shard(SHARD).records_of("g"))
    assert values == list(range(1_491, 1_501))
    crashed.close()


def test_view_that_cannot_be_opened_is_made_anew(tmp_path, caplog):
    view = RocksView.open(tmp_path / "v")
    view.shard(SHARD).apply([ShardRecord(offset_key("g"), b"x")], ViewPosition(5, 3, 1_000))
    view.close()
    for manifest in (tmp_path / "v").glob("MANIFEST-*"):
        manifest.write_bytes(b"\x00" * 100)

    view = RocksView.open(tmp_path / "v")
    assert view.shard(SHARD).position() is None
    assert view.shards() == []
    assert "is recreated from the logs" in caplog.text
    view.close()


def test_view_of_another_format_is_made_anew(tmp_path):
    from rocksdict import WriteBatch

    view = RocksView.open(tmp_path / "v")
    batch = WriteBatch(raw_mode=True)
    batch.put(FORMAT_KEY, b"99")
    view.write(batch)
    view.shard(SHARD).apply([], ViewPosition(5, 3, 1_000))
    view.close()

    view = RocksView.open(tmp_path / "v")
    assert view.shard(SHARD).position() is None
    view.close()


def test_view_in_a_folder_that_cannot_be_made_fails_with_a_name(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ViewFailedError, match="cannot be opened") as caught:
        RocksView.open(tmp_path / "file" / "v")
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
