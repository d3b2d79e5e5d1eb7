"""The guarantees to a cluster's clients: records are stored once and in order, acknowledged ones are kept and read."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from raft_properties import PropertyViolatedError, require
from sim.cluster.serving import Key
from sim.cluster.truth import Batch, Truth, batch_of, position_of

from tidelog_foundation.errors import TidelogError
from tidelog_foundation.records import iter_headers

if TYPE_CHECKING:
    from sim.cluster.checker import Checker

Number = tuple[int, int, int]
"""Producer id, epoch and sequence of a batch."""


class _Sent(NamedTuple):
    """A batch that a producer has sent: its bytes' checksum, and which of the producer's records it has."""

    crc: int
    producer: int
    serials: tuple[int, ...]


class ClientChecker:
    """Told by clients what they do and hear; raises :class:`PropertyViolatedError`."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._sent: dict[tuple[Key, Number], _Sent] = {}
        self._producer_ids: set[int] = set()
        self._latest: dict[Key, int] = {}

    def note_producer_id(self, producer_id: int) -> None:
        """A producer got an id: nobody else may have it."""
        require(producer_id not in self._producer_ids, "ProducerIdsDiffer", f"{producer_id} is given out twice")
        self._producer_ids.add(producer_id)

    def note_sent(self, key: Key, number: Number, crc: int, producer: int, serials: tuple[int, ...]) -> None:
        """A producer sends records under a number: what is committed under it must be that batch."""
        if number[0] < 0:
            return
        sent = _Sent(crc, producer, serials)
        known = self._sent.setdefault((key, number), sent)
        require(known == sent, "NumbersDiffer", f"{key}: {number} was given to {known} and to {sent}")

    def check_acknowledged(self, key: Key, producer: int, serials: tuple[int, ...], base_offset: int) -> None:
        """A producer heard that its records are there, from an offset on; -1: at one that it was not told."""
        truth = self._checker.truth(key)
        self._checker.count("acknowledged")
        for place, serial in enumerate(serials):
            offset = truth.stored.get((producer, serial))
            is_there = offset is not None and (base_offset < 0 or offset == base_offset + place)
            text = f"{key}: record {serial} of {producer} is acknowledged at {base_offset} + {place}, it is at {offset}"
            require(is_there or truth.was_void, "AcknowledgedRecordLost", text)

    def check_given_up(
        self, key: Key, producer: int, serials: tuple[int, ...], error: TidelogError, *, may_be_stored: bool
    ) -> None:
        """A producer heard that its records were given up: unless they may be stored they never will be."""
        truth = self._checker.truth(key)
        self._checker.count("given up")
        if may_be_stored:
            return
        for serial in serials:
            is_absent = (producer, serial) not in truth.stored
            require(is_absent or truth.was_void, "GivenUpRecordStored", f"{key}: {serial} of {producer}, {error}")
            truth.given_up.add((producer, serial))

    def check_committed(self, key: Key, truth: Truth, batch: Batch) -> None:
        """Nothing twice, nothing left out, in the order of the producer; also where it changed its numbers."""
        if batch.producer_id < 0 or batch.sequence < 0:
            # Markers and what coordinators write in transactions have no sequence.
            return
        number = batch[4:]
        sent = self._sent.get((key, number))
        if sent is None or sent.crc != batch.crc:
            raise PropertyViolatedError("RecordsAsSent", f"{key}: {batch}, sent was {sent}")
        if not truth.was_void:
            self._check_order(key, truth, batch, sent)
        for place, serial in enumerate(sent.serials):
            truth.stored[sent.producer, serial] = batch.base + place
        truth.last_serials[sent.producer] = sent.serials[-1]

    def check_consumed(self, key: Key, position: int, records: bytes) -> int:
        """A consumer got records from a position on: committed ones, all of them; returns its next position."""
        truth = self._checker.truth(key)
        for _, header in iter_headers(records):
            batch = batch_of(header)
            self._checker.count("consumed")
            if truth.was_void:
                position = batch.end
                continue
            index = position_of(truth.batches, batch.base)
            found = truth.batches[index] if index < len(truth.batches) else None
            if found != batch:
                raise PropertyViolatedError("ConsistentRead", f"{key}: read {batch}, committed is {found}")
            require(batch.base <= position < batch.end, "ConsistentRead", f"{key}: {batch} for position {position}")
            position = batch.end
        return position

    def check_position(self, key: Key, expected: int, position: int) -> None:
        """A consumer goes on at a position: where it was, or behind what was deleted."""
        truth = self._checker.truth(key)
        if position > expected:
            is_right = truth.deletes and position <= truth.high_watermark
            text = f"{key}: a consumer at {expected} goes on at {position}, committed {truth.high_watermark}"
            require(is_right or truth.was_void, "RecordsSkipped", text)
        text = f"{key}: a consumer at {expected} goes back to {position}"
        require(position >= expected or truth.was_void, "ConsistentRead", text)

    def latest_offset(self, key: Key) -> int:
        """Return the highest offset that anybody was told as a partition's latest."""
        return self._latest.get(key, 0)

    def check_latest_offset(self, key: Key, least: int, offset: int) -> None:
        """A client heard a partition's latest offset: none below what was told before it asked, which was ``least``."""
        truth = self._checker.truth(key)
        self._checker.count("latest offsets told")
        text = f"{key}: the latest offset is said to be {offset}, {least} was told before, committed is"
        is_right = least <= offset <= truth.high_watermark
        require(is_right or truth.was_void, "LatestOffsetWentBack", f"{text} {truth.high_watermark}")
        self._latest[key] = max(offset, self.latest_offset(key))

    def _check_order(self, key: Key, truth: Truth, batch: Batch, sent: _Sent) -> None:
        last = truth.last_serials.get(sent.producer, 0)
        text = f"{key}: {batch} has the records {sent.serials} of {sent.producer}, the last was {last}"
        require(sent.serials[0] > last, "NoDuplicates", text)
        is_wanted = all((sent.producer, serial) not in truth.given_up for serial in sent.serials)
        require(is_wanted, "GivenUpRecordStored", text)
        epoch, following = truth.sequences.get(batch.producer_id, (batch.producer_epoch, 0))
        if epoch != batch.producer_epoch:
            require(epoch < batch.producer_epoch, "ProducerOrder", f"{text}, after epoch {epoch}")
            following = 0
        require(batch.sequence == following, "ProducerOrder", f"{text}, expected sequence {following}")
        truth.sequences[batch.producer_id] = batch.producer_epoch, following + batch.end - batch.base
