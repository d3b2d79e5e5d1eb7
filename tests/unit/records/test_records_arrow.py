"""Decoding to Arrow columns: the same rows as the record objects, within the asked offsets."""

from __future__ import annotations

import builtins
import struct
from types import ModuleType
from typing import Any

import pyarrow
import pytest
from crc32c import crc32c
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.records import CODECS, RecordBatchBuilder, assign_offsets, iter_headers, read_records, to_arrow

contents = st.one_of(st.none(), st.binary(max_size=60))
records = st.lists(
    st.tuples(
        contents, contents, st.lists(st.tuples(st.text(max_size=9), contents), max_size=3), st.integers(0, 2**50)
    ),
    min_size=1,
    max_size=20,
)
batches = st.lists(st.tuples(records, st.sampled_from(CODECS), st.sampled_from([None, 77])), max_size=4)
SCHEMA = pyarrow.schema(
    [
        ("key", pyarrow.binary()),
        ("value", pyarrow.binary()),
        ("offset", pyarrow.int64()),
        ("timestamp_ms", pyarrow.int64()),
        ("timestamp_type", pyarrow.int32()),
    ]
)


def log_of(groups: Any, base_offset: int = 0) -> bytearray:
    log = bytearray()
    for rows, codec, append_time_ms in groups:
        builder = RecordBatchBuilder(codec)
        for row in rows:
            builder.append(*row)
        batch = bytearray(builder.build())
        assign_offsets(batch, base_offset, 1, append_time_ms)
        base_offset += len(rows)
        log += batch
    return log


def rows_of(log: bytearray, start_offset: int, end_offset: int) -> list[dict[str, Any]]:
    return [
        {
            "key": r.key,
            "value": r.value,
            "offset": r.offset,
            "timestamp_ms": r.timestamp_ms,
            "timestamp_type": r.timestamp_type,
            "headers": [{"key": name, "value": content} for name, content in r.headers],
        }
        for position, _ in iter_headers(log)
        for r in read_records(log, position)
        if start_offset <= r.offset < end_offset
    ]


@settings(max_examples=examples(60), deadline=None)
@given(groups=batches, start_offset=st.integers(990, 1040), length=st.integers(0, 60), tail=st.integers(0, 60))
def test_rows_equal_the_records_in_range(
    engine: ModuleType, groups: Any, start_offset: int, length: int, tail: int
) -> None:
    log = log_of(groups, 1000)
    end_offset = start_offset + length
    expected = rows_of(log, start_offset, end_offset)
    for include_headers in (False, True):
        decoded = to_arrow(log + log[:tail], start_offset, end_offset, include_headers)
        decoded.validate(full=True)
        assert decoded.schema.names == SCHEMA.names + ["headers"] * include_headers
        names = decoded.schema.names
        assert decoded.to_pylist() == [{name: row[name] for name in names} for row in expected]


def test_schema_has_the_stated_types(engine: ModuleType) -> None:
    assert to_arrow(b"", 0, 10).schema == SCHEMA
    headers = to_arrow(b"", 0, 10, include_headers=True).schema.field("headers").type
    assert headers == pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())]))


def test_columns_keep_their_bytes_when_the_source_goes_away(engine: ModuleType) -> None:
    log = log_of([([(b"k%d" % i, b"v%d" % i, [], i) for i in range(5000)], "none", None)])
    decoded = to_arrow(log, 0, 5000)
    log[:] = bytes(len(log))
    assert decoded.column("value").to_pylist() == [b"v%d" % i for i in range(5000)]


def test_control_batch_is_left_out(engine: ModuleType) -> None:
    log = log_of([([(None, b"data", [], 1)], "none", None), ([(b"\0\0\0\1", b"\0" * 6, [], 1)], "none", None)])
    position = [position for position, _ in iter_headers(log)][1]
    struct.pack_into(">h", log, position + 21, 0x30)
    struct.pack_into(">I", log, position + 17, crc32c(bytes(log[position + 21 :])))
    assert to_arrow(log, 0, 10).column("value").to_pylist() == [b"data"]


def test_batch_is_not_decoded_outside_of_the_range(engine: ModuleType) -> None:
    log = log_of([([(None, b"%d" % i, [], i)], "none", None) for i in range(3)])
    log[-1] ^= 1
    assert to_arrow(log, 0, 2).num_rows == 2
    with pytest.raises(CorruptRecordError, match="batch at offset 2: expected CRC"):
        to_arrow(log, 0, 3)


def test_header_key_is_valid_text_when_its_bytes_are_not(engine: ModuleType) -> None:
    log = log_of([([(None, None, [("abc", b"x")], 1)], "none", None)])
    place = log.index(b"abc")
    log[place : place + 3] = b"a\xff\xc3"
    struct.pack_into(">I", log, 17, crc32c(bytes(log[21:])))
    decoded = to_arrow(log, 0, 1, include_headers=True)
    decoded.validate(full=True)
    ((name, _),) = read_records(log)[0].headers
    assert decoded.column("headers").to_pylist() == [[{"key": name, "value": b"x"}]]
    assert name == "a\ufffd\ufffd"


def test_error_names_the_extra_when_pyarrow_is_missing(engine: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def without_pyarrow(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "pyarrow":
            raise ModuleNotFoundError("No module named 'pyarrow'")
        return real_import(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_pyarrow)
    with pytest.raises(ModuleNotFoundError, match=r"pip install tidelog\[spark\]"):
        to_arrow(b"", 0, 1)
