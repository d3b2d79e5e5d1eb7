"""A libFuzzer target for the record decoder: what coverage finds that the seeded mutations do not.

    pip install atheris; python tests/fuzz/fuzz_records.py [-max_total_time=600] [a folder of findings]

Needs atheris, which nothing else here does. It runs the pure engine, whose branches atheris can see; the compiled one
gives the same results, to which the tests hold it. The input is all of a batch that its CRC covers.
"""

from __future__ import annotations

import os
import struct
import sys

os.environ["TIDELOG_PURE_PYTHON"] = "1"

import atheris
from crc32c import crc32c

with atheris.instrument_imports(include=["tidelog_foundation.records"]):
    from tidelog_foundation.records import (
        check_records,
        compress_records,
        compression,
        find_greatest,
        find_timestamp,
        inspect_produced,
        iter_records,
        keyless_records,
        read_control,
        read_records,
        records_outside,
        validate_batch,
        validation,
    )

from tidelog_foundation.errors import ErrorCode, TidelogError

_EXPECTED = {
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
}


def fuzz(data: bytes) -> None:
    """Read one batch in every way; only the errors that a malformed batch may give are swallowed."""
    batch = struct.pack(">qiibI", 0, 9 + len(data), -1, 2, crc32c(data)) + data
    for read in (check_records, read_records, read_control, _in_parts, _searched, _refused, _recompressed):
        try:
            read(batch)
        except TidelogError as error:
            if error.code not in _EXPECTED:
                raise


def _in_parts(batch: bytes) -> None:
    for _ in iter_records(batch):
        pass


def _searched(batch: bytes) -> None:
    find_timestamp(batch, 2**62, 0)
    find_greatest(batch, 0)


def _refused(batch: bytes) -> None:
    produced = inspect_produced(batch)
    keyless_records(produced, 100)
    records_outside(produced, 0, 0, 100)


def _recompressed(batch: bytes) -> None:
    header = validate_batch(batch)
    section = validation.record_section(batch, 0, header)
    compress_records(header, compression.decompress_briefly(header.compression, section), "none")


if __name__ == "__main__":
    compression.MAX_DECOMPRESSED_SIZE = 1024 * 1024
    atheris.Setup(sys.argv, fuzz)
    atheris.Fuzz()
