"""Members of the group that transforms: they consume, and write outputs and offsets in one transaction (KIP-447).

A member has a transactional id of its own, and the partitions that the group assigns to it. It begins at the committed
offsets, which it asks for with ``require_stable``. A member that was paused for longer than its session goes on as if
it still had its partitions, until it is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from sim.cluster.coordination import HEARTBEAT_MS, ShardCall
from sim.cluster.serving import Key
from sim.transactions.clients import TIMEOUT_MS, GaveUpError, TransactionalProducer, Work, name_of
from sim.transactions.memberships import GROUP, LOST

from tidelog_node.coordination.offsets_topic import OFFSETS_TOPIC
from tidelog_node.groups.messages import (
    OffsetCommitPartition,
    OffsetCommitTopic,
    OffsetFetchGroup,
    OffsetFetchGroupResult,
    TopicPartitions,
    TxnOffsetCommitRequest,
)

if TYPE_CHECKING:
    from sim.transactions.world import TransactionWorld

GROUP_SHARD: Key = (OFFSETS_TOPIC, 0)
NOTHING = -1


class Transformer(TransactionalProducer):
    """One instance of a member."""

    def __init__(self, transactions: TransactionWorld, number: int, transactional_id: str) -> None:
        self._membership = transactions.new_membership(number)
        self._owned: set[int] = set()
        self._positions: dict[int, int] = {}
        self._next: Mapping[int, int] = {}
        self._heartbeat_due_ms = 0
        super().__init__(transactions, number, transactional_id)

    @property
    def _topic(self) -> str:
        return self.transactions.inputs[0][0]

    def turn(self) -> Work:
        """Keep the membership alive, and transform some records."""
        if self._heartbeat_due_ms <= self.monotonic_ms() or not self._owned:
            yield from self._heartbeat()
        for index in sorted(self._owned - self._positions.keys()):
            yield from self._find_position(index)
        consumed: dict[Key, list[int]] = {}
        for index in sorted(self._positions):
            answer = yield from self.fetch((self._topic, index), self._positions[index])
            found, end = answer or ([], self._positions[index])
            offsets = [offset for offset, _ in found[: 1 + self.dice.randrange(4)]]
            if offsets:
                consumed[self._topic, index] = offsets
            else:
                self._positions[index] = end
        if consumed:
            yield from self._transform(consumed)

    def _transform(self, consumed: Mapping[Key, list[int]]) -> Work:
        self._next = {key[1]: offsets[-1] + 1 for key, offsets in consumed.items()}
        outputs = self.transactions.outputs
        keys = [self.dice.choice(outputs) for offsets in consumed.values() for _ in offsets]
        if (yield from self.transact(keys, consumed)):
            self._positions.update(self._next)
        else:
            self._positions.clear()

    def send_offsets(self) -> Work:
        """Commit the consumed offsets in the transaction, as the member that this was when it consumed."""
        yield from self.add(GROUP_SHARD)
        partitions = tuple(OffsetCommitPartition(index, offset) for index, offset in self._next.items())
        request = TxnOffsetCommitRequest(
            self.transactional_id,
            GROUP,
            *self.producer,
            self._membership.epoch,
            self._membership.member_id,
            topics=(OffsetCommitTopic(self._topic, partitions),),
            transaction_version=self.version,
        )
        yield from self.ask_group(request)

    def ask_group(self, request: object, timeout_ms: int = TIMEOUT_MS) -> Work:
        """Ask the coordinator of the group."""
        return self.ask(GROUP_SHARD, "coordinate", ShardCall(OFFSETS_TOPIC, GROUP, request), timeout_ms)

    def _heartbeat(self) -> Work:
        try:
            assigned = yield from self._membership.heartbeat(self, self._owned)
        except GaveUpError as gave_up:
            if gave_up.error is None or gave_up.error.code not in LOST:
                raise
            self.transactions.count("member fenced")
            self._membership.lose(gave_up.error.code)
            self._owned.clear()
            self._positions.clear()
            return
        self._heartbeat_due_ms = self.monotonic_ms() + HEARTBEAT_MS
        if assigned is not None:
            self._owned = assigned
            self._positions = {index: at for index, at in self._positions.items() if index in self._owned}
            # The group may wait to hear that this member has given up the others.
            self._heartbeat_due_ms = 0
            self.transactions.count("assigned")

    def _find_position(self, index: int) -> Work:
        topics = (TopicPartitions(self._topic, (index,)),)
        membership = self._membership
        request = OffsetFetchGroup(GROUP, membership.fetches_as, membership.epoch, topics, require_stable=True)
        try:
            response = yield from self.ask_group(request)
        except GaveUpError as gave_up:
            if gave_up.error is None or gave_up.error.code not in LOST:
                raise
            self._heartbeat_due_ms = 0
            return
        self._positions[index] = max(0, note_fetched(self.transactions, (self._topic, index), response))


def note_fetched(transactions: TransactionWorld, key: Key, response: OffsetFetchGroupResult) -> int:
    """Make a stable offset that somebody was told a part of the history, and return it."""
    [found] = response.topics[0].partitions
    offset = found.committed_offset
    transactions.annotate("fetched", {"offsets": {name_of(key): None if offset == NOTHING else offset}})
    return offset
