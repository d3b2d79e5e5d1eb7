"""Appends to a partition's log and reads from it, compared with the bare system calls on the same bytes.

Both sides use the page cache of the same file system. The log's append validates the batch with its CRC, assigns
offsets, maintains the indexes and rolls segments; its read finds the batch and cuts at batch boundaries.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.rounds import alternate, quantile, seconds_of
from benchmarks.suite import run_alone
from benchmarks.workload import TIMESTAMP_MS, fill, random_batch, repeat
from tidelog_foundation.records import parse_header
from tidelog_node.log import LogConfig, PartitionLog

_BATCH_BYTES = 64 << 10
_READ_BYTES = 1 << 20
_SEGMENT_BYTES = 16 << 20
_READ_LOG_BYTES = 64 << 20
_BATCHES_PER_ROUND = 50
_ROUNDS_PER_FILE = 20
_LATENCY_ROUND = 250
_WRITE, _APPEND, _PREAD, _READ = "os.write", "append", "os.pread", "read"


def run(options: Options) -> list[Result]:
    """Measure appends, reads and the latency of one append."""
    usual = random_batch(_BATCH_BYTES, 1000, "lz4")
    results = []
    with options.scratch() as directory:
        for name, batch, bar in (
            ("append 64 KiB batches, lz4, 1 KB values", usual, Bar.on_ratio(at_least=0.6)),
            ("append 64 KiB batches, uncompressed, 1 KB values", random_batch(_BATCH_BYTES, 1000), None),
            ("append 64 KiB batches, uncompressed, 100 B values", random_batch(_BATCH_BYTES, 100), None),
        ):
            options.say(name)
            results.append(_append_result(name, batch, bar, directory, options))
        options.say("sequential reads")
        results.append(_read_result(usual, directory, options))
        options.say("latency of one append")
        results += _latency_results(usual, "64 KiB", directory, options)
        results += _latency_results(random_batch(1 << 10, 100), "1 KiB", directory, options)
    return results


def _append_result(name: str, batch: bytes, bar: Bar | None, directory: Path, options: Options) -> Result:
    with _Writes(directory / "plain", batch) as writes, _Appends(directory / "log", batch) as appends:
        variants = {_WRITE: writes.run, _APPEND: appends.run}
        rounds = alternate(variants, rounds=options.pick(600, 100), warm_up=_ROUNDS_PER_FILE)
    rate = len(batch) * _BATCHES_PER_ROUND / rounds.median(_APPEND) / 1e6
    return Result(name, rate, "MB/s", "os.write", rounds.speed_ratio(_APPEND, _WRITE), bar)


class _Writes:
    """Writes batches to a file, one round at a time, and begins a new file after some rounds."""

    def __init__(self, path: Path, batch: bytes) -> None:
        self._path = path
        self._batch = batch
        self._rounds = 0
        self._handle = -1

    def __enter__(self) -> _Writes:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self) -> float:
        """Write the batches of one round and return the seconds."""
        if self._rounds % _ROUNDS_PER_FILE == 0:
            self._end()
            self._handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self._rounds += 1
        handle, batch = self._handle, self._batch
        return seconds_of(lambda: repeat(lambda: os.write(handle, batch), _BATCHES_PER_ROUND))

    def _end(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._path.unlink()
            self._handle = -1


class _Appends:
    """Appends batches to a log, one round at a time, and begins a new log after some rounds."""

    def __init__(self, directory: Path, batch: bytes) -> None:
        self._directory = directory
        self._batch = batch
        self._rounds = 0
        self._log: PartitionLog | None = None

    def __enter__(self) -> _Appends:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def run(self) -> float:
        """Append the batches of one round and return the seconds."""
        if self._rounds % _ROUNDS_PER_FILE == 0:
            self._end()
        log = self._log or PartitionLog.open(self._directory / f"log-{self._rounds}", LogConfig())
        self._log = log
        self._rounds += 1
        batch = self._batch
        return seconds_of(lambda: repeat(lambda: log.append_as_leader(batch, 0, TIMESTAMP_MS), _BATCHES_PER_ROUND))

    def _end(self) -> None:
        if self._log is not None:
            self._log.delete()
            self._log = None


def _read_result(batch: bytes, directory: Path, options: Options) -> Result:
    log = PartitionLog.open(directory / "read", LogConfig(segment_bytes=_SEGMENT_BYTES))
    fill(log, batch, _READ_LOG_BYTES)
    paths = sorted((directory / "read").glob("*.log"))
    variants = {_PREAD: lambda: _pread_round(paths), _READ: lambda: seconds_of(lambda: _read_all(log, batch))}
    rounds = alternate(variants, rounds=options.pick(31, 7), warm_up=2)
    rate = log.size_in_bytes / rounds.median(_READ) / 1e6
    log.delete()
    ratio = rounds.speed_ratio(_READ, _PREAD)
    return Result("read whole segments, 1 MiB a read", rate, "MB/s", "os.pread", ratio, Bar.on_ratio(at_least=0.7))


def _pread_round(paths: list[Path]) -> float:
    handles = [os.open(path, os.O_RDONLY) for path in paths]
    try:
        return seconds_of(lambda: _pread_all(handles))
    finally:
        for handle in handles:
            os.close(handle)


def _pread_all(handles: list[int]) -> None:
    for handle in handles:
        position = 0
        while size := len(os.pread(handle, _READ_BYTES, position)):
            position += size


def _read_all(log: PartitionLog, batch: bytes) -> None:
    """Read as a fetch does. All batches are equal, so the length determines the next offset."""
    offset, end_offset, records = 0, log.log_end_offset, parse_header(batch).record_count
    while offset < end_offset:
        offset += len(log.read(offset, _READ_BYTES, end_offset)) // len(batch) * records


def _latency_results(batch: bytes, size: str, directory: Path, options: Options) -> list[Result]:
    plain: list[float] = []
    appended: list[float] = []
    for _ in range(options.pick(20, 4)):
        _take_latencies(batch, directory, plain, appended)
    results = []
    for name, share in (("p50", 0.5), ("p99", 0.99)):
        theirs, ours = quantile(plain, share), quantile(appended, share)
        results.append(Result(f"latency of one append of {size}, {name}", ours * 1e6, "us", "os.write", theirs / ours))
    return results


def _take_latencies(batch: bytes, directory: Path, plain: list[float], appended: list[float]) -> None:
    """Add the seconds of single writes and appends, measured alternately on files that begin empty."""
    clock = time.perf_counter
    path = directory / "plain"
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    log = PartitionLog.open(directory / "log", LogConfig())
    for _ in range(_LATENCY_ROUND):
        begun = clock()
        os.write(handle, batch)
        written = clock()
        log.append_as_leader(batch, 0, TIMESTAMP_MS)
        appended.append(clock() - written)
        plain.append(written - begun)
    os.close(handle)
    path.unlink()
    log.delete()


if __name__ == "__main__":
    run_alone(run)
