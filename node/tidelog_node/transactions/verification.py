"""The questions of partition leaders to transaction coordinators, without I/O (KIP-890).

Before the first batch of a transaction, a leader has its partition added to the transaction, or verifies that it is in
it. :class:`VerificationQueue` sends the questions to the nodes that coordinate the transactional ids:

- At most one request per node is in progress. It takes the questions that wait for that node, up to a limit, and at
  most one transaction per transactional id. Questions of one producer in one transaction become one.
- A question whose transactional id has no coordinator at the time is answered with COORDINATOR_NOT_AVAILABLE.
- Of several producers with one transactional id and producer id that wait, those with an older epoch are fenced:
  INVALID_PRODUCER_EPOCH.
- A failed request answers its questions with NETWORK_EXCEPTION. Producers ask again.
- A question that is abandoned is not sent, or its answer has no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tidelog_foundation.dataclass import dataclass
from tidelog_foundation.errors import ErrorCode
from tidelog_node.transactions.states import Producer, TopicPartition

MAX_PARTITIONS = 5_000
"""The number of partitions in one request. A single question may have more."""


@dataclass(frozen=True, slots=True)
class Question:
    """Partitions in which a transaction would begin."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[TopicPartition]
    adds: bool
    """True to add the partitions, for producers of transaction version 2; False to verify that they were added."""


@dataclass(frozen=True, slots=True)
class VerificationRequest:
    """A request to a node. :meth:`VerificationQueue.answer` or :meth:`VerificationQueue.fail` takes its result."""

    request_id: int
    node_id: int
    questions: tuple[Question, ...]
    """At most one per transactional id."""


Answer = Mapping[TopicPartition, ErrorCode]
"""The errors of a question. A partition without an error belongs to the transaction."""


class VerificationQueue:
    """The unanswered questions of one node. Used on one thread."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[int, Question]] = {}
        """By transactional id and question."""
        self._in_progress: dict[int, tuple[VerificationRequest, Sequence[tuple[int, Question]]]] = {}
        self._answered: dict[int, Answer] = {}
        self._next_id = 1

    def ask(self, question: Question) -> int:
        """Add a question and return its id, which :meth:`take_answered` returns later."""
        question_id, self._next_id = self._next_id, self._next_id + 1
        own = self._waiting.setdefault(question.transactional_id, {})
        own[question_id] = question
        newest: dict[int, int] = {}
        for each in own.values():
            newest[each.producer.id] = max(each.producer.epoch, newest.get(each.producer.id, each.producer.epoch))
        for each_id, each in list(own.items()):
            if each.producer.epoch < newest[each.producer.id]:
                self._answer(each_id, own.pop(each_id), ErrorCode.INVALID_PRODUCER_EPOCH)
        return question_id

    def abandon(self, question_id: int, transactional_id: str) -> None:
        """Drop a question whose caller no longer waits for the answer."""
        self._waiting.get(transactional_id, {}).pop(question_id, None)
        self._answered.pop(question_id, None)

    def take_answered(self) -> Mapping[int, Answer]:
        """Remove and return the answers by the ids of their questions."""
        answered, self._answered = self._answered, {}
        return answered

    def requests(self, coordinator_of: Callable[[str], int | None]) -> list[VerificationRequest]:
        """Return the requests to send now. ``coordinator_of`` returns a transactional id's node, None without one."""
        busy = {request.node_id for request, _ in self._in_progress.values()}
        chosen: dict[int, list[tuple[int, Question]]] = {}
        sizes: dict[int, int] = {}
        for transactional_id, own in list(self._waiting.items()):
            node_id = coordinator_of(transactional_id) if own else None
            if node_id is None:
                del self._waiting[transactional_id]
                for question_id, question in own.items():
                    self._answer(question_id, question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            elif node_id not in busy and sizes.get(node_id, 0) < MAX_PARTITIONS:
                taken = _joined(own)
                chosen.setdefault(node_id, []).extend(taken)
                sizes[node_id] = sizes.get(node_id, 0) + sum(len(question.partitions) for _, question in taken)
        return [self._begin(node_id, questions) for node_id, questions in chosen.items()]

    def answer(self, request_id: int, errors: Mapping[str, Answer]) -> None:
        """Process the errors of each transactional id in a response. An id without an entry was not answered."""
        _, questions = self._in_progress.pop(request_id)
        for question_id, question in questions:
            found = errors.get(question.transactional_id)
            if found is None:
                self._answer(question_id, question, ErrorCode.NETWORK_EXCEPTION)
            else:
                own = {p: found[p] for p in question.partitions if found.get(p, ErrorCode.NONE) is not ErrorCode.NONE}
                self._answered[question_id] = own

    def fail(self, request_id: int, error: ErrorCode = ErrorCode.NETWORK_EXCEPTION) -> None:
        """Process the failure of a request."""
        _, questions = self._in_progress.pop(request_id)
        for question_id, question in questions:
            self._answer(question_id, question, error)

    def check_invariants(self) -> None:
        """Assert that at most one request per node is in progress, with one transaction per transactional id."""
        nodes = [request.node_id for request, _ in self._in_progress.values()]
        assert len(nodes) == len(set(nodes))
        for request, questions in self._in_progress.values():
            ids = [question.transactional_id for question in request.questions]
            assert len(ids) == len(set(ids))
            assert set(ids) == {question.transactional_id for _, question in questions}

    def _answer(self, question_id: int, question: Question, error: ErrorCode) -> None:
        self._answered[question_id] = dict.fromkeys(question.partitions, error)

    def _begin(self, node_id: int, questions: Sequence[tuple[int, Question]]) -> VerificationRequest:
        merged: dict[str, Question] = {}
        for question_id, question in questions:
            del self._waiting[question.transactional_id][question_id]
            known = merged.get(question.transactional_id)
            partitions = question.partitions if known is None else known.partitions | question.partitions
            merged[question.transactional_id] = Question(
                question.transactional_id, question.producer, partitions, question.adds
            )
        request_id, self._next_id = self._next_id, self._next_id + 1
        request = VerificationRequest(request_id, node_id, tuple(merged.values()))
        self._in_progress[request_id] = (request, questions)
        return request


def _joined(waiting: Mapping[int, Question]) -> list[tuple[int, Question]]:
    """Return the questions that become one: all that have the producer and the purpose of the first."""
    first = next(iter(waiting.values()))
    return [(i, q) for i, q in waiting.items() if (q.producer, q.adds) == (first.producer, first.adds)]
