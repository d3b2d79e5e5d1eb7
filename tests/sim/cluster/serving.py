"""A simulated node's answers to writers: produce and deletions, in the order of the product's handlers.

The partition decides; this module determines only the time of an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sim.cluster.world import OnAnswer

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import parse_header
from tidelog_node.log import NO_GUARD
from tidelog_node.transactions.states import EPOCH_BUMP_VERSION

if TYPE_CHECKING:
    from sim.cluster.node import NodeProcess
    from sim.cluster.replicas import SimulatedPartition

Key = tuple[str, int]
"""A topic's name and a partition's number."""


class Produce(NamedTuple):
    """A batch for a partition. ``version`` is the transaction version of the client, if it belongs to a transaction."""

    key: Key
    records: bytes
    acks: int
    timeout_ms: int
    transactional_id: str = ""
    version: int = 0


class Produced(NamedTuple):
    """The position of a stored batch."""

    first_offset: int
    last_offset: int


def produce(node: NodeProcess, request: Produce, answer: OnAnswer) -> None:
    """Append, and answer when the batch is as safe as asked for. Verify the first batch of a transaction before."""
    try:
        partition = node.partition(request.key)
        if request.transactional_id:
            _verify(node, partition, request, answer)
        else:
            _append(node, partition, request, answer)
    except TidelogError as error:
        answer(error)


def _verify(node: NodeProcess, partition: SimulatedPartition, request: Produce, answer: OnAnswer) -> None:
    header = parse_header(request.records)
    guard = partition.begin_verification(header, begins_at_zero=request.version >= EPOCH_BUMP_VERSION)

    def then(error: TidelogError | None) -> None:
        if error is not None:
            answer(error)
        else:
            _append(node, partition, request, answer, guard)

    if guard == NO_GUARD:
        then(None)
    else:
        node.coordination.verify(partition, header, guard, request.transactional_id, request.version, then)


def _append(
    node: NodeProcess, partition: SimulatedPartition, request: Produce, answer: OnAnswer, guard: int = NO_GUARD
) -> None:
    try:
        info = partition.append(request.records, request.acks == -1, guard)
    except TidelogError as error:
        answer(error)
        return
    produced = Produced(info.first_offset, info.last_offset)
    if request.acks != -1:
        answer(produced)
        return
    _Pending(node, partition, produced, request, answer).begin()


class _Pending:
    """A batch that waits for the other replicas."""

    def __init__(
        self, node: NodeProcess, partition: SimulatedPartition, produced: Produced, request: Produce, answer: OnAnswer
    ) -> None:
        self._node, self._partition, self._produced = node, partition, produced
        self._request, self._answer = request, answer
        self._is_done = False

    def begin(self) -> None:
        promise = self._partition.replicated(self._produced.last_offset + 1)
        promise.then(lambda done: self._node.soon(self._finish, done.error or self._produced))
        self._node.after(self._request.timeout_ms, self._time_out)

    def _time_out(self) -> None:
        if not self._is_done:
            self._finish(self._partition.timed_out(self._produced.last_offset + 1, self._request.timeout_ms))

    def _finish(self, outcome: Produced | TidelogError) -> None:
        if not self._is_done:
            self._is_done = True
            if isinstance(outcome, Produced):
                self._node.checker.note_answered(self._request.key, outcome.last_offset)
            self._answer(outcome)


def delete_records(node: NodeProcess, request: tuple[Key, int], answer: OnAnswer) -> None:
    """Delete the records below an offset and answer when they are gone everywhere."""
    try:
        partition = node.partition(request[0])
        promise = partition.delete_records(request[1])
        node.checker.observe(partition)
    except TidelogError as error:
        answer(error)
        return
    promise.then(lambda done: node.soon(answer, done.error))


def unknown_partition(node: NodeProcess, key: Key) -> TidelogError:
    """Return the error of a partition that a node does not hold."""
    text = f"node {node.number} has no replica of {key[0]}-{key[1]}"
    return error_for(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
