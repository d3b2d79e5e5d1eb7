"""Writes batches into a log. A leader validates them and assigns offsets; a follower copies them.

The order of the steps keeps the parts of a log consistent: nothing is written before everything is checked; a leader
epoch enters the cache before its first batch enters the log; producer state changes after the batch is in the log.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import NO_EPOCH, LeaderEpoch
from tidelog_foundation.records import RecordBatchHeader, parse_header
from tidelog_node.log.append_rules import AppendInfo, CheckedBatch, ProduceRules, assigned_header, replicated_headers
from tidelog_node.log.config import LogConfig
from tidelog_node.log.disk.files import Buffer, storage_errors
from tidelog_node.log.epochs import LeaderEpochCache
from tidelog_node.log.local_log import LocalLog
from tidelog_node.log.producer_replay import ProducerReplay
from tidelog_node.log.producers.entries import read_marker
from tidelog_node.log.producers.verification import NO_GUARD


class Appender:
    """The append path of one :class:`PartitionLog`, on its thread; the log's methods of the same names list the errors.

    ``rules`` validates producers' batches.
    """

    __slots__ = ("_epochs", "_local", "_producers", "rules")

    def __init__(self, local: LocalLog, epochs: LeaderEpochCache, producers: ProducerReplay) -> None:
        self._local = local
        self._epochs = epochs
        self._producers = producers
        self.rules = ProduceRules(local.config)

    def change_config(self, config: LogConfig) -> None:
        """Apply new settings."""
        self.rules = ProduceRules(config)

    def append_as_leader(
        self,
        batch: Buffer | CheckedBatch,
        leader_epoch: int,
        now_ms: int,
        guard: int = NO_GUARD,
        *,
        is_admitted: bool = False,
    ) -> AppendInfo:
        """Append one batch from a producer, unless the log has it already.

        ``is_admitted`` means that the rules of producers have admitted the batch.
        """
        local, rules = self._local, self.rules
        local.check_online()
        checked = batch if isinstance(batch, CheckedBatch) else rules.check(batch, now_ms)
        header, records = checked.header, checked.records
        latest_epoch = self._epochs.latest_epoch
        if leader_epoch < latest_epoch:
            raise self._fenced(leader_epoch)
        if header.producer_id >= 0 and not is_admitted:
            duplicate = self._producers.snapshots.state.check(header, guard)
            if duplicate is not None:
                return rules.describe_duplicate(duplicate, len(records), leader_epoch)
        assigned = rules.assign(checked, local.log_end_offset, leader_epoch, now_ms)
        parts, size, base_offset, last_offset, max_timestamp = assigned
        if local.must_roll(size, last_offset, max_timestamp, now_ms):
            self.roll(base_offset, now_ms)
        if leader_epoch != latest_epoch:
            self._epochs.assign(LeaderEpoch(leader_epoch), base_offset)
        local.append_batch(parts, size, last_offset, max_timestamp)
        if header.producer_id >= 0:
            self.take_in([assigned_header(header, assigned, leader_epoch)], records, now_ms)
        return rules.describe(assigned, leader_epoch)

    def append_marker(self, batch: Buffer, leader_epoch: int, now_ms: int, transaction_version: int) -> AppendInfo:
        """Append the marker of a transaction coordinator."""
        self._local.check_online()
        header, marker = parse_header(batch), read_marker(batch)
        assert marker is not None, "a coordinator appends markers"
        self._producers.snapshots.state.check_marker(header, marker, transaction_version)
        checked = CheckedBatch(header, batch, header.max_timestamp, header.size_in_bytes)
        return self.append_as_leader(checked, leader_epoch, now_ms, is_admitted=True)

    def append_coordinated(self, batch: Buffer, leader_epoch: int, now_ms: int, guard: int) -> AppendInfo:
        """Append a transactional batch of the group coordinator."""
        self._local.check_online()
        header = parse_header(batch)
        self._producers.snapshots.state.check_coordinated(header, guard)
        checked = CheckedBatch(header, batch, header.max_timestamp, header.size_in_bytes)
        return self.append_as_leader(checked, leader_epoch, now_ms, is_admitted=True)

    def append_as_follower(self, records: Buffer, now_ms: int) -> AppendInfo:
        """Append whole batches exactly as the leader sent them."""
        local = self._local
        local.check_online()
        end_offset = local.log_end_offset
        is_empty = end_offset == local.segments.first.base_offset
        epoch = NO_EPOCH if is_empty else self._epochs.epoch_at(end_offset - 1)
        headers = replicated_headers(records, end_offset, epoch)
        position, done = 0, 0
        while done < len(headers):
            group = self._place(headers, done, now_ms)
            size = sum(header.size_in_bytes for header in group)
            part = records if size == len(records) else memoryview(records)[position : position + size]
            self._epochs.assign(LeaderEpoch(group[0].partition_leader_epoch), group[0].base_offset)
            try:
                local.append(part, group)
            except TidelogError:
                self._epochs.forget_beyond(local.log_end_offset)
                raise
            self.take_in_copies(group, part, now_ms)
            position, done = position + size, done + len(group)
        return AppendInfo.of(headers)

    def roll(self, first_offset: int, now_ms: int) -> None:
        """Close the active segment and start one for a batch at ``first_offset``, with a snapshot of the producers."""
        self._producers.snapshots.take(self._local.log_end_offset)
        self._local.roll(first_offset, now_ms)

    def take_in(self, headers: Sequence[RecordBatchHeader], records: Buffer, now_ms: int) -> None:
        """Apply batches that the log now has to the states of their producers.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR, the transaction index cannot be written.
        """
        if len(headers) == 1 and headers[0].producer_id < 0:
            return
        position = 0
        with storage_errors("Recording the producers of", self._local.directory):
            for header in headers:
                if header.producer_id >= 0:
                    batch = memoryview(records)[position : position + header.size_in_bytes]
                    self._producers.append(self._local.segments.active, header, batch, now_ms)
                position += header.size_in_bytes

    def take_in_copies(self, headers: Sequence[RecordBatchHeader], records: Buffer, now_ms: int) -> None:
        """Apply batches of a leader like :meth:`take_in`; after an error, remove them from the log again."""
        try:
            self.take_in(headers, records, now_ms)
        except TidelogError:
            # Producers and transactions must match the batches in the log.
            self._take_back(headers[0].base_offset)
            raise

    def _fenced(self, leader_epoch: int) -> TidelogError:
        name, latest_epoch = self._local.directory.name, self._epochs.latest_epoch
        text = f"cannot append to {name} in leader epoch {leader_epoch}, the log has epoch {latest_epoch}"
        return error_for(ErrorCode.FENCED_LEADER_EPOCH, text)

    def _place(self, headers: Sequence[RecordBatchHeader], first: int, now_ms: int) -> list[RecordBatchHeader]:
        """Make room for the next batches and return those that fit in one write; all have the same leader epoch."""
        head = headers[first]
        if self._local.must_roll(head.size_in_bytes, head.last_offset, head.max_timestamp, now_ms):
            self.roll(head.base_offset, now_ms)
        group, size = [head], head.size_in_bytes
        # An empty segment takes its first batch alone: that batch starts the segment's lifetime.
        for header in headers[first + 1 :] if self._local.segments.active.size else ():
            size += header.size_in_bytes
            is_other_epoch = header.partition_leader_epoch != head.partition_leader_epoch
            if is_other_epoch or self._local.must_roll(size, header.last_offset, header.max_timestamp, now_ms):
                break
            group.append(header)
        return group

    def _take_back(self, offset: int) -> None:
        local = self._local
        local.truncate_to(offset)
        self._epochs.forget_beyond(local.log_end_offset)
        try:
            with storage_errors("Reading the producers of", local.directory):
                self._producers.load(list(local.segments), local.segments.first.base_offset, local.log_end_offset)
        except TidelogError as error:
            local.failure = error
