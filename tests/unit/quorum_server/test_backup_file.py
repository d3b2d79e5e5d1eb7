"""Backup files: what is written is read again, and no damage goes unnoticed."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_foundation.errors import ErrorCode, TidelogError
from tidelog_foundation.ids import BrokerEpoch, BrokerId, TopicId
from tidelog_foundation.requests.addresses import Endpoint
from tidelog_quorum.metadata.batches import cut_batch, encode_batches
from tidelog_quorum.metadata.codec import encode_batch
from tidelog_quorum.metadata.image import MetadataImage
from tidelog_quorum.metadata.records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from tidelog_quorum.tools.backup_file import BackupWriter, read_backup

BROKER = RegisterBrokerRecord(BrokerId(1), b"i" * 16, BrokerEpoch(1), Endpoint("h", 9000))
IMAGE = MetadataImage().apply(10, 3, [BROKER, TopicRecord("a", TopicId(b"a" * 16))])
FOLLOWING = [
    TopicRecord("b", TopicId(b"b" * 16)),
    *(PartitionRecord(TopicId(b"b" * 16), i, (BrokerId(1),), (BrokerId(1),)) for i in range(5)),
]


def write(path: Path) -> MetadataImage:
    """Write a snapshot that is replaced, a snapshot, an entry without records and one in several parts."""
    with BackupWriter(path, "c") as writer:
        writer.add(5, 1, b"", is_continued=False, is_snapshot=True)
        writer.begin_snapshot()
        for batch in encode_batches(IMAGE.iterate_records(), max_bytes=40):
            writer.add(10, 3, batch, is_continued=False, is_snapshot=True)
        writer.add(11, 4, b"", is_continued=False, is_snapshot=False)
        parts = list(cut_batch(encode_batch(FOLLOWING), max_bytes=60))
        assert len(parts) > 1
        for number, batch in enumerate(parts, 1):
            writer.add(12, 4, batch, is_continued=number < len(parts), is_snapshot=False)
        described = writer.finish(12, 4)
    assert (described.cluster_id, described.offset, described.epoch) == ("c", 12, 4)
    return IMAGE.apply(12, 4, FOLLOWING)


def test_backup_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    image = write(path)
    described, found = read_backup(path)
    assert found == image
    assert (described.cluster_id, described.offset, described.epoch) == ("c", 12, 4)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_incomplete_backup_leaves_the_former_file(tmp_path: Path) -> None:
    path = tmp_path / "backup"
    path.write_text("former")
    with pytest.raises(ZeroDivisionError), BackupWriter(path, "c"):
        raise ZeroDivisionError
    assert path.read_text() == "former"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(TidelogError, match="cannot write"):
        BackupWriter(tmp_path / "missing" / "backup", "c")


@given(st.floats(0, 1, exclude_max=True), st.none() | st.integers(0, 7))
def test_damage_anywhere_is_noticed(
    tmp_path_factory: pytest.TempPathFactory, place: float, flipped_bit: int | None
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged-backup"
    write(path)
    content = bytearray(path.read_bytes())
    position = int(place * len(content))
    if flipped_bit is None:
        del content[position:]
    else:
        content[position] ^= 1 << flipped_bit
    path.write_bytes(content)
    with pytest.raises(TidelogError) as refused:
        read_backup(path)
    assert refused.value.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_VERSION)


def test_file_that_is_no_backup_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other"
    path.write_text("node.id=1\n")
    with pytest.raises(TidelogError, match="is not a backup of a metadata log"):
        read_backup(path)
    with pytest.raises(TidelogError, match="cannot read"):
        read_backup(tmp_path / "missing")
