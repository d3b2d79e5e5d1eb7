"""Two-phase commit (KIP-939): InitProducerId in version 6, and transactions that never time out."""

from __future__ import annotations

from typing import Any

from compat.wire.case import Case, Family
from compat.wire.side import Side
from compat.wire.transactional import (
    ADDING,
    TIMES,
    TOPIC,
    UNKNOWN_PRODUCER,
    Asked,
    add,
    again,
    describe,
    end,
    init,
    ready,
    seen,
    write,
)

from tidelog_node.kafka.protocol.messages.producers import InitProducerIdRequest
from tidelog_node.kafka.protocol.messages.transactions import ListTransactionsRequest

_V6 = (6,)
_FOREVER_MS = 2_147_483_647


def _two_phase(name: str | None, timeout_ms: int = _FOREVER_MS, **fields: Any) -> InitProducerIdRequest:
    return init(name, timeout_ms, enable2_pc=True, **fields)


def _kept(name: str, timeout_ms: int = _FOREVER_MS, *, enables: bool = True) -> InitProducerIdRequest:
    return init(name, timeout_ms, enable2_pc=enables, keep_prepared_txn=True)


def _back(name: str) -> Asked:
    def make(side: Side) -> InitProducerIdRequest:
        request = again(name)(side)
        assert isinstance(request, InitProducerIdRequest)
        request.enable2_pc, request.transaction_timeout_ms = True, _FOREVER_MS
        return request

    return make


_TIMEOUTS = (
    Case("2pc init: not in a transaction", _two_phase(None), _V6),
    Case("2pc init: an empty id", _two_phase(""), _V6),
    Case("2pc init: without a time-out", _two_phase("2pc forever"), _V6, waits=True),
    Case("2pc init: described without a time-out", describe("2pc forever")),
    Case("2pc init: with a time-out", _two_phase("2pc minute", 60_000), _V6, waits=True),
    Case("2pc init: described with a time-out", describe("2pc minute")),
    Case("2pc init: longer than allowed", _two_phase("2pc longer", 900_001), _V6, waits=True),
    Case("2pc init: no time", _two_phase("2pc none", 0), _V6, waits=True),
    Case("2pc init: less than none", _two_phase("2pc less", -1), _V6, waits=True),
    Case("2pc init: forever without it", init("2pc not", _FOREVER_MS), _V6),
    Case("2pc init: no time without it", init("2pc not", 0), _V6),
    Case("2pc init: an id and no epoch", _two_phase("2pc bad", producer_id=5), _V6),
    Case(
        "2pc init: an unknown producer",
        _two_phase("2pc bad", producer_id=UNKNOWN_PRODUCER, producer_epoch=3),
        _V6,
        waits=True,
    ),
    Case("2pc init: as usual in version 6", init("2pc usual"), _V6, waits=True),
)
_OPEN = (
    Case("2pc: init", _two_phase("2pc"), _V6, keep="2pc", waits=True),
    Case("2pc: writes", write("2pc", 0), (ADDING,)),
    Case("2pc: one that times out", init("2pc late", 500), (5,), keep="2pc late", waits=True),
    Case("2pc: it writes", write("2pc late", 0, 1), (ADDING,)),
    Case("2pc: it has timed out", describe("2pc late"), ignore=TIMES, until="CompleteAbort"),
    *seen("2pc: still open", "2pc"),
    Case("2pc: listed", ListTransactionsRequest(["Ongoing"], [], -1, "2pc"), (2,)),
    Case("2pc: fences its producer", _two_phase("2pc"), _V6, keep="2pc again", waits=True),
    Case("2pc: the older one commits", end("2pc"), (4, 5)),
    *seen("2pc: fenced", "2pc"),
    Case("2pc: writes again", write("2pc", 0, of="2pc again"), (ADDING,), waits=True),
    Case("2pc: an older client adds", add("2pc", (TOPIC, [1]), of="2pc again"), (3,)),
    Case("2pc: commits", end("2pc", of="2pc again"), (5,), keep="2pc then"),
    *seen("2pc: committed", "2pc"),
    Case("2pc: commits again", end("2pc", of="2pc again"), (5,)),
    Case("2pc: comes back", _back("2pc then"), _V6, waits=True),
    Case("2pc: goes without it", init("2pc"), _V6, keep="2pc without", waits=True),
    Case("2pc: described without it", describe("2pc"), ignore=TIMES),
)
_KEPT = (
    Case("2pc kept: not in a transaction", init(None, 60_000, keep_prepared_txn=True), _V6),
    Case("2pc kept: an empty id", _kept(""), _V6),
    Case("2pc kept: nothing", _kept("2pc kept"), _V6, keep="2pc kept", waits=True),
    Case("2pc kept: without two phases", _kept("2pc kept", 60_000, enables=False), _V6, waits=True),
    Case("2pc kept: for too long without two phases", _kept("2pc kept", enables=False), _V6),
)


def _prepare(side: Side) -> None:
    if TOPIC not in side.topic_ids:
        side.create([TOPIC], 2)
    ready(side)


REFUSED = Family("refused two-phase commits", (*_TIMEOUTS, *_KEPT), _prepare)
"""For nodes that do not permit two-phase commits."""
FAMILIES = (Family("two-phase commits", (*_TIMEOUTS, *_OPEN, *_KEPT), _prepare),)
