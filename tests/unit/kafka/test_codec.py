"""The codec by its rules: versions, nulls, tagged fields, and bytes that lie."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog_node.kafka.protocol.codec import decode, encode
from tidelog_node.kafka.protocol.fields import STRING, Message, Structure, array, data, int8, int32, string, structure
from tidelog_node.kafka.protocol.reader import MAX_ELEMENTS, MalformedMessageError, Reader
from tidelog_node.kafka.protocol.writer import Writer


class Part(Structure):
    number: int = int8()
    later: str = string(since=1)


class Sample(Message, api=0, versions=(0, 3), flexible=2):
    name: str | None = string(nullable=1)
    parts: list[Part] | None = array(Part, nullable=3)
    words: list[str] = array(STRING, until=1)
    blob: bytes | None = data(nullable=0)
    maybe: Part | None = structure(Part, since=3, nullable=3)
    tagged: int = int32(default=-1, tag=0, since=2)
    also: Part | None = structure(Part, tag=4, since=2, nullable=2)


def written(message: Message, version: int) -> bytes:
    writer = Writer()
    encode(message, writer, version)
    return b"".join(writer.chunks())


def read(encoded: bytes, version: int) -> Sample:
    return decode(Sample, Reader(memoryview(encoded)), version)


def test_fields_that_a_version_does_not_have_are_left_out_and_keep_their_defaults() -> None:
    sample = Sample("a", [Part(1, "x")], ["w"], b"b", Part(2), 7, Part(3))
    assert read(written(sample, 0), 0) == Sample("a", [Part(1)], ["w"], b"b")
    assert read(written(sample, 1), 1) == Sample("a", [Part(1, "x")], ["w"], b"b")
    assert read(written(sample, 2), 2) == Sample("a", [Part(1, "x")], [], b"b", None, 7, Part(3))
    assert read(written(sample, 3), 3) == Sample("a", [Part(1, "x")], [], b"b", Part(2), 7, Part(3))


def test_nulls_are_written_where_the_version_has_them_and_refused_elsewhere() -> None:
    sample = Sample(None, None, [], None, None)
    assert read(written(sample, 3), 3) == sample
    with pytest.raises(ValueError, match=r"Sample\.name: null is not allowed in this version"):
        written(sample, 0)
    with pytest.raises(ValueError, match=r"Sample\.parts: null"):
        written(sample, 2)
    with pytest.raises(MalformedMessageError, match="invalid length -1 before byte 2"):
        read(b"\xff\xff" + bytes(20), 0)


def test_tagged_fields_with_their_defaults_are_not_written() -> None:
    assert written(Sample("", [], [], b""), 2) == b"\1\1\1\0"


def test_unknown_tagged_fields_are_skipped_in_every_struct() -> None:
    part = b"\5\2x" + b"\1\x09\2zz"
    assert read(b"\2a" + b"\2" + part + b"\1" + b"\2\0\4\0\0\0\7\x63\1z", 2) == Sample(
        "a", [Part(5, "x")], [], b"", None, 7
    )


def test_tagged_field_must_have_the_size_that_it_announces() -> None:
    with pytest.raises(MalformedMessageError, match="tagged field 0"):
        read(b"\1\1\1" + b"\1\0\5\0\0\0\7\0", 2)


def test_numbers_out_of_range_are_the_callers_error() -> None:
    with pytest.raises(struct.error):
        written(Sample("a", [Part(200)], [], b""), 1)


def test_large_values_are_written_by_reference() -> None:
    blob = memoryview(bytes(100_000))
    writer = Writer()
    encode(Sample("a", [], [], blob), writer, 1)  # type: ignore[arg-type]
    assert any(chunk is blob for chunk in writer.chunks())


def test_counts_are_held_against_the_bytes_that_remain() -> None:
    with pytest.raises(MalformedMessageError, match=r"array before byte .* has 2147483647 elements"):
        read(b"\0\1a" + b"\x7f\xff\xff\xff" + bytes(100), 0)


def test_elements_of_all_arrays_together_are_bounded() -> None:
    half = MAX_ELEMENTS // 2 + 1
    parts = struct.pack(">i", half) + bytes(half)
    words = struct.pack(">i", half) + bytes(2 * half)
    with pytest.raises(
        MalformedMessageError, match=f"array before byte .* has {half} elements, at most {MAX_ELEMENTS - half}"
    ):
        read(b"\0\1a" + parts + words + bytes(4), 0)


def test_varints_end_after_five_bytes() -> None:
    with pytest.raises(MalformedMessageError, match="more than five bytes"):
        Reader(memoryview(b"\xff" * 10)).unsigned_varint()


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="not UTF-8"):
        read(b"\0\2\xff\xfe" + bytes(12), 0)


@given(st.binary(max_size=200), st.integers(0, 3))
def test_no_bytes_do_more_than_be_refused(encoded: bytes, version: int) -> None:
    try:
        message = read(encoded, version)
    except MalformedMessageError:
        return
    assert read(written(message, version), version) == message


@pytest.mark.parametrize("size", [1, 15, 17])
def test_a_uuid_of_another_length_is_not_written(size: int) -> None:
    with pytest.raises(ValueError, match=f"a UUID has 16 bytes, not {size}"):
        Writer().uuid(bytes(size))
