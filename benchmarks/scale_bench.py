"""The cost of an additional partition and segment: latency of appends and reads, and memory, as their number grows.

Every point is measured in a process of its own. It opens logs that were closed cleanly, touches every segment of each,
then reads and appends batches of 1 KiB at random partitions and offsets. ``results/scale.json`` has all points;
:mod:`benchmarks.plots` draws them.
"""

from __future__ import annotations

import dataclasses
import gc
import multiprocessing
import os
import random
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from benchmarks import process
from benchmarks.options import Options
from benchmarks.points import Axis, Point, write_points
from benchmarks.result import Result
from benchmarks.rounds import quantile
from benchmarks.suite import run_alone
from benchmarks.workload import TIMESTAMP_MS, fill, random_batch
from tidelog_foundation.records import parse_header
from tidelog_node.log import LogConfig, PartitionLog
from tidelog_node.log.disk.files import OperatingSystemFiles

T = TypeVar("T")

_PARTITIONS = (1, 10, 100, 1000, 2500, 5000)
_SEGMENTS = (1, 10, 100, 300, 1000)
_BATCH_BYTES = 1 << 10
_BATCHES_PER_SEGMENT = 16
_WARM_UP = 2000
_FILES_PER_SEGMENT = 3
_RESERVED_FILES = 200


def run(options: Options) -> list[Result]:
    """Measure all points, write them for the plots, and compare the largest with the smallest."""
    partitions = _series("partitions", options.pick(_PARTITIONS, (1, 100, 1000)), options)
    segments = _series("segments", options.pick(_SEGMENTS, (1, 100)), options)
    if not options.quick:
        write_points({"partitions": partitions, "segments": segments})
    return [*_results("partitions", partitions), *_results("segments", segments)]


def _series(axis: Axis, counts: Sequence[int], options: Options) -> list[Point]:
    """Return a point per count: medians over rounds that take all counts in turns."""
    taken: list[list[Point]] = []
    with options.scratch() as directory:
        for count in counts:
            options.say(f"writing {count:,} {axis}")
            _in_fresh_process(_write, _Place.of(axis, count, directory))
        for index in range(options.pick(3, 1)):
            options.say(f"measuring {counts[0]} to {counts[-1]:,} {axis}, round {index + 1}")
            appends = options.pick(10_000, 2000)
            places = [_Place.of(axis, count, directory) for count in counts]
            taken.append([_in_fresh_process(_measure, place, appends) for place in places])
    return [_median(points) for points in zip(*taken, strict=True)]


def _in_fresh_process(work: Callable[..., T], *arguments: object) -> T:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _median(points: Sequence[Point]) -> Point:
    fields = map(dataclasses.astuple, points)
    return Point(*(statistics.median(values) for values in zip(*fields, strict=True)))


def raise_file_limit(files: int) -> None:
    """Raise the soft limit on open files to the hard limit.

    Raises:
        ValueError: The hard limit is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= files:
        return
    if hard != resource.RLIM_INFINITY and hard < files:
        raise ValueError(f"{files} files must be open at a time, the hard limit is {hard}: ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


@dataclass(frozen=True, slots=True)
class _Place:
    """The directory of one point's logs, and the number of segments of each."""

    directory: Path
    partitions: int
    segments: int

    @classmethod
    def of(cls, axis: Axis, count: int, directory: Path) -> _Place:
        partitions, segments = (count, 1) if axis == "partitions" else (1, count)
        return cls(directory / str(count), partitions, segments)

    @property
    def logs(self) -> list[Path]:
        return [self.directory / f"scale-{index}" for index in range(self.partitions)]


def _write(place: _Place) -> None:
    """Write logs with that many segments, each of a few batches, and close them."""
    raise_file_limit(place.segments * _FILES_PER_SEGMENT + _RESERVED_FILES)
    batch = random_batch(_BATCH_BYTES, 100)
    segment_bytes = len(batch) * _BATCHES_PER_SEGMENT
    for directory in place.logs:
        log = PartitionLog.open(directory, LogConfig(segment_bytes=segment_bytes), files=NO_SYNC)
        fill(log, batch, segment_bytes * place.segments)
        assert log.segment_count == place.segments, (log.segment_count, place.segments)
        log.close()


def _measure(place: _Place, appends: int) -> Point:
    raise_file_limit(place.partitions * place.segments * _FILES_PER_SEGMENT + _RESERVED_FILES)
    batch = random_batch(_BATCH_BYTES, 100)
    records = place.segments * _BATCHES_PER_SEGMENT * parse_header(batch).record_count
    _warm_up(place, batch)
    before, files_before = process.anonymous_bytes(os.getpid()), process.file_descriptors(os.getpid())
    started = time.perf_counter()
    logs = [_open(directory) for directory in place.logs]
    open_s = time.perf_counter() - started
    for log in logs:
        _use(log, batch, records)
    gc.collect()
    memory_bytes = process.anonymous_bytes(os.getpid()) - before
    open_files = process.file_descriptors(os.getpid()) - files_before
    reads, appended = _take_latencies(logs, batch, records, appends)
    for log in logs:
        log.close()
    return Point(
        count=max(place.partitions, place.segments),
        append_p50_us=quantile(appended, 0.5) * 1e6,
        append_p99_us=quantile(appended, 0.99) * 1e6,
        read_p50_us=quantile(reads, 0.5) * 1e6,
        open_ms=open_s * 1e3,
        memory_bytes=max(0, memory_bytes),
        open_files=open_files,
    )


def _warm_up(place: _Place, batch: bytes) -> None:
    """Use a log of its own, so that everything that loads once is loaded before the measurement."""
    log = PartitionLog.open(place.directory / "warm-0", LogConfig(), files=NO_SYNC)
    _use(log, batch, 1)
    log.delete()
    gc.collect()


def _open(directory: Path) -> PartitionLog:
    return PartitionLog.open(directory, LogConfig(), files=NO_SYNC, clean=True)


def _use(log: PartitionLog, batch: bytes, records: int) -> None:
    """Append to a log and read one batch of each segment, so that everything that loads lazily is loaded."""
    log.append_as_leader(batch, 0, TIMESTAMP_MS)
    for offset in range(0, records, _BATCHES_PER_SEGMENT * parse_header(batch).record_count):
        log.read(offset, 1, log.log_end_offset)


def _take_latencies(
    logs: Sequence[PartitionLog], batch: bytes, records: int, appends: int
) -> tuple[list[float], list[float]]:
    """Return the seconds of single reads and appends, one read per append."""
    clock, draws = time.perf_counter, random.Random(len(logs))
    reads, appended = [], []
    for index in range(-_WARM_UP, appends):
        log = logs[draws.randrange(len(logs))]
        offset = draws.randrange(records)
        begun = clock()
        log.append_as_leader(batch, 0, TIMESTAMP_MS)
        written = clock()
        log.read(offset, 1, log.log_end_offset)
        read = clock()
        if index >= 0:
            appended.append(written - begun)
            reads.append(read - written)
    return reads, appended


def _results(axis: Axis, points: Sequence[Point]) -> list[Result]:
    """Return the lines of the largest point, compared with the smallest."""
    least, most = points[0], points[-1]
    name, reference = f"{most.count:,} {axis}", f"{least.count:,} of them"

    def latency(what: str, of: Callable[[Point], float]) -> Result:
        return Result(f"{name}: {what}", of(most), "us", reference, of(least) / of(most))

    return [
        latency("append p50", lambda point: point.append_p50_us),
        latency("append p99", lambda point: point.append_p99_us),
        latency("read of one batch p50", lambda point: point.read_p50_us),
        Result(f"{name}: open all after a clean stop", most.open_ms, "ms"),
        Result(f"{name}: memory of each", most.memory_kib_each, "KiB"),
        Result(f"{name}: file descriptors of each", most.open_files / most.count, "files"),
    ]


class _FilesWithoutSync(OperatingSystemFiles):
    """The system's files without syncs, since the creation of 5,000 logs is not measured."""

    def fsync(self, handle: int) -> None:
        """Do nothing."""

    def fsync_directory(self, path: Path) -> None:
        """Do nothing."""


NO_SYNC = _FilesWithoutSync()


if __name__ == "__main__":
    run_alone(run)
