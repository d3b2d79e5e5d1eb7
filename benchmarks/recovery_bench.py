"""Opening a partition's log: after a clean stop, and after a kill, when every batch is read and checked again.

A killed process wrote the recovered log, so it has the files of a crash: segments, some of them with indexes, and no
clean-shutdown marker. The reference is the minimum work of a recovery: reading the same files and computing the same
checksums without parsing batches. All data is in the page cache.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
from pathlib import Path

from crc32c import crc32c

from benchmarks.options import Options
from benchmarks.result import Bar, Result
from benchmarks.rounds import alternate, seconds_of
from benchmarks.suite import run_alone
from benchmarks.workload import fill, random_batch
from tidelog_node.log import LogConfig, PartitionLog

_MIB = 1 << 20
_SEGMENTS = 200
_CLEAN = LogConfig(segment_bytes=_MIB)
_KILLED = LogConfig(segment_bytes=256 * _MIB)
_PLAIN, _RECOVERY = "pread + crc32c", "recovery"


def run(options: Options) -> list[Result]:
    """Measure both ways to open a log."""
    with options.scratch() as directory:
        results = [_clean_result(directory / "clean-0", options)]
        for kib, bar in ((64, Bar.on_ratio(at_least=0.7)), (16, None), (4, None)):
            results.append(_killed_result(kib, bar, directory / f"killed-{kib}", options))
    return results


def _clean_result(directory: Path, options: Options) -> Result:
    options.say(f"writing {_SEGMENTS} segments")
    log = PartitionLog.open(directory, _CLEAN)
    fill(log, random_batch(64 << 10, 1000), (_SEGMENTS - 1) * _MIB)
    assert log.segment_count >= _SEGMENTS, log.segment_count
    log.close()
    options.say("opening them after a clean stop")
    variants = {"open": lambda: _reopen_clean(directory, log.log_end_offset)}
    seconds = alternate(variants, rounds=options.pick(15, 5)).median("open")
    shutil.rmtree(directory)
    name = f"open {_SEGMENTS} segments after a clean stop"
    return Result(name, seconds * 1e3, "ms", bar=Bar.on_value(at_most=50))


def _reopen_clean(directory: Path, end_offset: int) -> float:
    opened: list[PartitionLog] = []
    seconds = seconds_of(
        lambda: opened.append(PartitionLog.open(directory, _CLEAN, clean=True, recovery_point=end_offset))
    )
    assert opened[0].log_end_offset == end_offset, (opened[0].log_end_offset, end_offset)
    opened[0].close()
    return seconds


def _killed_result(kib: int, bar: Bar | None, directory: Path, options: Options) -> Result:
    size = options.pick(1024, 128) * _MIB
    options.say(f"writing {size // _MIB} MiB in batches of {kib} KiB and killing the writer")
    writer = multiprocessing.get_context("spawn").Process(target=_write_and_die, args=(directory, kib << 10, size))
    writer.start()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL, writer.exitcode
    options.say(f"recovering {size // _MIB} MiB in batches of {kib} KiB")
    paths = sorted(directory.glob("*.log"))
    variants = {
        _PLAIN: lambda: seconds_of(lambda: [_read_and_sum(path) for path in paths]),
        _RECOVERY: lambda: _recover(directory, size),
    }
    rounds = alternate(variants, rounds=options.pick(7, 3))
    shutil.rmtree(directory)
    name = f"recover {size // _MIB} MiB after a kill, {kib} KiB batches"
    rate = size / rounds.median(_RECOVERY) / 1e6
    return Result(name, rate, "MB/s", _PLAIN, rounds.speed_ratio(_RECOVERY, _PLAIN), bar)


def _write_and_die(directory: Path, batch_bytes: int, size: int) -> None:
    fill(PartitionLog.open(directory, _KILLED), random_batch(batch_bytes, 1000), size)
    os.kill(os.getpid(), signal.SIGKILL)


def _read_and_sum(path: Path) -> int:
    """Return the CRC-32C of a file, read in pieces of 1 MiB."""
    crc = position = 0
    handle = os.open(path, os.O_RDONLY)
    try:
        while chunk := os.pread(handle, _MIB, position):
            crc = crc32c(chunk, crc)
            position += len(chunk)
    finally:
        os.close(handle)
    return crc


def _recover(directory: Path, size: int) -> float:
    """Open a copy of the crashed log, made of hard links, since recovery changes its directory."""
    copy = directory.with_name("recovered-0")
    shutil.copytree(directory, copy, copy_function=os.link)
    opened: list[PartitionLog] = []
    seconds = seconds_of(lambda: opened.append(PartitionLog.open(copy, _KILLED, clean=False, recovery_point=0)))
    assert opened[0].recovery.fault is None, opened[0].recovery
    assert opened[0].size_in_bytes >= size, (opened[0].size_in_bytes, size)
    opened[0].delete()
    return seconds


if __name__ == "__main__":
    run_alone(run)
