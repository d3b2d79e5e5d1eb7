"""Transactional producers: what they write, in both versions of the protocol, and what is seen of it.

:mod:`.transactions` asks the coordinator alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compat.wire.case import Case, Family
from compat.wire.produce import batch_of, transactional_produce
from compat.wire.side import UNKNOWN_ID, Side

from tidelog_node.kafka.protocol.fields import Message
from tidelog_node.kafka.protocol.messages.api_versions import ApiVersionsRequest
from tidelog_node.kafka.protocol.messages.group_admin import FindCoordinatorRequest
from tidelog_node.kafka.protocol.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tidelog_node.kafka.protocol.messages.producers import (
    DescribeProducersRequest,
    InitProducerIdRequest,
    TopicRequest,
)
from tidelog_node.kafka.protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    DescribeTransactionsRequest,
    EndTxnRequest,
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

TIMEOUT_MS = 60_000
_TOPIC = "written"
_OLD, _ABORTABLE, _ADDING = 10, 11, 12
"""Versions of Produce: before KIP-890, with TRANSACTION_ABORTABLE, and with transaction version 2."""
_TIMES = ["transaction_start_time_ms"]
_LOG_TIMES = ["last_timestamp"]
_UNKNOWN_PRODUCER = 987_654
Asked = Callable[[Side], Message]


def _init(name: str | None, timeout_ms: int = TIMEOUT_MS, **fields: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(name, timeout_ms, **fields)


def _id(side: Side, name: str) -> int:
    return int(side.kept[name].producer_id)


def _epoch(side: Side, name: str) -> int:
    return int(side.kept[name].producer_epoch)


def _again(name: str, raised: int = 0, *, producer_id: int | None = None, timeout_ms: int = TIMEOUT_MS) -> Asked:
    """Return InitProducerId of a producer that has an id and an epoch."""
    return lambda side: _init(
        name,
        timeout_ms,
        producer_id=_id(side, name) if producer_id is None else producer_id,
        producer_epoch=_epoch(side, name) + raised,
    )


def _topics(*topics: tuple[str, list[int]]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(*topic) for topic in topics or [(_TOPIC, [0, 1])]]


def _add(
    name: str, *topics: tuple[str, list[int]], of: str = "", raised: int = 0, producer_id: int | None = None
) -> Asked:
    """Return AddPartitionsToTxn of a client; the producer is that of ``of``."""
    kept = of or name
    return lambda side: AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=_id(side, kept) if producer_id is None else producer_id,
        v3_and_below_producer_epoch=_epoch(side, kept) + raised,
        v3_and_below_topics=_topics(*topics),
    )


def _add_all(*added: tuple[str, str, int, bool, Sequence[tuple[str, list[int]]]]) -> Asked:
    """Return AddPartitionsToTxn of a node: transactional id, producer, what is added to its epoch, if it verifies."""
    return lambda side: AddPartitionsToTxnRequest(
        [
            AddPartitionsToTxnTransaction(
                name, _id(side, of), _epoch(side, of) + raised, verifies, _topics(*topics) if topics else []
            )
            for name, of, raised, verifies, topics in added
        ]
    )


def _offsets(name: str, group: str = "group", *, of: str = "", raised: int = 0) -> Asked:
    kept = of or name
    return lambda side: AddOffsetsToTxnRequest(name, _id(side, kept), _epoch(side, kept) + raised, group)


def _end(name: str, *, commits: bool = True, of: str = "", raised: int = 0, producer_id: int | None = None) -> Asked:
    kept = of or name
    return lambda side: EndTxnRequest(
        name, _id(side, kept) if producer_id is None else producer_id, _epoch(side, kept) + raised, commits
    )


def _write(
    name: str,
    sequence: int,
    partition: int = 0,
    *,
    of: str = "",
    raised: int = 0,
    topic: str = _TOPIC,
    producer_id: int | None = None,
) -> Asked:
    kept = of or name
    return lambda side: transactional_produce(
        name,
        topic,
        side.topic_ids.get(topic, UNKNOWN_ID),
        partition,
        batch_of(_id(side, kept) if producer_id is None else producer_id, _epoch(side, kept) + raised, sequence),
    )


def _describe(*names: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(list(names))


def _ends(level: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition, -1, -1) for partition in (0, 1)]
    return ListOffsetsRequest(-1, level, [ListOffsetsTopic(_TOPIC, partitions)], TIMEOUT_MS)


_PRODUCERS = DescribeProducersRequest([TopicRequest(_TOPIC, [0, 1])])


def _seen(when: str, name: str) -> tuple[Case, ...]:
    """Return cases with everything that can be seen of a transactional id."""
    return (
        Case(f"{when}, described", _describe(name), ignore=_TIMES, settles=True),
        Case(f"{when}, its producers", _PRODUCERS, ignore=_LOG_TIMES, settles=True),
        Case(f"{when}, the ends", _ends(0), (7,), settles=True),
        Case(f"{when}, the stable ends", _ends(1), (7,), settles=True),
    )


_VERSIONS = (
    Case("versions: all", ApiVersionsRequest("x", "1"), (4,), ["supported_features", "finalized_features"]),
    Case("find txn: coordinator", FindCoordinatorRequest("one", 1), range(1, 4)),
    Case("find txn: coordinators", FindCoordinatorRequest("", 1, ["one", "", "two"]), range(4, 7)),
    Case("find txn: coordinator of no id", FindCoordinatorRequest("", 1), range(1, 4)),
)
_INIT = (
    Case("txn init: the longest time-out", _init("longest", 900_000), (4,), waits=True),
    Case("txn init: an id and no epoch", _init("bad", producer_id=5), range(3, 6)),
    Case("txn init: an epoch and no id", _init("bad", producer_epoch=5), range(3, 6)),
    Case("txn init: an unknown producer", _init("unknown", producer_id=_UNKNOWN_PRODUCER, producer_epoch=3), (3, 4, 5)),
    Case("txn init: in each version", _init("each"), waits=True),
)


_UNKNOWN = (
    Case("txn unknown: init", _init("known"), (4,), keep="known", waits=True),
    Case("txn unknown: add another producer", _add("known", producer_id=_UNKNOWN_PRODUCER), range(4)),
    Case("txn unknown: add with an older epoch", _add("known", raised=-1), range(4)),
    Case("txn unknown: add with a newer epoch", _add("known", raised=1), range(4)),
    Case("txn unknown: add partitions that are not", _add("known", (_TOPIC, [0, 9]), ("none", [0])), range(4)),
    Case("txn unknown: add a bad name", _add("known", ("a b", [0])), range(4)),
    Case("txn unknown: add an internal topic", _add("known", ("__transaction_state", [0])), (3,)),
    Case("txn unknown: add for some", _add_all(("none", "known", 0, True, ()), ("", "known", 0, True, ())), (4, 5)),
    Case("txn unknown: verify what is not", _add_all(("known", "known", 0, True, [("none", [0])])), (4, 5)),
    Case("txn unknown: verify in the same twice", _add_all(*[("known", "known", 0, True, [(_TOPIC, [0])])] * 2), (5,)),
    Case("txn unknown: offsets without a group", _offsets("known", "")),
    Case("txn unknown: offsets with an older epoch", _offsets("known", raised=-1)),
    Case("txn unknown: commit with an older epoch", _end("known", raised=-1)),
    Case("txn unknown: commit with a newer epoch", _end("known", raised=1)),
    Case("txn unknown: describe", _describe("none", "", "known", "none"), ignore=_TIMES),
)


def _v1(name: str, version: int) -> tuple[Case, ...]:
    """Return a producer that adds its partitions and keeps its epoch, as clients before transaction version 2."""
    step = f"txn {name}: "
    produce = _ABORTABLE if version == 4 else _OLD
    add = min(version, 3)
    return (
        Case(f"{step}init", _init(name), (4,), keep=name, waits=True),
        Case(f"{step}commits nothing", _end(name), (version,)),
        Case(f"{step}aborts nothing", _end(name, commits=False), (version,)),
        Case(f"{step}writes what it has not added", _write(name, 0), (produce,)),
        Case(f"{step}adds", _add(name, (_TOPIC, [0])), (add,)),
        Case(f"{step}adds again", _add(name, (_TOPIC, [0])), (add,)),
        Case(f"{step}writes", _write(name, 0), (produce,)),
        Case(f"{step}writes again", _write(name, 0), (produce,)),
        Case(f"{step}writes out of order", _write(name, 7), (produce,)),
        Case(f"{step}writes with an older epoch", _write(name, 1, raised=-1), (produce,)),
        Case(f"{step}writes where it has not added", _write(name, 0, 1), (produce,)),
        Case(f"{step}writes nowhere", _write(name, 0, 9), (produce,)),
        Case(f"{step}adds offsets", _offsets(name), (version,)),
        Case(f"{step}verified", _add_all((name, name, 0, True, [(_TOPIC, [0, 1])])), (4, 5)),
        *_seen(f"{step}open", name),
        Case(f"{step}ends with an older epoch", _end(name, raised=-1), (version,)),
        Case(f"{step}ends with a newer epoch", _end(name, raised=1), (version,)),
        Case(f"{step}another producer ends", _end(name, producer_id=_UNKNOWN_PRODUCER), (version,)),
        Case(f"{step}commits", _end(name), (version,)),
        *_seen(f"{step}committed", name),
        Case(f"{step}commits again", _end(name), (version,)),
        Case(f"{step}aborts after its commit", _end(name, commits=False), (version,)),
        Case(f"{step}writes after its commit", _write(name, 1), (produce,)),
        Case(f"{step}adds the next", _add(name, (_TOPIC, [1])), (add,), waits=True),
        Case(f"{step}writes the next", _write(name, 0, 1), (produce,)),
        Case(f"{step}aborts", _end(name, commits=False), (version,)),
        *_seen(f"{step}aborted", name),
        Case(f"{step}aborts again", _end(name, commits=False), (version,)),
        Case(f"{step}commits after its abort", _end(name), (version,)),
        Case(f"{step}ends the aborted one with a newer epoch", _end(name, raised=1), (version,)),
    )


def _v2(name: str, produce: int) -> tuple[Case, ...]:
    """Return a producer of transaction version 2: its writes add partitions, and each end raises its epoch."""
    step, later = f"txn {name}: ", f"{name} later"
    return (
        Case(f"{step}init", _init(name), (5,), keep=name, waits=True),
        Case(f"{step}commits nothing", _end(name), (5,)),
        Case(f"{step}writes", _write(name, 0), (produce,)),
        Case(f"{step}writes again", _write(name, 0), (produce,)),
        Case(f"{step}writes with an older epoch", _write(name, 1, raised=-1), (produce,)),
        Case(f"{step}another producer writes", _write(name, 0, producer_id=_UNKNOWN_PRODUCER), (produce,)),
        Case(f"{step}writes a second partition", _write(name, 0, 1), (produce,)),
        Case(f"{step}writes nowhere", _write(name, 0, 9), (produce,)),
        Case(f"{step}adds offsets", _offsets(name), (4,)),
        *_seen(f"{step}open", name),
        Case(f"{step}ends with a newer epoch", _end(name, raised=1), (5,)),
        Case(f"{step}ends with an older epoch", _end(name, raised=-1), (5,)),
        Case(f"{step}commits", _end(name), (5,), keep=later),
        *_seen(f"{step}committed", name),
        Case(f"{step}commits again", _end(name), (5,)),
        Case(f"{step}aborts after its commit", _end(name, commits=False), (5,)),
        Case(f"{step}writes with the epoch of the committed one", _write(name, 1), (produce,)),
        Case(f"{step}commits nothing with its new epoch", _end(name, of=later), (5,)),
        Case(f"{step}writes the next", _write(name, 0, of=later), (produce,), waits=True),
        Case(f"{step}commits the last again", _end(name), (5,)),
        Case(f"{step}aborts", _end(name, commits=False, of=later), (5,)),
        *_seen(f"{step}aborted", name),
        Case(f"{step}aborts again", _end(name, commits=False, of=later), (5,), keep=later),
        Case(f"{step}aborts nothing", _end(name, commits=False, of=later), (5,), keep=later, waits=True),
        Case(f"{step}then described", _describe(name), ignore=_TIMES, settles=True),
        Case(f"{step}writes after aborting nothing", _write(name, 0, of=later), (produce,), waits=True),
        Case(f"{step}commits after aborting nothing", _end(name, of=later), (5,), keep=later),
        Case(f"{step}an older client commits", _end(name, of=later), (4,), waits=True),
    )


_FENCED = (
    Case("txn fenced: init", _init("fenced"), (5,), keep="fenced", waits=True),
    Case("txn fenced: writes", _write("fenced", 0), (_ADDING,)),
    Case("txn fenced: another comes", _init("fenced"), (5,), keep="newer", waits=True),
    Case("txn fenced: older writes", _write("fenced", 1), (_OLD, _ABORTABLE, _ADDING)),
    Case("txn fenced: older adds", _add("fenced"), range(4)),
    Case("txn fenced: older adds offsets", _offsets("fenced")),
    Case("txn fenced: older commits", _end("fenced")),
    Case("txn fenced: older aborts", _end("fenced", commits=False)),
    Case("txn fenced: older comes back", _again("fenced"), (3, 4, 5)),
    *_seen("txn fenced: then", "fenced"),
    Case("txn raised: init", _init("raised"), (5,), keep="raised", waits=True),
    Case("txn raised: comes back", _again("raised"), (4,)),
    Case("txn raised: comes back again", _again("raised"), (4,)),
    Case("txn raised: from another producer", _again("raised", producer_id=_UNKNOWN_PRODUCER), (3, 4, 5)),
    Case("txn raised: from the future", _again("raised", 7), (3, 4, 5)),
    Case("txn raised: described", _describe("raised"), ignore=_TIMES),
    Case("txn raised: another time-out", _init("raised", 5_000), (5,)),
    Case("txn raised: described again", _describe("raised"), ignore=_TIMES),
)
_LATE = (
    Case("txn late: init", _init("late", 1_000), (5,), keep="late", waits=True),
    Case("txn late: writes", _write("late", 0), (_ADDING,)),
    Case("txn late: timed out", _describe("late"), ignore=_TIMES, until="CompleteAbort"),
    Case("txn late: writes on", _write("late", 1), (_OLD, _ABORTABLE, _ADDING)),
    Case("txn late: adds", _add("late"), range(4)),
    Case("txn late: commits", _end("late")),
    Case("txn late: aborts", _end("late", commits=False)),
    Case("txn late: comes back", _again("late", timeout_ms=1_000), (4,)),
    *_seen("txn late: then", "late"),
)


def _list(
    states: Sequence[str] = (), ids: Sequence[int] = (), duration: int = -1, pattern: str | None = None
) -> ListTransactionsRequest:
    return ListTransactionsRequest(list(states), list(ids), duration, pattern)


_LISTED = (
    Case("txn listed: init", _init("listed"), (5,), keep="listed", waits=True),
    Case("txn listed: writes", _write("listed", 0), (_ADDING,)),
    Case("txn listed: all", _list(), settles=True),
    Case("txn listed: states", _list(["Empty", "CompleteCommit", "nope", "ongoing", "nope"])),
    Case("txn listed: of a producer", lambda side: _list(ids=[_id(side, "listed"), -7])),
    Case("txn listed: of a producer in a state", lambda side: _list(["Empty"], [_id(side, "listed")])),
    Case("txn listed: old", _list(duration=60_000), (1, 2)),
    Case("txn listed: of any age", _list(duration=0), (1, 2)),
    Case("txn listed: below any age", _list(duration=-5), (1, 2)),
    Case("txn listed: by pattern", _list(pattern="l.st.*"), (2,)),
    Case("txn listed: by part of a name", _list(pattern="list"), (2,)),
    Case("txn listed: by no pattern", _list(pattern=""), (2,)),
)


def _marker(
    name: str, *topics: tuple[str, list[int]], commits: bool = False, raised: int = 0, coordinator: int = 0
) -> Asked:
    return lambda side: WriteTxnMarkersRequest(
        [
            WritableTxnMarker(
                _id(side, name),
                _epoch(side, name) + raised,
                commits,
                [WritableTxnMarkerTopic(*topic) for topic in topics],
                coordinator,
            )
        ]
    )


_MARKED = (
    Case("txn marked: nothing", WriteTxnMarkersRequest([]), (1,)),
    Case("txn marked: no topics", _marker("listed"), (1,)),
    Case("txn marked: nowhere", _marker("listed", (_TOPIC, [9]), ("none", [0])), (1,)),
    Case("txn marked: with an epoch below 0", _marker("listed", (_TOPIC, [0]), raised=-1), (1,)),
    Case("txn marked: with an older epoch", _marker("fenced", (_TOPIC, [0])), (1,)),
    Case("txn marked: by an older coordinator", _marker("listed", (_TOPIC, [0]), coordinator=-1), (1,)),
    Case("txn marked: aborted by an operator", _marker("listed", (_TOPIC, [0])), (1,)),
    *_seen("txn marked: then", "listed"),
    Case("txn marked: and ended", _end("listed"), (5,)),
)


def _prepare(side: Side) -> None:
    side.create([_TOPIC], 2)
    side.ask(FindCoordinatorRequest("first", 1), 3)
    side.wait_for(lambda: side.ask(_init("first"), 4).error_code == 0, "have a coordinator of transactions")


FAMILIES = (
    Family(
        "transactional producers",
        (
            *_VERSIONS,
            *_INIT,
            *_UNKNOWN,
            *(case for version in (0, 3, 4) for case in _v1(f"tv1-{version}", version)),
            *(case for produce in (12, 13) for case in _v2(f"tv2-{produce}", produce)),
            *_FENCED,
            *_LATE,
            *_LISTED,
            *_MARKED,
        ),
        _prepare,
    ),
)
