"""The coordinators of a simulated node: the product's shards, queues of markers and of questions, and their calls.

One of these lasts for one life of the process. The node leads a shard as long as it leads its partition.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from sim.cluster.serving import Key
from sim.cluster.shards import SimulatedShard, SimulatedView
from sim.cluster.world import OnAnswer

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import ControlType, control_batch
from tidelog_node.coordination.group_coordinator import _GroupKind
from tidelog_node.coordination.internal_topics import partition_for
from tidelog_node.coordination.offsets_topic import OFFSETS_TOPIC
from tidelog_node.coordination.shard_kind import ShardKind, ShardTerm
from tidelog_node.coordination.transaction_coordinator import _TransactionKind
from tidelog_node.coordination.transaction_topic import TRANSACTION_TOPIC
from tidelog_node.groups.messages import TxnOffsetCommitRequest
from tidelog_node.groups.settings import GroupSettings
from tidelog_node.groups.shard import GroupShard
from tidelog_node.handlers.transaction_verification import _header_of, _is_overtaken, refusal
from tidelog_node.log import NO_GUARD
from tidelog_node.shards.store import RecordStore
from tidelog_node.transactions.events import MarkersWritten, ProducerIdAllocated, WriteMarkers
from tidelog_node.transactions.markers import NO_LEADER, MarkerQueue, MarkersRequest, PartitionMarkers
from tidelog_node.transactions.requests import AddPartitionsRequest
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_node.transactions.states import EPOCH_BUMP_VERSION, Producer, TopicPartition
from tidelog_node.transactions.verification import Answer, Question, VerificationQueue, VerificationRequest

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess
    from sim.cluster.replicas import SimulatedPartition

    from tidelog_foundation.records import RecordBatchHeader

SESSION_MS = 400
HEARTBEAT_MS = 60
TRANSACTION_SETTINGS = TransactionSettings(abort_timed_out_interval_ms=200, transaction_max_timeout_ms=60_000)
_GROUP_SETTINGS = GroupSettings(
    group_min_session_timeout_ms=SESSION_MS,
    group_initial_rebalance_delay_ms=20,
    consumer_session_timeout_ms=SESSION_MS,
    consumer_min_session_timeout_ms=SESSION_MS,
    consumer_heartbeat_interval_ms=HEARTBEAT_MS,
    consumer_min_heartbeat_interval_ms=HEARTBEAT_MS,
)
_TICK_MS = 10
_CALL_MS = 300
_ID_MS = 5


class ShardCall(NamedTuple):
    """A request to the shard of an id. ``topic`` is that of the coordinator."""

    topic: str
    owner: str
    request: Any


class Coordination:
    """The shards that a node leads, and the requests that it sends for them and for its partitions."""

    def __init__(self, node: NodeProcess, view: SimulatedView) -> None:
        self._node = node
        self._view = view
        self._shards: dict[Key, SimulatedShard] = {}
        self._member_ids = 0
        self._markers = _Markers(node)
        self._questions = VerificationQueue()
        self._waiting: dict[int, Callable[[Answer], None]] = {}
        metadata = cast(Any, node.handlers.context.metadata)
        self._kinds: dict[str, ShardKind[Any, Any, Any, Any]] = {
            TRANSACTION_TOPIC: _TransactionKind(
                TRANSACTION_SETTINGS, metadata, node, cast(Any, _Allocations(node)), cast(Any, self._markers)
            ),
            OFFSETS_TOPIC: _GroupKind(self._new_group_shard, metadata, self._has_session),
        }

    def begin(self) -> None:
        """Follow the leaderships from now on."""
        self._tick()

    def call(self, call: ShardCall, answer: OnAnswer) -> None:
        """Process a request for a shard; the answer is the response or a TidelogError."""
        try:
            key = self._key_of(call)
            if isinstance(call.request, TxnOffsetCommitRequest):
                self._verify_offsets(key, call.request, answer)
            else:
                self._shard(key).ask(call.request, answer)
        except TidelogError as error:
            answer(error)

    def verify(
        self,
        partition: SimulatedPartition,
        header: RecordBatchHeader,
        guard: int,
        transactional_id: str,
        version: int,
        then: Callable[[TidelogError | None], None],
    ) -> None:
        """Ask the coordinator about a transaction that would begin in a partition."""
        adds = version >= EPOCH_BUMP_VERSION
        if not self.needs_verification(adds=adds):
            then(None)
            return
        producer = Producer(header.producer_id, header.producer_epoch)

        def answered(answer: Answer) -> None:
            code = answer.get(partition.key, ErrorCode.NONE)
            if code is ErrorCode.NONE and adds and _is_overtaken(partition, header, guard):
                code = ErrorCode.CONCURRENT_TRANSACTIONS
            then(None if code is ErrorCode.NONE else refusal(code, adds=adds))

        question = Question(transactional_id, producer, frozenset((partition.key,)), adds)
        self._waiting[self._questions.ask(question)] = answered
        self._send_questions()

    def needs_verification(self, *, adds: bool) -> bool:
        """Return whether a transaction is verified: ``transaction.partition.verification.enable`` is true."""
        return True

    def answer_questions(self, request: VerificationRequest, answer: OnAnswer) -> None:
        """Answer the questions of another node, when all shards have."""
        found: dict[str, Answer] = {}

        def take(question: Question, response: Any) -> None:
            error = response if isinstance(response, TidelogError) else response.error
            errors: Answer = {p: e.code for p, e in (getattr(response, "errors", None) or {}).items()}
            if error is not None:
                errors = dict.fromkeys(question.partitions, error.code)
            found[question.transactional_id] = errors
            if len(found) == len(request.questions):
                answer(found)

        for question in request.questions:
            partitions = tuple(sorted(question.partitions))
            version = EPOCH_BUMP_VERSION if question.adds else 0
            asked = AddPartitionsRequest(
                question.transactional_id, question.producer, partitions, not question.adds, version
            )
            call = ShardCall(TRANSACTION_TOPIC, question.transactional_id, asked)
            self.call(call, lambda response, question=question: take(question, response))

    def write_markers(self, request: MarkersRequest, answer: OnAnswer) -> None:
        """Append markers, and answer when all of them are replicated."""
        errors: dict[tuple[int, TopicPartition], ErrorCode] = {}
        count = sum(len(item.partitions) for item in request.transactions)

        def take(item: PartitionMarkers, key: Key, outcome: TidelogError | None) -> None:
            errors[item.markers_id, key] = ErrorCode.NONE if outcome is None else outcome.code
            if len(errors) == count:
                answer(errors)

        for item in request.transactions:
            for key in item.partitions:
                try:
                    self._append_marker(item, key, lambda outcome, item=item, key=key: take(item, key, outcome))
                except TidelogError as error:
                    take(item, key, error)

    def shard_of(self, key: Key) -> SimulatedShard | None:
        """Return the shard of a partition, if the node leads it and has loaded it."""
        shard = self._shards.get(key)
        return shard if shard is not None and shard.is_leading and shard.is_loaded else None

    # Shards

    def _key_of(self, call: ShardCall) -> Key:
        topic = self._node.replicas.applied.topics.get(call.topic)
        if topic is None:
            raise error_for(ErrorCode.NOT_COORDINATOR, f"there is no topic {call.topic}")
        return call.topic, partition_for(call.owner, len(topic.partitions))

    def _shard(self, key: Key) -> SimulatedShard:
        self._follow(key)
        shard = self._shards.get(key)
        if shard is None:
            raise error_for(ErrorCode.NOT_COORDINATOR, f"node {self._node.number} does not lead {key}")
        return shard

    def _follow(self, key: Key) -> None:
        shard = self._shards.get(key)
        if shard is not None and not shard.is_leading:
            self._shards.pop(key).end()
            shard = None
        if shard is not None and not shard.is_loaded:
            shard.wake(*key)
        partition = self._node.partitions.get(key)
        if shard is None and partition is not None and partition.state.leader is not None:
            self._shards[key] = shard = SimulatedShard(self._node, partition, self._kinds[key[0]], self._view)
            shard.begin()

    def _tick(self) -> None:
        for key in {*self._node.partitions, *self._shards}:
            if key[0] in self._kinds:
                self._follow(key)
        for shard in self._shards.values():
            shard.tell_news()
        self._markers.send()
        self._send_questions()
        self._node.after(_TICK_MS, self._tick)

    def _new_group_shard(self, store: RecordStore) -> GroupShard:
        return GroupShard(_GROUP_SETTINGS, store, self._new_member_id, self._node.monotonic_ms())

    def _new_member_id(self, prefix: str) -> str:
        self._member_ids += 1
        return f"{prefix}-{self._node.number}-{self._node.life}-{self._member_ids}"

    def _has_session(self) -> bool:
        return self._node.standing.lifecycle.has_session(self._node.monotonic_ms())

    # Transactions

    def _verify_offsets(self, key: Key, request: TxnOffsetCommitRequest, answer: OnAnswer) -> None:
        shard = self._shard(key)
        partition = cast("SimulatedPartition", shard.partition)
        header = _header_of(Producer(request.producer_id, request.producer_epoch))
        guard = partition.begin_verification(header, begins_at_zero=False)
        verified = replace(request, guard=guard)

        def then(error: TidelogError | None) -> None:
            try:
                if error is not None:
                    raise error
                shard.ask(verified, answer)
            except TidelogError as refused:
                answer(refused)

        if guard == NO_GUARD:
            then(None)
        else:
            self.verify(partition, header, guard, request.transactional_id, request.transaction_version, then)

    def _append_marker(self, item: PartitionMarkers, key: Key, answer: OnAnswer) -> None:
        node, markers = self._node, item.markers
        kind = ControlType.COMMIT if markers.committed else ControlType.ABORT
        batch = control_batch(kind, *markers.producer, item.coordinator_epoch, node.wall_ms())
        if key[0] == OFFSETS_TOPIC:
            shard = self._shard(key)
            shard.append_marker(batch, markers.producer.id, markers.version, answer, committed=markers.committed)
            return
        partition = node.partition(key)
        info = partition.append_marker(batch, markers.version)
        promise = partition.replicated(info.last_offset + 1)
        promise.then(lambda done: node.soon(answer, done.error))

    def _send_questions(self) -> None:
        node = self._node
        for question_id, answer in self._questions.take_answered().items():
            self._waiting.pop(question_id)(answer)
        for request in self._questions.requests(self._coordinator_of):

            def answered(errors: Any, request: VerificationRequest = request) -> None:
                if errors is None:
                    self._questions.fail(request.request_id)
                else:
                    self._questions.answer(request.request_id, errors)
                self._send_questions()

            node.call(node.world.processes[request.node_id], "answer_questions", request, answered, _CALL_MS)

    def _coordinator_of(self, transactional_id: str) -> int | None:
        topic = self._node.replicas.applied.topics.get(TRANSACTION_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        return None if leader < 0 else leader


class _Allocations:
    """Gives out producer ids of the node's block."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node

    def add(self, term: ShardTerm[Any], transactional_id: str) -> None:
        """Allocate an id."""

        def take(producer_id: int | None) -> None:
            error = None if producer_id is not None else error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no ids")
            term.post(ProducerIdAllocated(transactional_id, producer_id, error))

        self._node.after(_ID_MS, self._node.init_producer_id, None, take)


class _Markers:
    """The shell of the product's queue of markers, as MarkerWriter."""

    def __init__(self, node: NodeProcess) -> None:
        self._node = node
        self._queue = MarkerQueue()
        self._terms: dict[int, ShardTerm[Any]] = {}
        self._shard_of: dict[int, int] = {}
        self._in_progress: dict[int, MarkersRequest] = {}

    def add(self, term: ShardTerm[Any], markers: WriteMarkers) -> None:
        """Write the markers of a transaction. MarkersWritten follows."""
        self._terms[term.index] = term
        self._shard_of[self._queue.add(term.index, term.leader_epoch, markers)] = term.index
        self._node.soon(self.send)

    def end(self, term: ShardTerm[Any]) -> None:
        """Drop the markers of a term. Those in progress may arrive late, after those of the next coordinator."""
        if self._terms.get(term.index) is term:
            del self._terms[term.index]
            for request in self._in_progress.values():
                self._stray(request, lambda item: self._shard_of[item.markers_id] == term.index)
            self._queue.end_shard(term.index)

    def send(self) -> None:
        """Send all requests that are due, and report the markers that are written."""
        node, queue = self._node, self._queue
        for request in queue.requests(self._leader_of, node.monotonic_ms()):
            node.call(
                node.world.processes[request.node_id],
                "write_markers",
                request,
                lambda errors, request=request: self._answered(request, errors),
                _CALL_MS,
            )
            # Before version 2, nothing distinguishes a late marker from that of the next transaction.
            self._stray(request, lambda item: item.markers.version >= EPOCH_BUMP_VERSION)
            self._in_progress[request.request_id] = request
        for shard, markers in queue.take_written():
            self._terms[shard].post(MarkersWritten(markers.transactional_id, markers.producer))
        if node.checks_invariants:
            queue.check_invariants()

    def _stray(self, request: MarkersRequest, may_stray: Callable[[PartitionMarkers], bool]) -> None:
        """Let a part of a request arrive once more."""
        items = tuple(item for item in request.transactions if may_stray(item))
        if items:
            self._node.world.stray(
                self._node.number, request.node_id, "write_markers", replace(request, transactions=items)
            )

    def _answered(self, request: MarkersRequest, errors: Any) -> None:
        del self._in_progress[request.request_id]
        if errors is None:
            self._queue.fail(request.request_id, self._node.monotonic_ms())
        else:
            self._queue.answer(request.request_id, errors, self._node.monotonic_ms())
        self.send()

    def _leader_of(self, partition: TopicPartition) -> int | None:
        image = self._node.replicas.applied
        registration = image.partition(*partition)
        if registration is None:
            return None
        broker = image.brokers.get(registration.leader)
        return NO_LEADER if broker is None or broker.fenced else registration.leader
