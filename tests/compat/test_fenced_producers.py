"""A transactional producer that has a newer one, or whose transaction has timed out, is refused with its own error."""

from __future__ import annotations

import pytest
from compat.clients.client import wait_for
from compat.clients.transactional import OURS, WRITERS, TransactionalProducer
from compat.cluster import Deployment
from compat.transactions import begin, committed_values, pairs, producer, refused, some, stable_offset

SCENARIOS = ("at the end", "in a transaction", "in the next one")
FENCED = {
    "confluent-kafka": "_FENCED",
    "kafka-python": "ProducerFencedError",
    "aiokafka": "ProducerFenced",
    "java": "ProducerFencedException",
    **dict.fromkeys(OURS, "_FENCED"),
}
"""The error of each client that has a newer producer, at the end of a transaction."""
REFUSED = {**FENCED, "java": "InvalidProducerEpochException", **dict.fromkeys(OURS, "INVALID_PRODUCER_EPOCH")}
"""The error of a record. Java's client and ours learn at the end of the transaction whether it was a newer producer."""
AT_ITS_END_ALONE = ("kafka-python", "aiokafka")
"""After the error these refuse every call with a general one."""

QUICK_MS = 1_000
"""A transaction.timeout.ms."""
TOO_LATE = {**FENCED, "java": "InvalidTxnStateException", **dict.fromkeys(OURS, "INVALID_TXN_STATE")}
"""The error of a commit after the coordinator has aborted the transaction."""
LATE_RECORD = {**REFUSED, "kafka-python": "InvalidProducerEpochError"}
"""The error of a record then."""
RECOVERING = ("java", *OURS)
"""These go on with the same producer after it (KIP-588)."""


@pytest.fixture
def topic(cluster: Deployment, name: str) -> str:
    """A topic of the test."""
    return cluster.create(name, partitions=2, replicas=3)


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize(("older", "newer"), pairs(WRITERS, WRITERS))
def test_a_newer_producer_fences_the_older_one(
    cluster: Deployment, topic: str, older: str, newer: str, scenario: str
) -> None:
    with producer(cluster, older, topic) as zombie, producer(cluster, newer, topic) as heir:
        zombie.init()
        begin(zombie, topic, b"zombie")
        if scenario == "in the next one":
            zombie.commit()
        heir.init()
        if scenario == "at the end":
            assert refused(zombie.commit) == FENCED[older]
        else:
            if scenario == "in the next one":
                zombie.begin()
            assert refused(lambda: zombie.send(topic, b"late", 1), zombie.flush) == REFUSED[older]
            if older not in AT_ITS_END_ALONE:
                assert refused(zombie.abort) == FENCED[older]
        begin(heir, topic, b"heir")
        heir.commit()
    wanted = [b"zombie", b"heir"] if scenario == "in the next one" else [b"heir"]
    assert committed_values(cluster, topic, len(wanted)) == wanted


@pytest.mark.parametrize("writer", some(WRITERS))
def test_the_end_of_a_transaction_that_timed_out_is_refused(cluster: Deployment, topic: str, writer: str) -> None:
    with producer(cluster, writer, topic, transaction_timeout_ms=QUICK_MS) as slow:
        slow.init()
        begin_and_time_out(cluster, slow, topic)
        assert refused(slow.commit) == TOO_LATE[writer]


@pytest.mark.parametrize("writer", some(WRITERS))
def test_a_record_of_a_transaction_that_timed_out_is_refused(cluster: Deployment, topic: str, writer: str) -> None:
    with producer(cluster, writer, topic, transaction_timeout_ms=QUICK_MS) as slow:
        slow.init()
        begin_and_time_out(cluster, slow, topic)
        assert refused(lambda: slow.send(topic, b"late", 0), slow.flush) == LATE_RECORD[writer]
        if writer in RECOVERING:
            slow.abort()
            begin(slow, topic, b"again")
            slow.commit()
            assert committed_values(cluster, topic, 1) == [b"again"]


def begin_and_time_out(cluster: Deployment, slow: TransactionalProducer, topic: str) -> None:
    """Begin a transaction, and wait until its coordinator has aborted it."""
    begin(slow, topic, b"slow")
    wait_for(lambda: stable_offset(cluster, topic) == 2, "the transaction to time out")
