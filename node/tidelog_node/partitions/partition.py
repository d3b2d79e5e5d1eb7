"""One replica of one partition in this process: its log, its state machine and its waiting requests.

Everything runs on the event loop's thread. A request's check, append and state change happen without a pause in
between, so no role change can separate them. Truncation, closing and other work that must not run beside a flush in a
thread takes ``disk`` first.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import assert_never

from tidelog_foundation.config import TopicConfig
from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.ids import NO_BROKER, BrokerId, LeaderEpoch, TopicId
from tidelog_foundation.records import RecordBatchHeader
from tidelog_node.event_loop import Clock, DecodingThread, Pending
from tidelog_node.log import NO_GUARD, AppendInfo, CheckedBatch, PartitionLog, TimestampAndOffset, TimestampSearch
from tidelog_node.log.disk.files import Buffer
from tidelog_node.log.segments.segment import Segment
from tidelog_node.partitions import mirror_writes, short_append, short_replicate
from tidelog_node.partitions.effects import DiskWatch, PartitionEffects
from tidelog_node.partitions.measurements import Measurements
from tidelog_node.partitions.purgatory import PartitionWaiters
from tidelog_node.partitions.reads import (
    FollowerIdentity,
    ReadRequest,
    ReadResult,
    epoch_end,
    read_divergence,
    read_for_consumer,
    read_for_follower,
)
from tidelog_node.partitions.throttles import ThrottledSides
from tidelog_node.replication import EpochEnd, LeaderState, PartitionState, commands, events
from tidelog_quorum.metadata.registrations import PartitionRegistration

logger = logging.getLogger(__name__)

_MARKING_READERS = (
    events.RegistrationChanged,
    events.EligibleBrokersChanged,
    events.MinIsrChanged,
    events.IsrChangeAccepted,
    events.IsrChangeRefused,
)
"""Events after which a fetch may find another leader, fail, or let its follower join the ISR."""


class Partition:
    """A replica that the registry creates when the metadata assigns it to this node.

    The registry closes or deletes it when the metadata no longer does.
    """

    def __init__(
        self,
        topic: str,
        topic_id: TopicId,
        index: int,
        log: PartitionLog,
        state: PartitionState,
        effects: PartitionEffects,
        clock: Clock,
        measured: Measurements | None = None,
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.state = state
        self.disk = asyncio.Lock()
        self.waiters = PartitionWaiters()
        self.truncated_to: int | None = None
        """The lowest offset of a truncation since the last :meth:`forget_truncation`; None without a truncation."""
        self.throttled = ThrottledSides.of(log.config, index, state.local_id)
        self._measured = measured or Measurements()
        self.traffic = self._measured.traffic_of(topic)
        self._isr: frozenset[BrokerId] | None = None
        """The confirmed ISR while this replica leads."""
        self._effects = effects
        self.clock = clock
        self.disk_watch = DiskWatch(self, effects)

    def __str__(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def high_watermark(self) -> int:
        """The offset below which every record is committed."""
        return self.state.high_watermark

    def change_registration(self, registration: PartitionRegistration) -> None:
        """Apply the partition's registration from the metadata."""
        former = self.state.leader_id, self.state.leader_epoch
        self.step(
            events.RegistrationChanged(
                registration.replicas,
                frozenset(registration.isr),
                registration.leader,
                registration.leader_epoch,
                registration.partition_epoch,
                self.log.log_end_offset,
                registration.is_mirror,
                registration.mirror_end_epoch,
            )
        )
        if former != (self.state.leader_id, self.state.leader_epoch):
            self._report_role()

    def change_config(self, config: TopicConfig) -> None:
        """Apply the topic's settings."""
        self.log.config = config
        self.throttled = ThrottledSides.of(config, self.index, self.state.local_id)
        self.step(events.MinIsrChanged(config.min_insync_replicas))

    def pass_time(self) -> None:
        """Let a leader check for lagging followers."""
        self.step(events.TimePassed())

    def needs_verification(self, header: RecordBatchHeader) -> bool:
        """Return whether a transactional batch would begin a transaction here. A follower refuses the append."""
        return self.state.leader is not None and self.log.needs_verification(header)

    def begin_verification(self, header: RecordBatchHeader, *, begins_at_zero: bool) -> int:
        """Return the guard of a batch that would begin a transaction, or NO_GUARD; see PartitionLog.

        Raises:
            TidelogError: NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH.
        """
        self.state.require_leader()
        return self.log.begin_verification(header, self.clock.wall_ms(), begins_at_zero=begins_at_zero)

    def append(
        self, batch: bytes | memoryview | CheckedBatch, needs_all_replicas: bool, guard: int = NO_GUARD
    ) -> AppendInfo:
        """Append one batch as the leader, unless it is a duplicate of an idempotent producer.

        The log takes over a writable memoryview and writes the offsets into it. The log's ``produce_rules`` may have
        checked the batch before. A batch that begins a transaction needs the ``guard`` of :meth:`begin_verification`.

        Raises:
            TidelogError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, or an error of the log; nothing is appended.
        """
        if guard == NO_GUARD and (short := short_append.append(self, batch, needs_all_replicas)):
            return short
        leader = self.state.require_leader()
        if leader.is_mirror:
            raise self._read_only()
        if needs_all_replicas:
            leader.check_enough_replicas()
        try:
            info = self.log.append_as_leader(batch, leader.leader_epoch, self.clock.wall_ms(), guard)
        except TidelogError as error:
            self.disk_watch.report(error)
            raise
        if not info.is_duplicate:
            self.step(events.RecordsAppended(self.log.log_end_offset))
            self.waiters.log_end.wake()
            traffic = self.traffic
            traffic.appends += 1
            traffic.bytes_in += info.size_in_bytes
            traffic.messages_in += info.last_offset - info.first_offset + 1
        return info

    def append_marker(self, batch: bytes, transaction_version: int) -> AppendInfo:
        """Append the marker of a transaction coordinator as the leader, if enough replicas are in sync.

        Raises:
            TidelogError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, or an error of the log; nothing is appended.
        """
        leader = self.state.require_leader()
        if leader.is_mirror:
            raise self._read_only()
        leader.check_enough_replicas()
        with self.disk_watch:
            info = self.log.append_marker(batch, leader.leader_epoch, self.clock.wall_ms(), transaction_version)
        self.note_appended()
        return info

    def append_coordinated(self, batch: bytes, guard: int) -> AppendInfo:
        """Append a transactional batch of this node's group coordinator, if enough replicas are in sync.

        Raises:
            TidelogError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, or an error of the log; nothing is appended.
        """
        leader = self.state.require_leader()
        leader.check_enough_replicas()
        with self.disk_watch:
            info = self.log.append_coordinated(batch, leader.leader_epoch, self.clock.wall_ms(), guard)
        self.note_appended()
        return info

    def is_replicated(self, required_offset: int) -> bool:
        """Return whether all in-sync replicas hold everything below ``required_offset``, right after the append.

        Raises:
            TidelogError: NOT_ENOUGH_REPLICAS_AFTER_APPEND: They do, but the ISR has become too small.
        """
        return self.state.require_leader().is_replicated(required_offset)

    def replicated(self, required_offset: int) -> Pending[None]:
        """Return a Pending that settles once all in-sync replicas hold everything below ``required_offset``.

        It fails with NOT_LEADER_OR_FOLLOWER when leadership moves first, and with NOT_ENOUGH_REPLICAS_AFTER_APPEND when
        the ISR has become too small. Call it right after the append, while this replica leads. Its callback runs
        within a step of this partition, so it may answer a request but must not call the partition.
        """
        pending = self.waiters.producers.add(required_offset)
        self.waiters.complete_producers(self.state.leader)
        return pending

    def timed_out(self, required_offset: int, timeout_ms: int) -> TidelogError:
        """Return the error for a producer that has waited for ``timeout_ms`` (Kafka's DelayedProduce)."""
        leader = self.state.leader
        text = f"{self}: offset {required_offset} was not replicated to all in-sync replicas within {timeout_ms} ms"
        if leader is not None and leader.is_under_min_isr:
            text += f": {leader.describe_isr('has shrunk to')}"
        return error_for(ErrorCode.REQUEST_TIMED_OUT, text)

    def read_as_leader(self, request: ReadRequest, follower: FollowerIdentity | None) -> ReadResult:
        """Read committed records for a consumer, or all records for a follower.

        A follower's fetch that matches this log also acknowledges every record below its offset.

        Raises:
            TidelogError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER, OFFSET_OUT_OF_RANGE.
        """
        self.state.check_leader_epoch(request.leader_epoch)
        leader = self.state.require_leader()
        if follower is not None:
            return self._read_for_follower(leader, request, follower)
        with self.disk_watch:
            return read_for_consumer(self.log, request, leader.high_watermark)

    def read_as_replica(self, request: ReadRequest) -> ReadResult:
        """Read for a consumer up to this follower's own high watermark (KIP-392).

        Raises:
            TidelogError: As :meth:`read_as_leader`; OFFSET_NOT_AVAILABLE for an offset that the leader may have.
        """
        self.state.check_leader_epoch(request.leader_epoch)
        if request.fetch_offset > self.log.log_end_offset:
            text = f"{self}: offset {request.fetch_offset} is above this replica's log end {self.log.log_end_offset}"
            raise error_for(ErrorCode.OFFSET_NOT_AVAILABLE, text)
        with self.disk_watch:
            return read_for_consumer(self.log, request, self.high_watermark)

    def snapshot(self, request: ReadRequest) -> ReadResult:
        """Return this leader's offsets without records, for a consumer that the leader redirects to another replica.

        Raises:
            TidelogError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        """
        self.state.check_leader_epoch(request.leader_epoch)
        high_watermark = self.state.require_leader().high_watermark
        return ReadResult(b"", high_watermark, self.log.last_stable_offset(high_watermark), self.log.log_start_offset)

    def end_offset_for_epoch(self, epoch: int, leader_epoch: LeaderEpoch | None) -> tuple[int, int]:
        """Return the leader's largest epoch not above ``epoch`` and its end offset; (-1, -1) if unknown (KIP-320).

        Raises:
            TidelogError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        """
        self.state.check_leader_epoch(leader_epoch)
        self.state.require_leader()
        return self.log.end_offset_for_epoch(epoch)

    async def find_by_timestamp(
        self, timestamp_ms: int, end_offset: int, decoding: DecodingThread
    ) -> TimestampAndOffset | None:
        """Return the first record at or after ``timestamp_ms``; None when there is none below ``end_offset``."""
        return await self._find(self.log.search_timestamp(timestamp_ms), end_offset, decoding)

    async def find_max_timestamp(self, end_offset: int, decoding: DecodingThread) -> TimestampAndOffset | None:
        """Return the first record with the largest timestamp; None when it is missing or not below ``end_offset``."""
        with self.disk_watch:
            search = self.log.search_max_timestamp()
        return await self._find(search, end_offset, decoding)

    def delete_records(self, offset: int) -> Pending[None]:
        """Delete the records below ``offset``, or all committed records when it is -1 (KIP-107).

        When the method returns, this replica no longer serves the records. The result settles once the same is true of
        every replica on a live node. It fails with NOT_LEADER_OR_FOLLOWER when leadership moves first.

        Raises:
            TidelogError: NOT_LEADER_OR_FOLLOWER; POLICY_VIOLATION: The topic is only compacted; INVALID_REQUEST: It
                is a mirror topic; OFFSET_OUT_OF_RANGE.
        """
        leader = self.state.require_leader()
        if leader.is_mirror:
            raise self._read_only()
        if not self.log.config.is_deleted:
            text = f"{self}: records can be deleted only if cleanup.policy contains delete"
            raise error_for(ErrorCode.POLICY_VIOLATION, text)
        required_offset = leader.deletion_offset(offset)
        with self.disk_watch:
            if self.log.advance_log_start_offset(required_offset):
                self.waiters.wake_readers()
        pending = self.waiters.deletions.add(required_offset)
        self.waiters.complete_deletions(self.state.leader, self.log.log_start_offset)
        return pending

    def low_watermark(self) -> int:
        """Return the lowest log start of all replicas on live nodes; raise NOT_LEADER_OR_FOLLOWER."""
        return self.state.require_leader().low_watermark(self.log.log_start_offset)

    def replicate(
        self,
        leader_epoch: LeaderEpoch,
        fetch_offset: int,
        records: Buffer,
        high_watermark: int,
        log_start_offset: int,
    ) -> None:
        """Apply the answer of the leader of ``leader_epoch`` to a fetch at ``fetch_offset``; ignore a stale answer.

        Raises:
            TidelogError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR; nothing is appended.
        """
        if short_replicate.replicate(self, leader_epoch, fetch_offset, records, high_watermark, log_start_offset):
            return
        if not self._is_expected(leader_epoch, fetch_offset):
            return
        if records:
            with self.disk_watch:
                self.log.append_as_follower(records, self.clock.wall_ms())
            self.traffic.replicated_in += len(records)
            self.waiters.log_end.wake()
        self.step(
            events.RecordsReplicated(
                leader_epoch, self.log.log_end_offset, self.log.log_start_offset, high_watermark, log_start_offset
            )
        )

    def mirrors_in(self, leader_epoch: LeaderEpoch) -> bool:
        """Return whether this replica leads a mirror in this leader epoch."""
        leader = self.state.leader
        return leader is not None and leader.is_mirror and leader.leader_epoch == leader_epoch

    async def truncate_diverging(self, leader_epoch: LeaderEpoch, fetch_offset: int, leader_end: EpochEnd) -> None:
        """Truncate the log to the point where it diverges from the log of the leader of ``leader_epoch``."""
        async with self.disk:
            if not self._is_expected(leader_epoch, fetch_offset):
                return
            own = epoch_end(self.log.end_offset_for_epoch(leader_end.epoch))
            logger.info("%s: the log diverges after epoch %d, offset %d", self, leader_end.epoch, leader_end.end_offset)
            self.step(events.LogDiverged(leader_epoch, leader_end, own, self.log.log_end_offset))

    async def restart_out_of_range(self, leader_epoch: LeaderEpoch, fetch_offset: int, leader_log_start: int) -> None:
        """Restart the log at the leader's log start, because the leader no longer has this log's next offset."""
        async with self.disk:
            if self._is_expected(leader_epoch, fetch_offset):
                event = events.LogOutOfRange(
                    leader_epoch, leader_log_start, self.log.log_start_offset, self.log.log_end_offset
                )
                self.step(event)

    async def create_folder(self) -> None:
        """Create the folder of a new log in a thread, so that the first append does not have to.

        Raises:
            TidelogError: KAFKA_STORAGE_ERROR; the caller may try again.
        """
        async with self.disk:
            with self.disk_watch:
                await asyncio.to_thread(self.log.create_folder)

    async def flush(self) -> int:
        """Flush the log to the disk in a thread, and return the new recovery point."""
        async with self.disk:
            begun_ns = time.perf_counter_ns()
            with self.disk_watch:
                recovery_point = await asyncio.to_thread(self.log.flush)
            self._measured.flushes.observe(time.perf_counter_ns() - begun_ns)
            return recovery_point

    def needs_flush(self) -> bool:
        """Return whether ``flush.ms`` has passed since a record was appended that is not on the disk."""
        return self.log.needs_flush(self.clock.wall_ms())

    async def delete_expired(self) -> list[str]:
        """Delete the segments beyond the retention time or size, and return the names of their files."""
        async with self.disk:
            with self.disk_watch:
                deleted = self.log.delete_expired(self.clock.wall_ms(), self.high_watermark)
        if deleted:
            self.waiters.mark_readers()
        return deleted

    async def remove_deleted_files(self) -> int:
        """Remove the files that were deleted ``file.delete.delay.ms`` ago, in a thread, and return their number."""
        async with self.disk:
            with self.disk_watch:
                return await asyncio.to_thread(self.log.remove_deleted_files, self.clock.wall_ms())

    def replace_segments(self, cleaned: Segment, sources: Sequence[Segment]) -> bool:
        """Replace the source segments with a cleaned one. Return False if they are gone. The caller holds ``disk``."""
        with self.disk_watch:
            return self.log.replace_segments(cleaned, sources, self.clock.wall_ms())

    def forget_truncation(self, offset: int) -> None:
        """Clear ``truncated_to``, unless the log was truncated below ``offset`` since the cleaner read it."""
        if self.truncated_to == offset:
            self.truncated_to = None

    def expire_producers(self) -> int:
        """Remove the state of producers idle for ``producer.id.expiration.ms``, and return their number."""
        with self.disk_watch:
            return self.log.expire_producers(self.clock.wall_ms())

    async def close(self) -> None:
        """Fail all waiting requests and close the log."""
        self._abandon(f"{self} is being closed on node {self.state.local_id}", ErrorCode.NOT_LEADER_OR_FOLLOWER)
        async with self.disk:
            await asyncio.to_thread(self.log.close)

    def go_offline(self, error: TidelogError) -> None:
        """Fail all waiting requests and every later one, because the log's directory has failed."""
        self.log.go_offline(error)
        self._abandon(f"{self}: the log directory of node {self.state.local_id} failed", ErrorCode.KAFKA_STORAGE_ERROR)

    async def delete(self, *, is_gone: bool) -> Path:
        """Fail all waiting requests and rename the log's folder for deletion, and return the new path."""
        self.note_removed(is_gone=is_gone)
        async with self.disk:
            return await asyncio.to_thread(self.log.rename_for_deletion)

    def note_removed(self, *, is_gone: bool) -> None:
        """Fail all waiting requests; unless the partition ``is_gone``, other nodes still have replicas of it."""
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_gone else ErrorCode.NOT_LEADER_OR_FOLLOWER
        self._abandon(f"{self} was removed from node {self.state.local_id}", code)

    def step(self, event: events.Event) -> None:
        """Pass an event to the state machine and execute its commands."""
        try:
            for command in self.state.step(event, self.clock.monotonic_ms()):
                self.execute(command)
        except TidelogError as error:
            self.disk_watch.report(error)
            raise
        if isinstance(event, _MARKING_READERS):
            self.waiters.mark_readers()
            self._measure_isr()
        if len(self.waiters.deletions):
            self.waiters.complete_deletions(self.state.leader, self.log.log_start_offset)

    def end_lease(self, follower: FollowerIdentity) -> None:
        """Stop counting the fetches of a follower's session for this partition until the follower reads it again."""
        leader = self.state.leader
        if follower.lease is not None and leader is not None and leader.has_lease(follower.replica_id, follower.lease):
            self.step(events.FetchLeaseEnded(follower.replica_id, follower.lease))

    def execute(self, command: commands.Command) -> None:
        """Execute a command of the state machine."""
        match command:
            case commands.AdvanceHighWatermark():
                self.log.advance_high_watermark(command.offset)
                self.waiters.complete_producers(self.state.leader)
                self.waiters.log_end.mark()
                self.waiters.high_watermark.wake()
            case commands.ProposeIsr():
                self._effects.propose_isr(self, command)
            case commands.AdvanceLogStart():
                self.log.advance_log_start_offset(command.offset)
                self.waiters.mark_readers()
            case commands.AssignEpochStart():
                self.log.assign_epoch_start(command.leader_epoch, command.offset)
                self.waiters.wake_readers()
            case commands.AbortMirroredTransactions():
                mirror_writes.abort_transactions(self, command.end_epoch)
            case commands.LeadershipLost():
                text = (
                    f"{self}: node {self.state.local_id} is no longer the leader, the leader is {self.state.leader_id}"
                )
                self.waiters.fail(error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, text))
                self.waiters.wake_readers()
            case commands.StartFetching():
                self._effects.start_fetching(self, command.leader_id, command.leader_epoch)
            case commands.StopFetching():
                self._effects.stop_fetching(self)
            case commands.TruncateTo():
                self.note_truncation(command.offset)
                self.log.truncate_to(command.offset)
                self.waiters.mark_readers()
            case commands.RestartLogAt():
                self.note_truncation(min(command.offset, self.log.log_start_offset))
                self.log.truncate_fully_and_start_at(command.offset)
                self.waiters.mark_readers()
            case _:
                assert_never(command)

    def _report_role(self) -> None:
        """Log the leader of a new leader epoch."""
        state, log, leader = self.state, self._measured.roles, self.state.leader
        if leader is not None:
            text = "%s: this node leads in leader epoch %d from offset %d with ISR %s"
            log.write(text, self, leader.leader_epoch, leader.epoch_start_offset, sorted(leader.isr.members))
        elif state.leader_id == NO_BROKER:
            log.write("%s: no node leads in leader epoch %d", self, state.leader_epoch)
        else:
            log.write("%s: this node follows node %d in leader epoch %d", self, state.leader_id, state.leader_epoch)

    def _measure_isr(self) -> None:
        """Count a change of the confirmed ISR of a leader."""
        leader, before = self.state.leader, self._isr
        self._isr = members = None if leader is None else leader.isr.committed.members
        if before is None or members is None or before is members:
            return
        self._measured.isr_shrinks += not before <= members
        self._measured.isr_expands += not members <= before

    def note_appended(self) -> None:
        """Process an append of this leader and wake the readers that wait for records."""
        self.step(events.RecordsAppended(self.log.log_end_offset))
        self.waiters.log_end.wake()

    def note_truncation(self, offset: int) -> None:
        """Record a truncation for the cleaner."""
        self.truncated_to = offset if self.truncated_to is None else min(offset, self.truncated_to)

    def _read_for_follower(self, leader: LeaderState, request: ReadRequest, follower: FollowerIdentity) -> ReadResult:
        log = self.log
        leader.check_follower(follower.replica_id, follower.replica_epoch)
        diverging = read_divergence(log, request, leader.high_watermark)
        if diverging is not None:
            return diverging
        records = b""
        if request.fetch_offset != log.log_end_offset:
            with self.disk_watch:
                records = read_for_follower(log, request)
        if not (request.is_repeated and records):
            self.step(
                events.FollowerFetched(
                    follower.replica_id,
                    follower.replica_epoch,
                    request.fetch_offset,
                    request.log_start_offset,
                    follower.lease,
                )
            )
        # The fetch may have raised the high watermark.
        high_watermark = self.state.role.high_watermark
        last_stable = log.last_stable_offset(high_watermark)
        # While records are uncommitted, the passing of time alone may change the answer to a later fetch.
        has_all = request.fetch_offset == high_watermark == log.log_end_offset
        return ReadResult(records, high_watermark, last_stable, log.log_start_offset, None, None, has_all)

    async def _find(
        self, search: TimestampSearch, end_offset: int, decoding: DecodingThread
    ) -> TimestampAndOffset | None:
        seen = None
        while True:
            try:
                with self.disk_watch:
                    look = search.send(seen)
            except StopIteration as end:
                found: TimestampAndOffset | None = end.value
                return found if found is not None and found.offset < end_offset else None
            seen = await decoding.run(look.find, look.compressed_size)

    def _abandon(self, reason: str, code: ErrorCode) -> None:
        self._effects.stop_fetching(self)
        self.waiters.fail(error_for(code, reason))
        self.waiters.wake_readers()

    def _read_only(self) -> TidelogError:
        text = f"{self} belongs to a mirror topic, which is read-only until it is promoted or failed over"
        return error_for(ErrorCode.INVALID_REQUEST, text)

    def _is_expected(self, leader_epoch: LeaderEpoch, fetch_offset: int) -> bool:
        is_follower = self.state.leader is None and self.state.leader_epoch == leader_epoch
        return is_follower and self.log.log_end_offset == fetch_offset
