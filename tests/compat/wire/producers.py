"""Transactional producers: what they write, in both versions of the protocol, and what is seen of it.

:mod:`.transactions` asks the coordinator alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from compat.wire.case import Case, Family
from compat.wire.side import Side
from compat.wire.transactional import (
    ABORTABLE,
    ADDING,
    OLD,
    TIMES,
    TOPIC,
    UNKNOWN_PRODUCER,
    Asked,
    add,
    add_all,
    again,
    describe,
    end,
    epoch_of,
    id_of,
    init,
    offsets,
    ready,
    seen,
    write,
)

from tidelog_node.kafka.protocol.messages.api_versions import ApiVersionsRequest
from tidelog_node.kafka.protocol.messages.group_admin import FindCoordinatorRequest
from tidelog_node.kafka.protocol.messages.transactions import (
    ListTransactionsRequest,
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

_VERSIONS = (
    Case("versions: all", ApiVersionsRequest("x", "1"), (4,), ["supported_features", "finalized_features"]),
    Case("find txn: coordinator", FindCoordinatorRequest("one", 1), range(1, 4)),
    Case("find txn: coordinators", FindCoordinatorRequest("", 1, ["one", "", "two"]), range(4, 7)),
    Case("find txn: coordinator of no id", FindCoordinatorRequest("", 1), range(1, 4)),
)
_INIT = (
    Case("txn init: the longest time-out", init("longest", 900_000), (4,), waits=True),
    Case("txn init: an id and no epoch", init("bad", producer_id=5), range(3, 6)),
    Case("txn init: an epoch and no id", init("bad", producer_epoch=5), range(3, 6)),
    Case("txn init: an unknown producer", init("unknown", producer_id=UNKNOWN_PRODUCER, producer_epoch=3), (3, 4, 5)),
    Case("txn init: in each version", init("each"), waits=True),
)


_UNKNOWN = (
    Case("txn unknown: init", init("known"), (4,), keep="known", waits=True),
    Case("txn unknown: add another producer", add("known", producer_id=UNKNOWN_PRODUCER), range(4)),
    Case("txn unknown: add with an older epoch", add("known", raised=-1), range(4)),
    Case("txn unknown: add with a newer epoch", add("known", raised=1), range(4)),
    Case("txn unknown: add partitions that are not", add("known", (TOPIC, [0, 9]), ("none", [0])), range(4)),
    Case("txn unknown: add a bad name", add("known", ("a b", [0])), range(4)),
    Case("txn unknown: add an internal topic", add("known", ("__transaction_state", [0])), (3,)),
    Case("txn unknown: add for some", add_all(("none", "known", 0, True, ()), ("", "known", 0, True, ())), (4, 5)),
    Case("txn unknown: verify what is not", add_all(("known", "known", 0, True, [("none", [0])])), (4, 5)),
    Case("txn unknown: verify in the same twice", add_all(*[("known", "known", 0, True, [(TOPIC, [0])])] * 2), (5,)),
    Case("txn unknown: offsets without a group", offsets("known", "")),
    Case("txn unknown: offsets with an older epoch", offsets("known", raised=-1)),
    Case("txn unknown: commit with an older epoch", end("known", raised=-1)),
    Case("txn unknown: commit with a newer epoch", end("known", raised=1)),
    Case("txn unknown: describe", describe("none", "", "known", "none"), ignore=TIMES),
)


def producer_of_v1(name: str, version: int) -> tuple[Case, ...]:
    """Return a producer that adds its partitions and keeps its epoch, as clients before transaction version 2."""
    step = f"txn {name}: "
    produce = ABORTABLE if version == 4 else OLD
    adds = min(version, 3)
    return (
        Case(f"{step}init", init(name), (4,), keep=name, waits=True),
        Case(f"{step}commits nothing", end(name), (version,)),
        Case(f"{step}aborts nothing", end(name, commits=False), (version,)),
        Case(f"{step}writes what it has not added", write(name, 0), (produce,)),
        Case(f"{step}adds", add(name, (TOPIC, [0])), (adds,)),
        Case(f"{step}adds again", add(name, (TOPIC, [0])), (adds,)),
        Case(f"{step}writes", write(name, 0), (produce,)),
        Case(f"{step}writes again", write(name, 0), (produce,)),
        Case(f"{step}writes out of order", write(name, 7), (produce,)),
        Case(f"{step}writes with an older epoch", write(name, 1, raised=-1), (produce,)),
        Case(f"{step}writes where it has not added", write(name, 0, 1), (produce,)),
        Case(f"{step}writes nowhere", write(name, 0, 9), (produce,)),
        Case(f"{step}adds offsets", offsets(name), (version,)),
        Case(f"{step}verified", add_all((name, name, 0, True, [(TOPIC, [0, 1])])), (4, 5)),
        *seen(f"{step}open", name),
        Case(f"{step}ends with an older epoch", end(name, raised=-1), (version,)),
        Case(f"{step}ends with a newer epoch", end(name, raised=1), (version,)),
        Case(f"{step}another producer ends", end(name, producer_id=UNKNOWN_PRODUCER), (version,)),
        Case(f"{step}commits", end(name), (version,)),
        *seen(f"{step}committed", name),
        Case(f"{step}commits again", end(name), (version,)),
        Case(f"{step}aborts after its commit", end(name, commits=False), (version,)),
        Case(f"{step}writes after its commit", write(name, 1), (produce,)),
        Case(f"{step}adds the next", add(name, (TOPIC, [1])), (adds,), waits=True),
        Case(f"{step}writes the next", write(name, 0, 1), (produce,)),
        Case(f"{step}aborts", end(name, commits=False), (version,)),
        *seen(f"{step}aborted", name),
        Case(f"{step}aborts again", end(name, commits=False), (version,)),
        Case(f"{step}commits after its abort", end(name), (version,)),
        Case(f"{step}ends the aborted one with a newer epoch", end(name, raised=1), (version,)),
    )


def producer_of_v2(name: str, produce: int) -> tuple[Case, ...]:
    """Return a producer of transaction version 2: its writes add partitions, and each end raises its epoch."""
    step, later = f"txn {name}: ", f"{name} later"
    return (
        Case(f"{step}init", init(name), (5,), keep=name, waits=True),
        Case(f"{step}commits nothing", end(name), (5,)),
        Case(f"{step}writes", write(name, 0), (produce,)),
        Case(f"{step}writes again", write(name, 0), (produce,)),
        Case(f"{step}writes with an older epoch", write(name, 1, raised=-1), (produce,)),
        Case(f"{step}another producer writes", write(name, 0, producer_id=UNKNOWN_PRODUCER), (produce,)),
        Case(f"{step}writes a second partition", write(name, 0, 1), (produce,)),
        Case(f"{step}writes nowhere", write(name, 0, 9), (produce,)),
        Case(f"{step}adds offsets", offsets(name), (4,)),
        *seen(f"{step}open", name),
        Case(f"{step}ends with a newer epoch", end(name, raised=1), (5,)),
        Case(f"{step}ends with an older epoch", end(name, raised=-1), (5,)),
        Case(f"{step}commits", end(name), (5,), keep=later),
        *seen(f"{step}committed", name),
        Case(f"{step}commits again", end(name), (5,)),
        Case(f"{step}aborts after its commit", end(name, commits=False), (5,)),
        Case(f"{step}writes with the epoch of the committed one", write(name, 1), (produce,)),
        Case(f"{step}commits nothing with its new epoch", end(name, of=later), (5,)),
        Case(f"{step}writes the next", write(name, 0, of=later), (produce,), waits=True),
        Case(f"{step}commits the last again", end(name), (5,)),
        Case(f"{step}aborts", end(name, commits=False, of=later), (5,)),
        *seen(f"{step}aborted", name),
        Case(f"{step}aborts again", end(name, commits=False, of=later), (5,), keep=later),
        Case(f"{step}aborts nothing", end(name, commits=False, of=later), (5,), keep=later, waits=True),
        Case(f"{step}then described", describe(name), ignore=TIMES, settles=True),
        Case(f"{step}writes after aborting nothing", write(name, 0, of=later), (produce,), waits=True),
        Case(f"{step}commits after aborting nothing", end(name, of=later), (5,), keep=later),
        Case(f"{step}an older client commits", end(name, of=later), (4,), waits=True),
    )


_FENCED = (
    Case("txn fenced: init", init("fenced"), (5,), keep="fenced", waits=True),
    Case("txn fenced: writes", write("fenced", 0), (ADDING,)),
    Case("txn fenced: another comes", init("fenced"), (5,), keep="newer", waits=True),
    Case("txn fenced: older writes", write("fenced", 1), (OLD, ABORTABLE, ADDING)),
    Case("txn fenced: older adds", add("fenced"), range(4)),
    Case("txn fenced: older adds offsets", offsets("fenced")),
    Case("txn fenced: older commits", end("fenced")),
    Case("txn fenced: older aborts", end("fenced", commits=False)),
    Case("txn fenced: older comes back", again("fenced"), (3, 4, 5)),
    *seen("txn fenced: then", "fenced"),
    Case("txn raised: init", init("raised"), (5,), keep="raised", waits=True),
    Case("txn raised: comes back", again("raised"), (4,)),
    Case("txn raised: comes back again", again("raised"), (4,)),
    Case("txn raised: from another producer", again("raised", producer_id=UNKNOWN_PRODUCER), (3, 4, 5)),
    Case("txn raised: from the future", again("raised", 7), (3, 4, 5)),
    Case("txn raised: described", describe("raised"), ignore=TIMES),
    Case("txn raised: another time-out", init("raised", 5_000), (5,)),
    Case("txn raised: described again", describe("raised"), ignore=TIMES),
)
_LATE = (
    Case("txn late: init", init("late", 1_000), (5,), keep="late", waits=True),
    Case("txn late: writes", write("late", 0), (ADDING,)),
    Case("txn late: timed out", describe("late"), ignore=TIMES, until="CompleteAbort"),
    Case("txn late: writes on", write("late", 1), (OLD, ABORTABLE, ADDING)),
    Case("txn late: adds", add("late"), range(4)),
    Case("txn late: commits", end("late")),
    Case("txn late: aborts", end("late", commits=False)),
    Case("txn late: comes back", again("late", timeout_ms=1_000), (4,)),
    *seen("txn late: then", "late"),
)


def _list(
    states: Sequence[str] = (), ids: Sequence[int] = (), duration: int = -1, pattern: str | None = None
) -> ListTransactionsRequest:
    return ListTransactionsRequest(list(states), list(ids), duration, pattern)


_LISTED = (
    Case("txn listed: init", init("listed"), (5,), keep="listed", waits=True),
    Case("txn listed: writes", write("listed", 0), (ADDING,)),
    Case("txn listed: all", _list(), settles=True),
    Case("txn listed: states", _list(["Empty", "CompleteCommit", "nope", "ongoing", "nope"])),
    Case("txn listed: of a producer", lambda side: _list(ids=[id_of(side, "listed"), -7])),
    Case("txn listed: of a producer in a state", lambda side: _list(["Empty"], [id_of(side, "listed")])),
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
                id_of(side, name),
                epoch_of(side, name) + raised,
                commits,
                [WritableTxnMarkerTopic(*topic) for topic in topics],
                coordinator,
            )
        ]
    )


_MARKED = (
    Case("txn marked: nothing", WriteTxnMarkersRequest([]), (1,)),
    Case("txn marked: no topics", _marker("listed"), (1,)),
    Case("txn marked: nowhere", _marker("listed", (TOPIC, [9]), ("none", [0])), (1,)),
    Case("txn marked: with an epoch below 0", _marker("listed", (TOPIC, [0]), raised=-1), (1,)),
    Case("txn marked: with an older epoch", _marker("fenced", (TOPIC, [0])), (1,)),
    Case("txn marked: by an older coordinator", _marker("listed", (TOPIC, [0]), coordinator=-1), (1,)),
    Case("txn marked: aborted by an operator", _marker("listed", (TOPIC, [0])), (1,)),
    *seen("txn marked: then", "listed"),
    Case("txn marked: and ended", end("listed"), (5,)),
)


def _prepare(side: Side) -> None:
    side.create([TOPIC], 2)
    ready(side)


FAMILIES = (
    Family(
        "transactional producers",
        (
            *_VERSIONS,
            *_INIT,
            *_UNKNOWN,
            *(case for version in (0, 3, 4) for case in producer_of_v1(f"tv1-{version}", version)),
            *(case for produce in (12, 13) for case in producer_of_v2(f"tv2-{produce}", produce)),
            *_FENCED,
            *_LATE,
            *_LISTED,
            *_MARKED,
        ),
        _prepare,
    ),
)
