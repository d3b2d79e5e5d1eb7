"""The compiled short ways of appends leave the same log, in memory and on the disk, as the way of the appender."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from appends import without_short_appends
from example_counts import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_batches import produced_batch

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import RecordBatchBuilder, assign_offsets
from tidelog_node.log import LogConfig, PartitionLog, short_append

pytestmark = pytest.mark.skipif(not short_append.IS_COMPILED, reason="the short ways are not compiled")

NOW_MS = 1_000_000
LARGEST = 2**63 - 1
BATCHES = st.builds(
    dict,
    count=st.integers(1, 4),
    size=st.sampled_from((0, 10, 100, 700)),
    time=st.sampled_from((NOW_MS, NOW_MS, NOW_MS - 1, NOW_MS + 3, NOW_MS + 400, NOW_MS - 900, -1, -2, 0)),
    has_keys=st.booleans(),
    codec=st.sampled_from(("none", "none", "none", "lz4")),
    producer=st.one_of(
        st.just((-1, -1, -1)), st.tuples(st.integers(1, 2), st.integers(0, 1), st.sampled_from((0, 0, 1, 2, 3, 4, 8)))
    ),
    is_transactional=st.sampled_from((False, False, False, True)),
    change=st.one_of(st.none(), st.none(), st.none(), st.tuples(st.integers(0, 90), st.integers(0, 255))),
    is_view=st.sampled_from((True, True, True, False)),
    epoch=st.sampled_from((0, 0, 0, 0, 1)),
    gap=st.sampled_from((0, 0, 0, 2)),
)
STEPS = st.one_of(
    st.tuples(st.sampled_from(("leader", "leader", "leader", "follower")), st.lists(BATCHES, min_size=1, max_size=3)),
    st.tuples(st.sampled_from(("roll", "truncate", "start", "flush", "offline")), st.integers(0, 12)),
)
CONFIGS = st.builds(
    LogConfig,
    segment_bytes=st.sampled_from((600, 1_000, 1 << 20)),
    segment_ms=st.sampled_from((500, LARGEST)),
    index_interval_bytes=st.sampled_from((0, 100, 4096)),
    segment_index_bytes=st.sampled_from((24, 1024)),
    max_message_bytes=st.sampled_from((300, 1 << 20)),
    message_timestamp_type=st.sampled_from(("CreateTime", "CreateTime", "CreateTime", "LogAppendTime")),
    message_timestamp_before_max_ms=st.sampled_from((200, LARGEST)),
    message_timestamp_after_max_ms=st.sampled_from((100, LARGEST)),
    compression_type=st.sampled_from(("producer", "producer", "uncompressed", "lz4")),
    cleanup_policy=st.sampled_from((("delete",), ("compact",))),
    flush_messages=st.sampled_from((1, 3, LARGEST)),
)
PLAIN = {
    "count": 1,
    "size": 10,
    "time": NOW_MS,
    "has_keys": True,
    "codec": "none",
    "producer": (-1, -1, -1),
    "is_transactional": False,
    "change": None,
    "is_view": True,
    "epoch": 0,
    "gap": 0,
}


def encoded(batch) -> bytearray:
    builder = RecordBatchBuilder(batch["codec"])
    for _ in range(batch["count"]):
        builder.append(b"k" if batch["has_keys"] else None, b"v" * batch["size"], (), max(batch["time"], -1))
    is_transactional = batch["is_transactional"] and batch["producer"][0] >= 0
    data = bytearray(builder.build(*batch["producer"], is_transactional=is_transactional))
    if batch["change"] is not None and batch["change"][0] < len(data):
        data[batch["change"][0]] = batch["change"][1]
    return data


def run_step(log: PartitionLog, kind: str, argument) -> object:
    """Execute a step, and return its result or its error."""
    try:
        if kind == "leader":
            results = []
            for batch in argument:
                data = encoded(batch)
                records = memoryview(data) if batch["is_view"] else bytes(data)
                # A partition tries the short way before it calls the log.
                short = short_append.append_as_leader(log, records, batch["epoch"], NOW_MS)
                results.append(short or log.append_as_leader(records, batch["epoch"], NOW_MS))
            return results
        if kind == "follower":
            offset, records = log.log_end_offset, bytearray()
            for batch in argument:
                data = encoded(batch)
                assign_offsets(data, offset + batch["gap"], batch["epoch"])
                offset += batch["gap"] + batch["count"]
                records += data
            return log.append_as_follower(bytes(records), NOW_MS)
        if kind == "roll":
            return log.roll(NOW_MS)
        if kind == "truncate":
            return log.truncate_to(max(log.log_start_offset, log.log_end_offset - argument))
        if kind == "start":
            return log.advance_log_start_offset(min(argument, log.log_end_offset))
        if kind == "flush":
            return log.flush()
        return log.go_offline(error_for(ErrorCode.KAFKA_STORAGE_ERROR, "offline")) if argument > 10 else None
    except TidelogError as error:
        return error.code, error.message.replace(str(log.directory), "the log")


def state_of(log: PartitionLog) -> object:
    segment = log._local.segments.active
    growing = segment.indexes.growing
    return (
        (log.log_start_offset, log.log_end_offset, log.recovery_point, log.epoch_entries, log._unflushed_since_ms),
        (segment.base_offset, segment.next_offset, segment.size, segment.first_timestamp, segment._tail),
        growing and (growing.max_timestamp, growing.offset_of_max_timestamp, growing._bytes_since_entry),
        [
            (each.base_offset, each.indexes.lookup()[0].entries(), each.indexes.lookup()[1].entries())
            for each in log._local.segments
        ],
        sorted(map(str, log.active_producers())),
        log.failure is None and log.read(log.log_start_offset, 1 << 20, log.log_end_offset),
    )


def history(folder: Path, config: LogConfig, steps) -> list[object]:
    log = PartitionLog.open(folder / "t-0", config)
    found: list[object] = []
    for kind, argument in steps:
        found += [run_step(log, kind, argument), state_of(log)]
    with contextlib.suppress(TidelogError):
        log.close()
    return [*found, *(each.read_bytes() for each in sorted((folder / "t-0").iterdir()) if each.suffix == ".log")]


@settings(max_examples=examples(300), deadline=None)
@given(config=CONFIGS, steps=st.lists(STEPS, min_size=1, max_size=12))
@example(config=LogConfig(), steps=[("leader", [PLAIN] * 3), ("follower", [PLAIN] * 3)] * 3)
def test_short_append_equals_the_append_of_many_steps(config, steps, tmp_path_factory) -> None:
    with pytest.MonkeyPatch.context() as patch:
        without_short_appends(patch)
        expected = history(tmp_path_factory.mktemp("general"), config, steps)
    assert history(tmp_path_factory.mktemp("short"), config, steps) == expected


@pytest.mark.parametrize("producer", [(-1, -1, -1), (7, 0, 3)])
def test_plain_batches_take_the_short_way(producer, tmp_path) -> None:
    log = PartitionLog.open(tmp_path / "t-0", LogConfig())
    log.append_as_leader(produced_batch(b"first", timestamp_ms=NOW_MS), 4, NOW_MS)
    batch = memoryview(bytearray(produced_batch(b"a", b"b", timestamp_ms=NOW_MS, producer=producer)))
    info = short_append.append_as_leader(log, batch, 4, NOW_MS)
    assert (info.first_offset, info.last_offset, info.size_in_bytes, info.last_leader_epoch) == (1, 2, len(batch), 4)
    copies = bytearray(produced_batch(b"c", timestamp_ms=NOW_MS, producer=(*producer[:2], max(-1, producer[2] + 2))))
    assign_offsets(copies, 3, 4)
    assert short_append.append_as_follower(log, bytes(copies), NOW_MS).last_offset == log.log_end_offset - 1 == 3
    log.close()


def test_failed_write_leaves_the_batch_as_the_producer_sent_it(tmp_path) -> None:
    log = PartitionLog.open(tmp_path / "t-0", LogConfig())
    log.append_as_leader(produced_batch(b"first", timestamp_ms=NOW_MS), 4, NOW_MS)
    handle = log._local.segments.active._batches._handle
    data = produced_batch(b"a", timestamp_ms=NOW_MS)
    batch = memoryview(bytearray(data))
    log._local.segments.active._batches._handle = 1_000_000
    assert short_append.append_as_leader(log, batch, 4, NOW_MS) is None
    assert (bytes(batch), log.log_end_offset) == (data, 1)
    log._local.segments.active._batches._handle = handle
    log.close()
