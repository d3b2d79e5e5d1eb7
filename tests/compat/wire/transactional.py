"""Requests of transactional producers, made of what a broker has answered to earlier ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from compat.wire.case import Case
from compat.wire.produce import batch_of, transactional_produce
from compat.wire.side import UNKNOWN_ID, Side

from tidelog_node.kafka.protocol.fields import Message
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
)

TIMEOUT_MS = 60_000
TOPIC = "written"
OLD, ABORTABLE, ADDING = 10, 11, 12
"""Versions of Produce: before KIP-890, with TRANSACTION_ABORTABLE, and with transaction version 2."""
TIMES = ["transaction_start_time_ms"]
LOG_TIMES = ["last_timestamp"]
UNKNOWN_PRODUCER = 987_654
Asked = Callable[[Side], Message]


def init(name: str | None, timeout_ms: int = TIMEOUT_MS, **fields: Any) -> InitProducerIdRequest:
    return InitProducerIdRequest(name, timeout_ms, **fields)


def id_of(side: Side, name: str) -> int:
    return int(side.kept[name].producer_id)


def epoch_of(side: Side, name: str) -> int:
    return int(side.kept[name].producer_epoch)


def again(name: str, raised: int = 0, *, producer_id: int | None = None, timeout_ms: int = TIMEOUT_MS) -> Asked:
    """Return InitProducerId of a producer that has an id and an epoch."""
    return lambda side: init(
        name,
        timeout_ms,
        producer_id=id_of(side, name) if producer_id is None else producer_id,
        producer_epoch=epoch_of(side, name) + raised,
    )


def _topics(*topics: tuple[str, list[int]]) -> list[AddPartitionsToTxnTopic]:
    return [AddPartitionsToTxnTopic(*topic) for topic in topics or [(TOPIC, [0, 1])]]


def add(
    name: str, *topics: tuple[str, list[int]], of: str = "", raised: int = 0, producer_id: int | None = None
) -> Asked:
    """Return AddPartitionsToTxn of a client; the producer is that of ``of``."""
    kept = of or name
    return lambda side: AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=name,
        v3_and_below_producer_id=id_of(side, kept) if producer_id is None else producer_id,
        v3_and_below_producer_epoch=epoch_of(side, kept) + raised,
        v3_and_below_topics=_topics(*topics),
    )


def add_all(*added: tuple[str, str, int, bool, Sequence[tuple[str, list[int]]]]) -> Asked:
    """Return AddPartitionsToTxn of a node: transactional id, producer, what is added to its epoch, if it verifies."""
    return lambda side: AddPartitionsToTxnRequest(
        [
            AddPartitionsToTxnTransaction(
                name, id_of(side, of), epoch_of(side, of) + raised, verifies, _topics(*topics) if topics else []
            )
            for name, of, raised, verifies, topics in added
        ]
    )


def offsets(name: str, group: str = "group", *, of: str = "", raised: int = 0) -> Asked:
    kept = of or name
    return lambda side: AddOffsetsToTxnRequest(name, id_of(side, kept), epoch_of(side, kept) + raised, group)


def end(name: str, *, commits: bool = True, of: str = "", raised: int = 0, producer_id: int | None = None) -> Asked:
    kept = of or name
    return lambda side: EndTxnRequest(
        name, id_of(side, kept) if producer_id is None else producer_id, epoch_of(side, kept) + raised, commits
    )


def write(
    name: str,
    sequence: int,
    partition: int = 0,
    *,
    of: str = "",
    raised: int = 0,
    topic: str = TOPIC,
    producer_id: int | None = None,
) -> Asked:
    kept = of or name
    return lambda side: transactional_produce(
        name,
        topic,
        side.topic_ids.get(topic, UNKNOWN_ID),
        partition,
        batch_of(id_of(side, kept) if producer_id is None else producer_id, epoch_of(side, kept) + raised, sequence),
    )


def describe(*names: str) -> DescribeTransactionsRequest:
    return DescribeTransactionsRequest(list(names))


def ends(level: int) -> ListOffsetsRequest:
    partitions = [ListOffsetsPartition(partition, -1, -1) for partition in (0, 1)]
    return ListOffsetsRequest(-1, level, [ListOffsetsTopic(TOPIC, partitions)], TIMEOUT_MS)


PRODUCERS = DescribeProducersRequest([TopicRequest(TOPIC, [0, 1])])


def seen(when: str, name: str) -> tuple[Case, ...]:
    """Return cases with everything that can be seen of a transactional id."""
    return (
        Case(f"{when}, described", describe(name), ignore=TIMES, settles=True),
        Case(f"{when}, its producers", PRODUCERS, ignore=LOG_TIMES, settles=True),
        Case(f"{when}, the ends", ends(0), (7,), settles=True),
        Case(f"{when}, the stable ends", ends(1), (7,), settles=True),
    )


def ready(side: Side) -> None:
    """Wait for a coordinator of transactions."""
    side.ask(FindCoordinatorRequest("first", 1), 3)
    side.wait_for(lambda: side.ask(init("first"), 4).error_code == 0, "have a coordinator of transactions")
