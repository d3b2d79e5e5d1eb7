"""A cleaning that the machine's crash or an error of the disk ends at any of its operations."""

from __future__ import annotations

import contextlib
import errno
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest
from cleaned_log import CONFIG, RETENTION_MS, CleanedLog
from memory_disk import MachineCrashed, MemoryFiles, no_fault
from seeds import reproducible, seeds

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.records.control import ControlType

_STRIDE = 4
"""A run of one seed tries every fourth operation; four seeds try all."""


def scenario(disk: MemoryFiles) -> CleanedLog:
    """A log that has been cleaned once, with tombstones whose time is over, and transactions of both kinds."""
    log = CleanedLog(disk, config=replace(CONFIG, segment_bytes=400))
    log.append([(b"a", b"1" * 50), (b"b", b"1" * 50)])
    log.append([(b"a", b"x" * 50), (b"c", b"x")], producer_id=7)
    log.append([(b"b", None), (b"d", b"1")], compression="lz4")
    log.end_transaction(7, ControlType.ABORT)
    log.append([(b"c", b"2" * 50)], producer_id=8)
    log.end_transaction(8, ControlType.COMMIT)
    log.log.roll(log.now_ms)
    log.clean()
    log.now_ms += RETENTION_MS
    for index in range(6):
        log.append([(b"e%d" % (index % 3), b"2" * 40), (b"a", None)])
    log.append([(b"f", b"x")], producer_id=7)
    log.end_transaction(7, ControlType.ABORT)
    log.log.roll(log.now_ms)
    log.append([(b"g", b"3")])
    log.log.flush()
    return log


def operations(seed: int) -> Iterator[tuple[int, CleanedLog]]:
    """Yield the numbers of operations of a cleaning, each with a log that is about to be cleaned."""
    log = scenario(MemoryFiles())
    first = log.disk.operations
    log.clean()
    assert log.disk.operations - first > 100
    for number in range(first + seed % _STRIDE, log.disk.operations + 1, _STRIDE):
        yield number, scenario(MemoryFiles())


def crash_and_clean(log: CleanedLog, seed: int) -> None:
    log.crash(random.Random(seed))
    assert [path for path in log.disk.paths() if "cleaned" in path.name or "swap" in path.name] == []
    log.check()
    log.clean()
    log.check()


@pytest.mark.sim
@pytest.mark.parametrize("seed", seeds(1, cost=40))
def test_cleaning_survives_a_crash_at_any_operation(seed: int) -> None:
    with reproducible(seed):
        for number, log in operations(seed):
            log.disk.crash_at = number
            with contextlib.suppress(MachineCrashed):
                log.clean()
            log.disk.crash_at = None
            crash_and_clean(log, seed * 1000 + number)


@pytest.mark.sim
@pytest.mark.parametrize("seed", seeds(1, cost=40))
def test_cleaning_survives_an_error_of_the_disk_at_any_operation(seed: int) -> None:
    with reproducible(seed):
        for number, log in operations(seed):
            log.disk.fail = lambda operation, path, disk=log.disk, number=number: (  # type: ignore[misc]
                errno.EIO if disk.operations == number + 1 and operation != "close" else None
            )
            # Not every error ends a cleaning: an index file that cannot be removed is replaced later.
            with contextlib.suppress(TidelogError):
                log.clean()
            log.disk.fail = no_fault
            if log.log.failure is None:
                log.check()
            crash_and_clean(log, seed * 1000 + number)
