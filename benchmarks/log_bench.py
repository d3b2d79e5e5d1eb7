"""Appends to a partition's log, as a ratio to plain ``os.write`` of the same bytes in the same run.

    python benchmarks/log_bench.py [--batches 1000] [--batch-kib 64]

Both sides write to the page cache of the same file system, in turns, so that the machine's noise meets both. The
log's side validates each batch with its CRC, assigns offsets, keeps the indexes and rolls segments.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tidelog.records import COMPILED, RecordBatchBuilder, iter_headers
from tidelog_node.log import LogConfig, PartitionLog

_ROUNDS = 7


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=1000, help="batches per round")
    parser.add_argument("--batch-kib", type=int, default=64, help="size of a batch in KiB")
    parser.add_argument("--compression", default="lz4", help="codec of the batches")
    arguments = parser.parse_args()
    batch = _batch(arguments.batch_kib * 1024, arguments.compression)
    with tempfile.TemporaryDirectory() as directory:
        plain, log, read = _measure(Path(directory), batch, arguments.batches)
    print(f"batch {len(batch)} bytes ({arguments.compression}), compiled record engine: {COMPILED}")
    for name, seconds in (("os.write", plain), ("append_as_leader", log), ("read 1 MiB", read)):
        rate = len(batch) * arguments.batches / seconds / 1e6
        print(f"{name:18} {seconds / arguments.batches * 1e6:8.1f} us/batch {rate:8.0f} MB/s")
    print(f"append_as_leader reaches {plain / log:.0%} of os.write")


def _batch(size: int, compression: str) -> bytes:
    builder = RecordBatchBuilder(compression)
    while builder.size_in_bytes < size - 1100:
        builder.append(b"key", os.urandom(1000), (), 1_700_000_000_000)
    return builder.build()


def _measure(directory: Path, batch: bytes, count: int) -> tuple[float, float, float]:
    """Return the median seconds of a round of plain writes, of appends, and of reads of all that was appended."""
    plain, appended, read = [], [], []
    for index in range(_ROUNDS):
        handle = os.open(directory / f"plain-{index}", os.O_RDWR | os.O_CREAT)
        plain.append(_seconds(_repeat, partial(os.write, handle, batch), count))
        os.close(handle)
        log = PartitionLog.open(directory / f"log-{index}", LogConfig())
        appended.append(_seconds(_repeat, partial(log.append_as_leader, batch, 0, 0), count))
        read.append(_seconds(_read_all, log))
        log.delete()
        (directory / f"plain-{index}").unlink()
    return statistics.median(plain), statistics.median(appended), statistics.median(read)


def _seconds(work: Callable[..., None], *arguments: object) -> float:
    started = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started


def _repeat(action: Callable[[], object], count: int) -> None:
    for _ in range(count):
        action()


def _read_all(log: PartitionLog) -> None:
    offset = 0
    while offset < log.log_end_offset:
        offset = _end_of(log.read(offset, 1 << 20, log.log_end_offset))


def _end_of(chunk: bytes) -> int:
    return max(header.next_offset for _, header in iter_headers(chunk))


if __name__ == "__main__":
    main()
