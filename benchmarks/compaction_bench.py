"""Compaction of a log with many keys: its speed, and its memory in addition to the map of keys.

    python -m benchmarks.compaction_bench [--quick]

The log is a gibibyte of small records: each of ten million keys once, then one in four of them again. Nearly every
batch loses records and is rebuilt, which is the slow case. The same log is cleaned twice, with a buffer for all keys
and with Kafka's default one, which takes several passes. Each run is a separate process, because the figure is the
growth of its resident memory. The elapsed time depends on the disk too, so the results include the time of a plain copy
of the same files to the same disk and the CPU time.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.suite import run_alone
from tidelog_foundation.records import RecordBatchBuilder, assign_offsets
from tidelog_node.log import OS_FILES, LogConfig, PartitionLog
from tidelog_node.log.cleaner.job import CleanerMemory, LogToClean, SourceSegment, Throttle
from tidelog_node.log.cleaner.log_cleaner import LogCleaner

_BYTES_PER_SECOND_BAR = 50.0
_EXTRA_MEMORY_BAR = 64.0
_MEBIBYTE = 2**20
_LOAD_FACTOR = 0.9
_IO_BUFFER_BYTES = 256 * 1024
_DEFAULT_BUFFER_BYTES = 128 * _MEBIBYTE
_RECORDS_PER_BATCH = 150
_TIMESTAMP_MS = 1_700_000_000_000


def run(options: Options) -> list[Result]:
    """Compact a gibibyte with ten million keys (quick: 64 MiB with 600,000)."""
    keys = options.pick(10_000_000, 600_000)
    size = options.pick(2**30, 64 * _MEBIBYTE)
    roomy_bytes = int(keys * 24 / _LOAD_FACTOR) + _MEBIBYTE
    small_bytes = min(_DEFAULT_BUFFER_BYTES, roomy_bytes // 2 + _MEBIBYTE)
    results: list[Result] = []
    with options.scratch() as directory:
        for title, buffer_bytes in (("all keys in the buffer", roomy_bytes), ("the default buffer", small_bytes)):
            options.say(f"writing {size // _MEBIBYTE} MiB with {keys:,} keys, then compacting: {title}")
            found = _measured(directory / title.replace(" ", "-"), keys, size, buffer_bytes)
            results += _results(title, found, buffer_bytes)
    return results


def _results(title: str, found: dict[str, float], buffer_bytes: int) -> list[Result]:
    megabytes = found["bytes"] / 1e6
    elapsed, copied = megabytes / found["seconds"], megabytes / found["copy_seconds"]
    extra = (found["peak_bytes"] - buffer_bytes) / _MEBIBYTE
    held = f"the buffer of {buffer_bytes / _MEBIBYTE:.0f} MiB"
    speed_bar, memory_bar = Bar.on_value(at_least=_BYTES_PER_SECOND_BAR), Bar.on_value(at_most=_EXTRA_MEMORY_BAR)
    return [
        Result(f"compact, {title}: by core time", megabytes / found["core_seconds"], "MB/s"),
        Result(
            f"compact, {title}: elapsed", elapsed, "MB/s", f"a copy at {copied:,.0f} MB/s", elapsed / copied, speed_bar
        ),
        Result(f"compact, {title}: memory beside the buffer", extra, "MiB", held, bar=memory_bar),
    ]


def _measured(directory: Path, keys: int, size: int, buffer_bytes: int) -> dict[str, float]:
    arguments = [str(directory), str(keys), str(size), str(buffer_bytes)]
    command = [sys.executable, "-m", "benchmarks.compaction_bench", "--measure", *arguments]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _measure(directory: Path, keys: int, size: int, buffer_bytes: int) -> dict[str, float]:
    """Write the log, copy its files, compact it, in a process of its own."""
    config = LogConfig(cleanup_policy=("compact",), segment_bytes=128 * _MEBIBYTE)
    log = PartitionLog.open(directory, config)
    for batch in _batches(keys, size):
        log.append_as_follower(batch, _TIMESTAMP_MS)
    log.roll(_TIMESTAMP_MS)
    log.flush()
    segments = log.sealed_segments()
    log_bytes = sum(segment.size for segment in segments)
    copy_seconds = _copy([segment.path for segment in segments])
    memory = CleanerMemory(buffer_bytes, _LOAD_FACTOR, _IO_BUFFER_BYTES)
    throttle = Throttle(math.inf, time.monotonic, time.sleep)
    cleaner = LogCleaner(OS_FILES, memory, throttle, lambda: int.from_bytes(os.urandom(8), "big"), time.monotonic)
    with _PeakMemory() as peak:
        started, core_started = time.perf_counter(), time.thread_time()
        passes = _clean(cleaner, log)
        seconds, core_seconds = time.perf_counter() - started, time.thread_time() - core_started
    log.close()
    return {
        "bytes": log_bytes,
        "seconds": seconds,
        "core_seconds": core_seconds,
        "copy_seconds": copy_seconds,
        "peak_bytes": peak.growth,
        "passes": passes,
    }


def _clean(cleaner: LogCleaner, log: PartitionLog) -> int:
    """Clean all of the log that is sealed, and return the number of passes."""
    first_dirty_offset, passes = 0, 0
    while first_dirty_offset < log.active_base_offset:
        segments = tuple(map(SourceSegment.of, log.sealed_segments()))
        task = LogToClean("bench", log.directory, log.config, segments, first_dirty_offset, log.active_base_offset)
        cleaning = cleaner.clean(
            task,
            _TIMESTAMP_MS,
            lambda cleaned, sources: log.replace_segments(cleaned, [source.segment for source in sources]),
        )
        first_dirty_offset, passes = cleaning.end_offset, passes + 1
    return passes


def _batches(keys: int, size: int) -> Iterator[bytes]:
    """Yield batches with each key once and every fourth key once more, ``size`` bytes in total."""
    updates = keys // 4
    value = os.urandom(max(1, size // (keys + updates) - 24))
    offset = 0
    builder = RecordBatchBuilder()
    for index in range(keys + updates):
        key = index if index < keys else (index - keys) * 4 + 1
        builder.append(b"key-%010d" % (key % keys), value, (), _TIMESTAMP_MS + index // 1000)
        if builder.count == _RECORDS_PER_BATCH or index == keys + updates - 1:
            batch = bytearray(builder.build())
            assign_offsets(batch, offset, 0)
            offset += builder.count
            builder = RecordBatchBuilder()
            yield bytes(batch)


def _copy(paths: list[Path]) -> float:
    """Return the seconds of reading the files in the cleaner's portions and writing them to the disk."""
    seconds = 0.0
    for path in paths:
        with tempfile.NamedTemporaryFile(dir=path.parent.parent) as target, path.open("rb", buffering=0) as source:
            started = time.perf_counter()
            while data := source.read(_IO_BUFFER_BYTES):
                target.write(data)
            target.flush()
            os.fsync(target.fileno())
            seconds += time.perf_counter() - started
    return seconds


class _PeakMemory:
    """Samples the growth of this process's resident memory every 10 ms."""

    def __init__(self) -> None:
        self.growth = 0
        self._first = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="peak-memory")

    def __enter__(self) -> _PeakMemory:
        self._first = _resident_bytes()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self.growth = max(self.growth, _resident_bytes() - self._first)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        where, *numbers = sys.argv[2:]
        print(json.dumps(_measure(Path(where), *map(int, numbers))))
    else:
        run_alone(run)
