"""Random histories of one transactional id: clients that repeat and lose requests, failovers, timeouts.

The properties are those that a client relies on: each transaction has one outcome, it is the answered one, its markers
are in every partition whose addition was answered, and no fenced producer changes anything.
"""

from __future__ import annotations

from dataclasses import replace

from example_counts import examples, steps
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from transaction_shards import TransactionHarness

from tidelog_node.transactions.events import WriteMarkers
from tidelog_node.transactions.requests import (
    AddPartitionsRequest,
    AddPartitionsResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from tidelog_node.transactions.settings import TransactionSettings
from tidelog_node.transactions.states import MAX_PRODUCER_EPOCH, NO_PRODUCER, Producer

ID = "payments"
CLIENTS = st.integers(0, 1)


class Transactions(RuleBasedStateMachine):
    """Two clients with one transactional id. Each has the producer of its latest answer."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = TransactionHarness(TransactionSettings(abort_timed_out_interval_ms=1_000))
        self.producers = [NO_PRODUCER, NO_PRODUCER]
        self.calls: dict[int, tuple[int, InitProducerIdRequest | AddPartitionsRequest | EndTxnRequest]] = {}
        self.added: dict[Producer, set[tuple[str, int]]] = {}
        self.outcomes: dict[Producer, bool] = {}
        """The answered outcome by the producer of the transaction."""
        self.marked: dict[Producer, tuple[bool, set[tuple[str, int]]]] = {}
        """The written markers by their producer."""

    @initialize()
    def begin(self) -> None:
        self.begin_again(0, expects=False, settles=True)

    @rule(client=CLIENTS, expects=st.booleans(), settles=st.booleans())
    def begin_again(self, client: int, expects: bool, settles: bool) -> None:
        producer = self.producers[client] if expects else NO_PRODUCER
        self._call(client, InitProducerIdRequest(ID, 5_000, producer), settles=settles)

    @rule(client=CLIENTS, partition=st.integers(0, 3), settles=st.booleans())
    def add(self, client: int, partition: int, settles: bool) -> None:
        request = AddPartitionsRequest(ID, self.producers[client], (("t", partition),), version=2)
        self._call(client, request, settles=settles)

    @rule(client=CLIENTS, committed=st.booleans(), settles=st.booleans())
    def end(self, client: int, committed: bool, settles: bool) -> None:
        self._call(client, EndTxnRequest(ID, self.producers[client], committed, 2), settles=settles)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        client, request = self.calls[data.draw(st.sampled_from(sorted(self.calls)))]
        self._call(client, request, settles=False)

    @precondition(lambda self: self.calls)
    @rule(data=st.data())
    def abandon(self, data: st.DataObject) -> None:
        call_id = data.draw(st.sampled_from(sorted(self.calls)))
        del self.calls[call_id]
        self.harness.abandon(call_id)

    @precondition(lambda self: self.harness.uncommitted)
    @rule()
    def commit_one(self) -> None:
        self.harness.commit(1)

    @rule()
    def allocate(self) -> None:
        self.harness.allocate()

    @precondition(lambda self: self.harness.markers)
    @rule()
    def mark(self) -> None:
        self._note(self.harness.markers[0])
        self.harness.mark()

    @rule(ms=st.sampled_from([1, 50, 100, 1_000, 6_000]))
    def pass_time(self, ms: int) -> None:
        self.harness.pass_time(ms)

    @rule(keeps=st.integers(0, 3))
    def fail_over(self, keeps: int) -> None:
        for markers in self.harness.markers:
            self._note(markers)  # some or all of them are written
        self.calls.clear()
        self.harness.fail_over(keeps_uncommitted=keeps)

    @rule()
    def exhaust_the_epoch(self) -> None:
        """Continue near the greatest epoch, as after 32,000 transactions."""
        if self.harness.uncommitted or self.harness.markers or self.calls:
            return
        stored = self.harness.stored(ID)
        if stored is None or not stored.state.is_idle or stored.producer.epoch > 1_000:
            return
        producer = Producer(stored.producer.id, MAX_PRODUCER_EPOCH - 3)
        self.harness.store_state(ID, replace(stored, producer=producer, last_producer_epoch=-1))
        self.producers = [producer if p == stored.producer else p for p in self.producers]
        self.harness.fail_over()

    @invariant()
    def outcomes_are_those_that_were_answered(self) -> None:
        self._take_answers()
        for producer, committed in self.outcomes.items():
            written = self.marked.get(Producer(producer.id, producer.epoch + 1))
            if written is not None:
                assert written[0] == committed
                assert self.added.get(producer, set()) <= written[1]

    def teardown(self) -> None:
        """Everything that was answered becomes true without further requests."""
        self.harness.fail_over(keeps_uncommitted=len(self.harness.uncommitted))
        self._settle()
        for producer, committed in self.outcomes.items():
            if self.added.get(producer):
                assert self.marked[Producer(producer.id, producer.epoch + 1)][0] == committed

    def _check_ended(self, client: int, request: EndTxnRequest, response: EndTxnResponse) -> None:
        assert self.outcomes.setdefault(request.producer, request.committed) == request.committed
        if self.producers[client] == request.producer:
            self.producers[client] = response.producer

    def _call(
        self, client: int, request: InitProducerIdRequest | AddPartitionsRequest | EndTxnRequest, *, settles: bool
    ) -> None:
        self.calls[self.harness.call(request)] = (client, request)
        if settles:
            self._settle()

    def _settle(self) -> None:
        harness = self.harness
        while harness.uncommitted or harness.allocations or harness.markers or harness.shard.next_deadline_ms == 0:
            harness.commit()
            harness.allocate()
            while harness.markers:
                self.mark()
            if harness.shard.next_deadline_ms == 0:
                harness.pass_time(0)

    def _take_answers(self) -> None:
        for call_id, (client, request) in list(self.calls.items()):
            response = self.harness.answers.get(call_id)
            if response is None:
                continue
            del self.calls[call_id]
            if response.error is not None:
                continue
            match request, response:
                case InitProducerIdRequest(), InitProducerIdResponse():
                    self.producers[client] = response.producer
                case AddPartitionsRequest(), AddPartitionsResponse():
                    self.added.setdefault(request.producer, set()).update(request.partitions)
                case EndTxnRequest(), EndTxnResponse():
                    self._check_ended(client, request, response)

    def _note(self, markers: WriteMarkers) -> None:
        outcome = markers.committed, set(markers.partitions)
        assert self.marked.setdefault(markers.producer, outcome) == outcome


TestTransactions = Transactions.TestCase
TestTransactions.settings = settings(
    max_examples=examples(60), stateful_step_count=steps(60), deadline=None, derandomize=True
)
