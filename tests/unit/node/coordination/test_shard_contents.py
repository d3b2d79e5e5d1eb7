"""A shard's view has the committed records alone, and a load from its position gives the same as the whole log."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from tidelog_foundation.records import ControlType, RecordBatchBuilder, assign_offsets, control_batch
from tidelog_node.coordination.log_tail import apply_batches
from tidelog_node.coordination.shard_contents import MAX_HELD_RECORDS, ShardContents
from tidelog_node.coordination.view_layout import ShardName, ViewPosition
from tidelog_node.groups.records import OffsetCommitKey, encode_key
from tidelog_node.shards.events import ShardRecord
from tidelog_testing.memory_view import MemoryShard

GROUPS = ("a", "b")
KEYS = [encode_key(OffsetCommitKey(group, "t", partition)) for group in GROUPS for partition in range(2)]
NAME = ShardName(0, b"0123456789abcdef")


@dataclass
class Entry:
    """A batch of the log: data of a transaction, data outside, or a marker."""

    offset: int
    records: list[ShardRecord]
    producer_id: int = -1
    committed: bool | None = None

    @property
    def end(self) -> int:
        return self.offset + max(1, len(self.records))

    def encode(self) -> bytes:
        if self.committed is not None:
            kind = ControlType.COMMIT if self.committed else ControlType.ABORT
            batch = control_batch(kind, self.producer_id, 0, 0, 1_000)
        else:
            builder = RecordBatchBuilder()
            for record in self.records:
                builder.append(record.key, record.value, (), 1_000)
            is_transactional = self.producer_id >= 0
            epoch = 0 if is_transactional else -1
            batch = builder.build(self.producer_id, epoch, is_transactional=is_transactional)
        assigned = bytearray(batch)
        assign_offsets(assigned, self.offset, 4)
        return bytes(assigned)


def expected(log: list[Entry]) -> tuple[dict[bytes, bytes], dict[str, set[bytes]]]:
    """Return the committed values, and the keys in open transactions by group, from the whole log."""
    found: dict[bytes, tuple[int, bytes | None]] = {}
    opened: dict[int, dict[bytes, tuple[int, bytes | None]]] = {}
    for entry in log:
        if entry.committed is not None:
            for key, (offset, value) in opened.pop(entry.producer_id, {}).items():
                if entry.committed and found.get(key, (-1, None))[0] < offset:
                    found[key] = (offset, value)
            continue
        target = found if entry.producer_id < 0 else opened.setdefault(entry.producer_id, {})
        for place, record in enumerate(entry.records):
            target[record.key] = (entry.offset + place, record.value)
    pending: dict[str, set[bytes]] = {}
    for own in opened.values():
        for key, (offset, _) in own.items():
            if found.get(key, (-1, None))[0] < offset:
                pending.setdefault(GROUPS[KEYS.index(key) // 2], set()).add(key)
    return {key: value for key, (_, value) in found.items() if value is not None}, pending


def check(contents: ShardContents, log: list[Entry]) -> None:
    values, pending = expected(log)
    assert {r.key: r.value for group in GROUPS for r in contents.records_of(group)} == values
    assert {group: set(contents.pending_of(group)) for group in GROUPS if contents.pending_of(group)} == pending
    contents.check_invariants()


@pytest.mark.parametrize("seed", range(120))
def test_records_of_a_shard_are_those_of_its_log_however_often_it_is_loaded(seed: int) -> None:
    rng = random.Random(seed)
    max_held = (0, 5, 30, MAX_HELD_RECORDS)[seed % 4]
    log: list[Entry] = []
    store = MemoryShard(NAME)
    contents = ShardContents(store, ViewPosition(0, -1, 0), max_held)
    for _ in range(120):
        offset = log[-1].end if log else 0
        producer_id = rng.choice((-1, -1, 1, 2, 3))
        committed = rng.choice((True, False)) if producer_id >= 0 and rng.random() < 0.4 else None
        records = [
            ShardRecord(key, rng.choice((None, b"%d" % offset)) if producer_id < 0 else b"%d" % offset)
            for key in rng.sample(KEYS, rng.randint(1, 3))
        ]
        entry = Entry(offset, [] if committed is not None else records, producer_id, committed)
        log.append(entry)
        after = ViewPosition(entry.end, 4, 7)
        if rng.random() < 0.3:
            assert apply_batches(contents, entry.encode(), 7) == entry.end
        elif committed is not None:
            contents.end(producer_id, after, committed=committed)
        elif producer_id >= 0:
            contents.add(producer_id, offset, records, after)
        else:
            contents.apply(records, after)
        check(contents, log)
        if rng.random() < 0.1:
            position = store.position()
            begin = 0 if position is None else position.offset
            read = [entry.encode() for entry in log if entry.offset >= begin]
            if rng.random() < 0.3:
                # The load is interrupted.
                interrupted = ShardContents(store, ViewPosition(begin, 4, 0), max_held)
                apply_batches(interrupted, b"".join(read[: rng.randint(0, len(read))]), 7)
                position = store.position()
                begin = 0 if position is None else position.offset
                read = [entry.encode() for entry in log if entry.offset >= begin]
            contents = ShardContents(store, ViewPosition(begin, 4, 0), max_held)
            assert apply_batches(contents, b"".join(read), 7) in (log[-1].end, begin)
            check(contents, log)


def test_position_of_the_view_stays_before_the_first_open_transaction() -> None:
    store = MemoryShard(NAME)
    contents = ShardContents(store, ViewPosition(0, -1, 0))
    record = ShardRecord(KEYS[0], b"v")

    def position() -> tuple[int, int, int]:
        found = store.position()
        assert found is not None
        return (found.offset, found.leader_epoch, found.written_ms)

    contents.apply((record,), ViewPosition(1, 4, 10))
    contents.add(7, 1, (record,), ViewPosition(2, 5, 11))
    contents.apply((record,), ViewPosition(3, 5, 12))
    assert position() == (1, 4, 12)
    contents.add(8, 3, (record,), ViewPosition(4, 5, 13))
    contents.end(7, ViewPosition(5, 5, 14), committed=True)
    assert position() == (3, 5, 14)
    contents.end(8, ViewPosition(6, 6, 15), committed=False)
    assert position() == (6, 6, 15)


def test_transaction_that_stays_open_does_not_lengthen_the_loads_of_its_shard() -> None:
    store = MemoryShard(NAME)
    contents = ShardContents(store, ViewPosition(0, -1, 0), max_held_records=10)
    contents.add(7, 0, (ShardRecord(KEYS[0], b"prepared"), ShardRecord(KEYS[1], b"superseded")), ViewPosition(2, 4, 1))
    for offset in range(2, 100):
        contents.apply((ShardRecord(KEYS[1], b"%d" % offset),), ViewPosition(offset + 1, 4, 2))
        contents.check_invariants()
    position = store.position()
    assert position is not None
    assert position.offset == 100
    assert contents.pending_of("a") == {KEYS[0]: 1}.keys()

    again = ShardContents(store, position, max_held_records=10)
    assert again.pending_of("a") == {KEYS[0]: 1}.keys()
    assert again.end(7, ViewPosition(101, 4, 3), committed=True) == {"a"}
    assert again.records_of("a") == [ShardRecord(KEYS[0], b"prepared"), ShardRecord(KEYS[1], b"99")]
    again.check_invariants()
    assert list(store.pending()) == []
