"""Changed batches: every reader gives a result or a CorruptRecordError, in bounded memory, and the engines agree."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from batch_mutations import Mutator, corpus
from recompression import recompress
from seeds import reproducible, seed_blocks

from tidelog_foundation.errors import CorruptRecordError, ErrorCode, TidelogError
from tidelog_foundation.records import (
    CODECS,
    RecordBatchHeader,
    _pure,
    check_records,
    compression,
    find_greatest,
    find_timestamp,
    inspect_produced,
    iter_headers,
    iter_records,
    parse_header,
    read_control,
    read_records,
    summarize_records,
    to_arrow,
    validate_batch,
)
from tidelog_foundation.records.validation import record_section

_LIMIT = 1024 * 1024
_MUTANTS_PER_SEED = 25
_REFUSALS = {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP}

_PEAK_PER_BYTE = 64
"""The peak memory per byte of records: seven bytes make a record, an object of about two hundred with its parts."""


@pytest.fixture(scope="module")
def batches() -> list[bytes]:
    return corpus()


@pytest.fixture
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compression, "MAX_DECOMPRESSED_SIZE", _LIMIT)


def _all_headers(batch: bytes) -> list[Any]:
    return list(iter_headers(batch))


def _columns(batch: bytes) -> Any:
    columns = to_arrow(batch, -(2**63), 2**63 - 1, include_headers=True)
    columns.validate(full=True)
    return columns


def _recompressed(batch: bytes) -> list[bytes]:
    return [recompress(batch, codec) for codec in CODECS]


def _in_parts(batch: bytes) -> list[Any]:
    return list(iter_records(batch))


def _searched(batch: bytes) -> list[Any]:
    return [find_timestamp(batch, 2**63 - 1, 0), find_greatest(batch, 0)]


def _produced(batch: bytes) -> Any:
    return inspect_produced(batch)


READERS: list[Callable[[bytes], Any]] = [
    parse_header,
    _all_headers,
    validate_batch,
    check_records,
    summarize_records,
    read_records,
    _in_parts,
    _searched,
    _columns,
    read_control,
    _recompressed,
    _produced,
]


@pytest.mark.sim
@pytest.mark.usefixtures("_small_limit")
@pytest.mark.parametrize("block", seed_blocks(40, 20), ids=lambda block: f"{block[0]}-{block[-1]}")
def test_changed_batches_are_read_or_corrupt_in_every_reader(
    engine: ModuleType, batches: list[bytes], block: range
) -> None:
    for seed in block:
        with reproducible(seed):
            mutator = Mutator(batches, seed)
            for _ in range(_MUTANTS_PER_SEED):
                _check(engine, mutator.mutant())


@pytest.mark.sim
@pytest.mark.usefixtures("_small_limit")
@pytest.mark.parametrize("block", seed_blocks(4, 4), ids=lambda block: f"{block[0]}-{block[-1]}")
def test_changed_batches_are_read_in_bounded_memory(engine: ModuleType, batches: list[bytes], block: range) -> None:
    tracemalloc.start()
    try:
        for seed in block:
            with reproducible(seed):
                mutator = Mutator(batches, -1 - seed)
                for _ in range(_MUTANTS_PER_SEED):
                    _check_memory(mutator.mutant())
    finally:
        tracemalloc.stop()


def test_corpus_is_read_by_every_reader(engine: ModuleType, batches: list[bytes]) -> None:
    assert {parse_header(batch).compression for batch in batches} == set(CODECS)
    for batch in batches:
        for reader in READERS:
            if reader is not _produced:
                reader(batch)


def _check(engine: ModuleType, batch: bytes) -> None:
    outcomes = {reader.__name__: _outcome(reader, batch) for reader in READERS}
    walked = [
        outcomes[name] for name in ("check_records", "summarize_records", "read_records", "_in_parts", "_searched")
    ]
    assert len({isinstance(outcome, TidelogError) for outcome in walked}) == 1, "readers disagree"
    if isinstance(walked[0], TidelogError) or engine is _pure:
        return
    header = parse_header(batch)
    plain = compression.decompress(header.compression, record_section(batch, 0, header))
    assert engine.summarize_records(plain, header) == _pure.summarize_records(plain, header)
    assert [_plain(record) for record in walked[2]] == [_plain(r) for r in _pure.decode_records(plain, header)]
    assert _decoded_columns(engine, plain, header) == _decoded_columns(_pure, plain, header)


def _outcome(reader: Callable[[bytes], Any], batch: bytes) -> Any:
    """Return the result or the one kind of error that may be; whatever else is raised fails the test."""
    try:
        return reader(batch)
    except CorruptRecordError as error:
        return error
    except TidelogError as error:
        if error.code not in _REFUSALS:
            raise
        return error


def _decoded_columns(engine: Any, plain: Any, header: RecordBatchHeader) -> list[Any]:
    """Return what the buffers hold after the whole batch and after a part of it, bits of null rows included."""
    decoder = engine.ColumnDecoder(True, 0)
    middle = header.base_offset + header.last_offset_delta // 2
    decoder.append(plain, header, -(2**63), 2**63 - 1)
    decoder.append(plain, header, header.base_offset + 1, middle)
    decoder.append(plain, header, middle, 2**63 - 1)
    return [_contents(column) for column in decoder.finish()]


def _contents(column: Any) -> Any:
    if isinstance(column, tuple):
        return [_contents(part) for part in column]
    return bytes(column) if isinstance(column, memoryview) else column


def _plain(record: Any) -> tuple[Any, ...]:
    return record.offset, record.timestamp_ms, record.timestamp_type, record.key, record.value, record.headers


def _check_memory(batch: bytes) -> None:
    # The buffers of decompression, those that were too small among them, and then what the bytes that are there make.
    allowed = 4 * _LIMIT + _PEAK_PER_BYTE * (len(batch) + _plain_size(batch))
    for reader in READERS:
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        _outcome(reader, batch)
        peak = tracemalloc.get_traced_memory()[1] - before
        assert peak <= allowed, f"{reader.__name__} took {peak} bytes, {allowed} are allowed"


def _plain_size(batch: bytes) -> int:
    try:
        header = parse_header(batch)
        return len(compression.decompress(header.compression, record_section(batch, 0, header)))
    except TidelogError:
        return 0
