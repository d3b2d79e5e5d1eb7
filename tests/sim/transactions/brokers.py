"""A simulated broker: the leader of partitions and shards, as far as it knows, and what it answers to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from sim.cluster.world import OnAnswer, Process
from sim.transactions.coordinators import Coordinators
from sim.transactions.partitions import Key

from tidelog_foundation.errors import ErrorCode, TidelogError, error_for
from tidelog_foundation.records import parse_header
from tidelog_node.log import NO_GUARD
from tidelog_node.transactions.markers import MarkersRequest
from tidelog_node.transactions.requests import AddPartitionsRequest
from tidelog_node.transactions.states import EPOCH_BUMP_VERSION, Producer

if TYPE_CHECKING:
    from sim.transactions.world import TransactionWorld

_REPLICATED_MS = 3
_VERIFICATION_TIMEOUT_MS = 200


class Produce(NamedTuple):
    """A batch of a transaction. ``version`` is the transaction version of the client."""

    key: Key
    batch: bytes
    transactional_id: str
    version: int


class Fetch(NamedTuple):
    """A read_committed fetch."""

    key: Key
    offset: int
    from_follower: bool


class Broker(Process):
    """One broker. ``led`` has the epoch of each partition that it believes to lead."""

    world: TransactionWorld

    def __init__(self, world: TransactionWorld, number: int) -> None:
        super().__init__(world, number, 0, 1000)
        self.led: dict[Key, int] = {}
        self.begin_life()
        self.markers = Coordinators(self)

    def crashed(self) -> None:
        raise AssertionError("the disks of brokers do not crash")

    def check(self, core: Any) -> None:
        """Assert a core's own invariants, unless a bug is planted."""
        if self.world.checks_invariants:
            core.check_invariants()

    def kill(self) -> None:
        """End. Its partitions and shards need other leaders."""
        self.end_life()
        self.led.clear()

    def start(self) -> None:
        """Come back without any memory."""
        self.begin_life()
        self.markers = Coordinators(self)

    # Requests

    def transaction(self, request: tuple[int, Any], answer: OnAnswer) -> None:
        """Answer a request to a shard; None if this broker does not lead it."""
        self.markers.ask(*request, answer)

    def produce(self, request: Produce, answer: OnAnswer) -> None:
        """Append a batch of a transaction, after the coordinator has confirmed the transaction (KIP-890)."""
        header = parse_header(request.batch)
        if not self._leads(request.key, answer):
            return
        log, adds = self.world.partitions[request.key].log, request.version >= EPOCH_BUMP_VERSION
        try:
            guard = log.begin_verification(header, self.wall_ms(), begins_at_zero=adds)
        except TidelogError as error:
            answer(error)
            return
        if guard == NO_GUARD or not self.needs_verification():
            self._append(request, guard, answer)
            return

        def verified(response: Any) -> None:
            error = _verification_error(response, request.key)
            if error is not None:
                answer(error)
            else:
                self._append(request, guard, answer)

        producer = Producer(header.producer_id, header.producer_epoch)
        question = AddPartitionsRequest(
            request.transactional_id, producer, (request.key,), verify_only=not adds, version=request.version
        )
        index, broker = self.world.coordinator_of(request.transactional_id)
        self.call(broker, "transaction", (index, question), verified, _VERIFICATION_TIMEOUT_MS)

    def needs_verification(self) -> bool:
        """Return whether ``transaction.partition.verification.enable`` is true."""
        return True

    def fetch(self, request: Fetch, answer: OnAnswer) -> None:
        """Return visible records."""
        if request.from_follower or self._leads(request.key, answer):
            partition = self.world.partitions[request.key]
            answer(partition.read(request.offset, is_read_committed=True, from_follower=request.from_follower))

    def stable_offsets(self, request: Key, answer: OnAnswer) -> None:
        """Return the group's offset of a partition, or UNSTABLE_OFFSET_COMMIT."""
        if self._leads(self.world.offsets.key, answer):
            answer(self.world.offsets.stable_offset(request))

    def write_markers(self, request: MarkersRequest, answer: OnAnswer) -> None:
        """Append markers, and answer when all of them are replicated."""
        errors: dict[tuple[int, Key], ErrorCode] = {}
        waits: list[tuple[Key, int, int]] = []
        for item in request.transactions:
            for key in item.partitions:
                partition, markers = self.world.partitions[key], item.markers
                try:
                    partition.check_leader(self.number, self.led.get(key, -1))
                    end = partition.append_markers(markers, item.coordinator_epoch, self.wall_ms())
                except TidelogError as error:
                    errors[item.markers_id, key] = error.code
                    continue
                errors[item.markers_id, key] = ErrorCode.NONE
                waits.append((key, partition.epoch, end))
        self._answer_replicated(waits, errors, answer)

    # Steps

    def _leads(self, key: Key, answer: OnAnswer) -> bool:
        try:
            self.world.partitions[key].check_leader(self.number, self.led.get(key, -1))
        except TidelogError as error:
            answer(error)
            return False
        return True

    def _append(self, request: Produce, guard: int, answer: OnAnswer) -> None:
        if not self._leads(request.key, answer):
            return
        partition = self.world.partitions[request.key]
        try:
            info = partition.append(request.batch, self.wall_ms(), guard)
        except TidelogError as error:
            if guard != NO_GUARD and error.code is ErrorCode.INVALID_TXN_STATE:
                # A marker has overtaken the answer: the product asks again, here the client does.
                error = error_for(ErrorCode.CONCURRENT_TRANSACTIONS, error.message)
            answer(error)
            return
        self._answer_replicated([(request.key, partition.epoch, info.last_offset + 1)], info.first_offset, answer)

    def _answer_replicated(self, waits: list[tuple[Key, int, int]], result: Any, answer: OnAnswer) -> None:
        for key, epoch, end in waits:
            partition = self.world.partitions[key]
            if partition.epoch != epoch:
                answer(None)
                return
            if partition.high_watermark < end:
                self.after(_REPLICATED_MS, self._answer_replicated, waits, result, answer)
                return
        answer(result)


def _verification_error(response: Any, key: Key) -> TidelogError | None:
    """Return what a client is told (TransactionManager knows which of these it may repeat)."""
    if response is None:
        return error_for(ErrorCode.NOT_ENOUGH_REPLICAS, "the coordinator did not answer")
    error: TidelogError | None = response.error or (response.errors or {}).get(key)
    if error is not None and error.code is ErrorCode.CONCURRENT_TRANSACTIONS:
        return error_for(ErrorCode.NOT_ENOUGH_REPLICAS, error.message)
    return error
