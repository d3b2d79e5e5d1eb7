"""Building, reading and checking of record batches, compared with aiokafka's compiled code on the same records.

Every batch has 1 MiB without compression. Both sides of a read check the CRC; aiokafka creates a list of its records,
Tidelog creates Arrow columns or a list of records. The pure-Python engine is shown next to the compiled one, without a
bar.
"""

from __future__ import annotations

import os
from functools import partial
from typing import Any

import cramjam
import pyarrow
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from benchmarks.engines import pure_engine
from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.rounds import Rounds, alternate, timed
from benchmarks.suite import run_alone
from benchmarks.workload import TIMESTAMP_MS, repeat
from tidelog_foundation.records import (
    COMPILED,
    HEADER_SIZE,
    RecordBatchBuilder,
    compress_records,
    encode_batch,
    inspect_produced,
    read_records,
    summarize_records,
    to_arrow,
    validate_batch,
)
from tidelog_foundation.records.compression import decompress_briefly
from tidelog_foundation.records.validation import record_section

_VALUE_BYTES = 100
_BATCH_BYTES = 1 << 20
_RECORD_BYTES = 110
_PEER = "aiokafka"
_CODEC = "cramjam"
_SMALL_BATCH_RECORDS = 16
_SMALL_BATCHES = 20


def run(options: Options) -> list[Result]:
    """Measure building, reading and checking batches of 100-byte values, and the codecs."""
    values = [b"%010d" % i * (_VALUE_BYTES // 10) for i in range(_BATCH_BYTES // _RECORD_BYTES)]
    rounds = options.pick(201, 41)
    results = _build_results(values, rounds, options)
    results += _read_results(_appended(values), len(values), rounds, options)
    results += _pure_results(values, options)
    results += _codec_results(_appended(values), options)
    results += _inspect_results(options)
    return results


def _build_results(values: list[bytes], rounds: int, options: Options) -> list[Result]:
    column = pyarrow.array(values, pyarrow.binary())
    results = []
    for name, work, bar in (
        ("build, one append per record", lambda: _appended(values), 1.5),
        ("build from a list of bytes in one call", lambda: _extended(values), 10),
        ("build from an Arrow column in one call", lambda: _extended(column), 10),
    ):
        options.say(name)
        taken = alternate({_PEER: timed(lambda: _peer_built(values)), name: timed(work)}, rounds, warm_up=5)
        results.append(_rate(name, taken, len(values), bar))
    return results


def _read_results(batch: bytes, count: int, rounds: int, options: Options) -> list[Result]:
    results = []
    for name, work, bar in (
        ("decode to Arrow", lambda: to_arrow(batch, 0, count), 10),
        ("decode to records", lambda: read_records(batch), None),
    ):
        options.say(name)
        taken = alternate({_PEER: timed(lambda: _peer_read(batch)), name: timed(work)}, rounds, warm_up=5)
        results.append(_rate(name, taken, count, bar))
    options.say("checks")
    arrow = results[0]
    results.append(Result("decode to Arrow, records", arrow.value, "M/s", None, None, Bar.on_value(at_least=5)))
    checks = {"crc": timed(lambda: validate_batch(batch)), "walk": timed(lambda: summarize_records(batch))}
    taken = alternate(checks, rounds, warm_up=5)
    for name, key, bar_value in (
        ("validate a batch of 1 MiB", "crc", Bar.on_value(at_least=3)),
        ("validate a batch of 1 MiB and walk its records", "walk", None),
    ):
        results.append(Result(name, len(batch) / taken.median(key) / 1e9, "GB/s", None, None, bar_value))
    return results


def _pure_results(values: list[bytes], options: Options) -> list[Result]:
    if not COMPILED:
        return []
    some = values[:1000]
    batch = _appended(some)
    results = []
    for name, work, peer in (
        ("pure engine: build", lambda: _appended(some), lambda: _peer_built(some)),
        ("pure engine: decode to Arrow", lambda: to_arrow(batch, 0, len(some)), lambda: _peer_read(batch)),
    ):
        options.say(name)
        with pure_engine():
            taken = alternate({_PEER: timed(peer), name: timed(work)}, options.pick(51, 11))
        results.append(_rate(name, taken, len(some), None))
    return results


def _recompressed(batch: bytes, codec: str) -> bytes:
    header = validate_batch(batch)
    plain = decompress_briefly(header.compression, record_section(batch, 0, header))
    return encode_batch(*compress_records(header, plain, codec))


def _codec_results(batch: bytes, options: Options) -> list[Result]:
    results = []
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        options.say(codec)
        works = {
            f"compress a batch of 1 MiB, {codec}": timed(partial(_recompressed, batch, codec)),
            f"decompress a batch of 1 MiB, {codec}": timed(partial(_recompressed, _recompressed(batch, codec), "none")),
        }
        taken = alternate(works, options.pick(21, 5))
        results += [Result(name, len(batch) / taken.median(name) / 1e6, "MB/s") for name in works]
    return results


def _inspect_results(options: Options) -> list[Result]:
    """Measure a leader's cost in addition to the codec for a small batch.

    The codec creates a context for each batch.
    """
    results = []
    for codec, decompress_into in (
        ("gzip", cramjam.gzip.decompress_into),
        ("lz4", cramjam.lz4.decompress_into),
        ("zstd", cramjam.zstd.decompress_into),
    ):
        options.say(f"inspect, {codec}")
        batch = _half_random(codec)
        records, output = memoryview(batch)[HEADER_SIZE:], bytearray(_BATCH_BYTES)
        works = {
            "inspect": timed(partial(repeat, partial(inspect_produced, batch), _SMALL_BATCHES)),
            _CODEC: timed(partial(repeat, partial(decompress_into, records, output), _SMALL_BATCHES)),
        }
        taken = alternate(works, options.pick(201, 41), warm_up=5)
        name = f"inspect a batch of 16 kB, {codec}"
        microseconds = taken.median("inspect") / _SMALL_BATCHES * 1e6
        results.append(Result(name, microseconds, "us", _CODEC, taken.speed_ratio("inspect", _CODEC)))
    return results


def _half_random(codec: str) -> bytes:
    builder = RecordBatchBuilder(codec)
    builder.extend([os.urandom(500) + bytes(500) for _ in range(_SMALL_BATCH_RECORDS)], None, TIMESTAMP_MS)
    return builder.build()


def _rate(name: str, taken: Rounds, count: int, bar: float | None) -> Result:
    ratio = taken.speed_ratio(name, _PEER)
    limit = None if bar is None else Bar.on_ratio(at_least=bar)
    return Result(name, count / taken.median(name) / 1e6, "M/s", _PEER, ratio, limit)


def _appended(values: list[bytes]) -> bytes:
    builder = RecordBatchBuilder()
    append = builder.append
    for value in values:
        append(None, value, (), TIMESTAMP_MS)
    return builder.build()


def _extended(values: Any) -> bytes:
    builder = RecordBatchBuilder()
    builder.extend(values, None, TIMESTAMP_MS)
    return builder.build()


def _peer_built(values: list[bytes]) -> Any:
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 2**30)
    append = builder.append
    for offset, value in enumerate(values):
        append(offset, TIMESTAMP_MS, None, value, [])
    return builder.build()


def _peer_read(batch: bytes) -> list[Any]:
    records = DefaultRecordBatch(batch)
    assert records.validate_crc()
    return list(records)


if __name__ == "__main__":
    run_alone(run)
