"""The markers that a node's coordinators write to the leaders of transactions' partitions, without I/O (KIP-98).

:class:`MarkerQueue` keeps each marker until its partition has it:

- At most one request per node is in progress. It takes all markers for that node, up to a limit. Partitions that have
  answered REQUEST_TIMED_OUT, because their replicas are slow, get separate requests, until one succeeds: at most two
  requests per node are in progress.
- A marker of a partition without a leader waits until there is one. After an error, it waits for the back-off, and goes
  to the partition's leader of that time.
- A marker whose leader has not answered for :data:`SLOW_MS` goes to the next leader if there is one. Before transaction
  version 2 it waits: a late copy could end the next transaction, which has the same epoch.
- A partition that was deleted needs no marker. A partition that knows a newer epoch of the producer has its marker.
- A newer coordinator of the same transactional id ends the markers of the older one.
- The end of a shard ends its markers. Answers that arrive later have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Set
from dataclasses import field

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode
from tidelog_node.transactions.events import WriteMarkers
from tidelog_node.transactions.partition_order import STEP_PARTITIONS, in_order
from tidelog_node.transactions.states import EPOCH_BUMP_VERSION, TopicPartition

BACKOFF_MS = 100
SLOW_MS = 1_000
MAX_PARTITIONS = 5_000
"""The number of partitions in one request."""
_WRITTEN = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionMarkers:
    """The markers of one transaction for partitions that one node leads."""

    markers_id: int
    markers: WriteMarkers
    coordinator_epoch: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class MarkersRequest:
    """A request to a node. :meth:`MarkerQueue.answer` or :meth:`MarkerQueue.fail` takes its result."""

    request_id: int
    node_id: int
    transactions: tuple[PartitionMarkers, ...]
    is_slow: bool = False
    """The replicas of the partitions are slow."""


@dataclass(slots=True)
class _Transaction:
    markers: WriteMarkers
    shard: int
    coordinator_epoch: int
    missing: set[TopicPartition]
    order: list[TopicPartition] | None = None
    """The missing partitions and some others, in order. None until they are sorted."""
    in_progress: dict[TopicPartition, int] = field(default_factory=dict)
    """The node of the latest request that has each partition."""

    def to_send(self, slow_nodes: Set[int]) -> Iterator[TopicPartition | None]:
        """Yield the partitions without a marker that are in no request, except in one to a slow node, in order.

        Yield None where other work may run.
        """
        if self.order is None:
            order = []
            for partition in in_order(self.markers.partitions):
                if partition is None:
                    yield None
                else:
                    order.append(partition)
            self.order = order
        elif len(self.order) > 2 * len(self.missing):
            self.order = [partition for partition in self.order if partition in self.missing]
        may_repeat = bool(slow_nodes) and self.markers.version >= EPOCH_BUMP_VERSION
        for place, partition in enumerate(self.order):
            if place and place % STEP_PARTITIONS == 0:
                yield None
            node_id = self.in_progress.get(partition)
            if partition in self.missing and (node_id is None or (may_repeat and node_id in slow_nodes)):
                yield partition

    def note_written(self, partition: TopicPartition) -> None:
        """Note that a partition has its marker, or needs none."""
        self.missing.discard(partition)
        self.in_progress.pop(partition, None)


class MarkerQueue:
    """The unwritten markers of one node. Used on one thread.

    A ``shard`` is a partition of __transaction_state that this node leads.
    """

    def __init__(self) -> None:
        self._transactions: dict[int, _Transaction] = {}
        self._requests: dict[int, MarkersRequest] = {}
        self._sent_ms: dict[int, int] = {}
        """The time at which each request was sent."""
        self._retry_ms: dict[TopicPartition, int] = {}
        """The time of the next attempt for a partition whose latest one failed, until that time."""
        self._slow: set[TopicPartition] = set()
        """The partitions whose replicas are slow."""
        self._next_id = 1

    def __len__(self) -> int:
        """Return the number of transactions whose markers are not in all partitions."""
        return len(self._transactions)

    def add(self, shard: int, coordinator_epoch: int, markers: WriteMarkers) -> int:
        """Add the markers of a transaction and return their id, which :meth:`take_written` returns later."""
        markers_id, self._next_id = self._next_id, self._next_id + 1
        self._transactions[markers_id] = _Transaction(markers, shard, coordinator_epoch, set(markers.partitions))
        return markers_id

    def end_shard(self, shard: int) -> None:
        """Drop the markers of a shard that this node no longer leads."""
        for markers_id in [key for key, t in self._transactions.items() if t.shard == shard]:
            del self._transactions[markers_id]

    def take_written(self) -> list[tuple[int, WriteMarkers]]:
        """Remove the transactions whose markers are in all partitions, and return them with their shards."""
        done = [key for key, transaction in self._transactions.items() if not transaction.missing]
        taken = [self._transactions.pop(key) for key in done]
        return [(transaction.shard, transaction.markers) for transaction in taken]

    def requests(self, leader_of: Callable[[TopicPartition], int | None], now_ms: int) -> list[MarkersRequest]:
        """Return the due requests. ``leader_of`` returns NO_LEADER for an offline partition, None for a deleted one."""
        steps = self.requests_in_steps(leader_of, now_ms)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                requests: list[MarkersRequest] = end.value
                return requests

    def requests_in_steps(
        self, leader_of: Callable[[TopicPartition], int | None], now_ms: int
    ) -> Generator[None, None, list[MarkersRequest]]:
        """Return the due requests like :meth:`requests`, with pauses, in which all other methods may be called."""
        self._retry_ms = {partition: time_ms for partition, time_ms in self._retry_ms.items() if time_ms > now_ms}
        if self._slow:
            self._slow.intersection_update(p for t in self._transactions.values() for p in t.missing)
        busy = {(request.node_id, request.is_slow) for request in self._requests.values()}
        slow_nodes = {
            self._requests[key].node_id for key, sent_ms in self._sent_ms.items() if now_ms - sent_ms >= SLOW_MS
        }
        chosen: dict[tuple[int, bool], dict[int, list[TopicPartition]]] = {}
        sizes: dict[tuple[int, bool], int] = {}
        for markers_id, transaction in list(self._transactions.items()):
            for partition in transaction.to_send(slow_nodes):
                if partition is None:
                    yield
                    continue
                leader = leader_of(partition)
                if leader is None:
                    transaction.note_written(partition)
                    continue
                target = (leader, partition in self._slow)
                is_sent = transaction.in_progress.get(partition) == leader
                if leader == NO_LEADER or is_sent or target in busy or partition in self._retry_ms:
                    continue
                if sizes.setdefault(target, 0) < MAX_PARTITIONS:
                    sizes[target] += 1
                    chosen.setdefault(target, {}).setdefault(markers_id, []).append(partition)
        begun = (self._begin(*target, partitions, now_ms) for target, partitions in chosen.items())
        return [request for request in begun if request is not None]

    def next_retry_ms(self) -> int | None:
        """Return the time at which :meth:`requests` may return more after an error, or None."""
        if not self._retry_ms:
            return None
        waiting = {p for t in self._transactions.values() for p in t.missing}
        self._retry_ms = {p: time_ms for p, time_ms in self._retry_ms.items() if p in waiting}
        return min(self._retry_ms.values(), default=None)

    def answer(self, request_id: int, errors: Mapping[tuple[int, TopicPartition], ErrorCode], now_ms: int) -> None:
        """Process the results of a request, by the id of the markers. A partition without a result is retried."""
        request = self._requests.pop(request_id)
        del self._sent_ms[request_id]
        for item in request.transactions:
            transaction = self._transactions.get(item.markers_id)
            if transaction is None:
                continue
            for partition in item.partitions:
                is_latest = transaction.in_progress.get(partition) == request.node_id
                if is_latest:
                    del transaction.in_progress[partition]
                code = errors.get((item.markers_id, partition), ErrorCode.UNKNOWN_SERVER_ERROR)
                if code is ErrorCode.TRANSACTION_COORDINATOR_FENCED:
                    self._transactions.pop(item.markers_id, None)
                elif code in _WRITTEN:
                    transaction.note_written(partition)
                    self._retry_ms.pop(partition, None)
                    self._slow.discard(partition)
                elif is_latest:
                    self._retry_ms[partition] = now_ms + BACKOFF_MS
                    if code is ErrorCode.REQUEST_TIMED_OUT:
                        self._slow.add(partition)

    def fail(self, request_id: int, now_ms: int) -> None:
        """Process the failure of a request: its markers may or may not be written."""
        self.answer(request_id, {}, now_ms)

    def check_invariants(self) -> None:
        """Assert that at most one request of each kind per node is in progress, with the partitions in progress."""
        nodes = [(request.node_id, request.is_slow) for request in self._requests.values()]
        assert len(nodes) == len(set(nodes))
        for markers_id, transaction in self._transactions.items():
            assert transaction.in_progress.keys() <= transaction.missing
            sent = {
                (p, r.node_id)
                for r in self._requests.values()
                for i in r.transactions
                if i.markers_id == markers_id
                for p in i.partitions
            }
            assert transaction.in_progress.items() <= sent

    def _begin(
        self, node_id: int, is_slow: bool, partitions: Mapping[int, Iterable[TopicPartition]], now_ms: int
    ) -> MarkersRequest | None:
        """Return the request for a node, unless the chosen partitions got their markers in a pause."""
        items = []
        for markers_id, chosen in partitions.items():
            transaction = self._transactions.get(markers_id)
            left = () if transaction is None else tuple(p for p in chosen if p in transaction.missing)
            if transaction is not None and left:
                transaction.in_progress.update(dict.fromkeys(left, node_id))
                items.append(PartitionMarkers(markers_id, transaction.markers, transaction.coordinator_epoch, left))
        if not items:
            return None
        request_id, self._next_id = self._next_id, self._next_id + 1
        self._sent_ms[request_id] = now_ms
        request = self._requests[request_id] = MarkersRequest(request_id, node_id, tuple(items), is_slow)
        return request
