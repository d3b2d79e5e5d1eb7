"""Requests of transactional producers and of administrators of transactions, and sequences of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from compat.wire.case import Case, Family
from compat.wire.side import Side

from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.messages.group_admin import FindCoordinatorRequest
from tidelog_node.kafka.protocol.messages.producers import InitProducerIdRequest
from tidelog_node.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
)

TIMEOUT_MS = 60_000
_ID = ["producer_id"]
_STARTED = ["producer_id", "transaction_start_time_ms"]
_MAKER = Callable[[Side], Message]


def _prepare(side: Side) -> None:
    side.create(["txn"], 2)
    side.wait_for(
        lambda: side.ask(FindCoordinatorRequest("any", 1), 3).error_code == 0, "have a coordinator of transactions"
    )
    side.wait_for(lambda: side.ask(InitProducerIdRequest("ready", 1_000), 5).error_code == 0, "load its transactions")


def _init(name: str, *, of: str = "", epoch: int = 0, timeout_ms: int = TIMEOUT_MS) -> _MAKER | Message:
    if not of:
        return InitProducerIdRequest(name, timeout_ms)
    return lambda side: InitProducerIdRequest(name, timeout_ms, side.kept[of].producer_id, epoch)


def _add(name: str, epoch: int, *partitions: int, of: str = "", topic: str = "txn", off: int = 0) -> _MAKER:
    def make(side: Side) -> Message:
        topics = [AddPartitionsToTxnTopic(topic, list(partitions))]
        return AddPartitionsToTxnRequest([], name, side.kept[of or name].producer_id + off, epoch, topics)

    return make


def _verify(name: str, epoch: int, *partitions: int, only: bool = True) -> _MAKER:
    def make(side: Side) -> Message:
        topics = [AddPartitionsToTxnTopic("txn", list(partitions))]
        each = AddPartitionsToTxnTransaction(name, side.kept[name].producer_id, epoch, only, topics)
        return AddPartitionsToTxnRequest([each], "", 0, 0, [])

    return make


def _offsets(name: str, epoch: int) -> _MAKER:
    return lambda side: AddOffsetsToTxnRequest(name, side.kept[name].producer_id, epoch, "group")


def _end(name: str, epoch: int, *, committed: bool = True, of: str = "", off: int = 0) -> _MAKER:
    return lambda side: EndTxnRequest(name, side.kept[of or name].producer_id + off, epoch, committed)


def _states(*names: str) -> Message:
    return DescribeTransactionsRequest(list(names))


def _sequence(kind: str, version: int, name: str) -> Iterator[Case]:
    """Begin, add, end, end again, with right and wrong epochs, in a version of EndTxn."""
    bump = 1 if version >= 5 else 0
    yield Case(f"{kind}: begin", _init(name), (5,), _ID, keep=name)
    yield Case(f"{kind}: nothing to commit", _end(name, 0), (version,), _ID)
    if not bump:
        yield Case(f"{kind}: nothing to abort", _end(name, 0, committed=False), (version,), _ID)
    yield Case(f"{kind}: add", _add(name, 0, 0, 1), (3,))
    yield Case(f"{kind}: add again", _add(name, 0, 1), (3,))
    yield Case(f"{kind}: open", _states(name), ignore=_STARTED)
    yield Case(f"{kind}: an older epoch", _add(name, -1, 1), (1, 2, 3))
    yield Case(f"{kind}: a newer epoch", _add(name, 7, 1), (1, 2, 3))
    yield Case(f"{kind}: another producer", _add(name, 0, 1, off=1), (1, 2, 3))
    yield Case(f"{kind}: end with a newer epoch", _end(name, 7), (1, version), _ID)
    yield Case(f"{kind}: end of another producer", _end(name, 0, off=1), (1, version), _ID)
    yield Case(f"{kind}: commit", _end(name, 0), (version,), _ID, settles=True)
    yield Case(f"{kind}: is committed", _states(name), ignore=_STARTED, until="CompleteCommit")
    yield Case(f"{kind}: commit again", _end(name, 0), (version,), _ID)
    yield Case(f"{kind}: abort what is committed", _end(name, 0, committed=False), (version,), _ID)
    yield Case(f"{kind}: add to the next", _add(name, bump, 0), (3,), settles=True)
    if bump:
        yield Case(f"{kind}: a late end", _end(name, 0), (version,), _ID)
    yield Case(f"{kind}: offsets of a group", _offsets(name, bump))
    yield Case(f"{kind}: abort", _end(name, bump, committed=False), (version,), _ID)
    yield Case(f"{kind}: is aborted", _states(name), ignore=_STARTED, until="CompleteAbort")
    yield Case(f"{kind}: abort again", _end(name, bump, committed=False), (version,), _ID)
    yield Case(f"{kind}: commit what is aborted", _end(name, bump), (version,), _ID)


_INIT = (
    Case("init: first", _init("init"), (0,), _ID, keep="init"),
    Case("init: again", _init("init"), range(1, 6), _ID),
    Case("init: with its epoch", _init("init", of="init", epoch=5), (3,), _ID),
    Case("init: repeated", _init("init", of="init", epoch=5), (4, 5), _ID),
    Case("init: with an older epoch", _init("init", of="init", epoch=2), (3, 4, 5), _ID),
    Case("init: too long", _init("init", timeout_ms=900_001), ignore=_ID),
    Case("init: no time", _init("init", timeout_ms=0), ignore=_ID),
    Case("init: less than none", _init("init", timeout_ms=-1), ignore=_ID),
)
_PARTITIONS = (
    Case("add: first", _init("add"), (5,), _ID, keep="add"),
    Case("add: no such partition", _add("add", 0, 0, 9), range(4)),
    Case("add: no such topic", _add("add", 0, 0, topic="none"), range(4)),
    Case("add: no partition", _add("add", 0), range(4)),
    Case("add: an unknown id", _add("none", 0, 0, of="add"), range(4)),
    Case("add: an empty id", _add("", 0, 0, of="add"), range(4)),
    Case("verify: not in it", _verify("add", 0, 0), (4, 5)),
    Case("verify: add by a node", _verify("add", 0, 1, only=False), (5,)),
    Case("verify: one of them", _verify("add", 0, 0, 1), (4, 5)),
    Case("verify: an older epoch", _verify("add", -1, 1), (4, 5)),
    Case("verify: a newer epoch", _verify("add", 1, 1), (4, 5)),
    Case("verify: no such partition", _verify("add", 0, 1, 9), (4, 5)),
    Case("offsets: an unknown id", lambda side: AddOffsetsToTxnRequest("none", 1, 0, "group")),
    Case("offsets: an empty id", lambda side: AddOffsetsToTxnRequest("", 1, 0, "group")),
    Case("offsets: a newer epoch", _offsets("add", 3)),
    Case("end: an unknown id", _end("none", 0, of="add"), ignore=_ID),
    Case("end: an empty id", _end("", 0, of="add"), ignore=_ID),
)
_ADMIN = (
    Case("describe: nothing", _states()),
    Case("describe: unknown and empty", _states("none", "", "none")),
    Case("list: a state", ListTransactionsRequest(["Ongoing"]), ignore=_ID),
    Case("list: unknown states", ListTransactionsRequest(["Ongoing", "Odd", "ongoing"]), ignore=_ID),
    Case("list: only unknown states", ListTransactionsRequest(["Odd"]), ignore=_ID),
    Case("list: states of Kafka", ListTransactionsRequest(["Dead", "PrepareEpochFence", "PrepareCommit"]), ignore=_ID),
    Case("list: a producer that there is not", ListTransactionsRequest([], [1 << 40])),
    Case("list: open for long", ListTransactionsRequest(["Ongoing"], [], 3_600_000), (1, 2)),
    Case("list: a pattern", ListTransactionsRequest(["Ongoing"], [], -1, "ad."), (2,), _ID),
    Case("list: a pattern of nothing", ListTransactionsRequest(["Ongoing"], [], -1, "a"), (2,), _ID),
    Case("list: a bad pattern", ListTransactionsRequest([], [], -1, "("), (2,), _ID),
)
_SEQUENCES = (*_sequence("v1", 1, "one"), *_sequence("v4", 4, "four"), *_sequence("v5", 5, "five"))
FAMILIES = (Family("transactions", (*_INIT, *_PARTITIONS, *_ADMIN, *_SEQUENCES), _prepare),)
