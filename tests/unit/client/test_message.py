"""Message and its reader as Python and as their compiled twins: the same answers for the same batches and parts."""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog import _pure_message as pure
from tidelog.consumer import _pure_message_reader as pure_reader
from tidelog_foundation.errors import TidelogError
from tidelog_foundation.records import (
    COMPILED,
    ControlType,
    RecordBatchBuilder,
    assign_offsets,
    control_batch,
    encode_batch,
    iter_headers,
)

PARTS = (
    "topic",
    "partition",
    "offset",
    "key",
    "value",
    "deserialized_key",
    "deserialized_value",
    "headers",
    "timestamp",
    "error",
    "latency",
    "leader_epoch",
)
CONTENT = st.none() | st.binary(max_size=5)
HEADERS = st.lists(st.tuples(st.text(max_size=3), CONTENT), max_size=3)
RECORDS = st.lists(st.tuples(CONTENT, CONTENT, HEADERS, st.integers(-1, 2**62)), min_size=1, max_size=6)
BATCHES = st.lists(
    st.fixed_dictionaries(
        {
            "records": RECORDS,
            "copies": st.sampled_from([1, 1, 1, 30, 300]),
            "codec": st.sampled_from(["none", "none", "gzip", "snappy", "lz4", "zstd"]),
            "producer": st.sampled_from([-1, -1, 7, 8]),
            "marker": st.sampled_from([None, None, None, ControlType.ABORT, ControlType.COMMIT]),
            "gap": st.integers(0, 2),
            "epoch": st.sampled_from([-1, 0, 5]),
            "append_ms": st.none() | st.integers(0, 2**40),
            "damage": st.sampled_from([None] * 8 + ["crc", "body", "extra", "count", "codec"]),
        }
    ),
    max_size=4,
)
CHANGES = st.lists(
    st.tuples(st.just("set_key"), st.integers())
    | st.tuples(st.just("set_value"), CONTENT | st.text(max_size=3))
    | st.tuples(st.just("set_headers"), st.none() | HEADERS)
    | st.tuples(st.just("set_topic"), st.text(max_size=3))
    | st.tuples(st.just("set_error"), st.none() | st.just("an error")),
    max_size=3,
)


@pytest.fixture(scope="module")
def fast() -> Any:
    if not COMPILED:
        pytest.skip("the pure engine is selected")
    return pytest.importorskip("tidelog._fast_message")


@pytest.fixture(scope="module")
def readers(fast: Any) -> Iterator[list[Any]]:
    compiled = pytest.importorskip("tidelog.consumer._fast_message_reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pure_reader, "Message", pure.Message)
        yield [pure_reader, compiled]


def observed(message: Any) -> list[Any]:
    return [getattr(message, part)() for part in PARTS] + [len(message), bool(message), repr(message)]


def encoded(batches: list[dict[str, Any]]) -> bytes:
    """Return the batches one behind the other, some of them damaged in a way that the CRC shows or does not show."""
    parts, offset = [], 3
    for batch in batches:
        builder = RecordBatchBuilder(batch["codec"])
        for key, value, headers, timestamp_ms in batch["records"] * batch["copies"]:
            builder.append(key, value, headers, timestamp_ms)
        producer = batch["producer"]
        made = builder.build(producer, 0 if producer >= 0 else -1, 0 if producer >= 0 else -1, producer >= 0)
        data = bytearray(damaged(bytes(made), batch["damage"]))
        assign_offsets(data, offset, batch["epoch"], batch["append_ms"])
        if batch["damage"] == "crc":
            data[-1] ^= 1
        parts.append(bytes(data))
        offset += len(batch["records"]) * batch["copies"] + batch["gap"]
        if batch["marker"] is not None and producer >= 0:
            marker = bytearray(control_batch(batch["marker"], producer, 0, 0, 1))
            assign_offsets(marker, offset, batch["epoch"])
            parts.append(bytes(marker))
            offset += 1
    return b"".join(parts)


def damaged(batch: bytes, damage: str | None) -> bytes:
    [(_, header)] = iter_headers(batch)
    records = batch[61:]
    match damage:
        case "body":
            return encode_batch(header, records[:-1] + bytes([records[-1] ^ 0x55]))
        case "extra":
            return encode_batch(header, records + b"\0")
        case "count":
            return encode_batch(header._replace(record_count=header.record_count + 1), records)
        case "codec":
            return encode_batch(header._replace(attributes=header.attributes | 7), records)
    return batch


def read_all(reader: Any, sizes: list[int]) -> list[Any]:
    """Return everything that a reader tells, with one call after the other of these sizes and then until its end."""
    told: list[Any] = []
    for size in [*sizes, *[200] * 50]:
        try:
            found = reader.read(size)
        except TidelogError as error:
            told.append((error.code, str(error)))
            break
        told.append([observed(message) for message in found])
        told.append((reader.next_offset, reader.leader_epoch))
        if not found and size:
            break
    return told


@settings(max_examples=examples(200))
@given(
    batches=BATCHES,
    aborted=st.sampled_from([(), (), ((7, 0),), ((7, 0), (8, 5)), ((7, 9),)]),
    start=st.integers(0, 20),
    sizes=st.lists(st.integers(0, 5) | st.integers(100, 400), max_size=4),
    torn=st.integers(0, 80),
)
def test_twins_read_the_same_messages_and_errors_from_any_batches(
    readers: list[Any],
    batches: list[dict[str, Any]],
    aborted: tuple[tuple[int, int], ...],
    start: int,
    sizes: list[int],
    torn: int,
) -> None:
    data = encoded(batches)
    data = data[: len(data) - torn] if torn % 3 == 0 else data
    told = [read_all(twin.MessageReader("t", 3, data, aborted, start), sizes) for twin in readers]
    assert told[0] == told[1]


@given(records=RECORDS, epoch=st.integers(-1, 5), changes=CHANGES, is_seen=st.booleans())
def test_twins_tell_the_same_of_read_records_whatever_was_set(
    readers: list[Any], records: list[Any], epoch: int, changes: list[tuple[str, Any]], is_seen: bool
) -> None:
    builder = RecordBatchBuilder()
    for key, value, headers, timestamp_ms in records:
        builder.append(key, value, headers, timestamp_ms)
    data = bytearray(builder.build())
    assign_offsets(data, 5, epoch)
    told = []
    for twin in readers:
        messages = twin.MessageReader("t", 3, bytes(data), (), 0).read(10)
        for message in messages:
            if is_seen:
                observed(message)
            for name, value in changes:
                getattr(message, name)(value)
        told.append([observed(message) for message in messages])
    assert told[0] == told[1]


def test_twins_read_no_message_of_a_large_batch_that_is_malformed_behind_its_first_records(readers: list[Any]) -> None:
    builder = RecordBatchBuilder()
    builder.extend([b"v"] * 1000, None, 1)
    data = damaged(builder.build(), "extra")
    for twin in readers:
        reader = twin.MessageReader("t", 0, data, (), 0)
        for _ in range(2):
            with pytest.raises(TidelogError):
                reader.read(5)
        assert reader.next_offset == 0


class Attached:
    """A value that refers to its message."""

    def __init__(self, message: object) -> None:
        self.message = message


@pytest.mark.parametrize("setter", ["set_value", "set_key", "set_error", "set_topic", "set_headers"])
def test_message_that_was_read_and_refers_to_itself_is_collected(readers: list[Any], setter: str) -> None:
    builder = RecordBatchBuilder()
    builder.append(None, b"v", [], 1)
    [message] = readers[1].MessageReader("t", 0, builder.build(), (), 0).read(1)
    assert not gc.is_tracked(message)
    value = Attached(message)
    is_there = weakref.ref(value)
    getattr(message, setter)(value)
    del message, value
    gc.collect()
    assert is_there() is None


def test_message_that_is_one_of_its_own_headers_is_collected(readers: list[Any]) -> None:
    builder = RecordBatchBuilder()
    builder.append(None, b"v", [("h", b"v")], 1)
    [message] = readers[1].MessageReader("t", 0, builder.build(), (), 0).read(1)
    value = Attached(message)
    is_there = weakref.ref(value)
    message.headers().append(value)
    del message, value
    gc.collect()
    assert is_there() is None


@given(parts=st.lists(st.none() | st.integers() | st.binary(max_size=3), max_size=5))
def test_twins_tell_the_same_of_messages_that_are_made_of_parts(fast: Any, parts: list[Any]) -> None:
    [one, other] = [twin.Message(*parts, headers=[("h", b"v")], timestamp=(1, 5), latency=0.5) for twin in (pure, fast)]
    assert [getattr(one, part)() for part in PARTS] == [getattr(other, part)() for part in PARTS]


@pytest.mark.parametrize("twin", [0, 1], ids=["pure", "compiled"])
def test_message_survives_pickle_and_its_headers_are_one_list(readers: list[Any], twin: int) -> None:
    builder = RecordBatchBuilder()
    builder.append(b"k", b"v", [("h", None)], 1000)
    [message] = readers[twin].MessageReader("t", 3, builder.build(), (), 0).read(10)
    message.headers().append(("more", b"1"))
    again = pickle.loads(pickle.dumps(message))
    assert again.headers() == [("h", None), ("more", b"1")]
    assert observed(again) == observed(message)
