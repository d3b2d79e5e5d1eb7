"""Almost valid record batches: valid ones of every codec, mutated so that the change reaches the decoder.

A :class:`Mutator` is seeded and reproducible. Most mutants have a valid CRC and batch length, because a decoder sees no
others; the rest keep invalid ones.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from crc32c import crc32c

from tidelog_foundation.records import (
    CODECS,
    HEADER_SIZE,
    RecordBatchBuilder,
    control_batch,
    encode_batch,
    parse_header,
)
from tidelog_foundation.records.compression import check_level, compress

_INTERESTING = (0, 1, 2, 3, 7, 63, 64, 127, 128, 255, 2**15 - 1, 2**16, 2**28, 2**31 - 1, -1, -2, -128, -(2**31))
_VARINTS = (
    *(b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80", b"\x80\x00", b"\x80" * 4 + b"\x00"),
    *(b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\x0f", b"\xff" * 5, b"\xff" * 10),
    *(b"\xff" * 9 + b"\x01", b"\xfe" + b"\xff" * 8 + b"\x01"),
)
_HEADER_FIELDS = (
    *((8, ">i"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q")),
    *((43, ">q"), (51, ">h"), (53, ">i"), (57, ">i")),
)


def corpus() -> list[bytes]:
    """Return valid batches: each codec with small, mixed and repetitive records, transactions, markers, append time."""
    batches = [control_batch(kind, 7, 1, 3, 1000) for kind in (0, 1)]
    for codec in CODECS:
        batches += [_mixed(codec), _repetitive(codec), _tiny(codec)]
    mixed = _mixed("none")
    for attributes in (0x08, 0x10, 0x40, 0x58):
        batches.append(encode_batch(parse_header(mixed)._replace(attributes=attributes), mixed[HEADER_SIZE:]))
    return batches


class Mutator:
    """A generator of mutated batches from a corpus."""

    def __init__(self, batches: list[bytes], seed: int) -> None:
        self._batches = batches
        self._random = random.Random(seed)
        self._changes: list[Callable[[bytearray], None]] = [
            self._flip_bits,
            self._set_bytes,
            self._cut,
            self._remove,
            self._repeat,
            self._splice,
            self._put_varint,
            self._put_length,
        ]

    def mutant(self) -> bytes:
        """Return the next batch."""
        batch = bytearray(self._random.choice(self._batches))
        if self._random.random() < 0.35:
            batch = self._changed_below_compression(batch)
        else:
            section = bytearray(batch[HEADER_SIZE:])
            self._change(section)
            batch = batch[:HEADER_SIZE] + section
        if self._random.random() < 0.3:
            self._change_header(batch)
        self._settle(batch)
        if self._random.random() < 0.05:
            self._change(batch)
        return bytes(batch)

    def _changed_below_compression(self, batch: bytearray) -> bytearray:
        """Change plain records and compress them afterwards, sometimes with another codec than the header states."""
        plain = bytearray(_mixed("none")[HEADER_SIZE:])
        self._change(plain)
        if self._random.random() < 0.1:
            plain *= self._random.choice((2, 50, 1000))
        codec = self._random.choice(CODECS)
        if self._random.random() < 0.9:
            struct.pack_into(">h", batch, 21, CODECS.index(codec))
            batch[23:61] = _mixed("none")[23:61]
        return batch[:HEADER_SIZE] + compress(codec, bytes(plain), check_level(codec, None))

    def _change(self, data: bytearray) -> None:
        for _ in range(self._random.choice((1, 1, 1, 2, 3, 8))):
            self._random.choice(self._changes)(data)

    def _change_header(self, batch: bytearray) -> None:
        position, layout = self._random.choice(_HEADER_FIELDS)
        size = 8 * struct.calcsize(layout)
        number = self._random.choice((*_INTERESTING, self._random.getrandbits(63)))
        number = (number + 2 ** (size - 1)) % 2**size - 2 ** (size - 1)
        struct.pack_into(layout, batch, position, number)

    def _settle(self, batch: bytearray) -> None:
        if self._random.random() < 0.95:
            struct.pack_into(">i", batch, 8, len(batch) - 12)
        if self._random.random() < 0.95:
            struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))

    def _place(self, data: bytearray) -> int:
        # The beginning contains the lengths that everything else depends on.
        bound = len(data) if self._random.random() < 0.7 else min(len(data), 24)
        return self._random.randrange(bound + 1)

    def _flip_bits(self, data: bytearray) -> None:
        if data:
            data[self._place(data) % len(data)] ^= 1 << self._random.randrange(8)

    def _set_bytes(self, data: bytearray) -> None:
        place = self._place(data)
        count = min(self._random.choice((1, 2, 4, 16)), len(data) - place)
        data[place : place + count] = self._random.choice((b"\x00", b"\xff", b"\x80", b"\x7f")) * count

    def _cut(self, data: bytearray) -> None:
        del data[self._place(data) :]

    def _remove(self, data: bytearray) -> None:
        place = self._place(data)
        del data[place : place + self._random.choice((1, 2, 7, 32))]

    def _repeat(self, data: bytearray) -> None:
        start, end = sorted((self._place(data), self._place(data)))
        data[end:end] = data[start : min(end, start + 4096)]

    def _splice(self, data: bytearray) -> None:
        other = self._random.choice(self._batches)[HEADER_SIZE:]
        data[self._place(data) :] = other[self._random.randrange(len(other) + 1) :]

    def _put_varint(self, data: bytearray) -> None:
        place, varint = self._place(data), self._random.choice(_VARINTS)
        data[place : place + self._random.choice((0, 1, len(varint)))] = varint

    def _put_length(self, data: bytearray) -> None:
        layout = self._random.choice((">i", "<i", ">h", "<h", "<q"))
        size = 8 * struct.calcsize(layout)
        number = (self._random.choice(_INTERESTING) + 2 ** (size - 1)) % 2**size - 2 ** (size - 1)
        place = self._place(data)
        data[place : place + size // 8] = struct.pack(layout, number)


def _mixed(codec: str) -> bytes:
    builder = RecordBatchBuilder(codec)
    for i in range(24):
        headers = [("name", b"x" * i), ("", None), ("nül", b"")][: i % 4]
        key = None if i % 3 == 0 else b"key %d" % i
        value = None if i % 5 == 0 else b"value %d;" % i * (i % 7)
        builder.append(key, value, headers, 1_700_000_000_000 + 7 * i * i * (1 - 2 * (i % 2)))
    return builder.build(5, 2, 100)


def _repetitive(codec: str) -> bytes:
    builder = RecordBatchBuilder(codec)
    builder.extend([b"a" * 400] * 250, [b"k"] * 250, 5)
    return builder.build()


def _tiny(codec: str) -> bytes:
    builder = RecordBatchBuilder()
    builder.append(None, None, (), 0)
    batch = builder.build()
    header = parse_header(batch)._replace(attributes=CODECS.index(codec))
    return encode_batch(header, compress(codec, batch[HEADER_SIZE:], check_level(codec, None)))
