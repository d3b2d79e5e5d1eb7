"""Writes to a partition that mirrors one of another cluster: what its leader appends, truncates and aborts.

The leader of a mirror does to its log what a follower does, by the answers of the source's leader. An answer counts
only in the leader epoch, and at the log end, for which it was requested.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from tidelog_foundation.errors import CorruptRecordError
from tidelog_foundation.ids import LeaderEpoch
from tidelog_foundation.records import ControlType, control_batch, iter_headers
from tidelog_node.log.disk.files import Buffer
from tidelog_node.log.producers.entries import NO_OFFSET
from tidelog_node.partitions.reads import epoch_at, epoch_end
from tidelog_node.replication import EpochEnd, events
from tidelog_node.replication.truncation import truncation_offset

if TYPE_CHECKING:
    from tidelog_node.partitions.partition import Partition

logger = logging.getLogger(__name__)


def is_mirrored(partition: Partition, leader_epoch: LeaderEpoch) -> bool:
    """Return whether this replica leads a mirror in this leader epoch."""
    leader = partition.state.leader
    return leader is not None and leader.is_mirror and leader.leader_epoch == leader_epoch


def append_from_source(
    partition: Partition, leader_epoch: LeaderEpoch, fetch_offset: int, records: Buffer, source_log_start: int
) -> None:
    """Append batches of the source exactly as they are, and delete what the source has deleted.

    Raises:
        TidelogError: CORRUPT_MESSAGE: a batch is altered, or its leader epoch is above this leader's;
            KAFKA_STORAGE_ERROR; nothing is appended.
    """
    if not _is_expected(partition, leader_epoch, fetch_offset):
        return
    log = partition.log
    if records:
        _check_epochs(records, leader_epoch)
        with partition.disk_watch:
            info = log.append_as_follower(records, partition.clock.wall_ms())
        partition.traffic.appends += 1
        partition.traffic.bytes_in += len(records)
        partition.traffic.messages_in += info.last_offset - info.first_offset + 1
        partition.note_appended()
    if source_log_start > log.log_start_offset:
        partition.step(events.SourceStartMoved(source_log_start, log.log_start_offset))


async def truncate_to_source(
    partition: Partition, leader_epoch: LeaderEpoch, fetch_offset: int, source_end: EpochEnd
) -> bool:
    """Truncate the log to where it diverges from the source's. Return False for a stale answer."""
    async with partition.disk:
        if not _is_expected(partition, leader_epoch, fetch_offset):
            return False
        log = partition.log
        own_end = epoch_end(log.end_offset_for_epoch(source_end.epoch))
        offset = truncation_offset(source_end, own_end, log.log_end_offset)
        text = "%s: the source's records differ from offset %d of its epoch %d on: truncating the mirror to offset %d"
        logger.warning(text, partition, source_end.end_offset, source_end.epoch, offset)
        with partition.disk_watch:
            partition.note_truncation(offset)
            log.truncate_to(offset)
        partition.step(events.LogCut(log.log_end_offset))
        partition.waiters.wake_readers()
        return True


async def restart_at_source(
    partition: Partition, leader_epoch: LeaderEpoch, fetch_offset: int, source_log_start: int
) -> bool:
    """Restart the log at the source's log start if that is above its end, or if the log is empty.

    Return False if nothing was done.
    """
    async with partition.disk:
        log = partition.log
        is_behind = log.log_end_offset < source_log_start
        is_empty = log.log_start_offset == log.log_end_offset != source_log_start
        if not _is_expected(partition, leader_epoch, fetch_offset) or not (is_behind or is_empty):
            return False
        text = "%s: the source begins at offset %d, and so does the mirror now, which has ended at %d"
        logger.info(text, partition, source_log_start, log.log_end_offset)
        with partition.disk_watch:
            partition.note_truncation(min(source_log_start, log.log_start_offset))
            log.truncate_fully_and_start_at(source_log_start)
        partition.step(events.LogRestarted(source_log_start))
        partition.waiters.wake_readers()
        return True


def abort_transactions(partition: Partition, end_epoch: LeaderEpoch) -> None:
    """Append markers that abort the transactions of the source, which began in epochs before ``end_epoch``."""
    leader, log = partition.state.require_leader(), partition.log
    for producer in log.active_producers():
        first_offset = producer.current_txn_first_offset
        if first_offset == NO_OFFSET or epoch_at(log, first_offset) >= end_epoch:
            continue
        now_ms = partition.clock.wall_ms()
        coordinator_epoch = max(0, producer.coordinator_epoch)
        ids = producer.producer_id, producer.producer_epoch
        batch = control_batch(ControlType.ABORT, *ids, coordinator_epoch, now_ms)
        with partition.disk_watch:
            log.append_marker(batch, leader.leader_epoch, now_ms, 0)
        logger.info("%s: aborted the transaction of producer %d, which is open on the source", partition, ids[0])
        partition.note_appended()


def _is_expected(partition: Partition, leader_epoch: LeaderEpoch, fetch_offset: int) -> bool:
    return is_mirrored(partition, leader_epoch) and partition.log.log_end_offset == fetch_offset


def _check_epochs(records: Buffer, leader_epoch: LeaderEpoch) -> None:
    for _, header in iter_headers(records):
        if header.partition_leader_epoch > leader_epoch:
            text = f"the batch at offset {header.base_offset} of the source has leader epoch"
            raise CorruptRecordError(f"{text} {header.partition_leader_epoch}, the mirror leads in {leader_epoch}")
